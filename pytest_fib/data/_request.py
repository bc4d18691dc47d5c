"""The seam: what an evaluation or a search is asked with, and what comes of it.

Records that go through JSON and back without loss, and need nothing beside them: an executor may
send them to another process or machine.
"""

import hashlib
import traceback
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeAlias

from pydantic import Field, TypeAdapter

from ._base import Record, Size, Text, is_none
from ._definition import Definition
from ._solution import Solution
from ._trace import NOT_EVALUATED, OWN_FAULT, Diagnosis, Evaluation, EvaluationStatus
from ._workload import Workload

#: What to do about an error of pytest-fib's own.
REPORT_IT = "please report it to pytest-fib's authors, with the log of this record"
#: Seconds for explaining a failure, after which it is told with what is known by then.
EXPLAIN_SECONDS = 20.0
#: Small workloads that are drawn for each other one.
SMALL_FOR_EACH = 3
#: How exactly a time is to be known.
Precision: TypeAlias = Literal["quick", "default", "strict"]
#: Where a failing workload comes from.
Origin: TypeAlias = Literal["failed before", "listed", "shrunk", "unfinished", "recorded"]


class DefinitionFault(Record):
    """Why a definition can't be used: its reference fails, or its inputs can't be made.

    `message` is one line for people, `log` a traceback or what was printed. `exhausted`: all that
    was lacking is time or memory, so smaller workloads may do.
    """

    message: Text
    log: str = ""
    exhausted: bool = False

    @property
    def text(self) -> str:
        """The message, and the log below it."""
        return f"{self.message}\n{self.log}".strip()


class DefinitionError(Exception):
    """Inside the engine only: what becomes a DefinitionFault."""

    def __init__(self, message: str, log: str = "", *, exhausted: bool = False) -> None:
        super().__init__(message)
        self.fault = DefinitionFault(message=message, log=log, exhausted=exhausted)


def own_fault(error: Exception) -> Evaluation:
    """The record of an error of pytest-fib's own: a line for people, and its traceback as log."""
    frames = traceback.extract_tb(error.__traceback__)
    own = [frame for frame in frames if "pytest_fib" in Path(frame.filename).parts]
    place = next((f"{Path(f.filename).name}:{f.lineno}" for f in reversed(own)), "unknown place")
    what = next(iter(f"{type(error).__name__}: {error}".splitlines()))
    sentence = f"{OWN_FAULT}, no verdict: {what} ({place}); {REPORT_IT}"
    return Evaluation(
        status=EvaluationStatus.RUNTIME_ERROR,
        diagnosis=Diagnosis(sentence=sentence, pattern=NOT_EVALUATED),
        log="".join(traceback.format_exception(error)),
    )


Outcome: TypeAlias = Evaluation | DefinitionFault


class _SeamRecord(Record):
    """A record with JSON in both directions."""

    def to_json(self) -> str:
        """This as JSON."""
        return self.model_dump_json(by_alias=True)

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """What `to_json` gave. Raises pydantic's ValidationError, a ValueError."""
        return cls.model_validate_json(text)


class _Request(_SeamRecord):
    """What every request has.

    `solution` holds its sources. `directory` is where they lie on this machine, if they do: with
    it, tracebacks and debuggers show the user's own files. `tensors` has, for each file of recorded
    tensors, by its path in the workload or definition, the sha256 of what it holds: see
    `TensorFiles`. `timeout` is in seconds, for one evaluation, `build_timeout` for compiling the
    implementation. Each workload is checked `repeat` times: two calls on the same inputs each time.
    """

    definition: Definition
    solution: Solution
    tensors: dict[str, str] = Field(default_factory=dict)
    directory: Annotated[str | None, Field(exclude_if=is_none)] = None
    timeout: Annotated[float, Field(gt=0)] = 60.0
    build_timeout: Annotated[float, Field(gt=0)] = 600.0
    repeat: Annotated[int, Field(ge=1)] = 1


class EvaluationRequest(_Request):
    """One implementation on one workload.

    With `timing` the calls are also timed, once the outputs were found right, to a `precision` that
    is one of `timing.PRECISIONS`. With `draws`, outputs that are chosen at random are also drawn
    many times, which takes seconds; not where calls are timed. With `explain`, a failure without a
    pattern is compared with what the reference makes of other inputs, which takes many calls: no
    more are begun `explain_seconds` after the evaluation was. With `afresh`, the implementation is
    loaded anew, so that nothing is left of earlier calls.
    """

    workload: Workload
    timing: bool = False
    precision: Precision = "default"
    draws: bool = False
    explain: bool = False
    explain_seconds: float = EXPLAIN_SECONDS
    afresh: bool = False


