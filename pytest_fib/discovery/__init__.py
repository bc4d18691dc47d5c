"""Finds definitions and implementations on disk. Their code is read, never imported."""

from pytest_fib.discovery._catalogue import Catalogue as Catalogue, load_catalogue as load_catalogue
from pytest_fib.discovery._folders import (
    YAML_SUFFIXES as YAML_SUFFIXES,
    definition_files as definition_files,
    files_below as files_below,
)
from pytest_fib.discovery._implementation import Implementation as Implementation
from pytest_fib.discovery._imports import local_files as local_files
from pytest_fib.discovery._lookup import (
    DefinitionLookup as DefinitionLookup,
    activate as activate,
    find_definition as find_definition,
)
from pytest_fib.discovery._marker import implements as implements
from pytest_fib.discovery._scan import (
    find_implementations as find_implementations,
    why_unreadable as why_unreadable,
)
from pytest_fib.discovery._unused import unused_sources as unused_sources
from pytest_fib.discovery._warnings import FibWarning as FibWarning
