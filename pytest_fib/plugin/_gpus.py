"""Decides which xdist worker gets which GPU of this machine."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pytest_fib.build import gpus


class GpuPerWorker:
    """Gives each xdist worker one GPU, in turn, before it starts.

    The controller sets it in the worker's environment. A worker that replaces a crashed one
    inherits that, and so the GPU.
    """

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_setupnodes(self, specs: Sequence[object]) -> None:
        """Spread the workers over the devices."""
        names = gpus.visible(gpus.count())
        for i, spec in enumerate(specs if names else ()):
            environment: dict[str, str] = spec.env  # type: ignore[attr-defined]
            environment.setdefault("CUDA_VISIBLE_DEVICES", names[i % len(names)])
