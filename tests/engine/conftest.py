"""A judge on the CPU, implementations written as text, and eyes on processes."""

import gc
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent
from time import monotonic, sleep

import pytest

from pytest_fib.data import (
    BuildSpec,
    Definition,
    Evaluation,
    EvaluationRequest,
    Solution,
    SourceFile,
    SupportedLanguages,
    load_definition_file,
)
from pytest_fib.engine import Judge
from pytest_fib.workloads import make_workload

ROOT = Path(__file__).parents[2]
#: An upper bound for what takes milliseconds, on however busy a machine.
AT_MOST = 120.0


@pytest.fixture(scope="session")
def definition() -> Definition:
    """``out = x * factor`` in float32, over ``n`` elements."""
    loaded = load_definition_file(ROOT / "kernel_defs/scale/scale.yaml")
    return next(d.definition for d in loaded if d.definition.name == "scale_float32")


@pytest.fixture(scope="session")
def judge(fork_server) -> Iterator[Judge]:
    """One judge for all tests that leave it as they found it."""
    with Judge("cpu", fork_server=fork_server) as judge:
        yield judge


@pytest.fixture(scope="session")
def breakable_judge() -> Iterator[Judge]:
    """One judge for all tests that break its processes: it has to work again for the next."""
    with Judge("cpu") as judge:
        yield judge


@pytest.fixture
def own_judge(fork_server) -> Iterator[Judge]:
    """A judge of which nobody else asked anything."""
    with Judge("cpu", fork_server=fork_server) as judge:
        yield judge


@pytest.fixture
def solution(definition: Definition) -> Callable[..., Solution]:
    """An implementation of ``scale_float32`` from the text of its module."""

    def solution(text: str, calling: str = "value", name: str = "s") -> Solution:
        return Solution(
            name=name,
            definition=definition.name,
            author="tests",
            spec=BuildSpec(
                language=SupportedLanguages("python"),
                target_hardware=["cpu"],
                entry_point="module.py::run",
                calling=calling,
            ),
            sources=[SourceFile(path="module.py", content=dedent(text))],
        )

    return solution


@pytest.fixture
def request_for(definition, solution) -> Callable[..., EvaluationRequest]:
    """A request from the text of an implementation."""

    def request_for(
        text: str,
        calling: str = "value",
        n: int = 1000,
        seed: int = 0,
        timeout: float = 30.0,
        of: Definition = definition,
        **settings,
    ) -> EvaluationRequest:
        workload = make_workload(of, {"n": n}, seed=seed)
        return EvaluationRequest(
            definition=of,
            solution=solution(text, calling),
            workload=workload,
            timeout=timeout,
            **settings,
        )

    return request_for


@pytest.fixture
def evaluate(judge, request_for) -> Callable[..., Evaluation]:
    """The evaluation of an implementation, given as text."""

    def evaluate(text: str, calling: str = "value", **facts) -> Evaluation:
        return judge.evaluate(request_for(text, calling, **facts))

    return evaluate


def lives(pid: int) -> bool:
    """Whether a process runs; a zombie does not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] not in "ZX"


def eventually(condition: Callable[[], object]) -> bool:
    """Wait until something holds; False if it never does."""
    until = monotonic() + AT_MOST
    while monotonic() < until:
        if condition():
            return True
        sleep(0.005)
    return False


def descendants(root: int) -> set[int]:
    """The living processes that come from one, itself left out."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and lives(int(entry.name)):
            try:
                stat = (entry / "stat").read_text(encoding="utf-8", errors="replace")
            except (FileNotFoundError, ProcessLookupError):
                continue
            parents[int(entry.name)] = int(stat.rpartition(")")[2].split()[1])
    found, fresh = set(), {root}
    while fresh:
        fresh = {pid for pid, parent in parents.items() if parent in fresh} - found
        found |= fresh
    return found


@pytest.fixture
def open_files() -> Callable[[], list[str]]:
    """What this process has open, as paths."""

    def open_files() -> list[str]:
        gc.collect()
        links = list(Path("/proc/self/fd").iterdir())
        return [str(link.readlink()) for link in links if link.is_symlink()]

    return open_files


@pytest.fixture
def processes() -> Callable[[], set[int]]:
    """The living descendants of this process."""
    return lambda: descendants(os.getpid())


@pytest.fixture(name="descendants")
def descendants_fixture() -> Callable[[int], set[int]]:
    """The living processes that come from one."""
    return descendants


@pytest.fixture(name="lives")
def lives_fixture() -> Callable[[int], bool]:
    """Whether a process runs."""
    return lives


@pytest.fixture(name="eventually")
def eventually_fixture() -> Callable[[Callable[[], object]], bool]:
    """Wait until something holds; False if it never does."""
    return eventually
