"""The same small C++ programs."""

from tests.build.conftest import double  # noqa: F401
