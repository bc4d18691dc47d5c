"""Evaluations on a cluster of Ray: an actor for each GPU, on whichever machine that is."""

from __future__ import annotations

import io
import json
import logging
import os
import socket
import zipfile
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from secrets import token_hex
from typing import Any, Literal

from pytest_fib.build import Machine
from pytest_fib.data import BuildRequest, EvaluationRequest, Outcome, TensorFiles, outcome_from_json
from pytest_fib.executors._answers import FarEnd, JudgeRequest, not_evaluated, parts_of
from pytest_fib.executors._archives import RemoteError, archive_of
from pytest_fib.executors._local import LocalExecutor
from pytest_fib.executors._remote import ATTEMPTS, RemoteExecutor
from pytest_fib.temporary import TemporaryFolder

#: Requests that an actor has at a time: the next is there when one is answered.
IN_FLIGHT = 2
DIED = f"{ATTEMPTS} actors of Ray died of this request"
#: How long an address may take to answer, in seconds.
REACHED = 10.0
#: Requests that are read ahead for each actor, so that those of one definition stay together.
AHEAD = 64


@dataclass(frozen=True)
class RayOptions:
    """How actors evaluate.

    - ``device``: ``auto``, ``cpu`` or ``cuda``. ``isolation`` and ``lock_timeout`` are a judge's.
    - ``actors``: how many, at most one for each GPU; not given, one for each GPU or, without GPUs,
      one for each machine.
    - ``resources``: what each actor takes of the cluster; by default a GPU or a CPU.
    - ``patience``: how many seconds to wait while there is no actor at all.
    - ``prebuilt``: the folder here of what was built ahead of time. It goes to the actors through
      the object store.
    """

    device: Literal["auto", "cpu", "cuda"] = "auto"
    isolation: str = "process"
    lock_timeout: float = 600.0
    actors: int | None = None
    resources: dict[str, float] | None = None
    patience: float = 120.0
    prebuilt: Path | None = None


@dataclass(frozen=True)
class SharedActors:
    """Where actors are that another process of this run may ask, too."""

    address: str
    namespace: str
    names: tuple[str, ...]


class _Evaluator:
    """The actor: a judge of its own. Restarted, it begins anew."""

    def __init__(
        self,
        make_executor: Callable[..., Any],
        device: str,
        isolation: str,
        lock_timeout: float,
        prebuilt: bytes | None,
    ) -> None:
        self._files = TensorFiles()
        # Nobody removes it when Ray ends this process; whoever makes the next one does.
        self._kept = TemporaryFolder.make()
        self._folder = self._kept.path
        built = None if prebuilt is None else self._folder / "prebuilt"
        if prebuilt is not None:
            with zipfile.ZipFile(io.BytesIO(prebuilt)) as archive:
                archive.extractall(self._folder / "prebuilt")
        self._executor = make_executor(
            device, isolation, files=self._files, lock_timeout=lock_timeout, prebuilt=built
        )
        self._executor.start()
        self._far_end = FarEnd(self._executor)

    def machine(self) -> str:
        return Machine.here_for_others().to_json()

    def answer(self, message: bytes, *contents: bytes) -> bytes:
        """The answer to a request, which comes with its recorded tensors.

        The message has a line of JSON for each part of the request, and one before them that says
        what is asked. It is one argument, since Ray takes a tenth of a millisecond for each.
        """
        head, own, *shared = message.split(b"\n")
        kind, addresses = json.loads(head)
        for address, content in zip(addresses, contents, strict=True):
            if self._files.find(address) is None:
                path = self._folder / address
                path.write_bytes(content)
                self._files.add(path)
        return self._far_end.answer(kind, json.loads(own), shared)


@dataclass
class _Job:
    """A request to evaluate, and how many actors died of it."""

    request: EvaluationRequest
    deaths: int = 0


@dataclass
class _Seat:
    """An actor as the driver sees it: what it has to do, the eldest first."""

    handle: Any
    definition: str = ""
    jobs: deque[_Job] = field(default_factory=deque)
    is_away: bool = False

    def submit(self, kind: str, request: JudgeRequest, tensors: dict[str, Any]) -> Any:
        """A reference to the answer. If the actor dies, others may be asked: Ray tries no more."""
        head = json.dumps([kind, list(tensors)]).encode()
        message = b"\n".join([head, *parts_of(request)])
        return self._answer.remote(message, *tensors.values())

    @cached_property
    def _answer(self) -> Any:
        return self.handle.answer.options(max_task_retries=0)

    def probe(self) -> Any:
        """A reference that is there once the actor is back."""
        self.is_away = True
        return self.handle.machine.remote()


