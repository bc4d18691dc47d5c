"""What a reference does as separate operations."""

import subprocess
import sys

import pytest
import torch

from pytest_fib.timing import count_operations

N = 1000


def test_each_operation_reads_its_tensors_and_writes_its_result():
    x = torch.ones(N)
    assert count_operations(lambda x: x * 2 + x, [x]).moved_bytes == (2 + 3) * 4 * N


def test_views_and_allocations_are_free():
    def run(x):
        return torch.empty_like(x), x.view(10, -1).T[2:].unsqueeze(0).expand(3, -1, -1)

    assert count_operations(run, [torch.ones(N)]).moved_bytes == 0


def test_a_broadcast_operand_is_read_once():
    x, row = torch.ones(10, N), torch.ones(N).expand(10, N)
    assert count_operations(torch.add, [x, row]).moved_bytes == (10 + 1 + 10) * N * 4


def test_what_is_overwritten_is_not_read():
    def run(x, y):
        y.copy_(x)
        y.zero_()
        y.add_(x)

    assert count_operations(run, [torch.ones(N), torch.ones(N)]).moved_bytes == (2 + 1 + 3) * 4 * N


def test_a_gather_reads_the_rows_that_it_names_and_a_scatter_writes_those():
    table, rows = torch.ones(N, 8), torch.tensor([3, 5])

    def run(table, rows):
        table[rows] = table[rows]

    gathered = scattered = 2 * 8 * 4  # bytes of two rows
    moved = 2 * gathered + 16 + 2 * scattered + 16
    assert count_operations(run, [table, rows]).moved_bytes == moved


def test_an_element_that_leaves_for_python_is_read():
    assert count_operations(lambda x: x[3].item(), [torch.ones(N)]).moved_bytes == 4


def test_operations_are_those_of_matrix_products():
    left, right = torch.ones(3, 5), torch.ones(5, 7)
    assert count_operations(lambda a, b: torch.relu(a @ b), [left, right]).flops == 2 * 3 * 5 * 7


ROW = 8 * 4


@pytest.mark.parametrize(
    ("run", "seen"),
    [
        (lambda x: x + 1, N * ROW),
        (lambda x: x[3] + 1, ROW),
        (lambda x: (x[3] + 1, x[3:5] + 1), 2 * ROW),
        (lambda x: (x[4:9] + 1, x[2:6] + 1), 7 * ROW),
        (lambda x: x[torch.tensor([3, 5, 3])], 2 * ROW),
        (lambda x: x[torch.tensor([-1, N - 1])], ROW),
        (lambda x: x[torch.arange(N) < 6], 6 * ROW),
        (lambda x: torch.nn.functional.embedding(torch.tensor([1, 2]), x), 2 * ROW),
        (lambda x: x.index_select(0, torch.tensor([1, 2])), 2 * ROW),
        (lambda x: x.index_select(1, torch.tensor([1, 2])), N * ROW),
        (lambda x: x[:, torch.tensor([1, 2])], N * ROW),
        (lambda x: x[:0] + 1, None),
        (lambda x: torch.ones(3) + 1, None),
        (lambda x: x.fill_(3), None),
    ],
)
def test_of_an_argument_is_seen_what_was_read(run, seen):
    assert count_operations(run, [torch.ones(N, 8)]).read_bytes == (seen,)


def test_rows_of_a_view_are_rows_of_its_memory():
    cache = torch.ones(N, 2, 8)
    seen = count_operations(lambda x: x[:, 1][torch.tensor([3, 5])], [cache]).read_bytes
    assert seen == (2 * ROW,)


def test_what_has_no_memory_is_not_seen():
    assert count_operations(
        lambda x, eps, flag: x + eps, [torch.ones(N), 1e-6, True]
    ).read_bytes == (
        4 * N,
        None,
        None,
    )


def test_a_broadcast_argument_is_seen_once():
    assert count_operations(lambda x: x + 1, [torch.ones(8).expand(N, 8)]).read_bytes == (ROW,)


def test_products_within_inference_mode_are_seen_too():
    left, right = torch.ones(3, 5), torch.ones(7, 5)

    def run(a, b):
        with torch.inference_mode():
            return torch.nn.functional.linear(a, b)

    found = count_operations(run, [left, right])
    assert found.flops == 2 * 3 * 5 * 7
    assert found.moved_bytes == 4 * (15 + 35 + 21)


def test_counting_does_not_import_a_compiler():
    code = "import sys, torch; from pytest_fib.timing import count_operations; "
    code += "count_operations(torch.neg, [torch.ones(3)]); print('torch._dynamo' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_an_error_of_the_function_is_its_own():
    with pytest.raises(ZeroDivisionError):
        count_operations(lambda x: 1 / 0, [torch.ones(N)])
