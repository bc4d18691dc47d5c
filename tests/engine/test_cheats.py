"""Implementations that try to pass without being right, each seen for what it does."""

import re
import resource
from pathlib import Path
from unittest import mock

import pytest

from pytest_fib.build import load, program_of
from pytest_fib.data import EvaluationRequest
from pytest_fib.discovery import find_implementations
from pytest_fib.engine import Judge
from pytest_fib.search import search
from pytest_fib.walls import wall_names
from pytest_fib.workloads import make_workload
from tests.sampling import one_in

CHEATS = Path(__file__).parents[1] / "mutants" / "cheats"

SECOND = re.escape(
    "out: holds the results of an earlier call everywhere (right on a first call, "
    "wrong on a second of the same shapes with other values)"
)
ZEROS = "out: zeros everywhere"
FORKS = "it killed or disturbed the process that starts sandboxes"
ALL = "out: never written"

NOT_PERMITTED = ("RUNTIME_ERROR", r"PermissionError: \[Errno 1\] Operation not permitted.*")
DENIED = ("RUNTIME_ERROR", r"PermissionError: \[Errno 13\] Permission denied.*")

#: What each ends with: its status, and the first line of what is said of it.
REASONS = {
    "bind_parent": NOT_PERMITTED,
    "cache_by_content": ("INCORRECT_NUMERICAL", SECOND),
    "cache_by_id": ("INCORRECT_NUMERICAL", SECOND),
    "cache_by_pointer": ("INCORRECT_NUMERICAL", SECOND),
    "cache_by_shape": ("INCORRECT_NUMERICAL", SECOND),
    "deep_folders": ("INCORRECT_NUMERICAL", ZEROS),
    "descriptors_under_way": ("INCORRECT_NUMERICAL", ZEROS),
    "exit_early": ("RUNTIME_ERROR", "the process exited with code 0"),
    "forge_messages": (
        "RUNTIME_ERROR",
        "the process forged a message: a reply out of turn",
    ),
    "forge_one_message": ("INCORRECT_NUMERICAL", ALL),
    "gc_walk": ("INCORRECT_NUMERICAL", "out: (never written|NaN everywhere, .*)"),
    "hold_device_lock": DENIED,
    "kill_parent": ("RUNTIME_ERROR", FORKS),
    "known_draws": ("INCORRECT_NUMERICAL", ZEROS),
    # On a busy machine it has written the first call's outputs when the second has ended.
    "late_process": ("INCORRECT_NUMERICAL", ALL + r"( \(right on a first call, .*\))?"),
    "late_thread": ("INCORRECT_NUMERICAL", ALL),
    "lazy_tensor": ("RUNTIME_ERROR", "out is a Lazy, not a torch.Tensor"),
    "leave_segment": NOT_PERMITTED,
    "leave_shared_file": DENIED,
    "limit_parent": NOT_PERMITTED,
    "own_namespace": NOT_PERMITTED,
    "own_session": NOT_PERMITTED,
    "patch_engine": ("INCORRECT_NUMERICAL", ALL),
    "patch_torch": ("INCORRECT_NUMERICAL", ALL),
    "plant_byte_code": DENIED,
    "plant_module": DENIED,
    "raise_passed": ("RUNTIME_ERROR", "the process forged a message: .*"),
    "raise_skip": ("RUNTIME_ERROR", "Skipped: nothing to see here"),
    "reopen_arena": DENIED,
    "replace_traces": DENIED,
    "scan_arena": ("INCORRECT_NUMERICAL", ZEROS),
    "scan_files": ("INCORRECT_NUMERICAL", ZEROS),
    "scan_memory": ("INCORRECT_NUMERICAL", ZEROS),
    "shown_shapes": ("INCORRECT_NUMERICAL", ZEROS),
    "static_output": ("RUNTIME_ERROR", "out: overwritten by the next call; .*"),
    "stop_judge": NOT_PERMITTED,
    "tear_out_pages": ("RUNTIME_ERROR", "wrote to its input 'x'"),
    "unwritten_destination": ("INCORRECT_NUMERICAL", ALL),
    "unwritten_tail": ("INCORRECT_NUMERICAL", "out: never written at the last 16 of 1000 along n"),
    "unwritten_value": ("INCORRECT_NUMERICAL", "out: .*"),  # whatever memory it found
    "wake_by_timer": NOT_PERMITTED,
    "write_inputs": ("RUNTIME_ERROR", "wrote to its input 'x'"),
    "write_judge_memory": DENIED,
    "write_to_parent": ("RUNTIME_ERROR", FORKS),
    "wrong_every_third": ("INCORRECT_NUMERICAL", "out: .*"),
}
#: What they end with where walls, or kernel.yama.ptrace_scope, keep a user's processes apart.
REFUSED = {
    "kill_parent": NOT_PERMITTED,
    "write_to_parent": ("RUNTIME_ERROR", "PermissionError: the system keeps .*"),
}
#: The same of those that are right when they are checked, and cheat when they are timed.
FALSE = "its times are false: "
BY_THE_CLOCK = (
    FALSE + r"rounds of calls take \S+ ms by their own clock, \S+ ms by the judge's clock"
)
WHEN_READ = (
    r"works while its outputs are read, or returns outputs that are slow to read .*: "
    r"\S+ µs a call more than .*"
)
TOGETHER = r"does the work of several calls at once: a call takes \S+ µs alone, \S+ µs among .*"
TIMED_WRONG = r"out: .* \(while it was timed(, and read once its inputs were cleared)?\)(;.*)?"
TIMED_REASONS = {
    "answer_no_steps": ("RUNTIME_ERROR", FALSE + r"0 of \d+ calls were answered"),
    "answer_steps_ahead": ("INCORRECT_NUMERICAL", TIMED_WRONG),
    "any_works_for_all": ("RUNTIME_ERROR", BY_THE_CLOCK),
    "batch_in_series": ("RUNTIME_ERROR", f"{TOGETHER}|{WHEN_READ}"),
    "batch_when_collected": ("RUNTIME_ERROR", f"{TOGETHER}|{WHEN_READ}"),
    "by_call_stack": ("INCORRECT_NUMERICAL", TIMED_WRONG),
    "cache_by_four_elements": ("INCORRECT_NUMERICAL", TIMED_WRONG),
    "claim_calls_only": ("RUNTIME_ERROR", FALSE + r"blocks took \S+ ns, and their calls \S+ ns"),
    "claim_huge": ("RUNTIME_ERROR", FALSE + r"a call took 1e\+308 ns"),
    "claim_method": ("RUNTIME_ERROR", FALSE + "unknown timing method 'cupti'"),
    "claim_nan": ("RUNTIME_ERROR", FALSE + "a call took nan ns"),
    "claim_negative": ("RUNTIME_ERROR", FALSE + "a call took -.* ns"),
    "claim_no_times": ("RUNTIME_ERROR", FALSE + "a call took no ns"),
    "claim_one_time": ("RUNTIME_ERROR", FALSE + r"\d+ blocks were timed 1 times"),
    "claim_three_quarters": ("RUNTIME_ERROR", BY_THE_CLOCK),
    "claim_zero": ("RUNTIME_ERROR", FALSE + "a call took 0.0 ns"),
    "copy_after_the_answer": ("RUNTIME_ERROR", BY_THE_CLOCK),
    "copy_while_collected": ("INCORRECT_NUMERICAL", TIMED_WRONG),
    "destination_when_collected": ("INCORRECT_NUMERICAL", TIMED_WRONG),
    "first_works_for_all": ("RUNTIME_ERROR", BY_THE_CLOCK),
    "in_place_later": ("RUNTIME_ERROR", r"wrote to its input .x. \(while it was timed\)"),
    "interrupt_reference": NOT_PERMITTED,
    "late_thread_later": ("INCORRECT_NUMERICAL", TIMED_WRONG),
    "lazy_later": ("RUNTIME_ERROR", "out is a Lazy, not a torch.Tensor"),
    "moved_destination": ("INCORRECT_NUMERICAL", TIMED_WRONG),
    "nested_children": ("RUNTIME_ERROR", BY_THE_CLOCK),
    "often_when_collected": ("RUNTIME_ERROR", f"{WHEN_READ}|{BY_THE_CLOCK}"),
    "one_for_all": ("INCORRECT_NUMERICAL", TIMED_WRONG),
    "only_if_poisoned": ("INCORRECT_NUMERICAL", TIMED_WRONG),
    "operators_intercepted": ("RUNTIME_ERROR", f"{WHEN_READ}|{BY_THE_CLOCK}"),
    "patch_clock": ("RUNTIME_ERROR", BY_THE_CLOCK),
    "patch_series": ("RUNTIME_ERROR", BY_THE_CLOCK),
    "ring_of_outputs": ("INCORRECT_NUMERICAL", TIMED_WRONG),
    "skip_every_other": ("INCORRECT_NUMERICAL", TIMED_WRONG),
    # On a busy machine, a call's 20 ns are less than what reading takes longer.
    "slow_until_sized": ("RUNTIME_ERROR", f"{WHEN_READ}|{BY_THE_CLOCK}"),
    "stale_every_other": ("INCORRECT_NUMERICAL", TIMED_WRONG),
    "stale_later": ("INCORRECT_NUMERICAL", TIMED_WRONG),
    "stop_reference": NOT_PERMITTED,
    "thread_for_the_last": ("INCORRECT_NUMERICAL", TIMED_WRONG),
    "work_after_the_clock": ("RUNTIME_ERROR", BY_THE_CLOCK),
    "work_before_the_clock": ("RUNTIME_ERROR", BY_THE_CLOCK),
    "work_when_collected": ("INCORRECT_NUMERICAL", TIMED_WRONG),
    "zeros_later": ("INCORRECT_NUMERICAL", TIMED_WRONG),
}
#: What they end with where an answer that was made ahead is left for a later call.
TIMED_OTHERWISE = {"first_works_for_all": ("INCORRECT_NUMERICAL", TIMED_WRONG)}
#: The shares of their times that some claim, of those that claim most of it.
CLAIMED = {"claim_three_quarters": 0.77}
#: Caches of answers, which no timed call finds anything in: they are right, and as slow as that is.
USELESS = ("cache_by_hash", "cache_of_last")
IMPLEMENTATIONS = find_implementations([CHEATS])
FOUND = {found.name: found for found in IMPLEMENTATIONS}
CUDA = {path.stem for path in (CHEATS / "timed_cuda").glob("[!_]*.py")}
GOOD = "def run(x, factor):\n    return x * factor\n"
#: These take the time of many others.
SLOW = (
    "batch_in_series",
    "batch_when_collected",
    "kill_parent",
    "nested_children",
    "often_when_collected",
    "operators_intercepted",
    "patch_clock",
    "patch_series",
    "scan_arena",
    "scan_files",
    "scan_memory",
    "work_after_the_clock",
    "work_when_collected",
)
#: These break what other tests share.
BREAKING = ("kill_parent", "write_to_parent")
#: Nothing but a wall stops these; on systems without it they would do what they try.
WALLED = {
    "landlock": {
        "hold_device_lock",
        "leave_shared_file",
        "plant_byte_code",
        "plant_module",
        "reopen_arena",
        "replace_traces",
        "stop_judge",
        "stop_reference",
        "write_judge_memory",
    },
    "seccomp": {
        "bind_parent",
        "interrupt_reference",
        "leave_segment",
        "limit_parent",
        "own_namespace",
        "own_session",
        "wake_by_timer",
    },
}


