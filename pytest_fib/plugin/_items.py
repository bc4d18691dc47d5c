"""The kinds of pytest item, and what each does."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pytest

from pytest_fib.build import (
    BuildError,
    capability_of,
    program_of,
    why_not_buildable,
    why_not_runnable,
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
    Trace,
    Workload,
    own_fault,
)
from pytest_fib.discovery import FibWarning, Implementation, why_unreadable
from pytest_fib.plugin import _failure_cache as failure_cache
from pytest_fib.plugin._lost_failures import no_failure_lost
from pytest_fib.plugin._properties import properties_of
from pytest_fib.plugin._session import Session
from pytest_fib.report import (
    TimeRecord,
    axis_sizes,
    describe_compile_error,
    describe_definition_fault,
    describe_evaluation,
    describe_slower,
    message_only,
    replay_command,
    shown_size,
    workload_json,
)
from pytest_fib.workloads import (
    DEFAULT_BUDGETS,
    RecordedWorkload,
    example_workloads,
    in_domain,
    lone_sizes,
    missing,
    plan,
    read_workload,
    smallest_axes,
    stored_inputs,
    why_not_generated,
    why_unfit,
    workload_bytes,
)

if TYPE_CHECKING:
    import _pytest._code


#: How many of the smallest workloads fit in a budget by default, where one does: else each workload
#: of a definition with large constant axes would be the smallest.
ROOM = 3
#: The name under which a definition's own reference is tested, and on how many workloads.
REFERENCE, DEFINITION_EXAMPLES = "reference", 3


class KernelFailure(AssertionError):
    """An implementation is wrong, or can't be tested; the text is what people see."""


@dataclass
class ItemOutcome:
    """What a run of an item leaves: traces, how its time compares, its build, use of a device."""

    traces: list[Trace] = field(default_factory=list)
    time_comparison: dict[str, Any] | None = None
    build: dict[str, Any] | None = None
    device_use: dict[str, Any] | None = None


