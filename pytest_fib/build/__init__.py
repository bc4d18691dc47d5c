"""From a Solution to an artifact to a callable: one builder for each language."""

from pytest_fib.build import _gpus
from pytest_fib.build._artifact import Built as Built, KernelResources as KernelResources
from pytest_fib.build._builders import (
    build as build,
    load as load,
    versions as versions,
    why_not_callable as why_not_callable,
)
from pytest_fib.build._cache import (
    Artifact as Artifact,
    ArtifactCache as ArtifactCache,
    default_builds_directory as default_builds_directory,
)
from pytest_fib.build._compiler_log import COMPILER_LOG_LIMIT as COMPILER_LOG_LIMIT
from pytest_fib.build._errors import BuildError as BuildError
from pytest_fib.build._interpreter import repair_if_used as repair_if_used
from pytest_fib.build._machine import Machine as Machine
from pytest_fib.build._prebuilt import (
    PREBUILT_VARIABLE as PREBUILT_VARIABLE,
    Prebuilt as Prebuilt,
    PrebuiltEntry as PrebuiltEntry,
    write_artifact as write_artifact,
    write_manifest as write_manifest,
)
from pytest_fib.build._program import (
    Compilation as Compilation,
    Parameter as Parameter,
    Program as Program,
    compiler_cache_of as compiler_cache_of,
    program_of as program_of,
    reference_program as reference_program,
)
from pytest_fib.build._runnable import (
    why_not_buildable as why_not_buildable,
    why_not_runnable as why_not_runnable,
    why_not_timeable as why_not_timeable,
)
from pytest_fib.build._targets import (
    CPU as CPU,
    DEFAULT_TARGETS as DEFAULT_TARGETS,
    Hardware as Hardware,
    build_targets as build_targets,
    capability_of as capability_of,
    why_no_target as why_no_target,
    why_not_architecture as why_not_architecture,
)
from pytest_fib.build._toolchain import (
    cpp_compiler as cpp_compiler,
    installed_version as installed_version,
    nvcc as nvcc,
)

gpus = _gpus
