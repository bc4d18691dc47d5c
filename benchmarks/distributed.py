"""What evaluations elsewhere take beyond those here.

    python benchmarks/distributed.py ssh            # by an sshd of its own, also 50 ms away
    python benchmarks/distributed.py ray            # 10,000 evaluations on 8 fake GPUs
    python benchmarks/distributed.py ray --kill 30  # and a node killed every 30 s
    python benchmarks/distributed.py same           # the same times through each executor?
    python benchmarks/distributed.py gpus           # shipped kernels on one GPU, and on all

``ssh`` needs ssh and sshd; ``ray`` and ``gpus`` the extra ``ray``, ``gpus`` two GPUs.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import resource
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from fnmatch import fnmatchcase
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pytest_fib.data import (
    BuildSpec,
    Definition,
    Evaluation,
    EvaluationRequest,
    SearchRequest,
    Solution,
    SourceFile,
    SupportedLanguages,
    TraceSet,
    load_definition_file,
)
from pytest_fib.executors import (
    Benchmark,
    LocalExecutor,
    RayExecutor,
    RayOptions,
    RemoteOptions,
    SshConnections,
    SshExecutor,
    SshTarget,
    describe,
)
from pytest_fib.workloads import make_workload

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).parent.parent
#: Seconds of one evaluation that computes nothing.
QUICK = 0.02
SSHD = """\
ListenAddress 127.0.0.1
HostKey {folder}/host
AuthorizedKeysFile {folder}/key.pub
PidFile none
StrictModes no
UsePAM no
"""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("ssh", "ray", "same", "gpus"))
    parser.add_argument("--delay", type=float, default=0.05, help="seconds of a round trip")
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--count", type=int, default=10_000, help="evaluations on Ray")
    parser.add_argument("--definition", default="*", help="of what is timed on several GPUs")
    parser.add_argument("--kill", type=float, help="seconds between two nodes that are killed")
    given = parser.parse_args()
    {"ssh": measure_ssh, "ray": measure_ray, "same": measure_same, "gpus": measure_gpus}[
        given.what
    ](given)


# --- what is evaluated ----------------------------------------------------------------------------


def definition() -> Definition:
    found = load_definition_file(ROOT / "kernel_defs" / "scale" / "scale.yaml")
    return next(d.definition for d in found if d.definition.name == "scale_float32")


def solution(of: Definition) -> Solution:
    return Solution(
        name="reference",
        definition=of.name,
        author="benchmarks",
        spec=BuildSpec(
            language=SupportedLanguages.PYTHON,
            target_hardware=["cpu", "cuda"],
            entry_point="main.py::run",
            calling="value",
        ),
        sources=[SourceFile(path="main.py", content=of.reference)],
    )


def evaluation(n: int, **more: Any) -> EvaluationRequest:
    of = definition()
    workload = make_workload(of, {"n": n})
    return EvaluationRequest(definition=of, solution=solution(of), workload=workload, **more)


# --- ssh ------------------------------------------------------------------------------------------


def sshd_here() -> str | None:
    """Where sshd is on this machine, if it is."""
    return shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin")


@contextmanager
def sshd(folder: Path) -> Iterator[int]:
    """An sshd of this user's on a free port; ``ssh`` on PATH uses the key that it takes."""
    for name in ("host", "key"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
        subprocess.run(command, check=True)
    (folder / "config").write_text(SSHD.format(folder=folder))
    options = (
        f"-i {folder}/key -o IdentitiesOnly=yes -o StrictHostKeyChecking=no "
        "-o UserKnownHostsFile=/dev/null -o LogLevel=ERROR"
    )
    program = folder / "bin" / "ssh"
    program.parent.mkdir()
    program.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} {options} "$@"\n')
    program.chmod(0o755)
    os.environ["PATH"] = f"{program.parent}{os.pathsep}{os.environ['PATH']}"
    if os.geteuid() == 0:
        Path("/run/sshd").mkdir(exist_ok=True)
    port = free_port()
    command = [str(sshd_here()), "-D", "-p", str(port), "-f", str(folder / "config")]
    command += ["-E", str(folder / "log")]
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL)
    time.sleep(0.5)
    try:
        yield port
    finally:
        process.kill()
        process.wait()


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        port: int = listener.getsockname()[1]
    return port


@contextmanager
def delayed(port: int, seconds: float) -> Iterator[int]:
    """A port from which everything takes so long to the other and back."""
    loop = asyncio.new_event_loop()
    entry = free_port()

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while content := await reader.read(1 << 16):
            loop.call_later(seconds / 2, writer.write, content)
        loop.call_later(seconds / 2, writer.close)

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", port)
        await asyncio.gather(copy(reader, back), copy(there, writer))

    loop.run_until_complete(asyncio.start_server(accept, "127.0.0.1", entry))
    threading.Thread(target=loop.run_forever, daemon=True).start()
    yield entry
    loop.call_soon_threadsafe(loop.stop)


