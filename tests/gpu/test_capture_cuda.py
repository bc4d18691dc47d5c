"""Graphs that share memory: what they compute, what they take, and what a failed one leaves."""

import pytest
import torch

from pytest_fib.timing import capturing, forget_captures

SIZE = 1 << 20


def captured(call):
    """A graph of a call, and what that returns."""
    graph = torch.cuda.CUDAGraph()
    with capturing(graph):
        result = call()
    return graph, result


def test_a_graph_computes_what_was_captured():
    x = torch.rand(SIZE, device="cuda")
    graph, result = captured(lambda: torch.sin(x * 2))
    x.fill_(0.25)
    graph.replay()
    torch.testing.assert_close(result, torch.full_like(x, 0.5).sin())


def test_graphs_use_the_memory_of_those_before():
    x = torch.rand(SIZE, device="cuda")
    captured(lambda: x * 2)
    before = torch.cuda.memory_reserved()
    for _ in range(20):
        captured(lambda: x * 2 + 1)
    assert torch.cuda.memory_reserved() - before < 20 * x.nbytes
    forget_captures()
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() <= before


def test_two_graphs_that_exist_at_once_have_results_of_their_own():
    x = torch.ones(SIZE, device="cuda")
    first, one = captured(lambda: x * 2)
    second, other = captured(lambda: x * 3)
    for graph in (first, second):
        graph.replay()
    torch.cuda.synchronize()
    assert one.eq(2).all()
    assert other.eq(3).all()


def test_after_a_failed_capture_another_works():
    x = torch.ones(SIZE, device="cuda")
    for _ in range(2):
        with pytest.raises(RuntimeError, match="captur"):
            captured(lambda: (x * 2).sum().item())
        graph, result = captured(lambda: x * 5)
        graph.replay()
        torch.cuda.synchronize()
        assert result.eq(5).all()
