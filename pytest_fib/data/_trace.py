"""What came of one implementation on one workload."""

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from typing import Annotated, Any, Self

from pydantic import (
    BeforeValidator,
    ConfigDict,
    Field,
    PrivateAttr,
    ValidationError,
    model_validator,
)

from ._base import NON_FINITE, Raw, Record, Size, Text, is_none, part
from ._sentence import Part, Sentence, in_words
from ._text import shortened
from ._workload import Workload


class EvaluationStatus(StrEnum):
    """How an evaluation ended."""

    PASSED = "PASSED"
    INCORRECT_SHAPE = "INCORRECT_SHAPE"
    INCORRECT_NUMERICAL = "INCORRECT_NUMERICAL"
    INCORRECT_DTYPE = "INCORRECT_DTYPE"
    RUNTIME_ERROR = "RUNTIME_ERROR"
    COMPILE_ERROR = "COMPILE_ERROR"
    TIMEOUT = "TIMEOUT"


def _is_empty(value: object) -> bool:
    """For ``Field(exclude_if=...)``: an empty optional key is left out."""
    return not value


def _restored(value: Raw) -> Raw:
    """Plain data with the strings that JSON has for NaN and infinities turned into floats."""
    if isinstance(value, str):
        return NON_FINITE.get(value, value)
    if isinstance(value, Mapping):
        return {key: _restored(item) for key, item in value.items()}
    return [_restored(item) for item in value] if isinstance(value, list) else value


_Loose = Annotated[Any, BeforeValidator(_restored)]


class Correctness(Record):
    """How far the outputs were from the expected values; None is not known."""

    max_relative_error: float | None = None
    max_absolute_error: float | None = None
    extra: Annotated[dict[str, _Loose] | None, Field(exclude_if=is_none)] = None


class Performance(Record):
    """Milliseconds per call, the reference's, and their quotient. Further keys are kept."""

    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[str, _Loose]

    latency_ms: float | None = None
    reference_latency_ms: float | None = None
    speedup_factor: float | None = None


#: The pattern of what the machine, not an implementation, kept from being tried; and that of an
#: implementation that found no memory left.
NOT_EVALUATED, OUT_OF_MEMORY = "not evaluated", "out of memory"
#: The pattern of what only calls on other inputs before it lead to.
STATE = "state"
#: How the sentence of an error of this package begins.
OWN_FAULT = "pytest-fib's own fault"


def _of_axes_alone(workload: Raw) -> Raw:
    """A workload in older records, which have nothing but its axes, in its usual form."""
    if not isinstance(workload, Mapping) or isinstance(workload.get("axes"), Mapping):
        return workload
    return {"axes": workload} if workload else None


def _are_wrong(names: Sequence[str]) -> str:
    return f"{shortened(names, 3)} {'is' if len(names) == 1 else 'are'} wrong"


class Diagnosis(Record):  # noqa: PLW1641  (dicts have no hash either)
    """Why an evaluation failed, for programs; a log or a terminal renders it.

    `pattern` names what the wrong outputs look like ("one factor"), or is empty where there are
    none to look at, as after an exception; ``not evaluated`` is what the machine kept from being
    tried, ``out of memory`` what found none left. `place` names where they are ("last tile").
    `sentence` is one line for people, `details` more lines below it. It is about `output`, of
    which `element` is the worst one; `vague` says that the sentence needs it. `also` are the other
    outputs that are wrong, `elsewhere` those that are with other inputs that were tried. `tiles`
    has the axes at whose end the sentence guesses a rest after tiles, and their size. `shown_by` is
    the workload that shows the pattern, where it isn't that of the evaluation: most often a larger
    one. The sentence consists of `parts`, which records lack.
    """

    sentence: str
    output: Annotated[str, Field(exclude_if=_is_empty)] = ""
    element: Annotated[str, Field(exclude_if=_is_empty)] = ""
    also: Annotated[tuple[str, ...], Field(exclude_if=_is_empty)] = ()
    elsewhere: Annotated[tuple[str, ...], Field(exclude_if=_is_empty)] = ()
    vague: Annotated[bool, Field(exclude_if=_is_empty)] = False
    pattern: Annotated[str, Field(exclude_if=_is_empty)] = ""
    place: Annotated[str, Field(exclude_if=_is_empty)] = ""
    tiles: dict[str, int] = Field(default_factory=dict, exclude_if=_is_empty)
    details: Annotated[tuple[str, ...], Field(exclude_if=_is_empty)] = ()
    shown_by: Annotated[
        Workload | None, BeforeValidator(_of_axes_alone), Field(exclude_if=is_none)
    ] = None
    _parts: Sentence = PrivateAttr(default=())

    @property
    def parts(self) -> Sentence:
        """What the sentence consists of; the whole of it where that isn't known, as of a record."""
        return self._parts or (self.sentence,)

    def with_parts(self, *parts: str | Part) -> Self:
        """The same with another sentence, of these parts."""
        found = self.model_copy(update={"sentence": in_words(parts)})
        found._parts = parts
        return found

    def __eq__(self, other: object) -> bool:
        # A record's sentence is the same, of whatever parts it was made.
        return dict(self) == dict(other) if isinstance(other, Diagnosis) else NotImplemented

    @property
    def headline(self) -> str:
        """The sentence, what else is wrong, and the worst element where it says little without."""
        parts = [f"{_are_wrong(self.also)} too"] if self.also else []
        parts += [f"{_are_wrong(self.elsewhere)} with other inputs"] if self.elsewhere else []
        also = f" ({', '.join(parts)})" if parts else ""
        return f"{self.sentence}{also}{f'; {self.element}' if self.vague else ''}"

    @property
    def text(self) -> str:
        """The headline, and the details below it."""
        return "\n".join([self.headline, *self.details])