class UnusableItem(pytest.Item):
    """Something in a dataset that can't be tested: a skip with the reason, and on with the rest."""

    def __init__(self, *, reason: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.add_marker(pytest.mark.skip(reason=f"can't be tested: {reason}"))

    def reportinfo(self) -> tuple[os.PathLike[str] | str, int | None, str]:
        return self.path, 0, self.name

    def runtest(self) -> None:
        """Nothing to do; the mark keeps pytest from coming here."""


class KernelItem(pytest.Item):
    """One implementation of one definition, under one kind of test."""

    kind = ""
    #: What the text of a failure begins with in place of a status.
    blamed: str | None = None

    def __init__(
        self,
        *,
        loaded: LoadedDefinition,
        implementation: Implementation,
        label: str,
        parent: pytest.Collector,
        repetition: str = "",
        **kwargs: Any,
    ) -> None:
        name = f"{loaded.definition.name}[{implementation.name}-{label}{repetition}]"
        # Given as text, so that pytest >= 9.2 sees the bracket: --lf compares ids by their parts.
        nodeid = f"{parent.nodeid}::{name}"
        super().__init__(name=name, parent=parent, nodeid=nodeid, **kwargs)
        self.loaded = loaded
        self.definition = loaded.definition
        self.implementation = implementation
        self.label = label
        #: What an id ends with where each item is collected several times.
        self.repetition = repetition
        #: What the mark carries, and ``-k`` matches.
        self.identity = {
            "definition": self.definition.name,
            "implementation": implementation.name,
            "op_type": self.definition.op_type,
            "language": implementation.language,
            "kind": self.kind,
        }
        #: What else the tables know of this item.
        self.facts: dict[str, Any] = {}
        self.outcome = ItemOutcome()
        self.run = Session.of(self.config)
        self.settings = self.run.settings
        self.add_marker(pytest.mark.fib(**self.identity))
        self.extra_keyword_matches.update(self.identity.values())

    def reportinfo(self) -> tuple[os.PathLike[str] | str, int | None, str]:
        """Where the definition starts."""
        return self.path, self.loaded.line - 1, self.name

    def skip_reason(self) -> str | None:
        """Why this can't run here, or None."""
        if self.implementation.problem is not None:
            return None  # it is seen to fail instead
        run = self.run
        reason = why_not_runnable(
            self.implementation, run.hardware, run.machine, is_built=self._is_built()
        )
        return reason or self.why_no_inputs()

    def _is_built(self) -> bool:
        """Whether the implementation was built ahead of time, for this run's device."""
        prebuilt, implementation = self.run.prebuilt, self.implementation
        if prebuilt is None:
            return False
        solution = implementation.solution(self.definition.name)
        try:
            program = program_of(
                solution, self.definition, implementation.directory, self.run.hardware
            )
        except BuildError:  # it is for other hardware
            return False
        return prebuilt.has(program)

    def why_no_inputs(self) -> str | None:
        """Why inputs can't be had, or None."""
        stored = missing(stored_inputs(self.definition), self.path.parent)
        return self.settings.readable(stored) if stored else why_not_generated(self.definition)

    def skip_if_unable(self) -> None:
        if reason := self.skip_reason():
            self.add_marker(pytest.mark.skip(reason=reason))

    def setup(self) -> None:
        """Forget an earlier run, where a plugin runs the item several times."""
        self.outcome = ItemOutcome()
        if self.run.last_call is not None:
            self.run.last_call.begin()

    @property
    def subject(self) -> tuple[str, str]:
        return self.definition.name, self.implementation.name

    def runtest(self) -> None:
        """Run the test. Raises KernelFailure with the text to show."""
        if (failed := self.run.uncompiled.get(self.subject)) and self.kind != "compile":
            pytest.skip(f"does not compile: {failed} failed")
        if self.implementation.problem is not None:
            raise KernelFailure(
                f"can't be tested: {self.settings.readable(self.implementation.problem)}"
            )
        try:
            with no_failure_lost() as raise_lost, self.run.progress.of(self.name, raise_lost):
                self.check()
        except (KernelFailure, pytest.UsageError):
            raise
        except KeyboardInterrupt as interrupt:
            if isinstance(interrupt.__cause__, pytest.exit.Exception):  # of a debugger
                raise interrupt.__cause__ from None
            raise
        except pytest.fail.Exception:
            self.add_report_section("call", "kernel", f"while {self.run.progress.activity}\n")
            raise
        except Exception as error:  # noqa: BLE001  (whatever is wrong with us, others go on)
            fault = own_fault(error)
            self.outcome.traces.append(self.trace(Workload(axes={}), fault))
            assert fault.diagnosis is not None
            message = f"{fault.status.value}: {fault.diagnosis.sentence}"
            raise KernelFailure(f"{message}\n\n{self.implementation_place}") from None
        finally:
            use = self.run.take_device_use()
            self.outcome.device_use = None if use is None else asdict(use)

    def warn(self, warning: Warning) -> None:
        """Warn; raises KernelFailure where filters make an error of the warning."""
        try:
            super().warn(warning)
        except FibWarning as error:
            message = f"{error} (a FibWarning, which filterwarnings or -W makes an error)"
            raise KernelFailure(f"{message}\n\n{self.implementation_place}") from None

    def check(self) -> None:
        """What the kind of item tests."""
        raise NotImplementedError

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The failure's own text; the first line of it in pytest's short summary."""
        # pytest.fail() comes from plugins, as pytest-timeout's does, wherever this happens to be.
        if isinstance(excinfo.value, KernelFailure):
            return message_only(excinfo, (str(self.implementation.path), self.implementation.line))
        if isinstance(excinfo.value, pytest.fail.Exception):
            return message_only(excinfo)
        return super().repr_failure(excinfo, style=style)

    def _traceback_filter(
        self, excinfo: pytest.ExceptionInfo[BaseException]
    ) -> _pytest._code.Traceback:
        """Without pytest's own frames, as for test functions."""
        return excinfo.traceback.cut(path=__file__).filter(excinfo)

    def evaluate(
        self, workload: Workload, root: Path, *, timing: bool = False, explain: bool = True
    ) -> Outcome:
        """What comes of the implementation on a workload with tensors in files below ``root``."""
        from pytest_fib.data import EvaluationRequest

        request = EvaluationRequest(
            **self._kernel_and_tensors(root, workload),
            workload=workload,
            timing=timing,
            precision=self.settings.precision,
            draws=explain,
            explain=explain,
        )
        return self.run.executor.evaluate(request)

    def _kernel_and_tensors(self, root: Path, workload: Workload | None = None) -> dict[str, Any]:
        """What requests to evaluate and to search have in common."""
        directory = self.implementation.directory
        stored = stored_inputs(self.definition, workload).values()
        files = {each.path: root / each.path for each in stored}
        add_file = self.run.tensor_files.add
        return {
            "definition": self.definition,
            "solution": self._solution(),
            "tensors": {path: add_file(file) for path, file in files.items() if file.is_file()},
            "directory": None if directory is None else str(directory),
            "timeout": self.settings.timeout,
            "build_timeout": self.settings.build_timeout,
            "repeat": self.settings.repeat,
        }

    def _solution(self) -> Solution:
        """Read from its files, which may have gone since they were collected."""
        try:
            return self.implementation.solution(self.definition.name)
        except (OSError, UnicodeDecodeError) as error:
            problem = why_unreadable(self.implementation.path, error)
            raise KernelFailure(f"can't be tested: {self.settings.readable(problem)}") from None

    def conclude(self, workload: Workload, outcome: Outcome, origin: Origin | None = None) -> None:
        """Record an evaluation; raise the KernelFailure that explains what went wrong."""
        if not isinstance(outcome, Evaluation):
            text = describe_definition_fault(
                outcome,
                workload,
                self._definition_place,
                self._replay(workload),
                origin,
                guessed=self._guessed(workload),
                width=self.run.width,
            )
            raise KernelFailure(self._with_lines_of_the_file(text))
        self.outcome.traces.append(self.trace(workload, outcome))
        if outcome.status is not EvaluationStatus.PASSED:
            place, replay = self.implementation_place, self._replay(workload)
            text = describe_evaluation(
                outcome,
                workload,
                place,
                replay,
                origin,
                guessed=self._guessed(workload),
                width=self.run.width,
                blamed=self.blamed,
            )
            if self.blamed:
                text = self._with_lines_of_the_file(text)
            raise KernelFailure(text).with_traceback(self._last_call(workload))

    def _last_call(self, workload: Workload) -> TracebackType | None:
        """For a debugger: called with the workload once more, the implementation ends there."""
        if self.run.last_call is None:
            return None
        self.evaluate(workload, self.path.parent, explain=False)
        return self.run.last_call.traceback

    def _guessed(self, workload: Workload) -> str:
        """The inputs whose meaning was inferred; none where a workload brings them along."""
        return "" if workload.has_recorded_tensors else plan(self.definition).guessed

    @property
    def _definition_place(self) -> str:
        return f"{self.settings.shown(self.path)}:{self.loaded.line}"

    def _with_lines_of_the_file(self, text: str) -> str:
        """A traceback's frames in the reference, which runs as a file of its own, in the YAML."""
        before = self.loaded.lines_before_reference
        if before is None:
            return text
        shown = self.settings.shown(self.path)
        return re.sub(
            r'File "[^"\n]*reference\.py", line (\d+)',
            lambda frame: f'File "{shown}", line {before + int(frame[1])}',
            text,
        )

    def trace(self, workload: Workload, evaluation: Evaluation) -> Trace:
        """The record of an evaluation, with what a compile item found before it."""
        compiled = evaluation.compiled or self.run.compiled.get(self.subject)
        if compiled is not None:
            evaluation = evaluation.model_copy(update={"compiled": compiled})
        return Trace(
            definition=self.definition.name,
            definition_file=self.settings.shown(self.path),
            solution=self.implementation.name,
            workload=workload,
            evaluation=evaluation,
        )

    def add_properties(self) -> None:
        """Tell reports of other tools what is known by now."""
        known = properties_of(self)
        names = {name for name, _ in known}
        others = [pair for pair in self.user_properties if pair[0] not in names]
        self.user_properties[:] = [*others, *known]

    def attach_outcome(self, report: pytest.TestReport) -> None:
        """Put what the item is on a report that says how it ended, and what it left if it ran.

        As JSON: xdist carries builtin types only, and only those attributes that are on a report.
        """
        if report.when == "call" or not report.passed:
            outcome = self.outcome if report.when == "call" else ItemOutcome()
            file = self.settings.shown(self.path)
            source = self.settings.shown(self.implementation.path)
            item = {**self.identity, **self.facts, "label": self.label, "file": file}
            item |= {"source": source, "line": self.implementation.line, "item": self.name}
            lines = [
                trace.model_copy(update={"item_seconds": 0.0 if i else report.duration})
                for i, trace in enumerate(outcome.traces)
            ]
            left = {**item, **vars(outcome), "traces": [line.to_json_line() for line in lines]}
            report.fib = json.dumps(left, separators=(",", ":"))  # type: ignore[attr-defined]

    @property
    def id_to_replay(self) -> str:
        """The item's id on a command line given where this one was, in a run without repeats."""
        file = self.settings.from_start(self.path)
        return f"{file}::{self.name.removesuffix(f'{self.repetition}]')}]"

    def _replay(self, workload: Workload) -> str:
        """The command that tests just this workload: by --fib-workload, if it has no tensors."""
        node_id = self.id_to_replay
        if not workload.has_recorded_tensors:
            node_id = node_id.removesuffix(f"-{self.label}]") + "-correctness]"
        return replay_command(node_id, workload, self.settings.replay_options)

    @property
    def implementation_place(self) -> str:
        """The implementation's name, file and line."""
        implementation = self.implementation
        place = self.settings.readable(
            f"{self.settings.shown(implementation.path)}:{implementation.line}"
        )
        return f"{implementation.name}  {place}"

    def max_bytes(self) -> int:
        if self.settings.max_bytes is not None:
            return self.settings.max_bytes
        interpreted = self.run.hardware.interprets(self.implementation.language)
        usual = DEFAULT_BUDGETS["interpreter" if interpreted else self.run.device]
        least = workload_bytes(self.definition, smallest_axes(self.definition))
        return usual if least > usual else max(usual, ROOM * least)

    def over_budget(self, axes: Mapping[str, int]) -> str | None:
        """That a workload of these axes takes more memory than there is for it, or None."""
        needed, budget = workload_bytes(self.definition, axes), self.max_bytes()
        if needed <= budget:
            return None
        return f"needs {shown_size(needed)}; the budget is {shown_size(budget)} (--fib-max-bytes)"


class CorrectnessItem(KernelItem):
    """Searches for a workload on which the implementation is wrong."""

    kind = "correctness"
    #: Whether outputs that are chosen at random are drawn many times.
    draws = True

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
        from pytest_fib.data import SearchRequest

        self._warn_of_lone_sizes()
        seed, run_seed = self.run.seeds
        request = SearchRequest(
            **self._kernel_and_tensors(self.path.parent),
            failed_before=self._failed_before(),
            listed=self._listed(),
            examples=self._examples(),
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
        """Of axes that could have many sizes, and have one in every workload that is drawn."""
        if lone := lone_sizes(self.definition, self.max_bytes()):
            sizes = ", ".join(f"{axis}={size}" for axis, size in lone.items())
            budget = f"{shown_size(self.max_bytes())} (--fib-max-bytes)"
            message = f"only {sizes} fits in {budget}: mistakes at other sizes pass"
            self.warn(FibWarning(f"{self.name}: {message}"))

    def _listed(self) -> list[Workload]:
        return example_workloads(self.definition)

    def _examples(self) -> int:
        return self.settings.examples

    def _failed_before(self) -> list[Workload]:
        """The workload on which this failed last; none where the definition has moved on."""
        try:
            workload = read_workload(self.definition, failure_cache.load(self) or "")
        except ValueError:
            return []
        return [workload] if in_domain(self.definition, workload.axes) else []


class CompileItem(KernelItem):
    """Compiles an implementation for one target. Needs compilers, and no device."""

    kind = "compile"

    def __init__(self, *, target: str, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.target = target

    def skip_reason(self) -> str | None:
        """Whatever this runs on."""
        unable = why_not_buildable(self.implementation, self.run.machine)
        return unable or self.why_no_inputs()

    def check(self) -> None:
        """Build. What doesn't compile for this run's device isn't run either."""
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
            # Of languages that are compiled at their first call, nothing else knows this.
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
        """Leave a record that has the compiler's whole log; it is of no workload."""
        evaluation = Evaluation(
            status=EvaluationStatus(result.status),
            log=f"{result.message}\n{result.log}",
            diagnosis=Diagnosis(sentence=result.message),
            compiled=Compiled(target=self.target),
        )
        self.outcome.traces.append(self.trace(Workload(axes={}), evaluation))


class DefinitionItem(CorrectnessItem):
    """Tests a definition alone: its reference as if that were an implementation.

    It shows that the reference runs on what is drawn, returns the shapes and dtypes declared, gives
    the same bits twice, and in its own dtypes keeps to the bounds that its float64 values set.
    """

    kind = "definition"
    blamed = "DEFINITION ERROR: reference"
    draws = False  # what it draws from is its own

    def __init__(self, *, loaded: LoadedDefinition, implemented: bool, **kwargs: Any) -> None:
        line = loaded.lines_before_reference or loaded.line
        reference = Implementation(REFERENCE, loaded.definition.name, loaded.path, line)
        super().__init__(loaded=loaded, implementation=reference, **kwargs)
        self.facts = {"unimplemented": not implemented}

    def conclude(self, workload: Workload, outcome: Outcome, origin: Origin | None = None) -> None:
        """Nothing is recorded, since nothing was implemented; what fails is the definition."""
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
        return replay_command(self.id_to_replay, workload, self.settings.replay_options)


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
        """What can't be read of the workload, or made where it does not say."""
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
        """Also compare the time with the baseline's; fail if it is slower and that is asked for."""
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
        """The item itself: what fails only when it is timed would pass as another."""
        options = ("--fib-bench", *options, *self.settings.replay_options)
        return shlex.join(["pytest", self.id_to_replay, *options])
