"""Where this user keeps what can be made again."""

import os
from pathlib import Path


def cache_directory() -> Path:
    """``$XDG_CACHE_HOME/pytest-fib``: measurements of this machine, and what was compiled.

    Raises FileNotFoundError where the user has no home.
    """
    given = os.environ.get("XDG_CACHE_HOME")
    try:
        base = Path(given) if given else Path.home() / ".cache"
    except RuntimeError as error:
        raise FileNotFoundError("the user has no home directory") from error
    return base / "pytest-fib"
