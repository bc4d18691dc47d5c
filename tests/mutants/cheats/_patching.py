"""What the cheats that replace the framework's own code share."""

import sys
from unittest import mock


def replace_everywhere(original, fake):
    """Put ``fake`` in the place of a function, in each module of the framework that refers to it.

    Patches made here can be undone with ``mock.patch.stopall``.
    """
    modules = [sys.modules[name] for name in list(sys.modules) if name.startswith("pytest_fib")]
    uses = [(m, name) for m in modules for name, value in vars(m).items() if value is original]
    home = original.__module__
    if all(module.__name__ in (home, home.rpartition(".")[0]) for module, _ in uses):
        raise LookupError(f"nobody calls {original.__qualname__}: replacing it changes nothing")
    for module, name in uses:
        mock.patch.object(module, name, fake).start()
