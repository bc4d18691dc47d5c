"""Rules for inputs: a fixed value, or a kind of generator with its parameters.

A new kind is a model here that `InputRule` lists, and an entry of a table of
`workloads/_value_generators.py` or `workloads/_structure_generators.py`: how it fills a tensor.
"""

import math
import operator
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Annotated, ClassVar, Literal, TypeAlias, TypeVar, get_args

from pydantic import BeforeValidator, ConfigDict, Field, PlainValidator, model_validator

from ._base import Raw, Record, Scalar, Text, parsed
from ._errors import shown

#: The axes of every input.
Shapes: TypeAlias = Mapping[str, Sequence[str]]


class Refers(Enum):
    """Marks, in an annotation, the kind of name that a parameter refers to."""

    AXES = auto()  #: axes of the definition, in an expression
    INPUT = auto()  #: another input
    OWN_AXES = auto()  #: axes of the input itself


#: What the signs of limits say.
COMPARE: dict[str, Callable[[float, float], bool]] = {
    ">=": operator.ge,
    ">": operator.gt,
    "<=": operator.le,
}


@dataclass(frozen=True)
class Limit:
    """What a parameter has to be: ``sign`` (``>=``, ``>`` or ``<=``) a number or another parameter.

    A mark in its annotation.
    """

    sign: str
    bound: float | str


class Whole(Enum):
    """That a parameter is a whole number; a mark in its annotation."""

    MARK = auto()
    UNLESS_STEPPED = auto()  #: in a floating tensor, where ``step`` is no whole number


@dataclass(frozen=True)
class Held:
    """A parameter that, with ``plus`` added, is a value of the input; a mark in its annotation.

    Of a list, each number is one.
    """

    plus: int = 0


def _number(value: Raw) -> Raw:
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        if not math.isfinite(value):
            raise ValueError(f"should be a finite number, not {value}")
        return value
    if isinstance(value, str) and not isinstance(parsed(value, "eval"), SyntaxError):
        return value
    shown = repr(value) if isinstance(value, str) else str(value)
    raise ValueError(f"should be a number or an expression of axes, not {shown}")


def _plain_number(value: Raw) -> Raw:
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
        return value
    raise ValueError(f"should be a number, not {shown(value)}")


Mark = TypeVar("Mark", Limit, Held, Whole)
#: A number, and no expression.
PlainNumber = Annotated[int | float, BeforeValidator(_plain_number)]
#: A number, or an expression of axes such as ``num_pages * page_size``.
Number = Annotated[int | float | str, PlainValidator(_number), Refers.AXES]
OptionalNumber = Annotated[Number | None, Refers.AXES]
NotNegative = Annotated[Number, Limit(">=", 0)]
Positive = Annotated[Number, Limit(">=", 1), Whole.MARK]
InputName = Annotated[str, Refers.INPUT]
OptionalInputName = Annotated[str | None, Refers.INPUT]
Flag = Annotated[bool, Field(strict=True)]


def _distinct(value: Raw) -> Raw:
    if isinstance(value, bool) or value == "everywhere":
        return value
    raise ValueError(f"should be true, false or everywhere, not {shown(value)}")


Distinct = Annotated[bool | Literal["everywhere"], BeforeValidator(_distinct)]


class _Rule(Record):
    """What fixed values and generators have in common."""

    model_config = ConfigDict(extra="forbid", defer_build=True)

    #: Values that don't decide what a kernel does, only what comes out.
    bulk: ClassVar[bool] = False
    #: Any mixture of the elements of two such tensors is one too.
    elementwise: ClassVar[bool] = False
    #: The part of a workload's regime that changes the values: "values" or "lengths".
    follows: ClassVar[str] = ""

    def implies(self, name: str, shapes: Shapes, rules: Mapping[str, "InputRule"]) -> Iterator[str]:
        """The constraints on axes without which no valid values can be made for input ``name``.

        ``shapes`` has the axes of every input, ``rules`` its rule.
        """
        yield from ()

    @property
    def inputs(self) -> frozenset[str]:
        """The inputs that have to be made before."""
        return frozenset()


