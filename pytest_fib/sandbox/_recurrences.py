"""What is multiplied by gates again and again, as kernels compute it in chunks."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch.utils.weak import WeakIdKeyDictionary

from pytest_fib.sandbox._operations import SHOWING, Operation, UntilChanged, is_wide, words

#: Logarithms of what may be gates of recurrences, by operation.
_GATES: Mapping[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "exp": lambda value: value.clone(),
    "exp2": lambda value: value * math.log(2),
    "sigmoid": torch.nn.functional.logsigmoid,
}
#: What gates are multiplied by, and which arguments that are; what goes on with what was gated.
_GATING = {"mul": ((0, 1), (1, 0)), "addcmul": ((1, 2), (2, 1))}
_CARRIES = words("add sub clone copy _to_copy detach where")
#: What puts other numbers among those that it shows.
_PUTTING = words("masked_fill nan_to_num where")
#: How many steps chunks usually have, and to what share sums of so many logarithms are rounded: the
#: random walk of their roundings in float32 is as long.
CHUNK, SUM_STEP = 64, 2.0**-21
#: Larger sums are rounded to quarters; and a gate that makes what is multiplied by it uncertain.
MOST_SUM, ANY_GATE = 0.25 / SUM_STEP, 4.0


@dataclass(frozen=True)
class Gated:
    """What has been multiplied by gates so many ``times``, one after the other.

    Recurrences such as that of gated linear attention are computed in chunks: a product of gates is
    the exponential of a difference of two running sums of their logarithms, which are rounded. So
    ``sums`` are, once they are multiplied by ``grid``; other grids are other roundings.
    """

    sums: torch.Tensor
    grid: float
    times: int = 1

    @classmethod
    def by(cls, logarithms: torch.Tensor, before: Gated | None, grid: float) -> Gated:
        """The same with one more gate; each chunk begins anew."""
        times = before.times if before else 0
        if before is not None and times % CHUNK:
            logarithms = before.sums + logarithms  # both broadcast to the product
        mantissas, exponents = torch.frexp(logarithms * grid)
        rounded = torch.ldexp(mantissas.div_(SUM_STEP).round_().mul_(SUM_STEP / grid), exponents)
        return cls(rounded, grid, times + 1)

    def fits(self, result: torch.Tensor) -> bool:
        """Whether a result has a sum for each element, or for several."""
        pairs = zip(reversed(self.sums.shape), reversed(result.shape), strict=False)
        longer = self.sums.dim() > result.dim()
        return not longer and all(one in (1, other) for one, other in pairs)

    def last(self, gate: torch.Tensor, before: Gated) -> torch.Tensor:
        """The last gate as the sums have it; as it is where they are infinite.

        Where sums are so large that they hold no gate it may be any, and is one that shows.
        """
        if before.times % CHUNK == 0:
            return gate
        step = self.sums - before.sums
        any_gate = torch.where(self.sums.abs() > MOST_SUM, ANY_GATE, step.exp())
        return torch.where(step.isfinite(), any_gate.to(gate.dtype), gate)


#: What was gated of parts of tensors, by where these are.
Parts = MutableMapping[torch.Tensor, dict[tuple[Any, ...], Gated]]


def _place(part: torch.Tensor) -> tuple[Any, ...]:
    """Where in its memory a part of a tensor is."""
    return part.storage_offset(), part.shape, part.stride()


@dataclass
class Recurrences:
    """What a run multiplies by gates again and again, and the gates as chunks have them.

    - ``grid``: what logarithms are rounded on.
    - ``gates``: logarithms of exponentials and sigmoids, and of views of these.
    - ``gated``: what gates have been multiplied into, one after the other; ``parts``, of tensors,
      by where in these.
    """

    grid: float = 1.0
    gates: UntilChanged[torch.Tensor] = field(default_factory=UntilChanged)
    gated: UntilChanged[Gated] = field(default_factory=UntilChanged)
    parts: Parts = field(default_factory=WeakIdKeyDictionary)

    def run(self, call: Operation, run: Callable[[Operation], Any]) -> Any:
        """An operation's result, with its gate as chunks have it."""
        # Of what is changed in place, they are gone once it was run.
        logarithms = self._logarithms(call)
        call, gated = self._with_gate(call)
        result = run(call)
        if is_wide(result):
            if logarithms is not None:
                self.gates.note(result, logarithms)
            self._note(call, result, gated)
        return result

    def _logarithms(self, call: Operation) -> torch.Tensor | None:
        """Those of what may be gates; None of other results."""
        if call.name in _GATES:
            return _GATES[call.name](call.args[0]) if is_wide(call.args[0]) else None
        if call.name not in SHOWING or (known := self.gates.get(call.args[0])) is None:
            return None
        if call.name in _PUTTING:
            return call.plain().log()  # type: ignore[no-any-return]
        shown: torch.Tensor = replace(call, args=(known, *call.args[1:])).plain()
        return shown

    def _with_gate(self, call: Operation) -> tuple[Operation, Gated | None]:
        """An operation whose gate is as a difference of sums has it, and what is gated then.

        A first gate stays as it is. There is None of what no gate is multiplied into.
        """
        if call.name in _CARRIES:
            sources = call.args[1:2] if call.name == "copy" else call.args[:2]
            return call, next(filter(None, map(self._before, sources)), None)
        for place, other in _GATING.get(call.name, ()):
            gate, before = call.args[place], self._before(call.args[other])
            logarithms = self.gates.get(gate)
            if logarithms is None or not is_wide(call.args[other]):
                continue
            gated = Gated.by(logarithms, before, self.grid)
            if before and not (call.in_place and place == 0):
                args = [*call.args]
                args[place] = gated.last(gate, before)
                call = replace(call, args=tuple(args))
            return call, gated
        return call, None

    def _before(self, value: Any) -> Gated | None:
        """What a tensor is known to be a product of gates with, or that part of another one."""
        known = self.gated.get(value)
        if known is None and is_wide(value) and value._base is not None:
            return self.parts.get(value._base, {}).get(_place(value))
        return known

    def _note(self, call: Operation, result: torch.Tensor, gated: Gated | None) -> None:
        """Note what is gated, and where it was put."""
        gated = gated if gated is not None and gated.fits(result) else None
        if gated is not None:
            self.gated.note(result, gated)
        if call.in_place and result._base is not None:
            parts = self.parts.setdefault(result._base, {})
            parts.pop(_place(result), None)
            if gated is not None:
                parts[_place(result)] = gated
