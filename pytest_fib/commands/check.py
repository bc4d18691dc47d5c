"""``python -m pytest_fib check``: read definition files, and say all that is wrong with them."""

from __future__ import annotations

import errno
import os
from argparse import Namespace
from pathlib import Path
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser("check", help="check definition files")
    parser.add_argument(
        "files",
        nargs="*",
        type=Path,
        default=[Path("kernel_defs")],
        metavar="FILE",
        help="or a folder (kernel_defs)",
    )
    parser.set_defaults(run=_run)


def _run(given: Namespace) -> int:
    files = [file for path in given.files for file in _files(path)]
    sound = [_is_sound(path) for path in files]
    return 0 if all(sound) else 1


def _files(path: Path) -> list[Path]:
    """The file, or those in a folder and below it. Raises ValueError where it has none."""
    if not path.is_dir():
        if not path.suffix and not path.exists():
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), str(path))
        return [path]
    from pytest_fib.discovery import definition_files

    paths = definition_files(path)
    if not paths:
        raise ValueError(f"no definition files in {path}")
    return paths


def _is_sound(path: Path) -> bool:
    """Whether workloads can be made of each definition in the file; prints what it finds."""
    from pytest_fib.data import DataError, load_definition_file
    from pytest_fib.discovery import YAML_SUFFIXES
    from pytest_fib.workloads import plan, why_not_generated

    if path.suffix not in (*YAML_SUFFIXES, ".json"):
        print(f"{path}: is no definition: their files are .yaml, .yml or a dataset's .json")
        if path.suffix in (".py", ".cu", ".cpp"):
            print("  pytest --collect-only shows which implementations it finds, and what is wrong")
        return False
    try:
        loaded = load_definition_file(path)
    except DataError as error:
        print(error)
        return False
    except OSError as error:
        print(f"{path}: can't be read: {error.strerror}")
        return False
    reasons = [why_not_generated(each.definition) for each in loaded]
    for each, reason in zip(loaded, reasons, strict=True):
        line = each.line_of(*plan(each.definition).problem_at)
        print(f"{path}:{line}: {each.definition.name}: {reason or 'ok'}")
    return not any(reasons)