class FixedValue(_Rule):
    """One value for all elements, or for the scalar."""

    kind: Annotated[Literal["fixed value"], Field(exclude=True)] = "fixed value"
    value: Scalar

    def __str__(self) -> str:
        return str(self.value)


class GeneratorKind(_Rule):
    """What every kind of generator takes: how the tensor lies in memory.

    `broadcast` lists the axes that get stride 0, `memory_order` all axes from the slowest to the
    fastest, `packed` is the axis along which two float4 values share a byte.
    """

    #: What it can fill: a class of dtypes, so many dimensions ("2+": or more), Python scalars.
    dtypes: ClassVar[str]
    dims: ClassVar[str]
    scalars: ClassVar[bool]
    #: Parameters that say what values there are; they are shown although they are the defaults.
    always_shown: ClassVar[frozenset[str]] = frozenset({"min", "max", "mean", "std"})

    broadcast: Annotated[list[Text] | None, Refers.OWN_AXES] = None
    memory_order: Annotated[list[Text] | None, Refers.OWN_AXES] = None
    packed: Annotated[Text | None, Refers.OWN_AXES] = None

    def __init_subclass__(
        cls,
        *,
        dtypes: str = "any",
        dims: str = "0+",
        scalars: bool = False,
        bulk: bool = False,
        elementwise: bool = False,
        follows: str = "",
    ) -> None:
        cls.dtypes, cls.dims, cls.scalars = dtypes, dims, scalars
        cls.bulk, cls.elementwise, cls.follows = bulk, elementwise, follows

    @classmethod
    def referring(cls, to: Refers) -> tuple[str, ...]:
        """The parameters that refer to something by name."""
        return tuple(name for name, field in cls.model_fields.items() if to in field.metadata)

    @classmethod
    def marked(cls, kind: type[Mark]) -> Iterator[tuple[str, Mark]]:
        """The parameters whose numbers have a mark of this kind, and the marks."""
        for name, field in cls.model_fields.items():
            yield from ((name, mark) for mark in field.metadata if isinstance(mark, kind))

    @property
    def inputs(self) -> frozenset[str]:
        """The inputs that its parameters name."""
        names = (getattr(self, parameter) for parameter in self.referring(Refers.INPUT))
        return frozenset(name for name in names if name is not None)

    def __str__(self) -> str:
        """The kind and its parameters: ``indptr, total num_kv_indices``, ``uniform, min 0, max 1``.

        Defaults are left out, except those that say what values there are, or that none is empty.
        """
        given = self.model_dump(exclude_defaults=True)
        shown = {*given, *self.always_shown}
        if not getattr(self, "allow_empty", True):
            shown.add("allow_empty")
        parameters = {k: v for k, v in self.model_dump(exclude_none=True).items() if k in shown}
        kind = parameters.pop("kind", getattr(self, "kind", ""))
        return ", ".join([kind, *(f"{k} {v}" for k, v in parameters.items())])


# --- values -------------------------------------------------------------------------------------


class Values(GeneratorKind, dtypes="floating", bulk=True, elementwise=True, follows="values"):
    """Values by the workload's value pattern; the default of floating inputs."""

    kind: Literal["values"] = "values"


class Normal(GeneratorKind, dtypes="floating", bulk=True, elementwise=True):
    """Normal values."""

    kind: Literal["normal"] = "normal"
    mean: Number = 0
    std: NotNegative = 1


class Uniform(GeneratorKind, dtypes="floating", scalars=True, bulk=True, elementwise=True):
    """Uniform values; with `ends`, both ends are frequent, and among three or more.

    Any of the `sentinels` may be anywhere instead.
    """

    kind: Literal["uniform"] = "uniform"
    min: Annotated[Number, Held()] = 0
    max: Annotated[Number, Held(), Limit(">=", "min")] = 1
    ends: Flag = False
    sentinels: Annotated[Annotated[list[PlainNumber], Field(min_length=1)] | None, Held()] = None


