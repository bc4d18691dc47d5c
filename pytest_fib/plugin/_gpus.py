"""Which worker of xdist gets which GPU of this machine."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from pytest_fib.build import gpus


class GpuPerWorker:
    """Gives each xdist worker one GPU, in turn, before it starts.

    Set in the worker's environment by the controller: a worker that replaces a crashed one
    inherits the specification, and with it the GPU.
    """

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_setupnodes(self, specs: Sequence[object]) -> None:
        """Spread the workers over the devices."""
        names = gpus.visible(gpus.count())
        for i, spec in enumerate(specs if names else ()):
            environment: dict[str, str] = spec.env  # type: ignore[attr-defined]
            environment.setdefault("CUDA_VISIBLE_DEVICES", names[i % len(names)])
