"""``python -m pytest_fib schema``: what editors complete and check definition files by."""

from __future__ import annotations

import json
from argparse import Namespace
from typing import Any


def add_parser(subparsers: Any) -> None:
    """Add the subcommand."""
    parser = subparsers.add_parser("schema", help="print the JSON schema of definition files")
    parser.set_defaults(run=_run)


def schema_text() -> str:
    """The schema as a file has it."""
    from pytest_fib.data import definition_schema

    return json.dumps(definition_schema(), indent=1) + "\n"


def _run(given: Namespace) -> int:
    print(schema_text(), end="")
    return 0
