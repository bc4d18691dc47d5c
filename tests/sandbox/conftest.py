"""The fixtures of the engine: a judge on the CPU, implementations written as text."""

from tests.engine.conftest import *  # noqa: F403
