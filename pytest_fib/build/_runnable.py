"""Whether an implementation can run here: what it is built by and depends on, its hardware."""

from __future__ import annotations

import shlex
from collections.abc import Iterable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from pytest_fib.build._targets import Hardware, why_other_hardware
from pytest_fib.build._toolchain import installed_version, why_no_toolchain

if TYPE_CHECKING:
    from packaging.requirements import Requirement

    from pytest_fib.build._machine import Machine
    from pytest_fib.discovery import Implementation

#: What loads libraries that were built through TVM FFI.
_TO_LOAD = ("apache-tvm-ffi",)


def why_not_runnable(
    implementation: Implementation,
    hardware: Hardware,
    machine: Machine | None = None,
    *,
    is_built: bool = False,
) -> str | None:
    """Why an implementation can't run on this hardware of a machine, by default here, or None.

    One that ``is_built`` already needs what it is loaded by, and no compiler.
    """
    if reason := _wrong_hardware(implementation, hardware):
        return reason
    if is_built:
        return _why_not_loadable(implementation, machine)
    return why_not_buildable(implementation, machine)


def why_not_buildable(implementation: Implementation, machine: Machine | None = None) -> str | None:
    """Why an implementation can't be built or loaded there, whatever it runs on, or None."""
    language = implementation.language
    return (
        _missing_dependency(implementation, machine)
        or (why_no_toolchain(language) if machine is None else machine.no_toolchain.get(language))
        or _torch_without_cuda(implementation, machine)
    )


def _why_not_loadable(implementation: Implementation, machine: Machine | None) -> str | None:
    by_torch = implementation.binding == "torch"
    return _first_unmet((*(() if by_torch else _TO_LOAD), *implementation.dependencies), machine)


def _missing_dependency(implementation: Implementation, machine: Machine | None) -> str | None:
    from pytest_fib.data import SupportedLanguages

    by_torch = implementation.binding == "torch"
    required = () if by_torch else SupportedLanguages(implementation.language).facts.requires
    return _first_unmet((*required, *implementation.dependencies), machine)


def _torch_without_cuda(implementation: Implementation, machine: Machine | None) -> str | None:
    if implementation.binding != "torch" or implementation.language != "cuda":
        return None
    torch = installed_version("torch") if machine is None else machine.version("torch")
    if torch is None or not torch.endswith("+cpu"):
        return None
    return f"needs a torch that is built for CUDA, {torch} is installed"


def _first_unmet(names: Iterable[str], machine: Machine | None) -> str | None:
    from packaging.requirements import Requirement

    return next(filter(None, (_why_unmet(Requirement(name), machine) for name in names)), None)


def _why_unmet(requirement: Requirement, machine: Machine | None) -> str | None:
    """Why a requirement is not met; None if its marker doesn't apply there."""
    markers: Any = None if machine is None else machine.markers
    if requirement.marker is not None and not requirement.marker.evaluate(markers):
        return None
    name = requirement.name
    installed = installed_version(name) if machine is None else machine.version(name)
    if installed is None:
        if _is_module(name, machine):
            return None
        return f"needs {name}, which is not installed: pip install {_to_install(requirement)}"
    if requirement.specifier.contains(installed, prereleases=True):
        return None
    return f"needs {name}{requirement.specifier}, {installed} is installed"


def _is_module(name: str, machine: Machine | None) -> bool:
    """Whether it can be imported: people name modules as well as distributions."""
    module = name.partition(".")[0].replace("-", "_")
    return find_spec(module) is not None if machine is None else module in machine.modules


def why_not_timeable(language: str, hardware: Hardware) -> str | None:
    """Why times of programs in this language would mean nothing there, or None."""
    if not hardware.interprets(language):
        return None
    return f"{language.capitalize()}'s interpreter on the CPU can't be timed meaningfully"


def _to_install(requirement: Requirement) -> str:
    from pytest_fib.data import SupportedLanguages

    for language in SupportedLanguages:
        if requirement.name in (language, *language.facts.requires):
            return f"'pytest-fib[{language.facts.extra}]'"
    return shlex.quote(str(requirement))


def _wrong_hardware(implementation: Implementation, hardware: Hardware) -> str | None:
    if hardware.interprets(implementation.language):
        return None
    return why_other_hardware(
        implementation.target_hardware, implementation.supported_major_versions, hardware
    )