class Environment(Record):
    """The device and the library versions of an evaluation.

    `host` is the machine, where that is another than the one that keeps the record.
    """

    hardware: str
    libs: dict[str, str] = Field(default_factory=dict)
    host: Annotated[str, Field(exclude_if=_is_empty)] = ""


class Compiled(Record):
    """Facts of a compiled implementation, for ``target``, such as ``sm_90a`` or ``cpu``.

    The most that any of its kernels takes: `registers` of a thread, `shared_bytes` of a block,
    `spills` in bytes. `binary_bytes` is the size of what was built. None is not known.
    """

    target: str
    registers: Size | None = None
    shared_bytes: Size | None = None
    spills: Size | None = None
    binary_bytes: Size | None = None


#: What older records have on the evaluation itself, by the section that it is in now.
FLAT_KEYS = {
    "correctness": ("max_relative_error", "max_absolute_error"),
    "performance": ("latency_ms", "reference_latency_ms", "speedup_factor"),
    "environment": ("hardware", "libs"),
}


def _now() -> str:
    return datetime.now(UTC).isoformat()


class Evaluation(Record):
    """The outcome of one implementation on one workload.

    Older records have the facts of correctness, performance and environment directly on the
    evaluation: both forms are accepted, and both can be read, None where absent.
    """

    status: EvaluationStatus
    environment: Environment | None = None
    timestamp: str = Field(default_factory=_now)
    log: str = ""
    correctness: Correctness | None = None
    performance: Performance | None = None
    diagnosis: Annotated[Diagnosis | None, Field(exclude_if=is_none)] = None
    compiled: Annotated[Compiled | None, Field(exclude_if=is_none)] = None

    @model_validator(mode="before")
    @classmethod
    def _nest(cls, data: Raw) -> Raw:
        if not isinstance(data, Mapping):
            return data
        nested = dict(data)
        for section, keys in FLAT_KEYS.items():
            facts = {key: data[key] for key in keys if data.get(key) is not None}
            if facts and data.get(section) is None:
                nested[section] = facts
        return nested

    @model_validator(mode="after")
    def _status_allows(self) -> Self:
        wrong = self.status is EvaluationStatus.INCORRECT_NUMERICAL
        passed = self.status is EvaluationStatus.PASSED
        if wrong and self.correctness is None:
            raise ValueError(f"{self.status} needs correctness")
        if self.correctness and not (wrong or passed):
            raise ValueError(f"{self.status} takes no correctness")
        if self.performance and not passed:
            raise ValueError(f"{self.status} takes no performance")
        return self

    @property
    def max_relative_error(self) -> float | None:
        """The correctness's; None where absent."""
        return self.correctness.max_relative_error if self.correctness else None

    @property
    def max_absolute_error(self) -> float | None:
        """The correctness's; None where absent."""
        return self.correctness.max_absolute_error if self.correctness else None

    @property
    def latency_ms(self) -> float | None:
        """Milliseconds per call; None where untimed."""
        return self.performance.latency_ms if self.performance else None

    @property
    def reference_latency_ms(self) -> float | None:
        """Milliseconds per call of the reference; None where untimed."""
        return self.performance.reference_latency_ms if self.performance else None

    @property
    def speedup_factor(self) -> float | None:
        """The reference's time over the implementation's; None where untimed."""
        return self.performance.speedup_factor if self.performance else None

    @property
    def hardware(self) -> str | None:
        """The device's name; None where not known."""
        return self.environment.hardware if self.environment else None

    @property
    def libs(self) -> dict[str, str] | None:
        """Library versions; None where not known."""
        return self.environment.libs if self.environment else None


class Trace(Record):
    """Definition + workload + solution + evaluation; without the last two, a recorded workload.

    Definitions of one name may lie in several files: ``definition_file`` says which was tested,
    relative to the rootdir of the run. ``item_seconds`` is how long the test took that it is of; of
    several records of one test, the first has it. Others' records have neither.
    """

    OWN = (
        ("workload", "seed"),
        ("workload", "regime"),
        ("evaluation", "diagnosis"),
        ("evaluation", "compiled"),
    )

    definition: Text
    definition_file: Annotated[str, Field(exclude_if=_is_empty)] = ""
    workload: Workload
    solution: str | None = None
    evaluation: Evaluation | None = None
    item_seconds: Annotated[float, Field(exclude_if=_is_empty)] = 0.0

    def to_json_line(self) -> str:
        """This trace as one line of strict JSON, without a newline."""
        return json.dumps(self.to_flashinfer(), separators=(",", ":"), allow_nan=False)

    @classmethod
    def _usual_form(cls, data: Raw) -> Raw:
        workload = part(data, "workload")
        if not isinstance(workload, Mapping):
            return data
        return {**data, "workload": Workload._usual_form(workload)}

    @classmethod
    def from_json(cls, text: str | bytes) -> Self:
        """The trace in a line of JSON, of whichever tool (see `from_elsewhere`).

        Raises pydantic's ValidationError, a ValueError.
        """
        try:
            return cls.model_validate_json(text)
        except ValidationError as error:
            if error.errors(include_url=False)[0]["type"] == "json_invalid":
                raise
        return cls.from_elsewhere(json.loads(text))