class BuildRequest(_SeamRecord):
    """One implementation, to be compiled for ``target``: ``cpu``, or an architecture as ``sm_90``.

    The other fields are as those of an EvaluationRequest.
    """

    definition: Definition
    solution: Solution
    target: Text
    directory: Annotated[str | None, Field(exclude_if=is_none)] = None
    build_timeout: Annotated[float, Field(gt=0)] = 600.0


class BuildResult(_SeamRecord):
    """What came of a build, and the most that any of its kernels takes.

    `registers` are of a thread, `shared_bytes` of a block; `spills` are bytes of registers that did
    not fit, `kernel` is the one that spills most; `binary_bytes` is the size of what was built.
    `status` is PASSED, COMPILE_ERROR or, where it can't be told here, SKIPPED; `message` is a line
    on that, `log` what a compiler printed.
    """

    status: Literal["PASSED", "COMPILE_ERROR", "SKIPPED"]
    message: str = ""
    log: str = ""
    kernel: str = ""
    registers: int = 0
    shared_bytes: int = 0
    spills: int = 0
    binary_bytes: int = 0


class SearchRequest(_Request):
    """One implementation on the workloads of a search.

    Workloads that `failed_before` and those `listed` come first, then `examples` drawn from `seed`,
    none of more than `max_bytes`, and for each of these `small_for_each` small ones. A fifth of
    those drawn follow from `run_seed` instead, if there is one, so that no implementation can have
    foreseen them. With `draws`, outputs that are chosen at random are drawn many times at the end.
    """

    failed_before: list[Workload] = Field(default_factory=list)
    listed: list[Workload] = Field(default_factory=list)
    examples: Annotated[int, Field(ge=1)] = 25
    small_for_each: Annotated[int, Field(ge=0)] = SMALL_FOR_EACH
    seed: int = 0
    run_seed: Annotated[int | None, Field(exclude_if=is_none)] = None
    max_bytes: Size = 1 << 28
    draws: bool = True

    def evaluation(self, workload: Workload, **options: Any) -> EvaluationRequest:
        """The request for one of its evaluations; options are fields of an EvaluationRequest."""
        shared = {name: getattr(self, name) for name in _Request.model_fields}
        return EvaluationRequest(**shared, workload=workload, **options)


class SearchResult(_SeamRecord):
    """The result of a search: a failing workload or, if none failed, the closest to its bound.

    `tried` counts workloads. `origin` says where the failing workload comes from, None where
    nothing failed: ``shrunk`` is the smallest of its kind, ``unfinished`` the smallest that was
    found in time; ``failed before`` and ``listed`` ones are as they were given.
    """

    tried: int
    workload: Workload
    outcome: Outcome
    origin: Origin | None = None

    @property
    def was_evaluated(self) -> bool:
        """Whether the outcome says something of the implementation or the definition."""
        diagnosis = self.outcome.diagnosis if isinstance(self.outcome, Evaluation) else None
        return diagnosis is None or diagnosis.pattern != NOT_EVALUATED


_OUTCOME: TypeAdapter[Outcome] = TypeAdapter(Outcome)


def outcome_to_json(outcome: Outcome) -> str:
    return outcome.model_dump_json(by_alias=True)


def outcome_from_json(text: str | bytes) -> Outcome:
    """What `outcome_to_json` gave. Raises pydantic's ValidationError, a ValueError."""
    return _OUTCOME.validate_json(text)


class TensorFiles:
    """Files of recorded tensors on this machine, by the sha256 of what they hold.

    Whoever asks adds the files that a workload names; who answers looks them up. In one process
    both have the same object, and nothing is copied.
    """

    def __init__(self) -> None:
        self._paths: dict[str, Path] = {}
        self._addresses: dict[tuple[Path, int, int], str] = {}

    def add(self, path: Path) -> str:
        """The address of a file, which is read unless it is known. Raises OSError."""
        status = path.stat()
        key = (path.absolute(), status.st_size, status.st_mtime_ns)
        if key not in self._addresses:
            with path.open("rb") as file:
                self._addresses[key] = hashlib.file_digest(file, "sha256").hexdigest()
        address = self._addresses[key]
        self._paths[address] = key[0]
        return address

    def find(self, address: str) -> Path | None:
        """A file that holds what the address names, or None."""
        return self._paths.get(address)
