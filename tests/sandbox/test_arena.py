"""Arenas, and the tensors laid out in them."""

import gc
import mmap
import os
from pathlib import Path

import pytest
import torch

from pytest_fib.sandbox import ALIGNMENT, ArenaAllocator, TensorRef, nbytes
from pytest_fib.workloads import TensorLayout, extent

#: CUDA puts smaller allocations into blocks that they share.
BLOCK = 2 << 20


def test_places_do_not_overlap_and_lie_in_the_arena():
    layout = ArenaAllocator("cpu")
    shapes = [((3,), "float32"), ((5, 7), "float16"), ((), "int64"), ((1,), "bool")]
    layout.begin(sum(ALIGNMENT + nbytes(*shape) for shape in shapes))
    ends = 0
    for ref in [layout.place(TensorLayout.contiguous(*shape)) for shape in shapes]:
        assert ref.offset >= ends
        ends = ref.offset + nbytes(ref.shape, ref.dtype)
    assert ends <= layout.arena.size


@pytest.mark.parametrize("dtype", ["bool", "float16", "float32", "float64", "complex128"])
def test_every_tensor_is_aligned_as_a_fresh_allocation_is(dtype):
    layout = ArenaAllocator("cpu")
    layout.begin(10_000)
    for n in (1, 3, 100):
        tensor = layout.tensor(layout.place(TensorLayout.contiguous((n,), dtype)))
        assert tensor.data_ptr() % ALIGNMENT == 0


def test_the_next_workload_lies_elsewhere():
    layout = ArenaAllocator("cpu")
    starts = set()
    for _ in range(50):
        layout.begin(100)
        starts.add(layout.place(TensorLayout.contiguous((1,), "float32")).offset)
    assert len(starts) > 10


@pytest.mark.parametrize("shape", [(0,), (0, 5), (5, 0), (2, 0, 3)])
def test_a_tensor_of_no_elements_has_its_shape_and_strides(shape):
    layout = ArenaAllocator("cpu")
    layout.begin(0)
    tensor = layout.tensor(layout.place(TensorLayout.contiguous(shape, "float32")))
    assert tensor.shape == shape
    assert tensor.is_contiguous()


@pytest.mark.parametrize("shape", [(), (4,), (2, 3), (2, 1, 3)])
def test_places_are_contiguous(shape):
    assert TensorLayout.contiguous(shape, "int8").stride == torch.empty(shape).stride()


def test_a_strided_place_is_seen_as_torch_sees_it():
    layout = ArenaAllocator("cpu")
    numbers = layout.tensor(TensorRef(0, (24,), (1,), "float32")).copy_(torch.arange(24))
    strided = layout.tensor(TensorRef(4 * 2, (2, 3), (8, 2), "float32"))
    assert strided.equal(numbers.as_strided((2, 3), (8, 2), 2))
    assert extent((2, 3), (8, 2)) == 13


def test_memory_is_shared_with_whoever_maps_the_descriptor():
    arena = ArenaAllocator("cpu").arena
    [descriptor] = arena.descriptors
    with mmap.mmap(descriptor, arena.size) as theirs:
        arena.base[5] = 77
        assert theirs[5] == 77


def test_who_maps_an_arena_cannot_take_its_memory_away():
    """A shorter file would end the judge with SIGBUS at its next look."""
    arena = ArenaAllocator("cpu").arena
    [descriptor] = arena.descriptors
    with pytest.raises(PermissionError):
        os.ftruncate(descriptor, 0)
    assert arena.base.sum() == 0


def test_the_arena_grows_when_a_workload_needs_more():
    layout = ArenaAllocator("cpu")
    first = layout.arena
    layout.begin(1000)
    assert layout.arena is first
    layout.begin(5 << 20)
    assert layout.arena.size >= (5 << 20) + layout.slack
    layout.begin(1000)
    assert layout.arena.size >= 5 << 20, "it does not shrink"


@pytest.mark.parametrize(
    ("size", "times"), [(3 << 20, 2), (100 << 20, 2), ((1 << 28) + 1, 9 / 8), (3 << 30, 9 / 8)]
)
def test_growth_wastes_as_much_again_at_most_and_of_much_an_eighth(size, times):
    layout = ArenaAllocator("cpu")
    layout.begin(size)
    assert layout.arena.size <= (size + layout.slack) * times + BLOCK


def test_an_arena_is_replaced_a_few_times_while_workloads_grow():
    layout = ArenaAllocator("cpu")
    arenas = []
    for size in range(1 << 20, 200 << 20, 3 << 20):
        layout.begin(size)
        arenas.append(layout.arena.size)
    assert len({*arenas}) <= 8


@pytest.mark.parametrize("size", [0, 1, 3 << 20, (100 << 20) + 1])
def test_an_arena_fills_whole_blocks_of_the_device(size):
    """Else a process that maps it would map what lies beside it as well."""
    layout = ArenaAllocator("cpu")
    layout.begin(size)
    assert layout.arena.size % BLOCK == 0


def test_a_wipe_clears_all_that_was_given_out():
    layout = ArenaAllocator("cpu")
    layout.begin(100_000)
    starts = []
    for _ in range(20):
        layout.begin(100_000)
        ref = layout.place(TensorLayout.contiguous((100_000,), "uint8"))
        starts.append(ref.offset)
        layout.tensor(ref).fill_(7)
    layout.wipe()
    assert not layout.arena.base.any()


def test_an_arena_that_is_forgotten_leaves_nothing_open():
    def open_arenas():
        """By inode: those of tests before may be closed meanwhile."""
        gc.collect()
        links = [link for link in Path("/proc/self/fd").iterdir() if link.is_symlink()]
        arenas = [link for link in links if "pytest-fib arena" in str(link.readlink())]
        return {link.stat().st_ino for link in arenas}

    before = open_arenas()
    layout = ArenaAllocator("cpu")
    for size in (1 << 20, 1 << 22, 1 << 24):
        layout.begin(size)
    assert open_arenas() - before
    del layout
    assert not open_arenas() - before