class Integers(GeneratorKind, dtypes="not packed", scalars=True):
    """Numbers from `min` to `max` in steps of `step`, both included; `ends` as for uniform.

    Whole numbers, unless `step` is a fraction, as it may be in a floating tensor. Any of the
    `sentinels` may be anywhere instead.
    """

    kind: Literal["integers"] = "integers"
    min: Annotated[Number, Held(), Whole.UNLESS_STEPPED] = 0
    max: Annotated[Number, Held(), Whole.UNLESS_STEPPED, Limit(">=", "min")] = 1
    step: Annotated[Number, Limit(">", 0)] = 1
    ends: Flag = False
    sentinels: Annotated[Annotated[list[int], Field(min_length=1)] | None, Held()] = None


class OneOf(GeneratorKind, dtypes="numbers", scalars=True):
    """One of these `values`: a block's size that is 1, 2, 4 or 8, say."""

    kind: Literal["one_of"] = "one_of"
    values: Annotated[list[PlainNumber], Field(min_length=1), Held()]


class Labels(GeneratorKind, dtypes="integer"):
    """A few whole numbers, `count` of them, that only say which are the same.

    In half of the workloads they are alike in their low bits, or in all but the lowest.
    """

    kind: Literal["labels"] = "labels"
    count: Annotated[Positive, Held(-1)] = 4


class Boolean(GeneratorKind, dtypes="not packed", scalars=True):
    """True, or 1, with probability `p`; half of the rows are all true, all false, or an end is.

    With `total`, exactly that many elements of the tensor are: the first, the last, a contiguous
    run, or any.
    """

    kind: Literal["boolean"] = "boolean"
    p: Annotated[Number, Limit(">=", 0), Limit("<=", 1)] = 0.5
    total: Annotated[OptionalNumber, Whole.MARK, Limit(">=", 0)] = None

    def implies(self, name: str, shapes: Shapes, rules: Mapping[str, "InputRule"]) -> Iterator[str]:
        if self.total is not None:
            yield f"{self.total} <= {' * '.join(shapes[name]) or 1}"


class Mask(GeneratorKind, dtypes="not packed", dims="1+"):
    """What counts of each row: all, none, one end, one, or half; true or 1, or else false or 0.

    In a floating tensor, which is added, 0 and -inf. With `allow_empty` false something counts in
    every row.
    """

    kind: Literal["mask"] = "mask"
    allow_empty: Flag = True


class Sorted(GeneratorKind, dtypes="not packed", dims="1+", bulk=True, follows="values"):
    """Numbers that never fall along the last dimension, as those among which others are searched.

    From `min` (0) to `max`; without that by the value pattern, or whole ones up to 100 in an
    integer tensor. With `unique` no two of a row are equal, as far as the dtype tells them apart;
    without `max` they go up to the length of a row then, or whole ones on to 100 beyond it; where
    the reference searches in floating ones and no `min` is given, these may be from -3 to 3. Rows
    may end in `pad`, which is in no order.
    """

    kind: Literal["sorted"] = "sorted"
    always_shown: ClassVar[frozenset[str]] = frozenset()
    min: Annotated[Number, Held()] = 0
    max: Annotated[OptionalNumber, Held(), Limit(">=", "min")] = None
    unique: Flag = False
    pad: Annotated[OptionalNumber, Held()] = None

    @model_validator(mode="after")
    def _both_ends(self) -> "Sorted":
        if self.max is None and self.min != 0:
            raise ValueError("min needs a max beside it")
        return self


class L2Normalized(GeneratorKind, dtypes="floating", dims="1+", bulk=True):
    """Normal values, scaled to length 1 along the last dimension."""

    kind: Literal["l2_normalized"] = "l2_normalized"


