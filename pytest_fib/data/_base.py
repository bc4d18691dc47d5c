"""What all records share: immutability, export to plain data, and errors that carry a place."""

import ast
import difflib
import functools
import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import Annotated, Any, ClassVar, NamedTuple, Self, TypeAlias

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

#: What numpy, torch and C call what has another name here.
_ELSEWHERE = {
    **dict.fromkeys(["gaussian", "randn"], "normal"),
    **dict.fromkeys(["rand", "random"], "uniform"),
    "randint": "integers",
    **dict.fromkeys(["half", "fp16", "f16"], "float16"),
    "bf16": "bfloat16",
    **dict.fromkeys(["float", "fp32", "f32"], "float32"),
    **dict.fromkeys(["double", "fp64", "f64"], "float64"),
    **dict.fromkeys(["fp8", "float8", "e4m3"], "float8_e4m3fn"),
    "e5m2": "float8_e5m2",
    **dict.fromkeys(["fp4", "e2m1"], "float4_e2m1"),
    **dict.fromkeys(["int", "i32"], "int32"),
    **dict.fromkeys(["long", "i64"], "int64"),
}
#: How deep an expression may be.
_MOST_LEVELS = 100
NON_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}


def is_none(value: object) -> bool:
    """For ``Field(exclude_if=...)``: an absent optional key is left out rather than null."""
    return value is None


def to_plain(value: Raw) -> Raw:
    """`value` in types that strict JSON has: no enums, tuples, NaN or infinities."""
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if isinstance(value, Mapping):
        return {key: to_plain(item) for key, item in value.items()}
    return [to_plain(item) for item in value] if isinstance(value, (list, tuple)) else value


def _scalar(value: Raw) -> Raw:
    value = NON_FINITE.get(value, value) if isinstance(value, str) else value
    if isinstance(value, (bool, int, float)):
        return value
    not_it = {"value": repr(value)[:60]}
    raise PydanticCustomError("fib", "should be a number, true or false, not {value}", not_it)


Text = Annotated[str, Field(min_length=1)]
# Part of a file's name, which may have 255 bytes with what is added.
FilePart = Annotated[str, Field(min_length=1, max_length=200)]
OptionalText = Annotated[str | None, Field(exclude_if=is_none)]
OptionalList = Annotated[list[Text], Field(exclude_if=lambda items: not items)]
# More elements, or bytes, than any memory has. Far below what 64 bits hold: products of two sizes
# are compared with budgets.
MAX_SIZE = 2**48
# Strict: True is no size, and neither is "32".
Size = Annotated[int, Field(ge=0, le=MAX_SIZE, strict=True)]
Scalar = Annotated[bool | int | float, BeforeValidator(_scalar)]


class Record(BaseModel):
    """An immutable record of the FlashInfer Trace schema. Unknown keys are ignored."""

    model_config = ConfigDict(frozen=True, extra="ignore", ser_json_inf_nan="strings")

    #: Where keys are pytest-fib's own, which another tool may use for something else.
    OWN: ClassVar[tuple[Loc, ...]] = ()

    @classmethod
    def _usual_form(cls, data: Raw) -> Raw:
        """Data of another tool, where FlashInfer's readers take other forms, in ours."""
        return data

    @classmethod
    def from_elsewhere(cls, data: Raw) -> Self:
        """A record from JSON that another tool may have written.

        What FlashInfer's readers take is taken, sizes as ``"4"`` or types that are left out. What
        lies under a key of pytest-fib's own and can't be read is left out, since it is somebody
        else's. Raises pydantic's ValidationError.
        """
        data = cls._usual_form(data)
        try:
            return cls.model_validate(data)
        except ValidationError as error:
            wrong = [item["loc"] for item in error.errors(include_url=False)]
            others = [own for own in cls.OWN if any(loc[: len(own)] == own for loc in wrong)]
            if not others:
                raise
        return cls.model_validate(functools.reduce(_without, others, data))

    def to_flashinfer(self) -> dict[str, Any]:
        """This record as plain data that FlashInfer Trace readers accept."""
        exported: dict[str, Any] = to_plain(self.model_dump())
        return exported


