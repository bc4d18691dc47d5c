"""The one warning class, so that users can filter what this plugin says."""


class FibWarning(UserWarning):
    """Something in the kernel files is likely a mistake, but tests can go on."""
