"""Which worker runs what: items that share sandboxes are run by one."""

from collections import Counter
from types import SimpleNamespace

import pytest
from xdist.remote import Producer

from tests.no_clock import WITHOUT_CLOCK


class Worker:
    """What a scheduler asks of a worker: takes items by number."""

    shutting_down = False
    gateway = SimpleNamespace(id="gw")

    def __init__(self):
        self.sent = []

    def send_runtest_some(self, numbers):
        self.sent += numbers

    def shutdown(self):
        self.shutting_down = True


@pytest.fixture
def scheduler_of(toys):
    """The scheduler of a run with so many workers, as xdist asks for it."""

    def make(workers):
        config = toys.pytester.parseconfigure("--dist=load", "--tx", f"{workers}*popen")
        return config.hook.pytest_xdist_make_scheduler(
            config=config, log=Producer("", enabled=False)
        )

    return make


@pytest.fixture
def units(scheduler_of):
    """What stays together of collected items, as lists of node ids."""

    def of(nodeids, workers):
        scheduler = scheduler_of(workers)
        for worker in (those := [Worker() for _ in range(workers)]):
            scheduler.add_node(worker)
        for worker in those:
            scheduler.add_node_collection(worker, nodeids)
        scheduler.schedule()
        parts = [scheduler.workqueue, *scheduler.assigned_work.values()]
        return [list(unit) for part in parts for unit in part.values()]

    return of


def items(definition, implementations, times=3):
    return [
        f"kernel_defs/{definition}.yaml::{definition}[{name}-{kind}]"
        for name in implementations
        for kind in ("compile-sm_90", "correctness", *(f"bench-n={2**i}" for i in range(times)))
    ]


def test_a_definitions_items_are_one_unit_where_there_are_many_definitions(units):
    definitions = [items(f"d{i}", "ab") for i in range(40)]
    collected = [nodeid for each in definitions for nodeid in each]
    assert sorted(units(collected, workers=2)) == sorted(definitions)


def test_an_only_definition_is_shared_by_implementations(units):
    collected = items("d", (f"k{i}" for i in range(200)))
    parts = units(collected, workers=8)
    implementations = Counter(
        name for unit in parts for name in {nodeid.split("[")[1].split("-")[0] for nodeid in unit}
    )
    assert len(implementations) == 200
    assert set(implementations.values()) == {1}
    assert len(parts) >= 32
    assert max(map(len, parts)) <= 1000 / 32


@pytest.mark.parametrize(("tests", "size"), [(16, 4), (800, 8)])
def test_tests_of_other_kinds_are_small_units_of_their_file(units, tests, size):
    files = {name: [f"test_{name}.py::test_it[{i}]" for i in range(tests)] for name in "ab"}
    parts = units([*files["a"], *files["b"]], workers=2)
    assert {len(unit) for unit in parts} == {size}
    assert all(len({nodeid.partition("::")[0] for nodeid in unit}) == 1 for unit in parts)


@pytest.mark.parametrize("workers", ["2", "3"])
@pytest.mark.thorough
def test_an_implementation_stays_on_a_worker(toys, workers):
    toys.write("conftest.py", WITHOUT_CLOCK)
    result = toys.run_apart("-n", workers, "-v", "--fib-bench", "--fib-examples=2")
    ran = [line.split() for line in result.outlines if line.startswith("[gw") and "::" in line]
    where = {}
    for line in ran:
        nodeid = next(word for word in line if "::" in word)
        where.setdefault(nodeid.rsplit("-", 1)[0].split("-bench")[0], set()).add(line[0])
    assert len(where) > 3
    assert all(len(workers_of_one) == 1 for workers_of_one in where.values())


@pytest.mark.thorough
def test_what_a_crashed_worker_had_left_runs_once_on_another(toys):
    toys.write("conftest.py", WITHOUT_CLOCK)
    toys.implement("pair", "x\nimport os\nos._exit(7)", "split")
    result = toys.run_apart("-n", "2", "--fib-examples=2", "--fib-isolation=none", "--fib-bench")
    result.stdout.fnmatch_lines(["worker 'gw*' crashed while running *split[[]pair-correctness]*"])
    crashes = [line for line in result.outlines if line.startswith("worker 'gw")]
    records = Counter((t["solution"], str(t["workload"]["axes"])) for t in toys.traces())
    assert len(crashes) == 1 + 1, crashes  # its correctness item, and that which times it
    assert {solution for solution, _ in records} == {"good", "swapped", "tail"}


@pytest.mark.parametrize("crashes", [1, 2])
def test_new_workers_get_what_crashed_ones_had_left_once_they_have_collected(scheduler_of, crashes):
    scheduling = scheduler_of(crashes)
    nodeids = [f"{name}.yaml::{name}[k-correctness]" for name in "abcdefghij"]
    crashing, new = [Worker() for _ in range(crashes)], [Worker() for _ in range(crashes)]
    for worker in crashing:
        scheduling.add_node(worker)
    for worker in crashing:
        scheduling.add_node_collection(worker, nodeids)
    scheduling.schedule()
    lost = []
    for worker, replacement in zip(crashing, new, strict=True):
        lost.append(scheduling.remove_node(worker))
        scheduling.add_node(replacement)
    for worker in new:
        assert not worker.sent
        assert not worker.shutting_down
        scheduling.add_node_collection(worker, nodeids)
        scheduling.schedule()
        for number in worker.sent:  # more are sent as these are done
            scheduling.mark_test_complete(worker, number)
    ran = [nodeids[number] for worker in new for number in worker.sent]
    assert len(lost) == crashes
    assert sorted(ran + lost) == nodeids
    assert [scheduling.remove_node(worker) for worker in new] == [None] * crashes
