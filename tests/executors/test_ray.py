"""A cluster of Ray, all of it in this machine: GPUs are numbers there, and nodes processes."""

import time
from collections import Counter
from dataclasses import replace
from functools import partial

import pytest

from pytest_fib.data import Evaluation
from pytest_fib.executors import RayExecutor, RayOptions, RemoteError
from tests.executors.kernels import definition, evaluation

pytest.importorskip("ray")
import ray
from ray.cluster_utils import Cluster


class Quick:
    """Takes the place of a judge: 20 ms for each request, and says which process answered."""

    def __init__(self, device, isolation, **options):
        self.device = device

    def start(self):
        pass

    def evaluate(self, request):
        import os

        time.sleep(0.02)
        facts = {"hardware": self.device, "libs": {"pid": str(os.getpid())}}
        return Evaluation.model_validate(
            {
                "status": "PASSED",
                "environment": facts,
                "log": f"{request.definition.name} {request.workload.axes['n']}",
            }
        )


class Deadly(Quick):
    """Ends its process at one workload."""

    def evaluate(self, request):
        if request.workload.axes["n"] == 3:
            import os

            os._exit(1)
        return super().evaluate(request)


class Marking(Quick):
    """Notes what it begins with, and ends its process."""

    def __init__(self, marks, device, isolation, **options):
        super().__init__(device, isolation)
        self.marks = marks

    def evaluate(self, request):
        import os

        with self.marks.open("a") as file:
            file.write(f"{request.workload.axes['n']} ")
        os._exit(1)


@pytest.fixture(scope="module")
def cluster():
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "num_gpus": 0})
    for _ in range(2):
        cluster.add_node(num_cpus=2, num_gpus=2)
    yield cluster
    cluster.shutdown()


@pytest.fixture
def on(cluster):
    """An executor of this kind on four GPUs; none of them is real, so kernels run on CPUs."""
    executors = []

    def executor(make_executor=Quick, **options):
        resources = {"num_gpus": 1, "num_cpus": 0}
        chosen = RayOptions(device="cpu", actors=4, resources=resources, **options)
        executors.append(RayExecutor(cluster.address, chosen, make_executor=make_executor))
        return executors[-1]

    yield executor
    for each in executors:
        each.close()


def requests(names, count):
    for name in names:
        of = definition(name=name)
        yield from (evaluation("right", n, of=of) for n in range(1, count + 1))


def test_each_request_is_answered_once_by_all_gpus(on):
    executor = on()
    assert len(executor.start()) == 4
    asked = list(requests("ab", 60))
    answers = list(executor.evaluate_all(iter(asked)))
    assert Counter(id(request) for request, _ in answers) == Counter(map(id, asked))
    for request, answer in answers:
        assert answer.log == f"{request.definition.name} {request.workload.axes['n']}"
    by = Counter(answer.environment.libs["pid"] for _, answer in answers)
    assert len(by) == 4


def test_requests_of_one_definition_stay_with_few_actors(on):
    executor = on()
    executor.start()
    answers = list(executor.evaluate_all(requests("abcd", 15)))
    homes = {name: Counter() for name in "abcd"}
    for request, answer in answers:
        homes[request.definition.name][answer.environment.libs["pid"]] += 1
    # Others help at the end, when they have nothing else to do.
    assert all(counts.most_common(1)[0][1] >= 8 for counts in homes.values())


def test_answers_come_before_all_requests_are_there(on):
    executor = on()
    executor.start()
    read = 0

    def endless():
        nonlocal read
        for request in requests("a", 10_000):
            read += 1
            yield request

    answers = executor.evaluate_all(endless())
    next(answers)
    answers.close()
    assert read < 1000


def test_a_lost_node_loses_no_answer(cluster, on):
    executor = on(patience=60.0)
    executor.start()
    asked = list(requests("ab", 100))
    answers = []
    for number, pair in enumerate(executor.evaluate_all(iter(asked))):
        answers.append(pair)
        if number == 20:
            cluster.remove_node(cluster.worker_nodes.copy().pop(), allow_graceful=False)
        if number == 60:
            cluster.add_node(num_cpus=2, num_gpus=2)
    assert Counter(id(request) for request, _ in answers) == Counter(map(id, asked))
    assert all(answer.status == "PASSED" for _, answer in answers)


def test_what_kills_its_actors_is_not_tried_for_ever(on):
    executor = on(Deadly)
    executor.start()
    answers = {
        request.workload.axes["n"]: answer
        for request, answer in executor.evaluate_all(requests("a", 12))
    }
    assert len(answers) == 12
    assert "3 actors of Ray died of this request" in answers.pop(3).log
    assert {each.log for each in answers.values() if each.status != "PASSED"} == set()


