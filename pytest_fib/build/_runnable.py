"""Whether an implementation can run here: its builder, what it depends on, its hardware."""

from __future__ import annotations

import shlex
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from typing import TYPE_CHECKING

from pytest_fib.build._builders import has_builder
from pytest_fib.build._targets import why_other_hardware
from pytest_fib.build._toolchain import why_no_toolchain

if TYPE_CHECKING:
    from packaging.requirements import Requirement

    from pytest_fib.build._targets import Hardware
    from pytest_fib.discovery import Implementation


def why_not_runnable(implementation: Implementation, hardware: Hardware) -> str | None:
    """Why an implementation can't run on this hardware here, or None."""
    return _wrong_hardware(implementation, hardware) or why_not_buildable(implementation)


def why_not_buildable(implementation: Implementation) -> str | None:
    """Why an implementation can't be built or loaded here, whatever it runs on, or None."""
    return (
        _why_no_builder(implementation.language)
        or _missing_dependency(implementation)
        or why_no_toolchain(implementation.language)
    )


def _why_no_builder(language: str) -> str | None:
    if has_builder(language):
        return None
    from pytest_fib.data import SupportedLanguages

    languages = ", ".join(filter(has_builder, SupportedLanguages))
    return f"no builder for {language!r} yet (there are: {languages})"


def _missing_dependency(implementation: Implementation) -> str | None:
    from packaging.requirements import Requirement

    from pytest_fib.data import SupportedLanguages

    by_torch = implementation.binding == "torch"
    required = () if by_torch else SupportedLanguages(implementation.language).requires
    names = (*required, *implementation.dependencies)
    return next(filter(None, (_why_unmet(Requirement(name)) for name in names)), None)


def _why_unmet(requirement: Requirement) -> str | None:
    """What is lacking of a requirement; nothing where its marker doesn't hold here."""
    if requirement.marker is not None and not requirement.marker.evaluate():
        return None
    name = requirement.name
    try:
        installed = version(name)
    except PackageNotFoundError:
        if _is_module(name):
            return None
        return f"needs {name}, which is not installed: pip install {_to_install(requirement)}"
    if requirement.specifier.contains(installed, prereleases=True):
        return None
    return f"needs {name}{requirement.specifier}, {installed} is installed"


def _is_module(name: str) -> bool:
    """Whether it can be imported: people name modules as well as distributions."""
    return find_spec(name.partition(".")[0].replace("-", "_")) is not None


def _to_install(requirement: Requirement) -> str:
    from pytest_fib.data import SupportedLanguages

    for language in SupportedLanguages:
        if requirement.name in (language, *language.requires):
            return f"'pytest-fib[{language.extra}]'"
    return shlex.quote(str(requirement))


def _wrong_hardware(implementation: Implementation, hardware: Hardware) -> str | None:
    if hardware.device == "cpu" and implementation.language == "triton":
        return None  # by its interpreter
    return why_other_hardware(
        implementation.target_hardware, implementation.supported_major_versions, hardware
    )