class _Backlog:
    """Requests that wait, by definition; some of them are read ahead."""

    def __init__(self, requests: Iterable[EvaluationRequest], ahead: int) -> None:
        self._source = iter(requests)
        self._ahead = ahead
        self._waiting: dict[str, deque[_Job]] = {}
        self._count = 0
        self._fill()

    def _fill(self) -> None:
        while self._count < self._ahead:
            request = next(self._source, None)
            if request is None:
                return
            self._add(_Job(request))

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def drain(self) -> Iterator[_Job]:
        while job := self.take("", Counter()):
            yield job

    def _add(self, job: _Job) -> None:
        self._waiting.setdefault(job.request.definition.name, deque()).append(job)
        self._count += 1

    def put_back(self, job: _Job) -> None:
        """To be the next of its definition."""
        self._add(job)
        self._waiting[job.request.definition.name].rotate(1)

    def take(self, current: str, busy: Counter[str]) -> _Job | None:
        """One of the definition that is kept; else of one that few work on and many wait for."""
        if not self._waiting:
            return None
        name = current
        if current not in self._waiting:
            name = min(self._waiting, key=lambda n: (busy[n], -len(self._waiting[n])))
        job = self._waiting[name].popleft()
        self._count -= 1
        if not self._waiting[name]:
            del self._waiting[name]
        self._fill()
        return job