@pytest.fixture
def cheat(judge, breakable_judge, definition):
    """Evaluate a cheat by name."""

    def cheat(name: str, n: int = 1000, timing: bool = False):
        missing = WALLED.keys() - set(wall_names())
        if any(name in WALLED[wall] for wall in missing):
            pytest.skip(f"this system lacks {', '.join(missing)}")
        found = FOUND[name]
        request = EvaluationRequest(
            definition=definition,
            solution=found.solution(definition.name),
            workload=make_workload(definition, {"n": n}),
            directory=str(found.directory),
            timing=timing,
            timeout=60 if timing else 30,
        )
        return (breakable_judge if name in BREAKING else judge).evaluate(request)

    return cheat


def test_every_cheat_is_expected_to_fail():
    assert {path.stem for path in CHEATS.glob("[!_]*.py")} == set(REASONS)
    assert {path.stem for path in (CHEATS / "timed").glob("[!_]*.py")} == {
        *TIMED_REASONS,
        *USELESS,
    }
    found = [each.name for each in IMPLEMENTATIONS if each.problem is None]
    assert sorted(found) == sorted([*REASONS, *TIMED_REASONS, *USELESS, *CUDA])


@pytest.mark.parametrize("name", one_in(1, REASONS, SLOW))
def test_a_cheat_fails_and_what_it_did_is_named(cheat, evaluate, name):
    # What a right implementation leaves behind is what some of them hope to find.
    assert evaluate(GOOD).status == "PASSED"
    evaluation = cheat(name)
    expected = [REASONS[name], REFUSED.get(name, REASONS[name])]
    first = evaluation.log.splitlines()[0]
    assert any(evaluation.status == s and re.fullmatch(why, first) for s, why in expected), first
    assert evaluate(GOOD).status == "PASSED"


