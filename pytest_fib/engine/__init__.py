"""From an EvaluationRequest to an Evaluation: the judge and its phases.

Importing this imports no torch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_fib._lazy import lazily

if TYPE_CHECKING:
    from pytest_fib.data import EvaluationRequest, Outcome
    from pytest_fib.engine._counts_cache import CountsCache as CountsCache
    from pytest_fib.engine._device_lock import (
        DeviceHeldError as DeviceHeldError,
        DeviceLock as DeviceLock,
        DeviceUse as DeviceUse,
    )
    from pytest_fib.engine._in_process import FunctionChecker as FunctionChecker
    from pytest_fib.engine._judge import Judge as Judge
    from pytest_fib.engine._larger_workloads import diagnose_failure as diagnose_failure
    from pytest_fib.engine._output_checker import (
        OutputChecker as OutputChecker,
        believed as believed,
    )
    from pytest_fib.engine._reference_costs import Costs as Costs
    from pytest_fib.engine._search import search_and_diagnose as search_and_diagnose
    from pytest_fib.engine._start import (
        Isolation as Isolation,
        start_fork_server as start_fork_server,
    )


# Resolved on first use: nearly all of these import torch.
__getattr__ = lazily(
    __name__,
    {
        "_counts_cache": "CountsCache",
        "_device_lock": "DeviceHeldError DeviceLock DeviceUse",
        "_in_process": "FunctionChecker",
        "_judge": "Judge",
        "_larger_workloads": "diagnose_failure",
        "_output_checker": "OutputChecker believed",
        "_reference_costs": "Costs",
        "_search": "search_and_diagnose",
        "_start": "Isolation start_fork_server",
    },
)


def evaluate(request: EvaluationRequest) -> Outcome:
    """Evaluate one implementation on one workload.

    On CUDA if there is a device, else on the CPU, with a new judge.
    """
    import torch

    from pytest_fib.engine._judge import Judge as Judge

    with Judge("cuda" if torch.cuda.is_available() else "cpu") as judge:
        return judge.evaluate(request)
