"""``python -m pytest_fib export``: what runs found becomes a dataset, as ``traces export`` does."""

from pytest_fib.commands.traces import add_export as add_parser

__all__ = ["add_parser"]
