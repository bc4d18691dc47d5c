"""Samplers that choose allowed tokens, but not as often as they should, and those that do."""

import re
from pathlib import Path
from textwrap import dedent

import pytest

from pytest_fib.data import (
    BuildSpec,
    Definition,
    EvaluationRequest,
    Solution,
    SourceFile,
    SupportedLanguages,
    load_definition_file,
)
from pytest_fib.workloads import make_workload

ROOT = Path(__file__).parents[2]
#: How long is drawn.
SECONDS = "pytest_fib.engine._sample_plan.SECONDS"


def sampling(limit, vocabulary=1000):
    path = ROOT / f"kernel_defs/sampling/{limit}_sampling_from_probs.yaml"
    name = f"{limit}_sampling_from_probs_v{vocabulary}"
    return next(d.definition for d in load_definition_file(path) if d.definition.name == name)


#: The right distribution, then what is done to it, then how it is drawn from.
SAMPLER = """\
import torch
{reference}
def run(probs, limit):
    kept = distribution(probs, limit)
    {change}
    return torch.multinomial(kept, 1{more}).squeeze(-1)
"""
FRESH = ", generator=torch.Generator(probs.device).manual_seed(3)"
MUTANTS = {
    "right": ("top_p", "pass", "", None),
    "right top_k": ("top_k", "pass", "", None),
    "never its top token": (
        "top_p",
        "alone = kept.gt(0).sum(1, keepdim=True).eq(1).float(); "
        "kept.scatter_(1, kept.argmax(1, keepdim=True), alone)",
        "",
        "wrong distribution",
    ),
    "ignores top_p": (
        "top_p",
        "kept = distribution(probs, torch.ones_like(limit))",
        "",
        "outside the support",
    ),
    "renormalises wrongly": (
        "top_p",
        "last = kept.masked_fill(kept == 0, 2).argmin(1, keepdim=True); "
        "kept = torch.where(kept > 0, probs, 0.0); "
        "kept.scatter_add_(1, last, 1 - kept.sum(1, keepdim=True).clamp(max=1))",
        "",
        "wrong distribution",
    ),
    "uniform": ("top_p", "kept = kept.gt(0).float()", "", "wrong distribution"),
    "one seed": ("top_p", "pass", FRESH, "repeated draws"),
    "one token too many": (
        "top_k",
        "kept = distribution(probs, (limit + 1).clamp(max=probs.shape[1]))",
        "",
        "outside the support",
    ),
}


def request_for(definition: Definition, text: str, *, seed: int = 0, batch: int = 5):
    solution = Solution(
        name="s",
        definition=definition.name,
        author="tests",
        spec=BuildSpec(
            language=SupportedLanguages("python"),
            target_hardware=["cpu", "cuda"],
            entry_point="module.py::run",
            calling="value",
        ),
        sources=[SourceFile(path="module.py", content=text)],
    )
    workload = make_workload(definition, {"batch_size": batch}, seed=seed)
    return EvaluationRequest(
        definition=definition, solution=solution, workload=workload, draws=True
    )


def sampler(definition, change="pass", more=""):
    reference = definition.reference.partition("def run")[0]
    return SAMPLER.format(reference=dedent(reference), change=change, more=more)


@pytest.mark.parametrize("name", MUTANTS)
def test_a_wrong_sampler_is_found_by_its_draws(judge, monkeypatch, name):
    monkeypatch.setattr(SECONDS, {"cpu": 1.0})
    limit, change, more, pattern = MUTANTS[name]
    definition = sampling(limit)
    evaluation = judge.evaluate(request_for(definition, sampler(definition, change, more)))
    assert (evaluation.diagnosis and evaluation.diagnosis.pattern) == pattern, evaluation.log
    assert evaluation.status == ("INCORRECT_NUMERICAL" if pattern else "PASSED")
    assert evaluation.log.startswith("samples: row " if pattern else "")


FEW_TELL = {
    "one token too few": ("top_k", "kept = distribution(probs, (limit - 1).clamp(min=1))"),
    "one number for two rows": (
        "top_p",
        "number = torch.rand(len(kept) + 1, 1)[::2].repeat_interleave(2, 0)[: len(kept)]; "
        "sums = kept.cumsum(1); at = (sums < number * sums[:, -1:]).sum(1, keepdim=True); "
        "kept = torch.zeros_like(kept).scatter_(1, at.clamp(max=kept.shape[1] - 1), 1.0)",
    ),
}


