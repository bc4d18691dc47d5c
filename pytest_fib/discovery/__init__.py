"""Finds definitions and implementations on disk. Their code is read, never imported."""

from pytest_fib.discovery._catalogue import Catalogue, load_catalogue
from pytest_fib.discovery._implementation import Implementation
from pytest_fib.discovery._lookup import DefinitionLookup, activate, find_definition, shortened
from pytest_fib.discovery._marker import implements
from pytest_fib.discovery._scan import find_implementations, why_unreadable
from pytest_fib.discovery._warnings import FibWarning

__all__ = [
    "Catalogue",
    "DefinitionLookup",
    "FibWarning",
    "Implementation",
    "activate",
    "find_definition",
    "find_implementations",
    "implements",
    "load_catalogue",
    "shortened",
    "why_unreadable",
]
