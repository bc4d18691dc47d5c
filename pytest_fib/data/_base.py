"""What all records share: immutability, export to plain data, and errors that carry a place."""

import difflib
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Annotated, Any, NamedTuple, Self, TypeAlias

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    ValidationError,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

Loc: TypeAlias = tuple[int | str, ...]
# Data that nothing has checked yet; it may have any shape.
Raw: TypeAlias = Any

NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def is_none(value: object) -> bool:
    """For ``Field(exclude_if=...)``: an absent optional key is left out rather than null."""
    return value is None


def plain(value: Raw) -> Raw:
    """`value` in types that strict JSON has: no enums, tuples, NaN or infinities."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {key: plain(item) for key, item in value.items()}
    return [plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def _scalar(value: Raw) -> Raw:
    value = NON_FINITE.get(value, value) if isinstance(value, str) else value
    if isinstance(value, (bool, int, float)):
        return value
    raise PydanticCustomError("fib", "should be a number, true or false")


Text = Annotated[str, Field(min_length=1)]
OptionalText = Annotated[str | None, Field(exclude_if=is_none)]
OptionalList = Annotated[list[Text], Field(exclude_if=lambda items: not items)]
# Strict: True is no size, and neither is "32".
Size = Annotated[int, Field(ge=0, strict=True)]
Scalar = Annotated[bool | int | float, BeforeValidator(_scalar)]


class Record(BaseModel):
    """An immutable record of the FlashInfer Trace schema. Unknown keys are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="strings")

    def to_flashinfer(self) -> dict[str, Any]:
        """This record as plain data that FlashInfer Trace readers accept."""
        exported: dict[str, Any] = plain(self.model_dump())
        return exported


class Violation(NamedTuple):
    """Something wrong with a record: where, what, and on which line of a text value (from 1)."""

    loc: Loc
    message: str
    line: int = 0


class CheckedRecord(Record):
    """A record with rules across its fields.

    The rules look at the raw data, so a bad field does not hide what is wrong between the others.
    """

    @classmethod
    def _violations(cls, data: Mapping[str, Any]) -> Iterator[Violation]:
        yield from ()

    @model_validator(mode="wrap")
    @classmethod
    def _check(cls, data: Raw, handler: ModelWrapValidatorHandler[Self]) -> Self:
        details = _details(cls._violations(data)) if isinstance(data, Mapping) else []
        try:
            record = handler(data)
        except ValidationError as error:
            details = _kept(error) + details
        if details:
            raise ValidationError.from_exception_data(cls.__name__, details)
        return record


def _details(violations: Iterable[Violation]) -> list[InitErrorDetails]:
    return [
        InitErrorDetails(
            type=PydanticCustomError("fib", "{message}", {"message": message, "line": line}),
            loc=loc,
            input=None,
        )
        for loc, message, line in violations
    ]


def _kept(error: ValidationError) -> list[InitErrorDetails]:
    return [
        InitErrorDetails(
            type=PydanticCustomError(item["type"], item["msg"], item.get("ctx")),
            loc=item["loc"],
            input=item["input"],
        )
        for item in error.errors(include_url=False)
    ]


def one_of(what: str, known: Sequence[str]) -> AfterValidator:
    """Refuse a name that is not one of these."""

    def check(name: str) -> str:
        if name not in known:
            raise PydanticCustomError("fib", "{message}", {"message": unknown(what, name, known)})
        return name

    return AfterValidator(check)


def unknown(what: str, name: object, known: Iterable[str]) -> str:
    """``unknown axis 'bach'; did you mean 'batch'?``, or what there is where none is near."""
    names = [str(name) for name in known]
    there_are = f"; there are {', '.join(names)}" if names else ""
    return f"unknown {what} {name!r}{hint(name, names) or there_are}"


def hint(name: object, known: Iterable[object]) -> str:
    """``; did you mean 'x'?``, or nothing where no known name is near."""
    matches = difflib.get_close_matches(str(name), map(str, known), n=2)
    near = [match for match in matches if match != name]
    return f"; did you mean {near[0]!r}?" if near else ""


def part(value: Raw, key: str) -> Raw:
    """A key of raw data or a field of a record already built; None where there is neither."""
    return value.get(key) if isinstance(value, Mapping) else getattr(value, key, None)
