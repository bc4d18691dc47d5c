"""What a workload takes of memory, and that nothing drawn takes more than there is for it."""

import pytest

from pytest_fib.data import Definition
from pytest_fib.workloads import DEFAULT_BUDGETS, smallest_axes, workload_bytes
from tests.definitions.harness import filled, found
from tests.workloads.signatures import SIGNATURES, signature

MIB = 1 << 20


def test_the_default_budgets():
    assert DEFAULT_BUDGETS == {"cpu": 256 * MIB, "cuda": 4 << 30, "interpreter": 4 * MIB}


@pytest.mark.parametrize(
    ("inputs", "needed"),
    [
        ("x[n]:f32", 4 + 8),
        ("x[n]:bf16", 2 + 8),
        ("x[n]:fp8", 1 + 8),
        ("x[n]:i32", 4),
        ("x[n]:bool", 1),
        ("x[n]:f32 s:f32", 4 + 8),
        ("x[n]:f32 i[n]:i64", 4 + 8 + 8),
    ],
)
def test_a_workload_has_inputs_and_outputs_and_float64_copies(inputs, needed):
    definition = Definition.model_validate(signature("op", "n", inputs, "y[n]:f16"))
    assert workload_bytes(definition, {"n": 1000}) == 1000 * (needed + 2 + 8)


def test_integers_of_which_the_reference_makes_numbers_are_copied_too():
    given = signature("op", "n", "x[n]:u8", "y[n]:u8")
    for body, copied in (("x.float().round().to(x.dtype)", 8), ("x.flip(0)", 0)):
        given["reference"] = f"def run(x):\n    return {body}\n"
        definition = Definition.model_validate(given)
        assert workload_bytes(definition, {"n": 1000}) == 1000 * (1 + 1 + copied)


def test_two_fp4_values_share_a_byte():
    definition = Definition.model_validate(signature("op", "n", "x[n]:fp4", "y[n]:i8"))
    assert workload_bytes(definition, {"n": 1000}) == 500 + 8 * 1000 + 1000


def test_bytes_are_those_of_the_tensors():
    definition = Definition.model_validate(SIGNATURES["gqa_paged_prefill_ps64"])
    workloads = found(definition, 10, MIB)
    assert len(workloads) == 10
    for workload in workloads:
        axes = definition.axis_values(workload.axes)
        tensors = [v for v in filled(definition, workload).values() if not isinstance(v, float)]
        given = sum(x.nbytes + 8 * x.numel() * x.is_floating_point() for x in tensors)
        outputs = axes["total_q"] * 4 * (8 * (2 + 8) + (4 + 8))
        assert workload_bytes(definition, workload.axes) == given + outputs


@pytest.mark.parametrize("name", SIGNATURES)
def test_nothing_drawn_takes_more_than_its_budget_and_some_take_half(name):
    definition = Definition.model_validate(SIGNATURES[name])
    budget = max(MIB, 4 * workload_bytes(definition, smallest_axes(definition)))
    taken = [workload_bytes(definition, w.axes) for w in found(definition, 60, budget)]
    assert budget / 2 < max(taken) <= budget


def test_the_pages_of_a_table_fit_if_each_sequence_has_all_of_its_own():
    shapes = "q[batch,dim]:f16 k[num_pages,page_size,dim]:f16 block_table[batch,width]:i32"
    axes = "batch width num_pages page_size=16 dim=64"
    given = signature("attention", axes, f"{shapes} seq_lens[batch]:i32", "out[batch,dim]:f16")
    definition = Definition.model_validate(given)
    for workload in found(definition, 40, MIB):
        batch, width = workload.axes["batch"], workload.axes["width"]
        assert 8 * batch * width * 16 * 64 <= MIB
