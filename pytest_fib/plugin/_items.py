"""The kinds of kernel test, and what each does."""

from __future__ import annotations

import shlex
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from pytest_fib.build import (
    capability_of,
    why_not_buildable,
    why_not_timeable,
)
from pytest_fib.data import (
    BuildResult,
    Compiled,
    Diagnosis,
    Evaluation,
    EvaluationStatus,
    LoadedDefinition,
    Origin,
    Outcome,
    Solution,
    Workload,
)
from pytest_fib.discovery import FibWarning, Implementation
from pytest_fib.plugin import _failure_cache as failure_cache
from pytest_fib.plugin._kernel_item import KernelFailure, KernelItem
from pytest_fib.report import (
    TimeRecord,
    axis_sizes,
    describe_compile_error,
    describe_slower,
    replay_command,
    shown_size,
    workload_json,
)
from pytest_fib.workloads import (
    RecordedWorkload,
    example_workloads,
    given_scalars,
    in_domain,
    lone_sizes,
    missing,
    read_workload,
    smallest_axes,
    stored_inputs,
    why_broken,
    why_not_generated,
    why_unfit,
)

#: The name under which a definition's reference is tested, and the number of workloads.
REFERENCE, DEFINITION_EXAMPLES = "reference", 3


class CorrectnessItem(KernelItem):
    """Searches for a workload on which the implementation is wrong."""

    kind = "correctness"
    #: Whether outputs that are chosen at random are drawn many times.
    draws = True
    #: Whether small workloads are tried beside the others.
    small_ones = True

    def skip_reason(self) -> str | None:
        """Also where no workload fits in the budget."""
        if reason := super().skip_reason():
            return reason
        if self.implementation.problem or self.settings.workload:
            return None
        return self.over_budget(smallest_axes(self.definition))

    def check(self) -> None:
        """Search; record the smallest failing workload, or the one closest to its bound."""
        if self.settings.workload is None:
            self._search()
            return
        try:
            workload = read_workload(self.definition, self.settings.workload)
        except ValueError as error:
            message = f"--fib-workload does not fit {self.definition.name}: {error}"
            raise KernelFailure(message) from None
        self.conclude(workload, self.evaluate(workload, self.path.parent))

    def _search(self) -> None:
        from pytest_fib.data import SMALL_FOR_EACH, SearchRequest

        self._warn_of_lone_sizes()
        seed, run_seed = self.run.seeds
        request = SearchRequest(
            **self._kernel_and_tensors(self.path.parent),
            failed_before=self._failed_before(),
            listed=self._listed(),
            examples=self._examples(),
            small_for_each=SMALL_FOR_EACH if self.small_ones else 0,
            seed=seed,
            run_seed=run_seed,
            max_bytes=self.max_bytes(),
            draws=self.draws,
        )
        result = self.run.executor.search(request)
        if result.was_evaluated:
            failure_cache.save(self, workload_json(result.workload) if result.origin else None)
        if result.origin and self.settings.keep_failures:
            failure_cache.record(self, result.workload, self.loaded, self.settings)
        self.conclude(result.workload, result.outcome, result.origin)

    def _warn_of_lone_sizes(self) -> None:
        """Warn about axes that could have many sizes but have the same one in every workload."""
        if lone := lone_sizes(self.definition, self.max_bytes()):
            sizes = ", ".join(f"{axis}={size}" for axis, size in lone.items())
            budget = f"{shown_size(self.max_bytes())} (--fib-max-bytes)"
            message = f"only {sizes} fits in {budget}: other sizes are not tested"
            self.warn(FibWarning(f"{self.name}: {message}"))

    def _listed(self) -> list[Workload]:
        return example_workloads(self.definition)

    def _examples(self) -> int:
        return self.settings.examples

    def _failed_before(self) -> list[Workload]:
        """The workload on which this failed last; none if the definition has changed since."""
        definition = self.definition
        try:
            workload = read_workload(definition, failure_cache.load(self) or "")
            if not in_domain(definition, workload.axes):
                return []
            is_broken = why_broken(definition, workload, self.path.parent) is not None
        except ValueError:
            return []
        return [] if is_broken else [workload]


