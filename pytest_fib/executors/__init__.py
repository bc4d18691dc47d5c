"""Who calls the engine: this process now.

Importing this imports no torch.
"""

from pytest_fib.executors._benchmark import Benchmark
from pytest_fib.executors._local import LocalExecutor
from pytest_fib.executors._protocol import Executor

__all__ = ["Benchmark", "Executor", "LocalExecutor"]
