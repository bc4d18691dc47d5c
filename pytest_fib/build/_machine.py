"""The facts of a machine that decide what runs there, as a record that can be sent."""

from __future__ import annotations

import json
import platform
import socket
from dataclasses import asdict, dataclass, replace
from functools import cache
from importlib.metadata import distributions, packages_distributions
from typing import Self

from pytest_fib.build import _gpus
from pytest_fib.build._targets import CPU, Hardware
from pytest_fib.build._toolchain import why_no_toolchain
from pytest_fib.walls import wall_names, why_no_container


@dataclass(frozen=True)
class Machine:
    """Where kernels run: this machine, or another that described itself.

    ``gpus`` are named as CUDA_VISIBLE_DEVICES names them, ``gpu`` is what the first is; without
    any, ``no_gpu`` says why. ``installed`` are versions of distributions, ``modules`` the top
    levels of what they have; ``no_toolchain`` says what each compiled language lacks; ``markers``
    is the environment for markers of requirements. ``no_container`` is asked of remote ones only.
    """

    host: str
    python: str
    gpus: tuple[str, ...]
    gpu: Hardware
    no_gpu: str
    installed: dict[str, str]
    modules: tuple[str, ...]
    no_toolchain: dict[str, str]
    markers: dict[str, str]
    walls: tuple[str, ...]
    no_container: str = ""

    @classmethod
    @cache
    def here(cls) -> Machine:
        """This machine, as this process sees it. Imports no torch."""
        from packaging.markers import default_environment

        from pytest_fib.data import SupportedLanguages

        count = _gpus.count()
        lacking = {each.value: why_no_toolchain(each) for each in SupportedLanguages}
        return cls(
            host=socket.gethostname(),
            python=platform.python_version(),
            gpus=tuple(_gpus.visible(count)),
            gpu=_gpus.first() if count else CPU,
            no_gpu="" if count else _gpus.why_none(),
            installed={normalized(d.name): d.version for d in distributions() if d.name},
            modules=tuple(packages_distributions()),
            no_toolchain={language: why for language, why in lacking.items() if why},
            markers={name: str(value) for name, value in default_environment().items()},
            walls=tuple(wall_names()),
        )

    @classmethod
    def here_for_others(cls) -> Machine:
        """This machine's record, for another machine."""
        here = cls.here()
        no_gpu = "" if here.gpus else _gpus.why_none(here.host)
        return replace(here, no_gpu=no_gpu, no_container=why_no_container(here.device("auto")))

    def to_json(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        facts = json.loads(text)
        gpu = facts.pop("gpu")
        capability = gpu["capability"] and tuple(gpu["capability"])
        facts |= {name: tuple(facts[name]) for name in ("gpus", "modules", "walls")}
        return cls(gpu=Hardware(gpu["device"], capability, gpu["name"]), **facts)

    def version(self, distribution: str) -> str | None:
        """The version that is installed there, if any is."""
        return self.installed.get(normalized(distribution))

    def device(self, wanted: str) -> str:
        """``cpu`` or ``cuda`` of ``auto``, ``cpu`` or ``cuda``."""
        if wanted == "auto":
            return "cuda" if self.gpus else "cpu"
        return wanted


def normalized(distribution: str) -> str:
    """A name as the packaging standards compare it."""
    from packaging.utils import canonicalize_name

    return canonicalize_name(distribution)
