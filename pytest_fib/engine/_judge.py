"""The trusted side: makes inputs, owns memory, decides. It runs no foreign code."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

import torch

from pytest_fib.build import (
    CPU,
    Artifact,
    ArtifactCache,
    BuildError,
    Hardware,
    Prebuilt,
    Program,
    default_builds_directory,
    gpus,
    program_of,
    reference_program,
)
from pytest_fib.data import (
    NOT_EVALUATED,
    BuildRequest,
    BuildResult,
    Definition,
    DefinitionError,
    Diagnosis,
    Evaluation,
    EvaluationRequest,
    Outcome,
    Performance,
    SearchRequest,
    SearchResult,
    Solution,
    TensorFiles,
    Workload,
    own_fault,
)
from pytest_fib.engine._artifacts import Artifacts, build_result, build_subject
from pytest_fib.engine._benchmark import BenchmarkPhase, ReferenceFacts
from pytest_fib.engine._candidate_costs import CandidateCosts, timed_out
from pytest_fib.engine._context import (
    ATTEMPT_PAUSES,
    EvaluationContext,
    EvaluationEnded,
    LostAttemptError,
    Side,
    conclude,
)
from pytest_fib.engine._correctness import check_correctness
from pytest_fib.engine._counts_cache import CountsCache
from pytest_fib.engine._device_lock import DeviceHeldError, DeviceLock, DeviceUse, silent
from pytest_fib.engine._output_checker import ExpectedCache
from pytest_fib.engine._reference_costs import ReferenceCosts, memory_of
from pytest_fib.engine._sample_plan import check_samples
from pytest_fib.engine._sandbox_calls import SandboxCalls
from pytest_fib.engine._search import search_and_diagnose, search_step, unfinished_result
from pytest_fib.engine._start import Isolation, compiler_caches, start_fork_server
from pytest_fib.sandbox import (
    ArenaAllocator,
    ForkServer,
    ForkServerError,
    LocalSandbox,
    ProcessSandbox,
    SpareProcess,
    TimingCore,
    give_back_unused,
)
from pytest_fib.timing import DeviceCeilings, place_on_machine
from pytest_fib.workloads import plain_defaults

if TYPE_CHECKING:
    from pytest_fib.sandbox import LastCall
    from pytest_fib.verdict import Verdict

#: Calls without outputs run no kernel, or one that does nothing.
NOTHING_TO_TIME = "not timed: its outputs are empty"
#: Errors that prevent an evaluation: no fault of an implementation or a definition.
UNAVAILABLE = (DeviceHeldError, ForkServerError, torch.OutOfMemoryError)


class Judge:
    """Evaluates one request after another on one device, ``cpu`` or ``cuda``.

    The candidate and the reference have a sandbox and an arena each, so the candidate's side never
    holds an expected value.

    - ``isolation``: ``none`` runs foreign code in this process; ``container`` gives sandboxes a
      file system and a network of their own (by bwrap).
    - ``announce`` is called with a sentence when another process holds the device, ``progress``
      with each new activity. ``lock_timeout`` is the most seconds to wait for the device.
    - ``files`` has the recorded tensors that requests name by their content.
    - ``builds`` is the cache of artifacts, by default in the user's cache directory; ``prebuilt``
      has those of ``python -m pytest_fib build``.
    - ``timed``: whether requests may ask for times. If not, sandboxes have cheaper CUDA contexts.
    - ``fork_server``: one that was started before, which its owner closes.
    - ``last_call`` watches the candidate's calls, if they are made in this process.
    """

    def __init__(
        self,
        device: str = "cpu",
        isolation: Isolation = "process",
        announce: Callable[[str], None] | None = None,
        files: TensorFiles | None = None,
        lock_timeout: float = 600.0,
        *,
        builds: Path | None = None,
        prebuilt: Path | None = None,
        timed: bool = True,
        progress: Callable[[str], None] | None = None,
        last_call: LastCall | None = None,
        fork_server: ForkServer | None = None,
    ) -> None:
        self.device = device
        self._last_call = last_call
        self._progress = progress or silent
        self._fork_server = fork_server or start_fork_server(
            device, isolation, builds=builds, prebuilt=prebuilt, timed=timed
        )
        self._started = None if fork_server else self._fork_server
        self._hardware = CPU if device == "cpu" else gpus.first()
        self._files = files or TensorFiles()
        self._lock = DeviceLock(device, announce, lock_timeout)
        self._ceilings = DeviceCeilings(device)
        self._subject: _Subject | None = None
        self._caches: _DefinitionCaches | None = None
        self._core = TimingCore(*place_on_machine(device))
        if self._fork_server is not None:
            self._fork_server.pin(self._core.others)
        self._spares: list[SpareProcess] = []
        self._candidate = self._side(untrusted=True)
        self._reference = self._side(untrusted=False)
        folder = builds or default_builds_directory()
        self._counts = CountsCache(folder and folder / "counts", device)
        self._builds = builds
        self._build_server: ForkServer | None = None
        ahead = None if prebuilt is None else Prebuilt(prebuilt)
        self._artifacts = Artifacts(ArtifactCache(folder, announce), ahead, self._builder)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def waited(self) -> float:
        return self._lock.waited

    def take_device_use(self) -> DeviceUse:
        """What this did with the device since this was called last."""
        return self._lock.take_use()

    def close(self) -> None:
        self._close_sandboxes()
        for server in (self._started, self._build_server):
            if server is not None:
                server.close()
        self._core.close()

    def search(self, request: SearchRequest) -> SearchResult:
        """Look for a workload on which the implementation is wrong."""

        checked: list[tuple[Workload, Outcome]] = []
        costs = self._caches_of(request.definition).costs
        own_costs = self._candidate_costs(request)

        def clock() -> float:
            return monotonic() - self.waited  # waiting for the device is no cost of a workload

        def check(workload: Workload, *, explain: bool = False, **how: Any) -> Outcome:
            step = "explaining a failure" if explain else search_step(request, checked)
            self._progress(f"{step}: {_shown_axes(workload)}")
            start = clock()
            outcome = self._outcome(request.evaluation(workload, explain=explain, **how))
            if not explain:
                checked.append((workload, outcome))
                own_costs.note(workload, outcome, clock() - start)
            return outcome

        def undecided(workload: Workload, outcome: Outcome) -> bool:
            limits = request.timeout, request.max_bytes, memory_of(self.device)
            if own_costs.explain(workload) or costs.explain(workload, outcome, *limits):
                return True
            return timed_out(outcome) and own_costs.is_late_for_its_size(workload, check)

        try:
            return search_and_diagnose(
                request.definition,
                check,
                failed_before=request.failed_before,
                listed=request.listed,
                examples=request.examples,
                small_for_each=request.small_for_each,
                numbers=_numbers(request.solution),
                seed=request.seed,
                run_seed=request.run_seed,
                max_bytes=request.max_bytes,
                draws=request.draws,
                affordable=lambda workload: costs.are_affordable(
                    workload, request.timeout, request.max_bytes
                ),
                slow=own_costs.is_slow,
                undecided=undecided,
                clock=clock,
            )
        except UNAVAILABLE as error:
            return unfinished_result(request, checked, self._not_evaluated(error))
        except Exception as error:  # noqa: BLE001  (ours: what was found until then counts)
            return unfinished_result(request, checked, self._own_fault(error))

    def evaluate(self, request: EvaluationRequest) -> Outcome:
        """Run the implementation, then the reference, on one workload, and compare."""
        self._progress(
            f"{'timing' if request.timing else 'checking'} {_shown_axes(request.workload)}"
        )
        try:
            return self._outcome(request)
        except UNAVAILABLE as error:
            return self._not_evaluated(error)
        except Exception as error:  # noqa: BLE001
            return self._own_fault(error)

    def build(self, request: BuildRequest) -> BuildResult:
        """Compile the implementation for a target, which need not be this device."""
        self._progress(f"compiling for {request.target}")
        return self.build_artifact(request)[0]

    @plain_defaults()
    def build_artifact(
        self, request: BuildRequest
    ) -> tuple[BuildResult, tuple[Program, Artifact] | None]:
        """As ``build``, with the program and its artifact if it can be loaded. Thread-safe."""
        try:
            program, subject = build_subject(request)
            if program.language == "triton" and self._fork_server is None:
                why = "Triton compiles in a sandbox only"
                return BuildResult(status="SKIPPED", message=why), None
            built = self._artifacts.get(program, request.build_timeout, subject)
        except BuildError as error:
            return BuildResult(status="SKIPPED", message=str(error)), None
        except ForkServerError as error:
            return BuildResult(status="SKIPPED", message=f"{NOT_EVALUATED}: {error}"), None
        loadable = (program, built) if isinstance(built, Artifact) and subject is None else None
        return build_result(built), loadable

    def _own_fault(self, error: Exception) -> Evaluation:
        """The outcome of an error of this package; resets the judge for the next request."""
        self._close_sandboxes()
        environment = self._not_evaluated(error).environment
        return own_fault(error).model_copy(update={"environment": environment})

    def _not_evaluated(self, error: Exception) -> Evaluation:
        diagnosis = Diagnosis(sentence=f"{NOT_EVALUATED}: {error}", pattern=NOT_EVALUATED)
        return conclude("RUNTIME_ERROR", diagnosis, device=self.device)

    @plain_defaults()
    def _outcome(self, request: EvaluationRequest) -> Outcome:
        """As ``evaluate``. Raises one of UNAVAILABLE if the machine prevents it."""
        try:
            for pause in ATTEMPT_PAUSES:
                try:
                    return self._evaluate(request, last_attempt=False)
                except (LostAttemptError, torch.OutOfMemoryError) as error:
                    # Whatever killed one sandbox may have killed the other.
                    self._close_sandboxes()
                    if not isinstance(error, LostAttemptError) or error.exhausted:
                        torch.cuda.empty_cache()
                        sleep(pause)  # other workers may use all of it for a moment
            return self._evaluate(request, last_attempt=True)
        except DefinitionError as error:
            return error.fault
        finally:
            give_back_unused()

    def _evaluate(self, request: EvaluationRequest, *, last_attempt: bool) -> Evaluation:
        try:
            context = self._context(request, last_attempt=last_attempt)
            verdict, performance = self._run_phases(context)
        except BuildError as error:  # it is for other hardware
            diagnosis = Diagnosis(sentence=str(error))
            return conclude("COMPILE_ERROR", diagnosis, device=self.device)
        except EvaluationEnded as ended:
            return ended.evaluation(self.device)
        evaluation = conclude(
            verdict.status,
            verdict.diagnosis,
            verdict.correctness,
            performance,
            device=self.device,
            printed=context.printed,
        )
        compiled = self._artifacts.compiled.get(context.candidate_program)
        return evaluation.model_copy(update={"compiled": compiled})

    def _run_phases(self, context: EvaluationContext) -> tuple[Verdict, Performance | None]:
        """Check the outputs and, on request, time the calls."""
        request = context.request
        with self._lock.shared():
            context.load_candidate()
            if request.afresh:
                context.restart_candidate()
            buffers = context.buffers(context.candidate)
            tensors = buffers.first, context.buffers(context.reference).first
            calls = SandboxCalls(context, *tensors, self._caches_of(request.definition).expected)
            verdict = check_correctness(calls, context, buffers.size)
        if verdict.passed and request.draws and not request.timing:
            verdict = check_samples(verdict, context, *tensors)
        if not request.timing or not verdict.passed:
            return verdict, None
        if not any(0 not in context.layouts[name].shape for name in context.definition.outputs):
            context.printed = f"{NOTHING_TO_TIME}\n{context.printed}"
            return verdict, None
        known = self._caches_of(request.definition).timed
        benchmark = BenchmarkPhase(context, self._core, self._ceilings.known, self._counts, known)
        timed, performance = benchmark.outcome()
        # The record has this workload's values; timed calls get new ones each time.
        return (verdict, performance) if timed.passed else (timed, None)

    def _context(self, request: EvaluationRequest, *, last_attempt: bool) -> EvaluationContext:
        known, subject = self._caches_of(request.definition), self._subject
        request = request.model_copy(update={"definition": known.definition})
        if subject is None or not subject.is_of(request):
            self._subject = subject = _Subject.of(request, self._hardware)
        return EvaluationContext(
            request,
            self._candidate,
            self._reference,
            subject.candidate_program,
            subject.reference_program,
            self._local_files(request),
            self._lock,
            self._artifacts,
            known.costs,
            last_attempt,
        )

    def _caches_of(self, definition: Definition) -> _DefinitionCaches:
        """The caches of a definition, which are kept while requests are for it."""
        if self._caches is None or not _is_same(self._caches.definition, definition):
            self._caches = _DefinitionCaches(
                definition, ExpectedCache(), ReferenceCosts(definition), {}
            )
        return self._caches

    def _candidate_costs(self, request: SearchRequest) -> CandidateCosts:
        interpreted = self._hardware.interprets(request.solution.spec.language.value)
        return CandidateCosts(request.definition, request.timeout, interpreted)

    def _local_files(self, request: EvaluationRequest) -> dict[str, Path]:
        """The paths of recorded tensors on this machine. Raises DefinitionError."""
        files = {}
        for path, address in request.tensors.items():
            file = self._files.find(address)
            if file is None:
                raise DefinitionError(f"a recorded workload can't be used: {path} is not here")
            files[path] = file
        return files

    def _builder(self, language: str) -> LocalSandbox | ProcessSandbox:
        """A sandbox without tensors, for a language's compiler."""
        if self._fork_server is None:
            return LocalSandbox(self.device, self._candidate.allocator)
        server = self._fork_server
        if self._hardware.interprets(language):
            # The usual fork server has imported it as its interpreter.
            if self._build_server is None:
                environment = {**compiler_caches(self._builds), "TRITON_INTERPRET": "0"}
                self._build_server = ForkServer("cpu", environment, contained=server.contained)
            server = self._build_server
        return ProcessSandbox(server, None, untrusted=True)

    def _close_sandboxes(self) -> None:
        self._candidate.sandbox.close()
        self._reference.sandbox.close()
        for spare in self._spares:
            spare.close()

    def _side(self, *, untrusted: bool) -> Side:
        allocator = ArenaAllocator(self.device)
        if self._fork_server is None:
            last_call = self._last_call if untrusted else None
            return Side(LocalSandbox(self.device, allocator, last_call), allocator)
        sandbox = ProcessSandbox(
            self._fork_server,
            allocator,
            untrusted=untrusted,
            turns=self._lock,
            spare=self._spare(self._fork_server),
        )
        return Side(sandbox, allocator)

    def _spare(self, fork_server: ForkServer) -> SpareProcess | None:
        """Keeps one side's next process ready; not on the CPU, where a fork is quick."""
        if self.device == "cpu":
            return None
        spare = SpareProcess(fork_server)
        self._lock.add_background(spare)
        self._spares.append(spare)
        return spare


