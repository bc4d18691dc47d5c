"""Finding implementations without importing them."""

from pytest_fib.implementations._catalogue import Catalogue, load_catalogue
from pytest_fib.implementations._found import Implementation
from pytest_fib.implementations._scan import find_implementations
from pytest_fib.implementations.marker import implements

__all__ = ["Catalogue", "Implementation", "find_implementations", "implements", "load_catalogue"]