class CompileItem(KernelItem):
    """Compiles an implementation for one target. Needs compilers, and no device."""

    kind = "compile"

    def __init__(self, *, target: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.target = target

    def skip_reason(self) -> str | None:
        """The device of this run does not matter."""
        unable = why_not_buildable(self.implementation, self.run.machine)
        return unable or self.why_no_inputs()

    def check(self) -> None:
        """Build. If that fails for this run's device, skip the implementation's other items."""
        from pytest_fib.data import BuildRequest

        directory = self.implementation.directory
        request = BuildRequest(
            definition=self.definition,
            solution=self.implementation.solution(self.definition.name),
            target=self.target,
            directory=None if directory is None else str(directory),
            build_timeout=self.settings.build_timeout,
        )
        result = self.run.executor.build(request)
        if result.status == "SKIPPED":
            pytest.skip(result.message)
        self.outcome.build = result.model_dump(exclude={"status", "message", "log"})
        if result.spills:
            message = f"{self.name}: {result.kernel} spills {result.spills} bytes of registers"
            self.warn(FibWarning(message))
        if result.status == "PASSED" and self._is_for_this_device:
            # Nothing else knows this about languages that are compiled at their first call.
            facts = result.model_dump(include={*Compiled.model_fields})
            self.run.compiled[self.subject] = Compiled(target=self.target, **facts)
        if result.status == "COMPILE_ERROR":
            self._record_error(result)
            self.outcome.build["status"] = result.status
            if self._is_for_this_device:
                self.run.uncompiled[self.subject] = self.name
            replay = shlex.join(["pytest", self.id_to_replay, *self.settings.replay_options])
            place, width = self.implementation_place, self.run.width
            raise KernelFailure(describe_compile_error(result, place, replay, width=width))

    @property
    def _is_for_this_device(self) -> bool:
        return self.target == "cpu" or capability_of(self.target) == self.run.hardware.capability

    def _record_error(self, result: BuildResult) -> None:
        """Record the compiler's whole log, without a workload."""
        evaluation = Evaluation(
            status=EvaluationStatus(result.status),
            log=f"{result.message}\n{result.log}",
            diagnosis=Diagnosis(sentence=result.message),
            compiled=Compiled(target=self.target),
        )
        self.outcome.traces.append(self.trace(Workload(axes={}), evaluation))


class DefinitionItem(CorrectnessItem):
    """Tests a definition alone: its reference as if it were an implementation.

    It shows that the reference runs on the workloads, returns the declared shapes and dtypes, gives
    the same bits twice, and in its own dtypes keeps to the bounds of its float64 values.
    """

    kind = "definition"
    blamed = "DEFINITION ERROR: reference"
    draws = False  # its own outputs are the distribution
    small_ones = False

    def __init__(self, *, loaded: LoadedDefinition, implemented: bool, **kwargs: Any) -> None:
        line = loaded.lines_before_reference or loaded.line
        reference = Implementation(REFERENCE, loaded.definition.name, loaded.path, line)
        super().__init__(loaded=loaded, implementation=reference, **kwargs)
        self.facts = {"unimplemented": not implemented}

    def conclude(self, workload: Workload, outcome: Outcome, origin: Origin | None = None) -> None:
        """Record nothing, since there is no implementation; a failure is the definition's."""
        try:
            super().conclude(workload, outcome, origin)
        finally:
            self.outcome.traces.clear()

    def _kernel_and_tensors(self, root: Path, workload: Workload | None = None) -> dict[str, Any]:
        return {**super()._kernel_and_tensors(root, workload), "directory": None}

    def _solution(self) -> Solution:
        from pytest_fib.data import BuildSpec, Solution, SourceFile, SupportedLanguages

        return Solution(
            name=REFERENCE,
            definition=self.definition.name,
            author="unknown",
            spec=BuildSpec(
                language=SupportedLanguages.PYTHON,
                target_hardware=["cpu", "cuda"],
                entry_point="reference.py::run",
                calling="value",
            ),
            sources=[SourceFile(path="reference.py", content=self.definition.reference)],
        )

    def _listed(self) -> list[Workload]:
        return []

    def _examples(self) -> int:
        return min(self.settings.examples, DEFINITION_EXAMPLES)

    def _replay(self, workload: Workload) -> str:
        scalars = given_scalars(self.definition, workload)
        return replay_command(self.id_to_replay, workload, self.settings.replay_options, scalars)


class WorkloadItem(KernelItem):
    """Tests one recorded workload."""

    kind = "workload"
    timing = False

    def __init__(self, *, case: RecordedWorkload, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.case = case
        size = self.label.partition("-")[2]
        if case.workload.uuid.startswith(size):
            self.facts["workload"] = f"{axis_sizes(case.workload.axes)} ({size})"

    def why_no_inputs(self) -> str | None:
        """Why inputs of the workload can't be read or made, or None."""
        workload = self.case.workload
        if reason := why_unfit(self.definition, workload):
            return f"workload {workload.uuid} does not fit {self.definition.name}: {reason}"
        if reason := missing(stored_inputs(self.definition, workload), self.case.root):
            return self.settings.readable(reason)
        return why_not_generated(self.definition, workload)

    def skip_reason(self) -> str | None:
        """Also where the workload does not fit in the budget."""
        return super().skip_reason() or self.over_budget(self.case.workload.axes)

    def check(self) -> None:
        workload = self.case.workload
        outcome = self.evaluate(workload, self.case.root, timing=self.timing)
        self.conclude(workload, outcome, "recorded" if self.kind == "workload" else None)


class BenchItem(WorkloadItem):
    """Checks one workload, then times it."""

    kind = "bench"
    timing = True

    def skip_reason(self) -> str | None:
        """Also where a kernel can't be timed."""
        untimed = why_not_timeable(self.implementation.language, self.run.hardware)
        return untimed or super().skip_reason()

    def conclude(self, workload: Workload, outcome: Outcome, origin: Origin | None = None) -> None:
        """Also compare the time with the baseline; with ``--fib-fail-on``, fail if it is slower."""
        super().conclude(workload, outcome, origin)
        assert isinstance(outcome, Evaluation)  # a fault was raised
        now = TimeRecord.from_trace(self.trace(workload, outcome))
        if self.run.baseline is None or now is None:
            return
        comparison = self.run.baseline.compare(now)
        self.outcome.time_comparison = asdict(comparison)
        limit = self.settings.fail_on
        if limit is not None and comparison.slower_than(limit):
            compare = f"--fib-compare={self.settings.compare}"
            replay = self._replay(workload, compare, f"--fib-fail-on=slower > {100 * limit:g}%")
            place = self.implementation_place
            text = describe_slower(comparison, workload, place, replay, limit, width=self.run.width)
            raise KernelFailure(text)

    def _replay(self, workload: Workload, *options: str) -> str:
        """This item itself: a failure while timing would not show in a correctness item."""
        options = ("--fib-bench", *options, *self.settings.replay_options)
        return shlex.join(["pytest", self.id_to_replay, *options])
