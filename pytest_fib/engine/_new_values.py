"""Gives timed calls values that none has seen, before every round.

So no answer can come from a cache: not of an earlier round, nor of another call in this one.
Filling hundreds of buffers with generators would take longer than timing them, so each buffer is a
random mixture of the elements of two filled ones. Inputs for which a mixture is not valid are
filled by their generators in as many buffers as there is time for; the other buffers get copies.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from random import SystemRandom
from time import monotonic
from typing import TYPE_CHECKING

import torch

from pytest_fib.workloads import coupled_inputs

if TYPE_CHECKING:
    from pytest_fib.engine._context import BufferPool, CallTensors, EvaluationContext

#: The number of buffers that are mixed into the others.
MIXED = 2
#: The most bytes that are mixed at once, since that makes copies.
MIXED_BYTES = 128 << 20
#: Seconds for filling buffers that can't be mixed, before a round. The device is held exclusively.
FILLING = {"cpu": 0.03, "cuda": 0.005}
#: The size of a word, in bytes; words are mixed whole.
WORD = 8


@dataclass(frozen=True)
class Mixture:
    """Which words of a buffer come from which of the two mixed buffers.

    That is one row of random ``bits``, read ``step`` further on for each buffer. Inputs that can't
    be mixed were filled from one of the ``seeds``, by the number of the buffer.
    """

    bits: torch.Tensor
    step: int
    seeds: dict[int, int] = field(default_factory=dict)

    def of(self, buffers: slice, words: int) -> torch.Tensor:
        """Which of so many words of some buffers come from the first, (buffers, words): a view."""
        size = buffers.stop - buffers.start, words
        return self.bits.as_strided(size, (self.step, 1), buffers.start * self.step)


class NewValues:
    """Fills the inputs of both sides' buffers.

    The reference's pool has ``MIXED`` buffers more than the candidate's. These hold the buffers to
    mix, which the candidate can neither read nor change.
    """

    def __init__(
        self, context: EvaluationContext, candidate: BufferPool, reference: BufferPool
    ) -> None:
        self._context = context
        self._candidate = candidate
        self._reference = reference
        self._device = reference.words.device
        self._source = SystemRandom()
        self._random = torch.Generator(self._device)
        self._coupled = coupled_inputs(context.definition)
        #: The current mixture.
        self.mixture: Mixture
        self.fill_mixed()

    def fill_mixed(self) -> None:
        """Make new values to mix, and mix them.

        Lengths, pages and routes stay the same: others would be other work.
        """
        for number in range(self._candidate.count, self._reference.count):
            self._fill(self._reference.at(number), self._source.getrandbits(32))
        self.mix()

    def _fill(self, tensors: CallTensors, seed: int) -> None:
        context = self._context
        context.fill(context.reference, tensors, context.request.workload, seed)

    def mix(self, only: int | None = None) -> None:
        """Give all buffers, or ``only`` one, new mixtures, and invalid outputs."""
        self._random.manual_seed(self._source.getrandbits(63))
        count, words = self._candidate.count, self._words
        numbers = range(count) if only is None else range(only, only + 1)
        step = max(1, words // count)
        bits = torch.empty(count * step + words, dtype=torch.bool, device=self._device)
        self.mixture = Mixture(bits.random_(generator=self._random), step)
        # Both sides alike, in random order: the last writes may still be in a cache.
        for pool in self._source.sample((self._candidate, self._reference), 2):
            self._mix(pool, slice(numbers.start, numbers.stop), self.mixture)
            pool.outputs()[numbers.start : numbers.stop].fill_(-1)
        if self._coupled:
            self._fill_coupled(self._source.sample(numbers, len(numbers)))
        self._context.synchronize()

    def restore(self, number: int, mixture: Mixture) -> None:
        """Restore a buffer's inputs on the reference's side from a mixture."""
        self._mix(self._reference, slice(number, number + 1), mixture)
        if self._coupled:
            self._fill(self._coupled_tensors(number), mixture.seeds[number])
        self._context.synchronize()

    @property
    def _words(self) -> int:
        return self._reference.inputs_size // WORD

    def _mix(self, pool: BufferPool, numbers: slice, mixture: Mixture) -> None:
        if not self._words:
            return
        inputs, mixed = pool.inputs(), self._reference.inputs()[self._candidate.count :]
        step = max(1, MIXED_BYTES // pool.size)
        for start in range(numbers.start, numbers.stop, step):
            chunk = slice(start, min(start + step, numbers.stop))
            torch.where(mixture.of(chunk, self._words), *mixed, out=inputs[chunk])

    # Inputs that can't be mixed.

    def _fill_coupled(self, order: Sequence[int]) -> None:
        """Fill them in as many buffers as there is time for; the next ones get copies."""
        until, seeds = monotonic() + FILLING[self._device.type], self.mixture.seeds
        for number in order:
            if seeds and monotonic() > until:
                break
            seeds[number] = self._source.getrandbits(32)
            self._fill(self._coupled_tensors(number), seeds[number])
        sources = [order[i % len(seeds)] for i in range(len(order))]
        seeds |= {number: seeds[source] for number, source in zip(order, sources, strict=True)}
        to, of = (torch.tensor(each, device=self._device) for each in (order, sources))
        step = max(1, MIXED_BYTES // self._reference.size)
        for words in self._coupled_words():
            for start in range(0, len(order), step):
                chunk = slice(start, start + step)
                values = self._reference.inputs()[:, words][of[chunk]]
                for pool in (self._reference, self._candidate):
                    pool.inputs()[:, words][to[chunk]] = values

    def _coupled_tensors(self, number: int) -> CallTensors:
        tensors = self._reference.at(number)
        refs = tensors.input_tensors.items()
        return replace(tensors, inputs={name: ref for name, ref in refs if name in self._coupled})

    def _coupled_words(self) -> Iterator[slice]:
        """The words of those inputs in a buffer."""
        pool = self._reference
        refs = pool.first.input_tensors
        starts = sorted((ref.offset - pool.start) // WORD for ref in refs.values())
        for name in self._coupled & refs.keys():
            start = (refs[name].offset - pool.start) // WORD
            after = [other for other in starts if other > start]
            yield slice(start, min(after, default=None))
