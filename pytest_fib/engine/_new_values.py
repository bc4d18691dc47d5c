"""Values that no timed call has seen, before every round of them.

Then no answer can come from a cache: not from an earlier round, nor from another call of the same.
Filling hundreds of buffers by generators would take longer than timing them, so each buffer is a
mixture of two that are filled: of their elements, at random, where a mixture is as valid as they
are, and otherwise the whole of one or the other.
"""

from __future__ import annotations

from dataclasses import dataclass
from random import SystemRandom
from typing import TYPE_CHECKING

import torch

from pytest_fib.workloads import elementwise_inputs

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_fib.engine._context import BufferPool, EvaluationContext

#: The buffers that the others are mixtures of.
MIXED = 2
#: How much is mixed at once: that takes copies.
MIXED_BYTES = 128 << 20
#: Elements are mixed in words of so many bytes.
WORD = 8


@dataclass(frozen=True)
class Mixture:
    """Which words of a buffer come from which of the two that are mixed.

    One row of random ``bits`` says it, read from another place for each buffer: ``starts``. Of
    inputs that are mixed as a whole ``wholes`` says it, (buffers, 1).
    """

    bits: torch.Tensor
    starts: torch.Tensor
    wholes: torch.Tensor


class NewValues:
    """Fills the inputs of both sides' buffers.

    The reference's pool has ``MIXED`` buffers more than the candidate's. They hold what is mixed,
    where the candidate can neither read nor change it.
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
        self._elementwise = self._elementwise_words()
        self._coupled = not bool(self._elementwise.all())
        #: What the buffers hold now.
        self.mixture: Mixture
        self.fill_mixed()

    def fill_mixed(self) -> None:
        """Make new values to mix, and mix them.

        The same lengths, pages and routes each time: other ones are other work.
        """
        context, workload = self._context, self._context.request.workload
        for number in range(self._candidate.count, self._reference.count):
            tensors = self._reference.at(number)
            context.fill(context.reference, tensors, workload, self._source.getrandbits(32))
        self.mix()

    def mix(self) -> None:
        """Give all buffers other mixtures, and outputs that are none."""
        self._random.manual_seed(self._source.getrandbits(63))
        count, words = self._candidate.count, len(self._elementwise)
        places = max(count, words)
        order = torch.randperm(count, generator=self._random, device=self._device)
        self.mixture = Mixture(
            self._random_bits(places + words),
            (order * (places // count) + self._source.randrange(places)) % places,
            self._random_bits(count).unsqueeze(1),
        )
        # In the same way and in random order: what was written last may still be in a cache.
        for pool in self._source.sample((self._candidate, self._reference), 2):
            self._mix(pool, slice(0, count), self.mixture)
            pool.outputs().fill_(-1)
        self._context.synchronize()

    def restore(self, number: int, mixture: Mixture) -> None:
        """Put back what a buffer's inputs on the reference's side were at that time."""
        self._mix(self._reference, slice(number, number + 1), mixture)
        self._context.synchronize()

    def _mix(self, pool: BufferPool, numbers: slice, mixture: Mixture) -> None:
        inputs, words = pool.inputs(), len(self._elementwise)
        if not words:
            return
        step = max(1, MIXED_BYTES // pool.size)
        for start in range(numbers.start, numbers.stop, step):
            chunk = slice(start, min(start + step, numbers.stop))
            torch.where(self._mask(chunk, mixture), *self._mixed(), out=inputs[chunk])

    def _mixed(self) -> torch.Tensor:
        """The inputs of the two buffers that the others are mixtures of."""
        return self._reference.inputs()[self._candidate.count :]

    def _mask(self, numbers: slice, mixture: Mixture) -> torch.Tensor:
        words = len(self._elementwise)
        mask = mixture.bits.unfold(0, words, 1)[mixture.starts[numbers]]
        if self._coupled:
            mask = torch.where(self._elementwise, mask, mixture.wholes[numbers])
        return mask

    def _random_bits(self, number: int) -> torch.Tensor:
        bits = torch.empty(number, dtype=torch.bool, device=self._device)
        return bits.random_(generator=self._random)

    def _elementwise_words(self) -> torch.Tensor:
        """Which words of a buffer's inputs may be mixed one by one."""
        pool = self._reference
        mask = torch.zeros(pool.inputs_size // WORD, dtype=torch.bool, device=self._device)
        for words in self._words_of_elementwise():
            mask[words] = True
        return mask

    def _words_of_elementwise(self) -> Iterator[slice]:
        pool, names = self._reference, elementwise_inputs(self._context.definition)
        refs = pool.first.input_tensors
        starts = sorted((ref.offset - pool.start) // WORD for ref in refs.values())
        for name in names & refs.keys():
            start = (refs[name].offset - pool.start) // WORD
            after = [other for other in starts if other > start]
            yield slice(start, min(after, default=None))
