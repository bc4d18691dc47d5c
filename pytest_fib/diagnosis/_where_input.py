"""Which elements of an input say where an output is wrong, as rows of which a limit is 0?"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from math import floor, log2, log10
from typing import TYPE_CHECKING

import torch

from pytest_fib.data import is_unnamed
from pytest_fib.diagnosis import _parts as parts
from pytest_fib.workloads import once

if TYPE_CHECKING:
    from pytest_fib.diagnosis._wrong_output import Failure, WrongOutput

#: log10 of how unlikely it must be that what is wrong is at such elements by chance, of one input.
CHANCE = 3.0
#: The least share of such elements that are wrong; and where these are more than ``MOST`` of all,
#: or all but some; and how many must be left out.
SOME, NEARLY_ALL, MOST, LEAST_LEFT_OUT = 0.25, 0.9, 0.5, 3
#: log10 of how unlikely it is that one is right by chance where nearly all are wrong.
RIGHT = 1.0
#: How many elements are looked at, at most; and the least power of two that is a limit.
LARGEST, LEAST_LIMIT = 1 << 21, 8
#: The numbers that have a meaning of their own, so that one workload is enough.
USUAL = (0, 1, -1)


@dataclass(frozen=True)
class _Elements:
    """Some elements of an input, in words: ``top_k is 0``.

    ``are_left_out``: all others are wrong. ``is_usual``: they are those of a usual number.
    ``least`` is the share of them that is wrong, at least.
    """

    words: str
    of: Callable[[torch.Tensor], torch.Tensor]
    are_left_out: bool = False
    is_usual: bool = False
    least: float = SOME

    def goes_with(self, other: _Elements) -> bool:
        """Whether both may be what matters, of usual numbers."""
        is_usual = self.is_usual and other.is_usual
        return is_usual and self.are_left_out == other.are_left_out

    def share(self, side: _Side) -> float:
        """The share of elements at which the output is wrong, or may be."""
        share = float(self.of(side.values).double().mean())
        return 1.0 - share if self.are_left_out else share


@dataclass(frozen=True)
class _Side:
    """An input of a workload, and at which of its elements the output is wrong.

    ``least`` and ``most`` have the extremes of what is expected there.
    """

    values: torch.Tensor
    wrong: torch.Tensor
    least: torch.Tensor
    most: torch.Tensor

    @classmethod
    def of(cls, name: str, output: WrongOutput, failure: Failure) -> _Side | None:
        """None where the input's dimensions aren't some of the output's, in their order."""
        definition, value = failure.context.definition, failure.context.inputs.get(name)
        axes = () if definition is None else definition.inputs[name].shape or ()
        if not axes or not isinstance(value, torch.Tensor) or not value.numel():
            return None
        dims = [output.dims.index(axis) for axis in axes if axis in output.dims]
        is_known = all(len({*each}) == len(each) for each in (axes, output.dims))
        is_known &= not any(map(is_unnamed, axes))
        if len(dims) != len(axes) or sorted(dims) != dims or not is_known or not output.marked:
            return None
        if output.total > LARGEST or value.shape != tuple(output.shape[dim] for dim in dims):
            return None
        others = [dim for dim in range(len(output.shape)) if dim not in dims]
        wrong, least = output.wrong, output.expected.double().to(output.wrong.device)
        most = least
        if others:
            wrong, least, most = (wrong.amax(others), least.amin(others), most.amax(others))
        value = once(value).to(wrong.device).expand(wrong.shape)
        if value.is_floating_point():
            value = value.double()
        elif value.dtype is not torch.bool:
            value = value.long()
        return cls(value, wrong, least, most)

    def is_one_number(self, at: torch.Tensor) -> bool:
        """Whether one number is expected of all that is at some elements, as 0 under a mask."""
        if not bool(at.any()):
            return False
        least, most = self.least[at], self.most[at]  # both are NaN where anything is
        return bool(least.isnan().all()) or bool(least.amin() == most.amax())

    def is_mask(self, at: torch.Tensor) -> bool:
        """Whether what is at no such elements is one number, and all is not."""
        return self.is_one_number(~at) and not self.is_one_number(torch.ones_like(at))

    def evidence(self, which: _Elements) -> float | None:
        """log10 of how unlikely it is that just these are wrong by chance; None if others are."""
        at = which.of(self.values)
        total, some, wrong = (int(n) for n in (at.numel(), at.sum(), self.wrong.sum()))
        if which.are_left_out:
            is_so = not bool((self.wrong & at).any()) and wrong >= NEARLY_ALL * (total - some)
            return RIGHT * some if is_so and wrong else None
        if bool((self.wrong & ~at).any()) or not some:
            return None
        return wrong * log10(total / some)