@dataclass(frozen=True)
class _DefinitionCaches:
    """A definition, as one object for equal records, and its caches."""

    definition: Definition
    expected: ExpectedCache
    costs: ReferenceCosts
    #: Facts of timed references, by workload.
    timed: dict[str, ReferenceFacts]


def _numbers(solution: Solution) -> list[float]:
    """The numbers in the source of an implementation."""
    from pytest_fib.search import source_numbers

    sources = {file.path: file.content for file in solution.sources}
    return source_numbers(sources, solution.entry_file, solution.entry_symbol)


def _is_same(one: object, other: object) -> bool:
    """Whether records are equal, which is slow unless they are identical."""
    return one is other or one == other


@dataclass(frozen=True)
class _Subject:
    """The common facts of consecutive requests, and their programs."""

    definition: Definition
    solution: Solution
    directory: str | None
    candidate_program: Program
    reference_program: Program

    @classmethod
    def of(cls, request: EvaluationRequest, hardware: Hardware) -> _Subject:
        definition, solution, directory = request.definition, request.solution, request.directory
        return cls(
            definition,
            solution,
            directory,
            program_of(
                solution, definition, None if directory is None else Path(directory), hardware
            ),
            reference_program(definition),
        )

    def is_of(self, request: EvaluationRequest) -> bool:
        """Whether a request is for the same."""
        return (
            _is_same(self.definition, request.definition)
            and _is_same(self.solution, request.solution)
            and self.directory == request.directory
        )


def _shown_axes(workload: Workload) -> str:
    """``batch=7, n=64``."""
    return ", ".join(f"{axis}={n}" for axis, n in workload.axes.items()) or "no var axes"