def measure_ssh(given: argparse.Namespace) -> None:
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fib-bench-")))
        port = stack.enter_context(sshd(folder))
        far = stack.enter_context(delayed(port, given.delay))
        near_url, far_url = (f"ssh://127.0.0.1:{p}{folder}/far" for p in (port, far))
        show("import torch, in a new process", seconds_of([sys.executable, "-c", "import torch"]))
        show("cold: code sent, machine described", cold(near_url, folder))
        show(f"cold at {given.delay * 1e3:g} ms", cold(far_url, folder))
        first(near_url, far_url, project(folder), given)
        item(near_url, far_url, given)


def cold(url: str, folder: Path) -> float:
    shutil.rmtree(folder / "far", ignore_errors=True)
    connections = SshConnections()
    start = time.perf_counter()
    describe(connections, SshTarget.parse(url, sys.executable))
    taken = time.perf_counter() - start
    connections.close()
    return taken


def project(folder: Path) -> Path:
    """A project of one family. The tests of this one have every run of pytest import torch."""
    for name in ("kernel_defs", "kernel_impls"):
        shutil.copytree(ROOT / name / "scale", folder / "project" / name / "scale")
    (folder / "project" / "pytest.ini").touch()
    return folder / "project"


def first(near_url: str, far_url: str, project: Path, given: argparse.Namespace) -> None:
    """Whole runs of pytest, in turn."""
    names = {"local": "", "loopback": near_url, f"{given.delay * 1e3:g} ms": far_url}
    times: dict[str, list[float]] = {name: [] for name in names}
    python = f"--fib-remote-python={sys.executable}"
    for _ in range(given.repeat):
        for name, url in names.items():
            options = (f"--fib-remote={url}", python) if url else ()
            times[name].append(first_result(project, options))
    for name in list(names)[1:]:
        show(f"pytest with one item, {name}", times[name], times["local"])


