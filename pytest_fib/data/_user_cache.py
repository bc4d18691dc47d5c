"""Where this user keeps what can be made again."""

import json
import os
from pathlib import Path
from typing import Any

from ._dataset import write_whole


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


def write_json(file: Path, content: Any) -> None:
    """Write a file at once, as `write_whole`. Raises OSError."""
    write_whole(file, [json.dumps(content, indent=1).encode()])
