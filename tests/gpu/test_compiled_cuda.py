"""CUDA kernels on a device: the shipped ones are right, wrong ones and cheats are caught."""

from dataclasses import replace
from pathlib import Path

import pytest

from pytest_fib.build import why_not_buildable
from pytest_fib.data import EvaluationRequest
from pytest_fib.discovery import Implementation
from pytest_fib.workloads import make_workload
from tests.mutants.compiled import CHEATS, DECODE, FUSED, GEMM, GEMV, MUTANTS, RMSNORM, SCALE

#: Those in TileLang and CuTe DSL.
BY_LANGUAGE = [
    (language, replace(shipped, file=f"{folder}/{name}.py", name=name))
    for language, name, shipped in (
        ("tilelang", "tilelang_row", RMSNORM),
        ("tilelang", "tilelang_row", FUSED),
        ("cutedsl", "cutedsl_row", RMSNORM),
        ("cutedsl", "cutedsl_row", FUSED),
        ("cutedsl", "cutedsl_dp4a", GEMV),
        ("cutedsl", "cutedsl_mma", GEMM),
        ("cutedsl", "cutedsl_mma", replace(GEMM, axes=(("M", 3),))),
    )
    for folder in [shipped.file.rpartition("/")[0]]
]


def skip_unless_buildable(language):
    if reason := why_not_buildable(Implementation("any", "any", Path("any"), 1, language=language)):
        pytest.skip(reason)


@pytest.fixture(scope="module", autouse=True)
def nvcc(device):
    skip_unless_buildable("cuda")


@pytest.fixture
def evaluate_cuda(judge):
    """The evaluation of a CUDA implementation, with a part of its source replaced."""

    def evaluate_cuda(shipped, axes=None, replacement=("", ""), **settings):
        definition = shipped.of()
        return judge.evaluate(
            EvaluationRequest(
                definition=definition,
                solution=shipped.solution(*replacement),
                workload=make_workload(definition, axes or dict(shipped.axes), seed=1),
                **settings,
            )
        )

    return evaluate_cuda


@pytest.mark.parametrize("batch", [1, 33])
@pytest.mark.parametrize("shipped", [RMSNORM, FUSED], ids=lambda shipped: shipped.definition)
def test_normalisation_is_right(evaluate_cuda, shipped, batch):
    evaluation = evaluate_cuda(shipped, {"batch": batch})
    assert evaluation.status == "PASSED", evaluation.log


@pytest.mark.parametrize("shipped", [DECODE, GEMV], ids=lambda shipped: shipped.definition)
def test_it_is_right_on_the_sizes_that_mutants_are_tried_on(evaluate_cuda, shipped):
    evaluation = evaluate_cuda(shipped)
    assert evaluation.status == "PASSED", evaluation.log


@pytest.mark.parametrize(("language", "shipped"), BY_LANGUAGE)
def test_kernels_in_other_languages_are_right(evaluate_cuda, language, shipped):
    skip_unless_buildable(language)
    evaluation = evaluate_cuda(shipped)
    assert evaluation.status == "PASSED", evaluation.log


@pytest.mark.parametrize("n", [1, 1001, 65536])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_scaling_in_three_layers_is_right(evaluate_cuda, dtype, n):
    evaluation = evaluate_cuda(replace(SCALE, definition=f"scale_{dtype}"), {"n": n})
    assert evaluation.status == "PASSED", evaluation.log


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_kernel_is_caught(evaluate_cuda, name):
    shipped, *replacement = MUTANTS[name]
    evaluation = evaluate_cuda(shipped, replacement=replacement, repeat=4)
    assert evaluation.status in ("INCORRECT_NUMERICAL", "RUNTIME_ERROR"), evaluation.log


@pytest.mark.parametrize("name", CHEATS)
def test_a_cheat_gains_no_time(evaluate_cuda, name):
    subject = RMSNORM, {"batch": 1024}
    honest = evaluate_cuda(*subject, timing=True)
    assert honest.status == "PASSED", honest.log
    cheat = evaluate_cuda(*subject, CHEATS[name], timing=True)
    assert cheat.status != "COMPILE_ERROR", cheat.log
    refused = cheat.status != "PASSED"
    assert refused or cheat.latency_ms > 0.8 * honest.latency_ms, cheat.log