def test_the_patches_of_the_engine_have_a_wrong_kernel_pass_in_the_judges_own_process(definition):
    """What they are harmless in is a process of the implementation's own."""
    found = FOUND["patch_engine"]
    request = EvaluationRequest(
        definition=definition,
        solution=found.solution(definition.name),
        workload=make_workload(definition, {"n": 1000}),
        directory=str(found.directory),
    )
    try:
        with Judge("cpu", "none") as judge:
            judge.evaluate(request)
            assert judge.evaluate(request).status == "PASSED"
    finally:
        mock.patch.stopall()


def test_others_can_send_descriptors_beside_those_that_a_cheat_has_under_way(cheat):
    """The kernel refuses them once more are under way than the sender may have open."""
    log = cheat("descriptors_under_way").log
    [under_way, *_] = map(int, re.findall(r"under way: (\d+)", log))
    assert 0 < under_way <= resource.getrlimit(resource.RLIMIT_NOFILE)[0]


@pytest.mark.parametrize("name", one_in(3, TIMED_REASONS, SLOW))
def test_a_cheat_that_is_right_when_checked_fails_when_it_is_timed(cheat, evaluate, name):
    expected = [TIMED_REASONS[name], TIMED_OTHERWISE.get(name, TIMED_REASONS[name])]
    evaluation = cheat(name, timing=True)
    if name in CLAIMED and evaluation.status == "PASSED":
        # On a busy machine nobody knows better; then the intervals contain what it really takes.
        assert evaluation.performance.model_extra["unaccounted"] > 1 / CLAIMED[name] - 1
    else:
        first = evaluation.log.partition("\n")[0]
        assert any(evaluation.status == s and re.fullmatch(why, first) for s, why in expected), (
            first
        )
        assert evaluation.performance is None
    assert evaluate(GOOD).status == "PASSED"


