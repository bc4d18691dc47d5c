"""The hardware that implementations name, and what they are compiled for.

All that knows names and architectures of devices is here.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_fib.build._errors import BuildError

if TYPE_CHECKING:
    from pytest_fib.data import BuildSpec
    from pytest_fib.discovery import Implementation

#: What is compiled for by default.
DEFAULT_TARGETS = ("sm_80", "sm_90", "sm_100")
#: Names that stand for any CUDA device.
_ANY_CUDA = frozenset({"cuda", "gpu", "nvidia"})
_ARCHITECTURE = re.compile(r"sm_(\d+)(\d)([af]?)")
#: Compute capabilities, by a word of the device's name.
_CAPABILITIES = {
    **dict.fromkeys(("v100",), (7, 0)),
    **dict.fromkeys(("t4",), (7, 5)),
    **dict.fromkeys(("a100", "a800", "a30"), (8, 0)),
    **dict.fromkeys(("a10", "a10g", "a16", "a40", "a6000", "3080", "3090"), (8, 6)),
    **dict.fromkeys(("orin",), (8, 7)),
    **dict.fromkeys(("l4", "l20", "l40", "l40s", "4080", "4090"), (8, 9)),
    **dict.fromkeys(("h20", "h100", "h200", "h800", "gh200"), (9, 0)),
    **dict.fromkeys(("b100", "b200", "gb200"), (10, 0)),
    **dict.fromkeys(("b300", "gb300"), (10, 3)),
    **dict.fromkeys(("thor",), (11, 0)),
    **dict.fromkeys(("5080", "5090"), (12, 0)),
    **dict.fromkeys(("gb10",), (12, 1)),
}


@dataclass(frozen=True)
class Hardware:
    """The hardware of a run: ``cpu``, or a CUDA device with its compute capability and name."""

    device: str
    capability: tuple[int, int] | None = None
    name: str = ""

    def __str__(self) -> str:
        if self.device == "cpu":
            return "the CPU"
        if self.capability is None:
            return "CUDA"
        return f"{self.name or 'CUDA'} (sm_{self.capability[0]}{self.capability[1]})"

    def interprets(self, language: str) -> bool:
        """Whether programs in this language run in an interpreter here."""
        from pytest_fib.data import SupportedLanguages

        interpreted = [each.value for each in SupportedLanguages if each.facts.interpreted]
        return self.device == "cpu" and language in interpreted


CPU = Hardware("cpu")


def capability_of(target: str) -> tuple[int, int] | None:
    """(9, 0) of ``sm_90``, ``sm_90a`` and ``NVIDIA_H100``; None of what is not known."""
    if match := _ARCHITECTURE.fullmatch(target.lower()):
        return int(match[1]), int(match[2])
    known = [_CAPABILITIES[word] for word in _words(target) if word in _CAPABILITIES]
    return known[0] if known else None


def why_not_architecture(target: str) -> str | None:
    """Why nothing can be compiled for what should be ``sm_90``, or ``sm_90a`` with all features."""
    known = [f"sm_{major}{minor}" for major, minor in sorted({*_CAPABILITIES.values()})]
    if _ARCHITECTURE.fullmatch(target) and target.rstrip("af") in known:
        return None
    return f"{target!r} is no architecture that is known; there are: {', '.join(known)}"


def why_other_hardware(
    targets: Sequence[str], major_versions: Sequence[int], hardware: Hardware
) -> str | None:
    """Why something for these targets is not for this hardware, naming both; None where it is."""
    if not any(_means(target.lower(), hardware) for target in targets):
        named = ", ".join(sorted({target.lower() for target in targets}))
        named = "the CPU only" if named == "cpu" else named
        return f"targets {named}; this run is on {hardware}"
    if hardware.capability and major_versions and hardware.capability[0] not in major_versions:
        versions = ", ".join(map(str, major_versions))
        return f"supports compute capabilities {versions}.x; this run is on {hardware}"
    return None


def build_target(spec: BuildSpec, hardware: Hardware) -> str:
    """What to compile for: ``cpu`` for C++, ``sm_90a`` for CUDA. Raises BuildError."""
    targets = spec.target_hardware
    if reason := why_other_hardware(targets, spec.supported_major_versions, hardware):
        raise BuildError(reason)
    if spec.language.value == "cpp" or hardware.capability is None:
        return "cpu"
    same = [t.lower() for t in targets if capability_of(t) == hardware.capability]
    named = [target for target in same if _ARCHITECTURE.fullmatch(target)]
    return named[0] if named else native_architecture(hardware.capability)


def build_targets(implementation: Implementation, wanted: Sequence[str] = ()) -> list[str]:
    """Which of the wanted targets an implementation is compiled for; C++ for ``cpu``.

    None where it can't be read or its language isn't compiled. ``wanted`` empty is the default.
    """
    from pytest_fib.data import SupportedLanguages

    facts = SupportedLanguages(implementation.language).facts
    if implementation.problem or not (facts.compiled or facts.cache):
        return []
    if implementation.language == "cpp":
        return ["cpu"]
    targets, versions = implementation.target_hardware, implementation.supported_major_versions
    hardware = {
        target: Hardware("cuda", capability_of(target), target)
        for target in wanted or DEFAULT_TARGETS
    }
    return [
        target
        for target, device in hardware.items()
        if why_other_hardware(targets, versions, device) is None
    ]


def why_no_target(implementation: Implementation, wanted: Sequence[str] = ()) -> str | None:
    """Why something in a compiled language is for none of the wanted targets, naming both."""
    from pytest_fib.data import SupportedLanguages

    facts = SupportedLanguages(implementation.language).facts
    if not (facts.compiled or facts.cache) or build_targets(implementation, wanted):
        return None
    named = ", ".join(sorted({target.lower() for target in implementation.target_hardware}))
    asked = ", ".join(wanted or DEFAULT_TARGETS)
    versions = ", ".join(f"{each}.x" for each in implementation.supported_major_versions)
    supports = f" and supports compute capabilities {versions}" if versions else ""
    return f"targets {named}{supports}; this build is for {asked}"


def native_architecture(capability: tuple[int, int]) -> str:
    """``sm_80``; from 9.0 on with the features of just that device: ``sm_90a``."""
    major, minor = capability
    return f"sm_{major}{minor}{'a' if major >= 9 else ''}"


def nvcc_flags(target: str) -> list[str]:
    number = target.removeprefix("sm_")
    return [f"-gencode=arch=compute_{number},code=sm_{number}"]


def _means(target: str, hardware: Hardware) -> bool:
    if hardware.device == "cpu":
        return target == "cpu"
    if target in _ANY_CUDA:
        return True
    capability = capability_of(target)
    if capability is None:
        words = _words(target) - _ANY_CUDA
        return bool(words) and words <= _words(hardware.name)
    return hardware.capability in (None, capability)


def _words(name: str) -> set[str]:
    return set(re.split(r"[\W_]+", name.lower())) - {""}