def _without(data: Raw, loc: Loc) -> Raw:
    """A copy of raw data that lacks what is at a place."""
    first, *rest = loc
    if not rest:
        return {key: value for key, value in data.items() if key != first}
    return {**data, first: _without(data[first], tuple(rest))}


def size_in_any_form(value: Raw) -> Raw:
    """4 of ``"4"``, 4.0 and, as JSON's readers have it, 1 of true; all else as it is."""
    if isinstance(value, str) and value.strip().isdecimal():
        return int(value)
    is_whole = isinstance(value, float) and value.is_integer()
    return int(value) if is_whole or isinstance(value, bool) else value


def in_each(data: Raw, key: str, change: Callable[[Raw], Raw]) -> Raw:
    """A copy of raw data with each value of one of its mappings changed."""
    named = part(data, key)
    if not isinstance(named, Mapping):
        return data
    return {**data, key: {name: change(value) for name, value in named.items()}}


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

    @classmethod
    def _long_form(cls, data: Mapping[str, Any]) -> Mapping[str, Any]:
        """The data without what is only short for something else."""
        return data

    @model_validator(mode="wrap")
    @classmethod
    def _check(cls, data: Raw, handler: ModelWrapValidatorHandler[Self]) -> Self:
        data = cls._long_form(data) if isinstance(data, Mapping) else data
        details = [
            _detail(loc, "fib", "{message}", {"message": message, "line": line})
            for loc, message, line in cls._violations(data if isinstance(data, Mapping) else {})
        ]
        try:
            record = handler(data)
        except ValidationError as error:
            details = [
                _detail(item["loc"], item["type"], item["msg"], item.get("ctx"), item["input"])
                for item in error.errors(include_url=False)
            ] + details
        if details:
            raise ValidationError.from_exception_data(cls.__name__, details)
        return record


def _detail(
    loc: Loc, kind: str, message: str, context: dict[str, Any] | None, value: Raw = None
) -> InitErrorDetails:
    return InitErrorDetails(type=PydanticCustomError(kind, message, context), loc=loc, input=value)


def refuse(why: Callable[[str], str | None]) -> AfterValidator:
    """Refuse text of which ``why`` says what is wrong."""

    def check(text: str) -> str:
        if problem := why(text):
            raise ValueError(problem)
        return text

    return AfterValidator(check)


def one_of(what: str, names: Sequence[str]) -> AfterValidator:
    """Refuse a name that is not one of these."""
    return refuse(lambda name: None if name in names else unknown(what, name, names))


def unknown(what: str, name: object, names: Iterable[object]) -> str:
    """``unknown axis 'bach'; did you mean 'batch'?``, or what there is where none is near."""
    texts = [str(text) for text in names]
    there_are = f"; there are {', '.join(texts)}" if texts else ""
    return f"unknown {what} {name!r}{did_you_mean(name, texts) or there_are}"


def did_you_mean(name: object, names: Iterable[object]) -> str:
    """``; did you mean 'x'?``, or nothing where none of the names is near."""
    texts = list(map(str, names))
    matches = difflib.get_close_matches(str(name), texts, n=2)
    usual = _ELSEWHERE.get(str(name).lower())
    near = [match for match in (usual, *matches) if match in texts and match != name]
    return f"; did you mean {near[0]!r}?" if near else ""


def part(value: Raw, key: str) -> Raw:
    """A key of raw data or a field of a record already built; None where there is neither."""
    return value.get(key) if isinstance(value, Mapping) else getattr(value, key, None)


def _is_deep(tree: ast.AST) -> bool:
    """Whether an expression is deeper than any that is written by hand: it is followed by calls."""
    level = [tree]
    for _ in range(_MOST_LEVELS):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    return bool(level)


def parsed(text: str, mode: str) -> ast.AST | SyntaxError:
    """Python source (``exec``) or an expression (``eval``) as a tree, or why it is none."""
    try:
        tree = ast.parse(text.strip() if mode == "eval" else text, mode=mode)
        return SyntaxError("nested too deeply") if mode == "eval" and _is_deep(tree) else tree
    except SyntaxError as error:
        return error
    except (ValueError, RecursionError) as error:  # null characters, and nesting without end
        return SyntaxError(str(error))
