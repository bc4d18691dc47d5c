"""Which worker runs what: items that share sandboxes are run by one."""

from collections import Counter
from types import SimpleNamespace

import pytest

from pytest_fib.plugin._distribution import DefinitionScheduling, units
from tests.no_clock import WITHOUT_CLOCK


def unit_sizes(nodeids, workers):
    return Counter(units(nodeids, workers).values())


def items(definition, implementations, times=3):
    return [
        f"kernel_defs/{definition}.yaml::{definition}[{name}-{kind}]"
        for name in implementations
        for kind in ("compile-sm_90", "correctness", *(f"bench-n={2**i}" for i in range(times)))
    ]


def test_a_definitions_items_are_one_unit_where_there_are_many_definitions():
    collected = [nodeid for i in range(40) for nodeid in items(f"d{i}", "ab")]
    assert unit_sizes(collected, workers=2) == {
        f"kernel_defs/d{i}.yaml::d{i} 1": 10 for i in range(40)
    }


def test_an_only_definition_is_shared_by_implementations():
    collected = items("d", (f"k{i}" for i in range(200)))
    of_items = units(collected, workers=8)
    implementations = {}
    for nodeid, unit in of_items.items():
        implementations.setdefault(nodeid.split("[")[1].split("-")[0], set()).add(unit)
    assert all(len(units_of_one) == 1 for units_of_one in implementations.values())
    sizes = list(Counter(of_items.values()).values())
    assert len(sizes) >= 32
    assert max(sizes) <= 1000 / 32


def test_items_are_in_the_order_of_collection():
    collected = [*items("one", "ab"), *items("two", "a")]
    assert list(units(collected, workers=1)) == collected


@pytest.mark.parametrize(("tests", "size"), [(16, 4), (800, 8)])
def test_tests_of_other_kinds_are_small_units_of_their_file(tests, size):
    collected = [f"test_{name}.py::test_it[{i}]" for name in "ab" for i in range(tests)]
    assert unit_sizes(collected, workers=2) == {
        f"test_{name}.py {i}": size for name in "ab" for i in range(1, tests // size + 1)
    }


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


def test_what_a_crashed_worker_had_left_runs_once_on_another(toys):
    toys.write("conftest.py", WITHOUT_CLOCK)
    toys.implement("pair", "x\nimport os\nos._exit(7)", "split")
    result = toys.run_apart("-n", "2", "--fib-examples=2", "--fib-isolation=none", "--fib-bench")
    result.stdout.fnmatch_lines(["worker 'gw*' crashed while running *split[[]pair-correctness]*"])
    crashes = [line for line in result.outlines if line.startswith("worker 'gw")]
    records = Counter((t["solution"], str(t["workload"]["axes"])) for t in toys.traces())
    assert len(crashes) == 1 + 1, crashes  # its correctness item, and that which times it
    assert {solution for solution, _ in records} == {"good", "swapped", "tail"}


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


@pytest.mark.parametrize("crashes", [1, 2])
def test_new_workers_get_what_crashed_ones_had_left_once_they_have_collected(pytester, crashes):
    scheduling = DefinitionScheduling(pytester.parseconfig("--tx", f"{crashes}*popen"))
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
