"""What ``python -m pytest_fib`` can do: one module for each subcommand.

Such a module has ``add_parser(subparsers)``, which sets the default ``run``: a function from the
parsed arguments to an exit status.
"""

from __future__ import annotations

import argparse
import difflib
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from pytest_fib import __version__

#: The subcommands' modules. None imports anything heavy before it runs.
SUBCOMMANDS = (
    *("doctor", "new", "check", "schema", "inputs", "build"),
    *("traces", "export", "import_"),
)


class _Parser(argparse.ArgumentParser):
    """Names the nearest of the choices, as argparse does from Python 3.14 on where it is asked."""

    def _check_value(self, action: argparse.Action, value: object) -> None:
        known = list(map(str, action.choices or ()))
        near = difflib.get_close_matches(str(value), known, n=1)
        if near and str(value) not in known:
            raise argparse.ArgumentError(
                action, f"there is no {value!r}; did you mean {near[0]!r}?"
            )
        super()._check_value(action, value)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand; its exit status. What can't be read or written is a message and 2."""
    parser = _Parser(prog="python -m pytest_fib")
    parser.add_argument("--version", action="version", version=f"pytest-fib {__version__}")
    subparsers = parser.add_subparsers(metavar="COMMAND")
    for name in SUBCOMMANDS:
        import_module(f"pytest_fib.commands.{name}").add_parser(subparsers)
    given = parser.parse_args(arguments)
    if not hasattr(given, "run"):
        parser.print_help()
        return 2
    try:
        status: int = given.run(given)
        sys.stdout.flush()
    except BrokenPipeError:  # whoever reads this has seen enough, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except (OSError, ValueError) as error:
        print(f"error: {_sentence(error)}", file=sys.stderr)
        return 2
    return status


def _sentence(error: Exception) -> str:
    """``nope.json: No such file or directory``, without the system's number of that."""
    if isinstance(error, OSError) and error.filename is not None and error.strerror:
        return f"{error.filename}: {error.strerror}"
    return str(error)
