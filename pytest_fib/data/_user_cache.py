"""Where this user keeps what can be made again."""

import json
import os
from pathlib import Path
from typing import Any


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
    """Write a file at once, in folders made for it: readers find all of it or nothing.

    Raises OSError.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    new = file.with_suffix(f".{os.getpid()}")
    new.write_text(json.dumps(content, indent=1), encoding="utf-8")
    new.replace(file)