class Probabilities(GeneratorKind, dtypes="floating", dims="1+", bulk=True, follows="values"):
    """Rows that sum to 1: softmax of the value pattern's values times `sharpness`."""

    kind: Literal["probabilities"] = "probabilities"
    sharpness: Number = 3


class RouterLogits(GeneratorKind, dtypes="floating", dims="1+"):
    """Logits of a router in which no rounding decides which experts are chosen.

    With `far`, in one workload of eight all are above 128, or below -128, in steps that softmax
    tells apart; sigmoids there are all 1 or 0. With `low`, in one of eight they are from -10 to
    -7, or to -4, where an epsilon counts beside sigmoids; but one of every other row is 128. With
    `ties`, in one of eight the logits of some rows are all 0, as those of padding are: any experts
    may be chosen there.
    """

    kind: Literal["router_logits"] = "router_logits"
    far: Flag = False
    low: Flag = False
    ties: Flag = False


class Scales(GeneratorKind, dtypes="floating", bulk=True, elementwise=True):
    """Positive factors, log-uniform from `min` to `max`, and some powers of two among them.

    `signed`: half of them negative.
    """

    kind: Literal["scales"] = "scales"
    min: Annotated[Number, Held(), Limit(">", 0)] = 2**-8
    max: Annotated[Number, Held(), Limit(">=", "min")] = 2**-3
    signed: Flag = False


class Quantized(GeneratorKind, dtypes="fp8", dims="1+", bulk=True, follows="values"):
    """The value pattern's values, each `block` of a row scaled to the dtype's range."""

    kind: Literal["quantized"] = "quantized"
    block: Positive = 128


class Fp4(GeneratorKind, dtypes="bytes", bulk=True, elementwise=True):
    """Any two e2m1 values in a byte."""

    kind: Literal["fp4"] = "fp4"


class Fp8Pages(GeneratorKind, dtypes="bytes", dims="3+", bulk=True):
    """Pages of bytes [pages, page_size, ..., width]: e4m3 values, then a float32 scale a token."""

    kind: Literal["fp8_pages"] = "fp8_pages"


class CosSinCache(GeneratorKind, dtypes="floating", dims="2"):
    """Rows of [cos, sin] of rotary angles."""

    kind: Literal["cos_sin_cache"] = "cos_sin_cache"
    base: Annotated[Number, Limit(">", 0)] = 10000


class _RotaryTable(GeneratorKind):
    base: Annotated[Number, Limit(">", 0)] = 10000
    twice: Flag = False


class Cos(_RotaryTable, dtypes="floating", dims="2+"):
    """Cosines of rotary angles, a position in each row; with `twice`, two halves that are alike."""

    kind: Literal["cos"] = "cos"


class Sin(_RotaryTable, dtypes="floating", dims="2+"):
    """Sines of rotary angles, as `cos` has their cosines."""

    kind: Literal["sin"] = "sin"


# --- structure ----------------------------------------------------------------------------------


class Indptr(GeneratorKind, dtypes="integer", dims="1", follows="lengths"):
    """Offsets of sequences: from 0 to `total`, never falling.

    Each sequence holds at least that of another indptr, `at_least`, in elements of which one of
    its own holds `page_size`. `parts` is the number of sequences, where no constraint gives it.
    """

    kind: Literal["indptr"] = "indptr"
    total: Annotated[NotNegative, Held(), Whole.MARK]
    allow_empty: Flag = True
    at_least: OptionalInputName = None
    page_size: Positive = 1
    parts: OptionalNumber = None

    def implies(self, name: str, shapes: Shapes, rules: Mapping[str, "InputRule"]) -> Iterator[str]:
        length = shapes[name][0]
        parts = f"({length} - 1)"
        yield f"{length} >= 2"
        if self.parts is not None:
            yield f"{length} == {self.parts} + 1"
        if not self.allow_empty:
            yield f"{self.total} >= {parts}"
        if self.at_least is None:
            return
        if shapes[self.at_least][0] != length:
            yield f"{length} == {shapes[self.at_least][0]}"
        # Enough whichever way the other's total is split: n sequences of together t elements need
        # at most (t + n * (size - 1)) // size pages.
        size, least = f"({self.page_size})", total_of(self.at_least, rules)
        yield f"{self.total} * {size} >= {least} + ({parts} - 1) * ({size} - 1)"