class RayExecutor(RemoteExecutor):
    """Evaluates on all GPUs of a cluster.

    address: ``auto`` or an address as for ``ray.init``; ``local`` starts a cluster on this machine.
    make_executor: what evaluates in an actor, called as LocalExecutor is.
    shared: actors of another process, to use in place of own ones.

    Raises RemoteError where there is no such cluster, or none with what is needed.
    """

    def __init__(
        self,
        address: str = "auto",
        options: RayOptions | None = None,
        *,
        files: TensorFiles | None = None,
        make_executor: Callable[..., Any] = LocalExecutor,
        shared: SharedActors | None = None,
    ) -> None:
        self.options = options or RayOptions()
        self._files = files or TensorFiles()
        #: Files of recorded tensors in the object store, by what they hold.
        self._stored: dict[str, Any] = {}
        #: Those that this has made, and that end with it.
        self._actors: list[Any] = []
        namespace = f"pytest-fib-{token_hex(8)}" if shared is None else shared.namespace
        self._ray, self._was_connected = _connected(address, namespace)
        try:
            self.shared = shared or self._new_actors(address, namespace, make_executor)
            self._seats = [_Seat(self._found(name)) for name in self.shared.names]
        except BaseException:  # an interrupt, too
            self._leave()
            raise

    def _found(self, name: str) -> Any:
        """An actor of this process or another. Raises RemoteError."""
        try:
            return self._ray.get_actor(name, self.shared.namespace)
        except ValueError:
            address = self.shared.address
            raise RemoteError(f"{address}: the actors of this run are gone") from None

    def _new_actors(
        self, address: str, namespace: str, make_executor: Callable[..., Any]
    ) -> SharedActors:
        """Raises RemoteError."""
        device = self._device(address)
        names = tuple(f"{namespace}-{i}" for i in range(self._number(device)))
        self._actors = [self._actor(name, namespace, device, make_executor) for name in names]
        return SharedActors(self._ray.get_runtime_context().gcs_address, namespace, names)

    def start(self) -> list[Machine]:
        """Wait until all actors are there; what machines they are on. Raises RemoteError."""
        probes = [seat.handle.machine.remote() for seat in self._seats]
        try:
            return [
                Machine.from_json(text)
                for text in self._ray.get(probes, timeout=self.options.patience)
            ]
        except self._ray.exceptions.GetTimeoutError:
            wanted = f"{len(probes)} actors of {self._resources(self._device('it'))}"
            why = f"no room for {wanted} within {self.options.patience:g} s"
        except self._ray.exceptions.RayError as error:
            why = _line(error)
        raise RemoteError(why)

    def _device(self, address: str) -> str:
        gpus = self._ray.cluster_resources().get("GPU", 0)
        if self.options.device == "cuda" and not gpus:
            raise RemoteError(f"{address}: no machine of the cluster has a GPU")
        if self.options.device == "auto":
            return "cuda" if gpus else "cpu"
        return self.options.device

    def _number(self, device: str) -> int:
        actors = self.options.actors
        if device == "cuda":
            gpus = int(self._ray.cluster_resources()["GPU"])
            return gpus if actors is None else min(actors, gpus)
        return actors or sum(node["Alive"] for node in self._ray.nodes())

    def _resources(self, device: str) -> dict[str, float]:
        """Timed work has a GPU to itself."""
        return self.options.resources or ({"num_gpus": 1} if device == "cuda" else {"num_cpus": 1})

    def _actor(
        self, name: str, namespace: str, device: str, make_executor: Callable[..., Any]
    ) -> Any:
        options = self.options
        actor = self._ray.remote(_Evaluator).options(
            name=name,
            namespace=namespace,
            max_restarts=-1,
            max_task_retries=-1,
            **self._resources(device),
        )
        return actor.remote(
            make_executor, device, options.isolation, options.lock_timeout, self._prebuilt
        )

    @cached_property
    def _prebuilt(self) -> Any:
        """A reference to an archive of what was built ahead of time, if there is any."""
        folder = self.options.prebuilt
        return None if folder is None else self._ray.put(archive_of(folder).content())

    # Requests.

    def _ask(self, kind: str, request: JudgeRequest) -> bytes:
        """The first actor's answer, however often it is restarted. Raises RemoteError."""
        seat, errors = self._seats[0], self._ray.exceptions
        for _ in range(ATTEMPTS):
            try:
                answer: bytes = self._ray.get(seat.submit(kind, request, self._tensors(request)))
            except errors.RayActorError:
                self._wait_for(seat)
            except errors.RayError as error:
                raise RemoteError(_line(error)) from None
            else:
                return answer
        raise RemoteError(DIED)

    def _wait_for(self, seat: _Seat) -> None:
        try:
            self._ray.get(seat.probe(), timeout=self.options.patience)
        except self._ray.exceptions.GetTimeoutError:
            raise RemoteError(self.no_actor) from None
        seat.is_away = False

    @property
    def no_actor(self) -> str:
        """Why nothing can be asked any longer."""
        return f"Ray restarted no actor within {self.options.patience:g} s"

    def evaluate_all(
        self, requests: Iterable[EvaluationRequest]
    ) -> Iterator[tuple[EvaluationRequest, Outcome]]:
        """Requests and what came of them, as these come, from all actors."""
        yield from _Run(self, requests)

    def _tensors(self, request: JudgeRequest) -> dict[str, Any]:
        """References to a request's recorded tensors, each file stored once."""
        tensors = {} if isinstance(request, BuildRequest) else request.tensors
        for address in tensors.values():
            path = self._files.find(address)
            if address not in self._stored and path is not None:
                self._stored[address] = self._ray.put(path.read_bytes())
        return {each: self._stored[each] for each in tensors.values() if each in self._stored}

    def close(self) -> None:
        """End the actors, whatever they do, and leave the cluster."""
        for actor in self._actors:
            self._ray.kill(actor, no_restart=True)
        self._leave()

    def _leave(self) -> None:
        if not self._was_connected:
            self._ray.shutdown()


