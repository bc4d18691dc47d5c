"""pytest-fib's own sections of a definition: how test cases are made, how close is close."""

from typing import Annotated, Literal, Self

from pydantic import ConfigDict, Field, ValidationInfo, field_validator, model_validator

from ._base import Record, Size, one_of
from ._generator_kinds import InputRule
from ._workload import ODD_LAYOUTS, VALUE_PATTERNS


class AxisDomain(Record):
    """The sizes a var axis may take: a range, or a list of values."""

    min: Size = 1
    max: Size | None = None
    multiple_of: Annotated[Size, Field(ge=1)] = 1
    values: Annotated[list[Size], Field(min_length=1)] | None = None

    @field_validator("max")
    @classmethod
    def _not_below_min(cls, value: int | None, info: ValidationInfo) -> int | None:
        low = info.data.get("min", 0)
        if value is not None and value < low:
            raise ValueError(f"{value} is below min, {low}")
        return value

    @field_validator("multiple_of")
    @classmethod
    def _has_a_member(cls, step: int, info: ValidationInfo) -> int:
        low, high = info.data.get("min", 0), info.data.get("max")
        if high is not None and -(-low // step) * step > high:
            raise ValueError(f"no multiple of {step} between {low} and {high}")
        return step


class WorkloadsSection(Record):
    """How the test cases of a definition are made.

    `values` names the value patterns that are drawn, in place of the usual ones, for all of which
    `usual` stands; `layouts`, the memory layouts that are drawn besides contiguous ones.
    """

    axes: dict[str, AxisDomain] = Field(default_factory=dict)
    inputs: dict[str, InputRule] = Field(default_factory=dict)
    examples: list[dict[str, Size]] = Field(default_factory=list)
    bench: list[dict[str, Size]] = Field(default_factory=list)
    values: list[Annotated[str, one_of("value pattern", ("usual", *VALUE_PATTERNS))]] = Field(
        default_factory=list
    )
    layouts: list[Annotated[str, one_of("layout", ODD_LAYOUTS)]] = Field(default_factory=list)


class Tolerance(Record):
    """How one output is compared; what is None or left out is the dtype's own.

    `rtol` and `atol` are the allowed relative and absolute error of an element, `matched_ratio` the
    share of the elements that must keep to them. `exact` allows no difference at all; `linear`,
    none where every input is 0 or 1, since no order of summation rounds those.

    `by` says what is compared: its elements; for indices, what they point at (`gathered`), since
    equal values may come in any order; or, for random choices, what may be chosen (`samples`).
    Indices point into the last dimension of the input or output that `from` names.
    """

    # A misspelt tolerance that is ignored would let wrong results pass.
    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    rtol: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    atol: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    matched_ratio: Annotated[float, Field(gt=0, le=1)] | None = None
    exact: Annotated[bool, Field(strict=True)] = False
    linear: Annotated[bool, Field(strict=True)] = False
    by: Literal["elements", "gathered", "samples"] = "elements"
    from_: Annotated[str | None, Field(alias="from")] = None

    @model_validator(mode="after")
    def _one_meaning(self) -> Self:
        limits = {"rtol": self.rtol, "atol": self.atol, "matched_ratio": self.matched_ratio}
        if self.exact and (others := [key for key, limit in limits.items() if limit is not None]):
            raise ValueError(f"exact can't be combined with {', '.join(others)}")
        for key in ("exact", "linear"):
            if getattr(self, key) and self.by != "elements":
                raise ValueError(f"{key} can't be combined with by: {self.by}")
        if self.by == "samples" and any(limit is not None for limit in limits.values()):
            raise ValueError("samples are judged by their statistics; leave the limits out")
        if self.from_ is not None and self.by != "gathered":
            raise ValueError("from is only for indices, compared by: gathered")
        return self