class Split(GeneratorKind):
    """How sequences share `total` elements; with `allow_empty` false, each has one or more."""

    total: Annotated[NotNegative, Held(), Whole.MARK]
    allow_empty: Flag = True

    def implies(self, name: str, shapes: Shapes, rules: Mapping[str, "InputRule"]) -> Iterator[str]:
        if not self.allow_empty:
            yield f"{self.total} >= {' * '.join(shapes[name])}"


class Lengths(Split, dtypes="integer", dims="1+", follows="lengths"):
    """Lengths of sequences, all of which sum to `total`, each `max` at most.

    With `allow_empty` false, each is 1 or more.
    """

    kind: Literal["lengths"] = "lengths"
    max: Annotated[OptionalNumber, Held(), Whole.MARK, Limit(">=", 1)] = None

    def implies(self, name: str, shapes: Shapes, rules: Mapping[str, "InputRule"]) -> Iterator[str]:
        yield from super().implies(name, shapes, rules)
        if self.max is not None:
            yield f"{self.total} <= {' * '.join(shapes[name])} * ({self.max})"


class Starts(Split, dtypes="integer", dims="1", follows="lengths"):
    """Where each sequence begins: the offsets of an indptr but the last, which is `total`."""

    kind: Literal["starts"] = "starts"


class Ends(Split, dtypes="integer", dims="1", follows="lengths"):
    """Where each sequence ends: the offsets of an indptr but the first; the last is `total`."""

    kind: Literal["ends"] = "ends"


class LastPageLen(GeneratorKind, dtypes="integer", dims="1"):
    """Tokens in each sequence's last page: 1 to `page_size`, often 1, all, or all but one.

    `indptr` counts the pages of each sequence; with `at_least`, an indptr of tokens, these hold at
    least those.
    """

    kind: Literal["last_page_len"] = "last_page_len"
    page_size: Annotated[Positive, Held()]
    indptr: OptionalInputName = None
    at_least: OptionalInputName = None


class _MaybeNothing(GeneratorKind):
    #: Numbers that stand for nothing, such as an index to be ignored: anywhere in a row.
    sentinels: Annotated[Annotated[list[int], Field(min_length=1)] | None, Held()] = None


class Indices(_MaybeNothing, dtypes="integer", dims="1+"):
    """Numbers from 0 to `below` - 1; rows may end in `pad`.

    With `unique` they are distinct in a row, with `unique: everywhere` in the whole tensor. Any of
    the `sentinels` may be anywhere instead.
    """

    kind: Literal["indices"] = "indices"
    below: Annotated[Positive, Held(-1)]
    unique: Distinct = True
    pad: Annotated[OptionalNumber, Held()] = None

    @property
    def are_independent(self) -> bool:
        """Whether each is any number below `below`, whatever the others of its row are."""
        return not self.unique and self.pad is None and self.sentinels is None

    def implies(self, name: str, shapes: Shapes, rules: Mapping[str, "InputRule"]) -> Iterator[str]:
        distinct = self.unique == "everywhere" or (self.unique and self.pad is None)
        alike = shapes[name] if self.unique == "everywhere" else shapes[name][-1:]
        yield f"{' * '.join(alike)} <= {self.below}" if distinct else f"{self.below} >= 1"


class Permutation(GeneratorKind, dtypes="integer", dims="1"):
    """Every number below the length once, sometimes in order, or nearly, or turned round."""

    kind: Literal["permutation"] = "permutation"