class _Run:
    """One `RayExecutor.evaluate_all`, on all its actors."""

    def __init__(self, executor: RayExecutor, requests: Iterable[EvaluationRequest]) -> None:
        self._executor = executor
        self._ray = executor._ray
        self._seats = executor._seats
        self._backlog = _Backlog(requests, AHEAD * len(self._seats))
        #: What is waited for: the answer to a job, or that an actor is back.
        self._running: dict[Any, tuple[_Seat, _Job | None]] = {}

    def __iter__(self) -> Iterator[tuple[EvaluationRequest, Outcome]]:
        self._give_work()
        while self._backlog or any(seat.jobs for seat in self._seats):
            ready = self._ready()
            for ref in ready:
                seat, job = self._running.pop(ref)
                if job is None:
                    self._welcome(seat, ref)
                elif (outcome := self._outcome(seat, job, ref)) is not None:
                    yield job.request, outcome
            self._give_work()
            if not ready:  # and so no actor is left
                for job in self._backlog.drain():
                    yield job.request, not_evaluated(self._executor.no_actor)

    def _ready(self) -> list[Any]:
        """One that is ready, and what else is; none where no actor is back in time."""
        at_work = any(seat.jobs for seat in self._seats)
        timeout = None if at_work else self._executor.options.patience
        if not self._running:
            return []
        ready, rest = self._ray.wait(list(self._running), timeout=timeout)
        more = self._ray.wait(rest, num_returns=len(rest), timeout=0)[0] if rest else []
        return [*ready, *more]

    def _give_work(self) -> None:
        for seat in self._seats:
            while not seat.is_away and len(seat.jobs) < IN_FLIGHT:
                taken = Counter(each.definition for each in self._seats if each.jobs)
                job = self._backlog.take(seat.definition, taken)
                if job is None:
                    return
                seat.definition = job.request.definition.name
                seat.jobs.append(job)
                tensors = self._executor._tensors(job.request)
                self._running[seat.submit("evaluate", job.request, tensors)] = seat, job

    def _outcome(self, seat: _Seat, job: _Job, ref: Any) -> Outcome | None:
        """What came of a job; None where its actor died and another is to do it."""
        eldest = seat.jobs[0]
        seat.jobs.remove(job)
        errors = self._ray.exceptions
        try:
            return outcome_from_json(self._ray.get(ref))
        except errors.RayActorError:
            if not seat.is_away:  # what comes behind the eldest was not begun
                eldest.deaths += 1
                self._running[seat.probe()] = seat, None
            if job.deaths == ATTEMPTS:
                return not_evaluated(DIED)
            self._backlog.put_back(job)
            return None
        except errors.RayError as error:
            return not_evaluated(_line(error))

    def _welcome(self, seat: _Seat, ref: Any) -> None:
        """Take an actor in again, unless it is gone for good."""
        try:
            self._ray.get(ref)
        except self._ray.exceptions.RayError:
            return
        seat.is_away = False


def _connected(address: str, namespace: str) -> tuple[Any, bool]:
    """Ray, and whether it had a cluster already. Raises RemoteError."""
    try:
        import ray
    except ImportError:
        raise RemoteError("Ray is not installed: pip install 'pytest-fib[ray]'") from None
    if ray.is_initialized():
        return ray, True
    if address not in ("auto", "local") and ":" not in address:
        raise RemoteError(f"{address}: is no address of a cluster; give HOST:PORT, auto or local")
    if address == "auto":
        _check_reachable(os.environ.get("RAY_ADDRESS") or _started_last(), " (auto)")
    _check_reachable(address)
    package = str(Path(__file__).parents[1])
    local: dict[str, Any] = {"include_dashboard": False} if address == "local" else {}
    try:
        ray.init(
            address=address,
            namespace=namespace,
            runtime_env={"py_modules": [package]},  # sent by content, once
            logging_level=logging.ERROR,
            log_to_driver=False,
            **local,
        )
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise RemoteError(f"{address}: {_why_not_connected(error)}") from None
    return ray, False


def _why_not_connected(error: Exception) -> str:
    # All of it: of two versions that differ, each is in a line of its own.
    why = " ".join(str(error).split())
    # "Failed to connect": of a token that lacks or is wrong, only the error before that tells.
    earlier = error.__cause__ or error.__context__
    if isinstance(error, ConnectionError) and isinstance(earlier, Exception):
        return f"{why}: {_line(earlier)}"
    return why


def _started_last() -> str:
    """The address in the file where Ray looks for a cluster that it isn't told; or nothing."""
    folder = os.environ.get("RAY_TMPDIR") or os.environ.get("TMPDIR") or "/tmp"
    try:
        return Path(folder, "ray", "ray_current_cluster").read_text(encoding="utf-8").strip()
    except OSError:
        return ""


def _check_reachable(address: str, why: str = "") -> None:
    """Ray itself tries for minutes. Raises RemoteError."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not port.isdigit():
        return  # "auto" or "local"
    try:
        socket.create_connection((host, int(port)), timeout=REACHED).close()
    except OSError as error:
        raise RemoteError(f"{address}{why}: no cluster can be reached there: {error}") from None


def _line(error: Exception) -> str:
    """The last line of a message: a task's traceback begins with where that was."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__