def only_where(
    output: WrongOutput, failure: Failure, sides: Sequence[tuple[WrongOutput, Failure]]
) -> parts.WhereInput | None:
    """As ``only where top_k is 0`` or ``only where scale isn't 0``; None where no input says where.

    ``sides`` are the output with each of other inputs with which elements of it are wrong, with
    which it must be so as well. Two inputs that both say where are named together, as where both
    are 0; more than two are none. Where else one number is expected, as of what a mask hides, the
    mask only says where anything may be wrong.
    """
    found: list[tuple[float, str, _Elements, _Side]] = []
    aligned = 0
    for name in failure.context.readable_inputs():
        if (own := _Side.of(name, output, failure)) is None:
            continue
        aligned += 1
        others = [side for each in sides if (side := _Side.of(name, *each)) is not None]
        for which in _candidates(name, own):
            known = [side.evidence(which) for side in (own, *others)]
            numbers = [each for each in known if each is not None]
            if len(numbers) == len(known) and (which.is_usual or len(numbers) > 1):
                found.append((sum(numbers), name, which, own))
    likely = [each[1:] for each in found if each[0] >= CHANCE + log10(aligned)]
    alone = [
        (which.share(side), which.words, name, which)
        for name, which, side in likely
        if which.are_left_out or _is_part(which, side.values, side.wrong)
    ]
    if not alone:
        return None
    *_, first, which = min(alone)
    beside = {name: other.words for name, other, _ in likely if other.goes_with(which)}
    beside.pop(first, None)
    if len(beside) > 1:
        return None
    return parts.WhereInput(" and ".join([which.words, *beside.values()]), which.are_left_out)


def _candidates(name: str, side: _Side) -> Iterator[_Elements]:
    """Sorts of elements that all wrong ones are of, or none."""
    values, wrong = side.values, side.wrong
    if not bool(wrong.any()) or bool(wrong.all()) or _are_two(values):
        return
    those, others = values[wrong], values[~wrong]
    for each in _in_common(name, those):
        if not side.is_mask(each.of(values)):
            yield each
    if values.dtype is torch.bool:
        return
    first = others[0]
    if side.is_mask(values != first):
        return
    if bool((others == first).all()) and float(first) in USUAL and len(others) >= LEAST_LEFT_OUT:
        yield _Elements(f"{name} isn't {float(first):g}", lambda x: x == first, True, is_usual=True)


def _are_two(values: torch.Tensor) -> bool:
    """Whether there are two numbers alone, and no flags: either may be what matters, or not."""
    if values.dtype is torch.bool or not bool(values.isfinite().all()):
        return False
    least, most = values.amin(), values.amax()
    are_flags = (float(least), float(most)) == (0.0, 1.0)
    return not are_flags and bool(((values == least) | (values == most)).all())


def _is_part(which: _Elements, values: torch.Tensor, wrong: torch.Tensor) -> bool:
    """Whether not only few of these are wrong; of most of all elements, nearly all have to be."""
    at = which.of(values)
    least = which.least if int(at.sum()) <= MOST * at.numel() else NEARLY_ALL
    return int(wrong.sum()) >= least * int(at.sum())


def _in_common(name: str, those: torch.Tensor) -> Iterator[_Elements]:
    """What elements have in common: a number, a sign, a limit, or that they aren't finite."""
    if bool(those.isnan().all()):
        yield _Elements(f"{name} is NaN", torch.isnan, is_usual=True)
    elif bool((~those.isfinite()).any()):
        if bool((~those.isfinite()).all()):
            words = f"{name} isn't finite"
            yield _Elements(words, lambda x: ~x.isfinite(), is_usual=True)
    elif bool((those == those[0]).all()):
        number = those[0]
        shown = f"{float(number):.9g}" if number.is_floating_point() else number.item()
        words = f"{name} is {shown}"
        yield _Elements(words, lambda x: x == number, is_usual=float(number) in USUAL)
    elif bool((those < 0).all()):
        yield _Elements(f"{name} is below 0", lambda x: x < 0, is_usual=True)
    elif not those.is_floating_point() and int(those.min()) >= LEAST_LIMIT:
        limit = 1 << floor(log2(int(those.min())))
        words = f"{name} is {limit} or more"
        # Of numbers that rise, those of the last rows are beyond some limit.
        yield _Elements(words, lambda x: x >= limit, least=NEARLY_ALL)