@pytest.mark.parametrize("name", USELESS)
def test_a_cache_of_answers_gains_nothing(cheat, name):
    evaluation = cheat(name, timing=True)
    if evaluation.status == "PASSED":
        assert evaluation.performance.speedup_factor < 1
    else:  # its table grew while a round ran
        assert "its times are false" in evaluation.log or "works when" in evaluation.log


@pytest.mark.parametrize("name", sorted(CUDA))
def test_what_a_cheat_of_cuda_patches_is_there(definition, name):
    """tests/gpu runs them; one that patches what is gone would not load there."""
    found = FOUND[name]
    try:
        assert callable(load(program_of(found.solution(definition.name), definition, None)))
    finally:
        mock.patch.stopall()


@pytest.mark.parametrize("name", ["shown_shapes"])
def test_sizes_that_nobody_showed_are_tried(cheat, definition, name):
    """It is right where everyone looks; a search looks elsewhere."""
    assert cheat(name, n=1).status == "PASSED"
    assert cheat(name, n=4096).status == "PASSED"
    found = search(
        definition,
        lambda workload: cheat(name, workload.axes["n"]),
        failed=lambda evaluation: evaluation.status != "PASSED",
        closeness=lambda evaluation: 0.0,
        failed_before=[],
        listed=[],
        examples=10,
        seed=0,
        max_bytes=1 << 20,
    )
    assert found.outcome.status == "INCORRECT_NUMERICAL"
