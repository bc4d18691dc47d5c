"""From a Solution to an artifact to a callable: one builder for each language."""

from pytest_fib.build import _gpus as gpus
from pytest_fib.build._artifact import Built, KernelResources
from pytest_fib.build._builders import build, load, versions
from pytest_fib.build._cache import Artifact, ArtifactCache, default_builds_directory
from pytest_fib.build._errors import BuildError
from pytest_fib.build._machine import Machine
from pytest_fib.build._prebuilt import (
    PREBUILT_VARIABLE,
    Prebuilt,
    PrebuiltEntry,
    write_artifact,
    write_manifest,
)
from pytest_fib.build._program import (
    Compilation,
    Parameter,
    Program,
    compiler_cache_of,
    program_of,
    reference_program,
)
from pytest_fib.build._runnable import why_not_buildable, why_not_runnable
from pytest_fib.build._targets import (
    CPU,
    DEFAULT_TARGETS,
    Hardware,
    build_targets,
    capability_of,
    why_not_architecture,
    why_other_hardware,
)
from pytest_fib.build._toolchain import cpp_compiler, nvcc

__all__ = [
    "CPU",
    "DEFAULT_TARGETS",
    "PREBUILT_VARIABLE",
    "Artifact",
    "ArtifactCache",
    "BuildError",
    "Built",
    "Compilation",
    "Hardware",
    "KernelResources",
    "Machine",
    "Parameter",
    "Prebuilt",
    "PrebuiltEntry",
    "Program",
    "build",
    "build_targets",
    "capability_of",
    "compiler_cache_of",
    "cpp_compiler",
    "default_builds_directory",
    "gpus",
    "load",
    "nvcc",
    "program_of",
    "reference_program",
    "versions",
    "why_not_architecture",
    "why_not_buildable",
    "why_not_runnable",
    "why_other_hardware",
    "write_artifact",
    "write_manifest",
]