@pytest.mark.parametrize("name", FEW_TELL)
def test_of_many_rows_those_that_tell_are_drawn(judge, monkeypatch, name):
    monkeypatch.setattr(SECONDS, {"cpu": 1.0})
    limit, change = FEW_TELL[name]
    definition = sampling(limit)
    request = request_for(definition, sampler(definition, change), batch=400)
    evaluation = judge.evaluate(request)
    assert evaluation.status == "INCORRECT_NUMERICAL", evaluation.log
    assert evaluation.diagnosis.pattern in ("wrong distribution", "repeated draws")


@pytest.mark.parametrize("seed", range(4))
def test_a_right_sampler_passes_whatever_is_drawn(judge, monkeypatch, seed):
    monkeypatch.setattr(SECONDS, {"cpu": 0.5})
    definition = sampling("top_p")
    request = request_for(definition, sampler(definition), seed=seed)
    evaluation = judge.evaluate(request)
    assert evaluation.diagnosis is None
    extra = evaluation.correctness.extra
    assert extra["draws"] >= 2 * 256  # of two calls at least, however little time there is
    assert extra["smallest_p"] > 1e-7


def test_a_sampler_that_dies_while_it_draws_is_told(judge, monkeypatch):
    monkeypatch.setattr(SECONDS, {"cpu": 0.2})
    definition = sampling("top_p")
    text = sampler(definition, "assert len(probs) == 5, 'too large'")
    evaluation = judge.evaluate(request_for(definition, text))
    assert (evaluation.status, evaluation.log.splitlines()[0]) == (
        "RUNTIME_ERROR",
        "AssertionError: too large",
    )


def test_without_random_outputs_nothing_is_drawn(evaluate):
    evaluation = evaluate("def run(x, factor):\n    return x * factor\n", n=8, draws=True)
    assert evaluation.status == "PASSED"
    assert "draws" not in evaluation.correctness.extra


def test_with_a_seed_among_the_inputs_calls_must_repeat(judge):
    """What is drawn with is given, so the same inputs have the same outputs."""
    given = sampling("top_p")
    seed = given.inputs["top_p"].model_copy(update={"shape": None})
    reference = given.reference.replace("run(probs, top_p)", "run(probs, top_p, seed)")
    changed = {"inputs": {**given.inputs, "seed": seed}, "reference": reference}
    seeded = given.model_copy(update={**changed, "workloads": None})
    for more, status in ((FRESH, "PASSED"), ("", "INCORRECT_NUMERICAL")):
        text = sampler(given, more=more).replace("run(probs, limit)", "run(probs, limit, seed)")
        request = request_for(seeded, text, batch=64)
        evaluation = judge.evaluate(request)
        assert evaluation.status == status
        assert not evaluation.correctness or "draws" not in (evaluation.correctness.extra or {})


ONLY_IF_ROWS_REPEAT = (
    "kept = kept if torch.equal(probs[0], probs[-1 + len(probs) // 8]) else "
    "kept * (kept == kept.amax(1, keepdim=True))"
)


def test_a_sampler_that_is_random_only_where_rows_repeat_is_found(judge):
    """That is where it is drawn from many times; here it isn't."""
    definition = sampling("top_p")
    request = request_for(definition, sampler(definition, ONLY_IF_ROWS_REPEAT), batch=400)
    evaluation = judge.evaluate(request.model_copy(update={"draws": False}))
    assert evaluation.diagnosis, evaluation.log
    assert evaluation.diagnosis.pattern == "wrong distribution"
    what = r"samples: \d+ of \d+ draws lie in 1/\d+ of their distributions, by probability"
    assert re.match(what, evaluation.log)


IS_TIMED = """
import sys
def is_timed():
    frame = sys._getframe()
    while frame is not None and frame.f_code.co_name != "_block":
        frame = frame.f_back
    return frame is not None
"""
MOST_PROBABLE = "kept = kept * (kept == kept.amax(1, keepdim=True)) if is_timed() else kept"


@pytest.mark.parametrize("change", ["pass", MOST_PROBABLE], ids=["right", "not when timed"])
def test_timed_calls_choose_as_they_should(judge, change):
    definition = sampling("top_p")
    # Many rows, so that few calls choose enough to tell, however busy the machine is.
    request = request_for(definition, IS_TIMED + sampler(definition, change), batch=64)
    evaluation = judge.evaluate(request.model_copy(update={"timing": True, "precision": "quick"}))
    if change == "pass":
        assert evaluation.status == "PASSED", evaluation.log
        return
    assert evaluation.diagnosis, evaluation.log
    assert evaluation.diagnosis.pattern == "wrong distribution"
    what = r"samples: \d+ of \d+ draws lie in 1/\d+ of their distributions, by (index|probability)"
    assert re.match(rf"{what} \(p = \S+\) \(while it was timed", evaluation.log)
