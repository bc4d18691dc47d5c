"""The library that those of CuTe DSL call to launch kernels."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

RUNTIME = "libcute_dsl_runtime.so"
#: The environment's word for it, to CuTe DSL too.
RUNTIME_VARIABLE = "CUTE_DSL_LIBS"


def runtime_library() -> Path | None:
    """The path of the runtime: where the environment says, or installed with CuTe DSL."""
    named = (Path(name) for name in os.environ.get(RUNTIME_VARIABLE, "").split(os.pathsep) if name)
    package = find_spec("nvidia_cutlass_dsl")
    folders = package.submodule_search_locations or () if package else ()
    installed = (
        Path(folder, cuda, "lib", RUNTIME) for cuda in ("cu13", "cu12") for folder in folders
    )
    places = [*(path for path in named if path.name == RUNTIME), *installed]
    return next((path for path in places if path.exists()), None)
