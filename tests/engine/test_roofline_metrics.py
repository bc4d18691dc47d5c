"""What a record says of traffic and ceilings."""

from pathlib import Path

import pytest

from pytest_fib.data import Definition, load_definition_file
from pytest_fib.engine import Judge
from pytest_fib.workloads import make_workload

ROOT = Path(__file__).parents[2]


@pytest.fixture
def performance(judge, request_for, solution):
    """The performance of a right implementation."""

    def performance(text: str, definition: Definition | None = None, axes=None, judge=judge):
        request = request_for(text, timing=True)
        if definition is not None:
            workload = make_workload(definition, axes)
            request = request.model_copy(update={"definition": definition, "workload": workload})
        evaluation = judge.evaluate(request)
        assert evaluation.performance is not None, evaluation.log
        return evaluation.performance.model_extra

    return performance


SCALE = "def run(x, factor): return x * factor"


def test_a_record_has_the_traffic_of_one_kernel_and_of_separate_operations(performance):
    found = performance(SCALE)
    assert found["least_bytes"] == 2 * 4 * 1000
    # The reference of scale converts nothing in float32: it is one operation.
    assert found["separate_bytes"] == 2 * 4 * 1000
    assert found["flops"] == 0
    assert found["teraflops_per_second"] == 0
    assert found["gigabytes_per_second"] > 0


def test_what_fits_the_cache_has_no_ceiling_while_caches_are_warm(performance):
    assert performance(SCALE).keys().isdisjoint({"ceiling_share", "bound_by"})


def test_experts_without_tokens_are_not_read(performance):
    [definition] = (
        d.definition
        for d in load_definition_file(ROOT / "kernel_defs/grouped_gemm/grouped_gemm_n128_k72.yaml")
        if d.definition.name.endswith("bfloat16")
    )
    source = definition.reference.replace("A.new_empty", "A.new_zeros")
    found = performance(source, definition, {"num_groups": 9, "total_m": 1, "len_indptr": 10})
    one_group, row, offsets, out = 128 * 72 * 2, 72 * 2, 10 * 4, 128 * 2
    assert found["least_bytes"] == one_group + row + offsets + out
    assert found["flops"] == 2 * 128 * 72
    assert found["separate_bytes"] > 9 * one_group  # the reference converts every group's


def test_a_reference_that_cannot_be_counted_costs_only_those_figures(performance, definition):
    # A mode within a mode, which sees no tensor of its own.
    reference = """
import torch
from torch.utils._python_dispatch import _get_current_dispatch_mode

def run(x, factor):
    if _get_current_dispatch_mode() is not None:
        raise RuntimeError("not to be watched")
    return x * factor
"""
    shy = definition.model_copy(update={"reference": reference, "name": "shy"})
    found = performance(SCALE, shy, {"n": 1000})
    assert found["least_bytes"] == 8000
    assert found.keys().isdisjoint({"separate_bytes", "flops", "teraflops_per_second"})


def test_a_reference_is_counted_once_for_all_implementations_and_runs(performance, tmp_path):
    with Judge("cpu", "none", builds=tmp_path) as judge:
        counted = performance(SCALE, judge=judge)["separate_bytes"]
    (file,) = (tmp_path / "counts").iterdir()
    file.write_text(file.read_text().replace(str(counted), str(counted + 1)))
    with Judge("cpu", "none", builds=tmp_path) as judge:
        found = performance("def run(x, factor): return factor * x", judge=judge)
    assert found["separate_bytes"] == counted + 1