def first_result(project: Path, options: tuple[str, ...]) -> float:
    """Seconds of a whole run of pytest with one evaluation in it."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--fib-device=cpu"]
    command += [
        "--fib-implementation=torch*",
        "--fib-definition=scale_float32",
        "-k",
        "correctness",
    ]
    command += ["--fib-examples=1", "--fib-traces=/dev/null", "--fib-seed=0", *options]
    return seconds_of(command, project)


def seconds_of(command: list[str], folder: Path = ROOT) -> float:
    start = time.perf_counter()
    subprocess.run(command, cwd=folder, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - start


def item(near_url: str, far_url: str, given: argparse.Namespace) -> None:
    """A correctness item of 25 examples, by executors that are ready."""
    of = definition()
    names = {"local": "", "loopback": near_url, f"{given.delay * 1e3:g} ms": far_url}
    executors: dict[str, Any] = {}
    for name, url in names.items():
        executors[name] = executor = LocalExecutor("cpu") if not url else far_executor(url)
        executor.start()
        executor.evaluate(evaluation(8))
    times: dict[str, list[float]] = {name: [] for name in names}
    for seed in range(given.repeat):
        request = SearchRequest(definition=of, solution=solution(of), seed=seed, max_bytes=1 << 16)
        for name, executor in executors.items():
            start = time.perf_counter()
            executor.search(request)
            times[name].append(time.perf_counter() - start)
    for executor in executors.values():
        executor.close()
    for name in list(names)[1:]:
        show(f"item of 25 examples, {name}", times[name], times["local"])


def far_executor(url: str) -> SshExecutor:
    return SshExecutor(SshTarget.parse(url, sys.executable), RemoteOptions())


def show(what: str, taken: list[float] | float, beyond: list[float] | None = None) -> None:
    """The median, and how far it is from another."""
    middle = statistics.median(taken if isinstance(taken, list) else [taken])
    more = ""
    if beyond is not None:
        here = statistics.median(beyond)
        more = f"; local {here:.2f} s, so {middle - here:+.2f} s"
    print(f"{what:<40} {middle:.2f} s{more}", flush=True)


# --- Ray ------------------------------------------------------------------------------------------


class Sleeper:
    """In place of a judge: takes as long as a quick evaluation, and no processor."""

    def __init__(self, device: str, isolation: str, **options: Any) -> None:
        self.device = device

    def start(self) -> None:
        """Nothing to get ready."""

    def evaluate(self, request: EvaluationRequest) -> Evaluation:
        """As if it had been computed."""
        time.sleep(QUICK)
        text = '{"status": "PASSED", "environment": {"hardware": "none"}}'
        return Evaluation.model_validate_json(text)


def measure_ray(given: argparse.Namespace) -> None:
    import ray
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "num_gpus": 0})
    for _ in range(2):
        cluster.add_node(num_cpus=4, num_gpus=4)
    options = RayOptions(device="cpu", actors=8, resources={"num_gpus": 1, "num_cpus": 0})
    executor = RayExecutor(cluster.address, options, make_executor=Sleeper)
    executor.start()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    requests = [evaluation(8 + i % 50) for i in range(100)]
    asked = (
        (requests[i % 100].model_copy(update={"timeout": i + 1.0})) for i in range(given.count)
    )
    seen: Counter[float] = Counter()
    start = killed = time.perf_counter()
    kills = 0
    for request, answer in executor.evaluate_all(asked):
        seen[request.timeout] += answer.status == "PASSED"
        if given.kill and time.perf_counter() > killed + given.kill:
            cluster.remove_node(next(iter(cluster.worker_nodes)), allow_graceful=False)
            cluster.add_node(num_cpus=4, num_gpus=4)
            killed, kills = time.perf_counter(), kills + 1
    taken = time.perf_counter() - start
    least = given.count * QUICK / 8
    print(f"{given.count} evaluations of {QUICK * 1e3:g} ms: {taken:.1f} s, at least {least:.1f} s")
    print(f"share of the GPUs' time {least / taken:.1%}")
    print(f"overhead of each {(taken * 8 / given.count - QUICK) * 1e3:.2f} ms of its GPU's time")
    print(f"nodes killed {kills}; lost {given.count - len(seen)}, double or failed ", end="")
    print(sum(count != 1 for count in seen.values()))
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    print(f"driver's memory {peak / 1024:.0f} MiB at most, {before / 1024:.0f} before")
    executor.close()
    ray.shutdown()
    cluster.shutdown()


def measure_gpus(given: argparse.Namespace) -> None:
    """Shipped kernels timed on one GPU, then on all."""
    import ray

    ray.init(include_dashboard=False, log_to_driver=False)
    gpus = int(ray.cluster_resources().get("GPU", 0))
    if gpus < 2:
        sys.exit("needs two GPUs")
    taken = {}
    for actors in (1, gpus, 1, gpus):
        trace_set = shipped(given.definition)
        executor = RayExecutor("auto", RayOptions(device="cuda", actors=actors))
        executor.start()
        start = time.perf_counter()
        traces = Benchmark(trace_set, executor=executor).run_all(progress=False)
        taken[actors] = time.perf_counter() - start
        executor.close()
        print(f"{actors} GPUs: {len(traces)} evaluations in {taken[actors]:.1f} s", flush=True)
    print(f"{taken[1] / taken[gpus]:.2f} times as fast")


def shipped(pattern: str) -> TraceSet:
    """The shipped definitions whose names match, with their Triton implementations."""
    from pytest_fib.discovery import find_implementations, load_catalogue

    files = sorted((ROOT / "kernel_defs").rglob("*.yaml"))
    catalogue = load_catalogue([files], find_implementations([ROOT / "kernel_impls"]))
    definitions, solutions = [], []
    for loaded in (each for file in catalogue.definitions.values() for each in file):
        name = loaded.definition.name
        if not fnmatchcase(name, pattern):
            continue
        found = [i for i in catalogue.implementations_of(name) if i.language == "triton"]
        if found:
            definitions.append(loaded.definition)
            for solution in (each.solution(name) for each in found):  # names are unique in a set
                unique = f"{name}_{solution.name}"
                solutions.append(solution.model_copy(update={"name": unique}))
    return TraceSet(definitions, solutions)


# --- A/A ------------------------------------------------------------------------------------------


def measure_same(given: argparse.Namespace) -> None:
    """The same kernel timed here, by ssh on this machine, and by Ray on it, in turn."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="fib-bench-")))
        device = "cuda" if shutil.which("nvidia-smi") else "cpu"
        executors: dict[str, Any] = {"local": LocalExecutor(device)}
        if sshd_here():
            port = stack.enter_context(sshd(folder))
            target = SshTarget.parse(f"ssh://127.0.0.1:{port}{folder}/far", sys.executable)
            executors["ssh"] = SshExecutor(target, RemoteOptions(device=device))
        if find_spec("ray"):
            executors["ray"] = RayExecutor("local", RayOptions(device=device, actors=1))
        request = evaluation(1 << 20, timing=True, precision="quick")
        times: dict[str, list[float]] = {name: [] for name in executors}
        for executor in executors.values():
            stack.callback(executor.close)
            executor.evaluate(request)
        for _ in range(given.repeat):
            for name, executor in executors.items():
                times[name].append(executor.evaluate(request).latency_ms)
        here = statistics.median(times["local"])
        for name, found in times.items():
            middle = statistics.median(found)
            spread = (max(found) - min(found)) / middle
            ratio = f"{middle / here - 1:+.1%} against local"
            print(f"{name:<6} {middle * 1e3:9.1f} µs, spread {spread:.1%}, {ratio}", flush=True)


if __name__ == "__main__":
    main()