@pytest.mark.thorough
def test_what_waits_behind_a_crash_is_not_charged_with_it(cluster, tmp_path, monkeypatch):
    wait = ray.wait

    def wait_for_all(refs, **options):
        """The eldest comes first, though all fail at once."""
        wait(refs, **options)
        time.sleep(0.2)
        return wait(refs, num_returns=len(refs), timeout=0)

    monkeypatch.setattr("ray.wait", wait_for_all)
    marks = tmp_path / "marks"
    options = RayOptions(device="cpu", actors=1, resources={"num_gpus": 1, "num_cpus": 0})
    executor = RayExecutor(cluster.address, options, make_executor=partial(Marking, marks))
    executor.start()
    answers = [answer for _, answer in executor.evaluate_all(requests("a", 2))]
    executor.close()
    assert all("3 actors of Ray died of this request" in answer.log for answer in answers)
    assert Counter(marks.read_text().split()) == {"1": 3, "2": 3}


def test_a_cluster_without_room_says_so(cluster):
    crowded = RayOptions(device="cpu", actors=64, resources={"num_gpus": 1}, patience=2.0)
    executor = RayExecutor(cluster.address, crowded, make_executor=Quick)
    with pytest.raises(RemoteError, match=r"no room for 64 actors of \{.num_gpus.: 1\} within 2 s"):
        executor.start()
    executor.close()


def test_a_cluster_without_gpus_says_so(cluster):
    for node in tuple(cluster.worker_nodes):
        cluster.remove_node(node)
    with pytest.raises(RemoteError, match="no machine of the cluster has a GPU"):
        RayExecutor(cluster.address, RayOptions(device="cuda"))


def test_actors_that_are_gone_are_said_to_be(cluster):
    owner = RayExecutor(cluster.address, RayOptions(actors=1), make_executor=Quick)
    try:
        gone = replace(owner.shared, names=("nobody",))
        with pytest.raises(RemoteError, match="the actors of this run are gone"):
            RayExecutor(cluster.address, shared=gone)
    finally:
        owner.close()


def test_an_address_where_nothing_is_says_so():
    with pytest.raises(RemoteError, match=r"^127\.0\.0\.1:1: no cluster can be reached there"):
        RayExecutor("127.0.0.1:1")


@pytest.fixture
def unconnected(monkeypatch, tmp_path):
    """A process and a machine that know of no cluster; what `monkeypatch` is."""
    monkeypatch.setattr(ray, "is_initialized", lambda: False)
    monkeypatch.delenv("RAY_ADDRESS", raising=False)
    monkeypatch.setenv("RAY_TMPDIR", str(tmp_path))
    return monkeypatch


def test_a_cluster_of_this_machine_that_is_gone_says_so(unconnected, tmp_path):
    """As one that was killed, whose address Ray has kept."""
    kept = tmp_path / "ray" / "ray_current_cluster"
    kept.parent.mkdir()
    kept.write_text("127.0.0.1:1")
    with pytest.raises(RemoteError, match=r"^127\.0\.0\.1:1 \(auto\): no cluster can be reached"):
        RayExecutor("auto")


def test_an_address_without_a_port_is_none():
    with pytest.raises(RemoteError, match=r"^gpu1: is no address of a cluster; give HOST:PORT, "):
        RayExecutor("gpu1")


def test_a_cluster_of_another_python_says_both_versions(unconnected):
    """As Ray does, in several lines."""

    def init(**options):
        versions = "Ray: 2.60.0\n    Python: {}\n"
        there, here = versions.format("3.12.1"), versions.format("3.11.7")
        raise RuntimeError(
            f"Version mismatch: The cluster was started with:\n    {there}"
            f"This process on node 10.0.0.1 was started with:\n    {here}"
        )

    unconnected.setattr(ray, "init", init)
    with pytest.raises(RemoteError) as error:
        RayExecutor("auto")
    assert str(error.value) == (
        "auto: Version mismatch: The cluster was started with: Ray: 2.60.0 Python: 3.12.1 "
        "This process on node 10.0.0.1 was started with: Ray: 2.60.0 Python: 3.11.7"
    )


def test_a_cluster_that_asks_for_a_token_says_so(unconnected):
    """Ray's error says only that it can't connect; why is in the one before."""

    def init(**options):
        try:
            raise RuntimeError("No connection:\n  File ray.py\nAuthenticationError: no token\n")
        except RuntimeError as error:
            raise ConnectionError("Failed to connect to Ray cluster at 10.0.0.1:6379") from error

    unconnected.setattr(ray, "init", init)
    with pytest.raises(RemoteError) as error:
        RayExecutor("auto")
    failed = "auto: Failed to connect to Ray cluster at 10.0.0.1:6379"
    assert str(error.value) == f"{failed}: AuthenticationError: no token"


def test_a_token_that_is_not_there_is_an_error_in_a_line(unconnected):
    def init(**options):
        raise ray.exceptions.RayError("Token authentication is enabled\nbut no token was found.")

    unconnected.setattr(ray, "init", init)
    with pytest.raises(RemoteError, match=r"^auto: Token .* enabled but no token was found"):
        RayExecutor("auto")
