"""Definitions built in memory."""

from tests.workloads.conftest import *  # noqa: F403
