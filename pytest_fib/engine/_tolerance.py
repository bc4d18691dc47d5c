"""How far an output may be from the reference's, by its dtype."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pytest_fib.data import Definition


@dataclass(frozen=True)
class Bound:
    """An element may differ by ``atol + rtol * |expected|``."""

    rtol: float
    atol: float


#: The table. ``rtol`` is four unit roundoffs of the dtype (two roundings on each side); float32
#: takes torch.testing's, since its sums differ by more than their last rounding. ``atol`` is
#: torch.testing's and covers results near zero that came about by cancellation. Dtypes that are
#: not listed, integers and bool among them, are compared exactly.
BY_DTYPE = {
    "float64": Bound(1e-7, 1e-7),
    "float32": Bound(1.3e-6, 1e-5),
    "float16": Bound(2.0e-3, 1e-5),
    "bfloat16": Bound(1.6e-2, 1e-5),
    "float8_e4m3fn": Bound(0.25, 1e-5),
    "float8_e5m2": Bound(0.5, 1e-5),
}
EXACT = Bound(0.0, 0.0)


def bound_for(definition: Definition, output: str) -> Bound:
    """The bound of one output: its dtype's, with what the definition's ``tolerances`` override."""
    default = BY_DTYPE.get(definition.outputs[output].dtype.value, EXACT)
    override = definition.tolerances.get(output)
    if override is None:
        return default
    return Bound(
        rtol=default.rtol if override.rtol is None else override.rtol,
        atol=default.atol if override.atol is None else override.atol,
    )
