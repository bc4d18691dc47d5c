"""Which values the tensors of each timed call have."""

from collections import Counter
from random import Random

import pytest
import torch

from pytest_fib.engine._cheat_checks import DISTINCT, draw_contents
from pytest_fib.engine._context import BufferPool
from pytest_fib.sandbox import ArenaAllocator


@pytest.mark.parametrize("called", [[0, 1], range(12), [0, 65, 130, 195], range(384), [0, 65]])
def test_calls_see_about_as_many_of_each_value(called):
    for seed in range(20):
        contents = draw_contents(max(called) + 1, called, Random(seed))
        assert contents[:DISTINCT] == list(range(DISTINCT))
        counts = Counter(contents[number] for number in called)
        assert len(counts) == DISTINCT
        assert max(counts.values()) - min(counts.values()) <= 1


def test_where_a_call_lies_does_not_tell_its_values():
    drawn = [draw_contents(12, range(12), Random(seed)) for seed in range(200)]
    for number in range(DISTINCT, 12):
        assert 50 < sum(contents[number] for contents in drawn) < 150
    assert len(set(map(tuple, drawn))) > 100


def test_each_buffer_gets_the_values_of_its_model():
    layout = ArenaAllocator("cpu")
    start = layout.begin(5 * 512)
    buffers = BufferPool(layout, start, None, stride=512, inputs_size=256, size=512, count=5)
    words = layout.arena.base[start : start + 5 * 512].view(torch.int64).view(5, -1)
    words.copy_(torch.arange(5 * 64).view(5, 64))
    before = words.clone()
    buffers.repeat([0, 1, 1, 0, 1])
    assert words[:, :32].equal(before[[0, 1, 1, 0, 1], :32])
    assert words[:, 32:].equal(before[:, 32:])  # outputs stay as they are
