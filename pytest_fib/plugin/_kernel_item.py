"""The base of all kernel tests: one implementation of one definition, under one kind of test."""

from __future__ import annotations

import json
import os
import re
import shlex
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import pytest

from pytest_fib.build import (
    BuildError,
    program_of,
    why_not_runnable,
)
from pytest_fib.data import (
    STATE,
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
from pytest_fib.plugin._hints import hint
from pytest_fib.plugin._lost_failures import no_failure_lost
from pytest_fib.plugin._properties import properties_of
from pytest_fib.plugin._session import Session
from pytest_fib.report import (
    describe_definition_fault,
    describe_evaluation,
    message_only,
    replay_command,
    shown_size,
)
from pytest_fib.workloads import (
    DEFAULT_BUDGETS,
    given_scalars,
    missing,
    plan,
    smallest_axes,
    stored_inputs,
    why_not_generated,
    workload_bytes,
)

if TYPE_CHECKING:
    import _pytest._code


#: The default budget has room for this many of the smallest workloads, if one fits at all. Else
#: each workload of a definition with large constant axes would be the smallest.
ROOM = 3


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
    """A part of a dataset that can't be tested. It is skipped with the reason."""

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
    #: What a failure's text begins with instead of a status.
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
        #: The end of the id, if each item is collected several times.
        self.repetition = repetition
        #: The facts of the mark, which ``-k`` matches too.
        self.identity = {
            "definition": self.definition.name,
            "implementation": implementation.name,
            "op_type": self.definition.op_type,
            "language": implementation.language,
            "kind": self.kind,
        }
        #: More facts for the tables.
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
            return None  # it fails instead
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
        """Forget an earlier run: plugins may run an item several times."""
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
        """Warn; raises KernelFailure if filters make the warning an error."""
        try:
            super().warn(warning)
        except FibWarning as error:
            message = f"{error} (a FibWarning, which filterwarnings or -W makes an error)"
            raise KernelFailure(f"{message}\n\n{self.implementation_place}") from None

    def check(self) -> None:
        """Run the test of this kind of item."""
        raise NotImplementedError

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The failure's own text; the first line of it in pytest's short summary."""
        # Plugins such as pytest-timeout call pytest.fail(), wherever this is at that time.
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
        """Evaluate the implementation on a workload whose tensors are in files below ``root``."""
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
        """The common fields of requests to evaluate and to search."""
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
        """Read the Solution from its files, which may have vanished since the collection."""
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
            text = describe_evaluation(
                outcome,
                workload,
                self.implementation_place,
                self._replay_of(outcome),
                origin,
                guessed=self._guessed(workload),
                parameters=() if self.blamed else self.implementation.parameters(),
                arguments=self._arguments,
                hint="" if self.blamed else self._hint(outcome),
                width=self.run.width,
                blamed=self.blamed,
            )
            if self.blamed:
                text = self._with_lines_of_the_file(text)
            raise KernelFailure(text).with_traceback(self._last_call(workload))

    def _hint(self, evaluation: Evaluation) -> str:
        return hint(self.implementation, evaluation.diagnosis, self.run.device)

    @property
    def _arguments(self) -> list[str]:
        """The names of what the implementation is called with."""
        outputs = self.definition.outputs if self.implementation.calling == "destination" else ()
        return [*self.definition.inputs, *outputs]

    def _last_call(self, workload: Workload) -> TracebackType | None:
        """For a debugger: the frame in which the implementation ends, if called once more."""
        if self.run.last_call is None:
            return None
        self.evaluate(workload, self.path.parent, explain=False)
        return self.run.last_call.traceback

    def _guessed(self, workload: Workload) -> str:
        """The inputs whose meaning was inferred; none for recorded tensors."""
        return "" if workload.has_recorded_tensors else plan(self.definition).guessed

    @property
    def _definition_place(self) -> str:
        return f"{self.settings.shown(self.path)}:{self.loaded.line}"

    def _with_lines_of_the_file(self, text: str) -> str:
        """Replace the lines of the reference in a traceback with the lines of the YAML file."""
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
        """The record of an evaluation, with the facts of an earlier compile item."""
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
        """Set the ``user_properties`` that are known so far, for reports of other tools."""
        known = properties_of(self)
        names = {name for name, _ in known}
        others = [pair for pair in self.user_properties if pair[0] not in names]
        self.user_properties[:] = [*others, *known]

    def attach_outcome(self, report: pytest.TestReport) -> None:
        """Put the item's facts on the report of its end, and its outcome if it ran.

        As JSON: xdist carries builtin types only, and only attributes of the report.
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
        """The item's id for a command line in the same directory, without a repetition."""
        file = self.settings.from_start(self.path)
        return f"{file}::{self.name.removesuffix(f'{self.repetition}]')}]"

    def _replay_of(self, outcome: Evaluation) -> Callable[[Workload], str]:
        """Makes the command that shows a failure: of its workload, unless others come first.

        Then it has the seed only if that was given: no kernel may read a run's own before its end.
        """
        if outcome.diagnosis is None or outcome.diagnosis.pattern != STATE:
            return self._replay
        command = ["pytest", self.id_to_replay, *self.settings.replay_options]
        if self.settings.seeds is not None:
            fixed, of_the_run = self.settings.seeds
            seed = str(fixed) if of_the_run is None else f"{fixed}:{of_the_run}"
            command.append(f"--fib-seed={seed}")
        return lambda workload: shlex.join(command)

    def _replay(self, workload: Workload) -> str:
        """The command that tests this workload alone, with --fib-workload if it has no tensors."""
        node_id, options = self.id_to_replay, self.settings.replay_options
        if workload.has_recorded_tensors:
            return replay_command(node_id, workload, options)
        node_id = node_id.removesuffix(f"-{self.label}]") + "-correctness]"
        return replay_command(node_id, workload, options, given_scalars(self.definition, workload))

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
        """Say that a workload of these axes needs more memory than the budget; else None."""
        needed, budget = workload_bytes(self.definition, axes), self.max_bytes()
        if needed <= budget:
            return None
        return f"needs {shown_size(needed)}; the budget is {shown_size(budget)} (--fib-max-bytes)"