class SeqLens(GeneratorKind, dtypes="integer", dims="1+", follows="lengths"):
    """Lengths from 1, or 0, to `max`; `pages` of `page_size` tokens are enough for all of them."""

    kind: Literal["seq_lens"] = "seq_lens"
    max: Annotated[Positive, Held()]
    pages: OptionalNumber = None
    page_size: Positive = 1
    allow_empty: Flag = False

    def implies(self, name: str, shapes: Shapes, rules: Mapping[str, "InputRule"]) -> Iterator[str]:
        if self.pages is not None:
            yield f"{self.pages} >= {shapes[name][0]}"


class BlockTable(GeneratorKind, dtypes="integer", dims="2"):
    """The pages of each sequence: distinct ones below `pages`, and 0 after them.

    `lengths` is the input of sequence lengths in tokens. With `any_after`, numbers of no page may
    be after them.
    """

    kind: Literal["block_table"] = "block_table"
    pages: Annotated[Positive, Held(-1)]
    lengths: InputName
    page_size: Positive = 1
    any_after: Flag = False


class Positions(_MaybeNothing, dtypes="integer", dims="1+"):
    """Numbers from 0 to `below` - 1, of several the first and the last among them; sentinels."""

    kind: Literal["positions"] = "positions"
    below: Annotated[Positive, Held(-1)]


class _Experts(GeneratorKind):
    experts: Annotated[Positive, Held(-1)]

    def implies(self, name: str, shapes: Shapes, rules: Mapping[str, "InputRule"]) -> Iterator[str]:
        yield f"{shapes[name][-1]} <= {self.experts}"


class TopkIds(_Experts, _MaybeNothing, dtypes="integer", dims="1+"):
    """Numbers of `experts`, distinct in a row, or sentinels; some are favoured over others."""

    kind: Literal["topk_ids"] = "topk_ids"


class Routing(_Experts, dtypes="32 or 64 bits", dims="1+"):
    """One of `experts` in the high 16 bits, its softmax weight in bfloat16 in the low ones."""

    kind: Literal["routing"] = "routing"


class Safetensors(GeneratorKind):
    """A tensor of a safetensors file; `path` is relative to the definition's."""

    kind: Literal["safetensors"] = "safetensors"
    path: str
    tensor_key: str


_Kind = (
    Values | Normal | Uniform | Integers | OneOf | Labels | Boolean | Mask | Sorted | L2Normalized
    | Probabilities | RouterLogits | Scales | Quantized | Fp4 | Fp8Pages | CosSinCache | Cos | Sin
    | Indptr | Lengths | Starts | Ends | LastPageLen | Indices | Permutation | SeqLens
    | BlockTable | Positions | TopkIds | Routing | Safetensors
)  # fmt: skip
#: The kinds of generators by name.
GENERATOR_KINDS: dict[str, type[GeneratorKind]] = {
    model.model_fields["kind"].default: model for model in get_args(_Kind)
}


def flat_rule(data: Raw) -> Raw:
    """A rule as its model takes it: parameters beside `kind`, also where older files nest them."""
    if not isinstance(data, Mapping):
        return data
    unset = {key for key in ("kind", "value", "params") if data.get(key) is None}
    rule = {key: value for key, value in data.items() if key not in unset}
    nested = rule.get("params")
    if isinstance(nested, Mapping):
        del rule["params"]
    return {**nested, **rule} if isinstance(nested, Mapping) else rule


def _with_a_kind(data: Raw) -> Raw:
    rule = flat_rule(data)
    if isinstance(rule, (int, float)):
        raise ValueError(f"should be a rule: {{value: {shown(rule)}}}")
    if not isinstance(rule, Mapping):
        return rule
    if ("kind" in rule) == ("value" in rule):
        raise ValueError("needs either a kind or a value")
    return {"kind": "fixed value", **rule}


#: How an input's values are made.
InputRule: TypeAlias = Annotated[
    _Kind | FixedValue, Field(discriminator="kind"), BeforeValidator(_with_a_kind)
]


def total_of(indptr: str, rules: Mapping[str, InputRule]) -> int | float | str:
    """The total that an indptr splits over sequences."""
    rule = rules[indptr]
    return rule.total if isinstance(rule, Indptr) else 0
