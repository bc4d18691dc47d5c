"""How to mark an implementation that fails because this machine lacks something."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_fib.data import Diagnosis
    from pytest_fib.discovery import Implementation

#: As a diagnosis begins of what an import raised; the module's top package.
_NO_MODULE = re.compile(r"ModuleNotFoundError: No module named '(\w+)")
#: What torch and others speak of where a kernel asks for a GPU that isn't there.
_OF_A_GPU = re.compile(r"\bcuda\b|\bnvidia\b", re.IGNORECASE)


def hint(implementation: Implementation, diagnosis: Diagnosis | None, device: str) -> str:
    """What to add to the mark, so that the kernel is skipped where it can't run; else nothing.

    What a solution.yaml or a header says of them has the same names.
    """
    said = "" if diagnosis is None else diagnosis.sentence
    lost = _NO_MODULE.match(said)
    if lost is not None and not implementation.dependencies:
        return f'with dependencies=["{lost[1]}"] in its mark it is skipped where that is missing'
    runs_anywhere = {"cpu", "cuda"} <= set(implementation.target_hardware)
    if device == "cpu" and runs_anywhere and _OF_A_GPU.search(said):
        return 'with target_hardware=["cuda"] in its mark it is skipped where there is no GPU'
    return ""
