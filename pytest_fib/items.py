"""The kinds of pytest item, and what each does."""

from __future__ import annotations

import importlib.metadata
import importlib.util
import json
import re
import shlex
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from pytest_fib import _kept, baseline, session
from pytest_fib.build import why_no_builder
from pytest_fib.data import EvaluationStatus, Trace
from pytest_fib.options import SETTINGS
from pytest_fib.recorded import keep
from pytest_fib.report import compare
from pytest_fib.report.failure import (
    describe_definition_error,
    describe_evaluation,
    describe_slower,
    has_recorded_tensors,
    message_only,
    replay_command,
    shown_size,
    workload_json,
)
from pytest_fib.workloads import (
    DEFAULT_BUDGETS,
    example_workloads,
    in_domain,
    missing,
    read_workload,
    smallest_axes,
    stored_inputs,
    why_not_generated,
    why_unfit,
    workload_bytes,
)

if TYPE_CHECKING:
    import os
    from collections.abc import Iterable, Mapping
    from pathlib import Path

    from pytest_fib.data import Definition, Evaluation, LoadedDefinition, Workload
    from pytest_fib.engine import DefinitionError
    from pytest_fib.implementations import Implementation
    from pytest_fib.recorded import Recorded
    from pytest_fib.workloads.search import Origin, Search

#: Memory of a workload of which some rows are drawn many times: a thousand rows of as many tokens.
DRAWN_BYTES = 32 << 20


class KernelFailure(Exception):
    """An implementation is wrong, or can't be tested; the text is what people see."""


@dataclass
class Outcome:
    """What an item leaves behind for the report.

    Its traces, why it was skipped, and how its time compares with an earlier one.
    """

    traces: list[str] = field(default_factory=list)
    reason: str = ""
    comparison: dict[str, Any] | None = None


class UnusableItem(pytest.Item):
    """Something in a dataset that can't be tested: a skip with the reason, and on with the rest."""

    def __init__(self, *, reason: str, line: int, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._line = line
        self.add_marker(pytest.mark.skip(reason=f"can't be tested: {reason}"))

    def reportinfo(self) -> tuple[os.PathLike[str] | str, int | None, str]:
        """Where it is."""
        return self.path, self._line - 1, self.name

    def runtest(self) -> None:
        """Nothing to do; the mark keeps pytest from coming here."""


class KernelItem(pytest.Item):
    """One implementation of one definition, under one kind of test."""

    kind = ""

    def __init__(
        self,
        *,
        loaded: LoadedDefinition,
        implementation: Implementation,
        label: str,
        parent: pytest.Collector,
        **kwargs: Any,
    ) -> None:
        name = f"{loaded.definition.name}[{implementation.name}-{label}]"
        # Given as text, so that pytest >= 9.2 sees the bracket: --lf compares ids by their parts.
        nodeid = f"{parent.nodeid}::{name}"
        super().__init__(name=name, parent=parent, nodeid=nodeid, **kwargs)
        self.loaded = loaded
        self.implementation = implementation
        self.label = label
        self.outcome = Outcome()
        facts = self.facts
        self.add_marker(pytest.mark.fib(**facts))
        self.extra_keyword_matches.update(facts.values())

    @property
    def definition(self) -> Definition:
        """What the implementation claims to compute."""
        return self.loaded.definition

    @property
    def facts(self) -> dict[str, str]:
        """What the mark carries, and ``-k`` matches."""
        return {
            "definition": self.definition.name,
            "implementation": self.implementation.name,
            "op_type": self.definition.op_type,
            "language": self.implementation.language,
            "kind": self.kind,
        }

    def reportinfo(self) -> tuple[os.PathLike[str] | str, int | None, str]:
        """Where the definition starts."""
        return self.path, self.loaded.line - 1, self.name

    def skip_reason(self) -> str | None:
        """Why this can't run here, or None."""
        if self.implementation.problem is not None:
            return None  # it is seen to fail instead
        return (
            why_no_builder(self.implementation.language)
            or _missing_dependency(self.implementation)
            or self.why_no_inputs()
            or _wrong_device(self.implementation, session.device(self.config))
        )

    def why_no_inputs(self) -> str | None:
        """Why inputs can't be had, or None."""
        stored = missing(stored_inputs(self.definition), self.path.parent)
        return self._relative(stored) if stored else why_not_generated(self.definition)

    def skip_if_unable(self) -> None:
        """Mark this as skipped where it can't run here."""
        if reason := self.skip_reason():
            self.outcome.reason = reason
            self.add_marker(pytest.mark.skip(reason=reason))

    def runtest(self) -> None:
        """Run the test. Raises KernelFailure with the text to show."""
        if self.implementation.problem is not None:
            raise KernelFailure(f"can't be tested: {self._relative(self.implementation.problem)}")
        self.check()

    def check(self) -> None:
        """What the kind of item tests."""
        raise NotImplementedError

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """The failure's own text; the first line of it in pytest's short summary."""
        if not isinstance(excinfo.value, KernelFailure):
            return super().repr_failure(excinfo, style=style)
        return message_only(excinfo)

    def evaluate(
        self,
        workload: Workload,
        *,
        timing: bool = False,
        root: Path | None = None,
        draws: bool = False,
        explain: bool = False,
    ) -> Evaluation:
        """The outcome of the implementation on a workload. Raises DefinitionError."""
        from pytest_fib.engine import EvaluationRequest, evaluate

        directory = self.implementation.directory
        request = EvaluationRequest(
            definition=self.definition,
            solution=self.implementation.solution(self.definition.name),
            workload=workload,
            directory=None if directory is None else str(directory),
            timing=timing,
            timeout=self.config.stash[SETTINGS].timeout,
            root=None if root is None else str(root),
            precision=self.config.stash[SETTINGS].precision,
            draws=draws,
            explain=explain,
        )
        return evaluate(request, session.judge(self.config))

    def conclude(
        self,
        workload: Workload,
        outcome: Evaluation | DefinitionError,
        origin: Origin | None = None,
    ) -> None:
        """Record an evaluation; raise the KernelFailure that explains what went wrong."""
        if not isinstance(outcome, Exception):
            self._record(workload, outcome)
        if _failed(outcome):
            self._fail(workload, outcome, origin)

    def _record(self, workload: Workload, evaluation: Evaluation) -> None:
        """Keep the trace of an evaluation for the report."""
        self.outcome.traces.append(self.trace(workload, evaluation).to_json_line())

    def trace(self, workload: Workload, evaluation: Evaluation) -> Trace:
        """The record of an evaluation."""
        return Trace(
            definition=self.definition.name,
            solution=self.implementation.name,
            workload=workload,
            evaluation=evaluation,
        )

    def attach_outcome(self, report: pytest.TestReport) -> None:
        """Put facts and traces on the report that decides the item, as JSON.

        xdist carries builtin types only, and only those attributes that are on a report.
        """
        if report.when == "call" or report.skipped:
            facts = {**self.facts, "label": self.label, "path": str(self.path)}
            outcome = json.dumps({**facts, **vars(self.outcome)}, separators=(",", ":"))
            report.fib = outcome  # type: ignore[attr-defined]

    def _fail(
        self, workload: Workload, outcome: Evaluation | DefinitionError, origin: Origin | None
    ) -> NoReturn:
        """Raise the KernelFailure that explains an outcome."""
        # What follows from a seed is replayed by the correctness item, which takes --fib-workload.
        node_id = self.nodeid
        if not has_recorded_tensors(workload):
            node_id = node_id.removesuffix(f"-{self.label}]") + "-correctness]"
        replay = replay_command(node_id, workload, self.config.stash[SETTINGS].replay_options)
        if isinstance(outcome, Exception):
            place = f"{self._relative(str(self.path))}:{self.loaded.line}"
            raise KernelFailure(
                describe_definition_error(str(outcome), workload, place, replay, origin)
            )
        raise KernelFailure(
            describe_evaluation(outcome, workload, self._implementation_place(), replay, origin)
        )

    def _implementation_place(self) -> str:
        implementation = self.implementation
        place = f"{implementation.name}  {implementation.path}:{implementation.line}"
        return self._relative(place)

    def max_bytes(self) -> int:
        """The memory budget of one workload."""
        given = self.config.stash[SETTINGS].max_bytes
        if given is not None:
            return given
        device = session.device(self.config)
        interpreted = device == "cpu" and self.implementation.language == "triton"
        return DEFAULT_BUDGETS["interpreter" if interpreted else device]

    def over_budget(self, axes: Mapping[str, int]) -> str | None:
        """That a workload of these axes takes more memory than there is for it, or None."""
        needed, budget = workload_bytes(self.definition, axes), self.max_bytes()
        if needed <= budget:
            return None
        sides = f"needs {shown_size(needed)}, the budget is {shown_size(budget)}"
        return f"{sides} (--fib-max-bytes)"

    def _relative(self, text: str) -> str:
        return text.replace(f"{self.config.rootpath}/", "")


class CorrectnessItem(KernelItem):
    """Searches for a workload on which the implementation is wrong."""

    kind = "correctness"

    def skip_reason(self) -> str | None:
        """Besides the general reasons: a budget that no workload fits in."""
        if reason := super().skip_reason():
            return reason
        if self.implementation.problem or self.config.stash[SETTINGS].workload:
            return None
        return self.over_budget(smallest_axes(self.definition))

    def check(self) -> None:
        """Search; record the smallest failing workload, or the one closest to its bound."""
        only = self.config.stash[SETTINGS].workload
        if only is None:
            self._search()
        else:
            self._replay(only)

    def _replay(self, text: str) -> None:
        try:
            workload = read_workload(self.definition, text)
        except ValueError as error:
            raise KernelFailure(
                f"--fib-workload does not fit {self.definition.name}: {error}"
            ) from None
        self.conclude(workload, self._outcome(workload, draws=True, explain=True))

    def _search(self) -> None:
        from pytest_fib.workloads.search import search

        settings = self.config.stash[SETTINGS]
        found = search(
            self.definition,
            self._outcome,
            failed=_failed,
            closeness=_closeness,
            kept=self._affordable(self._kept()),
            listed=self._affordable(self._examples()),
            examples=settings.examples,
            seed=settings.seed,
            max_bytes=self.max_bytes(),
        )
        _kept.save(self, workload_json(found.workload) if found.origin else None)
        if found.origin and settings.keep_failures:
            keep(found.workload, self.loaded, settings.datasets)
        if found.origin is None and _is_random(self.definition):
            workload = self._drawn_from(found.workload)
            self.conclude(workload, self._outcome(workload, draws=True))
        else:
            self.conclude(found.workload, self._told(found), found.origin)

    def _drawn_from(self, workload: Workload) -> Workload:
        """One workload to draw many times: that takes seconds, so a search does it at its end.

        It has rows enough for some to be such that a token more or less is seen.
        """
        from pytest_fib.workloads import grown

        seeded = workload.model_copy(update={"seed": self.config.stash[SETTINGS].seed})
        return grown(self.definition, seeded, {}, min(self.max_bytes(), DRAWN_BYTES))

    def _told(self, found: Search[Evaluation | DefinitionError]) -> Evaluation | DefinitionError:
        """The outcome of a search; a failure in the words that say most of it."""
        from pytest_fib.engine import told

        if isinstance(found.outcome, Exception):
            return found.outcome
        return told(
            self.definition, found.workload, found.outcome, self._explained, self.max_bytes()
        )

    def _explained(self, workload: Workload) -> Evaluation | None:
        outcome = self._outcome(workload, explain=True)
        return None if isinstance(outcome, Exception) else outcome

    def _outcome(
        self, workload: Workload, *, draws: bool = False, explain: bool = False
    ) -> Evaluation | DefinitionError:
        from pytest_fib.engine import DefinitionError

        try:
            return self.evaluate(workload, draws=draws, explain=explain, root=self.path.parent)
        except DefinitionError as error:
            return error

    def _examples(self) -> list[Workload]:
        return example_workloads(self.definition)

    def _kept(self) -> list[Workload]:
        """The workload on which this failed last; none where the definition has moved on."""
        try:
            workload = read_workload(self.definition, _kept.load(self) or "")
        except ValueError:
            return []
        return [workload] if in_domain(self.definition, workload.axes) else []

    def _affordable(self, workloads: Iterable[Workload]) -> list[Workload]:
        return [workload for workload in workloads if self.over_budget(workload.axes) is None]


class WorkloadItem(KernelItem):
    """Tests one recorded workload."""

    kind = "workload"
    timing = False

    def __init__(self, *, case: Recorded, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.case = case

    def why_no_inputs(self) -> str | None:
        """What can't be read of the workload, or made where it does not say."""
        workload = self.case.workload
        if reason := why_unfit(self.definition, workload):
            return f"workload {workload.uuid} does not fit {self.definition.name}: {reason}"
        if reason := missing(stored_inputs(self.definition, workload), self.case.root):
            return self._relative(reason)
        return why_not_generated(self.definition, workload)

    def skip_reason(self) -> str | None:
        """Besides the general reasons: a workload over the budget."""
        return super().skip_reason() or self.over_budget(self.case.workload.axes)

    def check(self) -> None:
        """Evaluate."""
        from pytest_fib.engine import DefinitionError

        workload = self.case.workload
        try:
            outcome: Evaluation | DefinitionError = self.evaluate(
                workload, timing=self.timing, root=self.case.root, draws=True, explain=True
            )
        except DefinitionError as error:
            outcome = error
        self.conclude(workload, outcome, "recorded" if self.kind == "workload" else None)


class BenchItem(WorkloadItem):
    """Checks one workload, then times it."""

    kind = "bench"
    timing = True

    def skip_reason(self) -> str | None:
        """Besides the general reasons: what can't be timed."""
        if self.implementation.language == "triton" and session.device(self.config) == "cpu":
            return "Triton's interpreter on the CPU can't be timed meaningfully"
        return super().skip_reason()

    def conclude(
        self,
        workload: Workload,
        outcome: Evaluation | DefinitionError,
        origin: Origin | None = None,
    ) -> None:
        """Besides: compare the time with the baseline's, and fail where that is asked for."""
        super().conclude(workload, outcome, origin)
        earlier = baseline.of(self.config)
        if earlier is None or isinstance(outcome, Exception):
            return
        now = compare.timed(self.trace(workload, outcome))
        if now is None:
            return
        comparison = earlier.versus(now)
        self.outcome.comparison = compare.plain(comparison)
        limit = self.config.stash[SETTINGS].fail_on
        if limit is not None and comparison.slower_than(limit):
            raise KernelFailure(self._slower(workload, comparison, limit))

    def _slower(self, workload: Workload, comparison: compare.Comparison, limit: float) -> str:
        settings = self.config.stash[SETTINGS]
        compared = f"--fib-compare={settings.compare}", f"--fib-fail-on=slower > {100 * limit:g}%"
        options = ("--fib-bench", *compared, *settings.replay_options)
        again = shlex.join(["pytest", self.nodeid, *options])
        return describe_slower(comparison, workload, self._implementation_place(), again, limit)


def _failed(outcome: Evaluation | DefinitionError) -> bool:
    return getattr(outcome, "status", None) is not EvaluationStatus.PASSED


def _is_random(definition: Definition) -> bool:
    return any(definition.is_sampled(name) for name in definition.outputs)


def _closeness(outcome: Evaluation | DefinitionError) -> float:
    """How much of its bound a passing evaluation used."""
    correctness = getattr(outcome, "correctness", None)
    return float((correctness.extra or {}).get("bound_used", 0.0)) if correctness else 0.0


def _missing_dependency(implementation: Implementation) -> str | None:
    for requirement in implementation.dependencies:
        name = re.split(r"[^\w.\-]", requirement, maxsplit=1)[0]
        if not _installed(name):
            extra = f"pytest-fib[{name}]" if name in ("tilelang", "cutedsl") else requirement
            return f"needs {name}, which is not installed: pip install {shlex.quote(extra)}"
    return None


def _installed(name: str) -> bool:
    """Whether there is a distribution or a module of that name: people write either."""
    try:
        importlib.metadata.distribution(name)
    except importlib.metadata.PackageNotFoundError:
        return importlib.util.find_spec(name.partition(".")[0].replace("-", "_")) is not None
    return True


def _wrong_device(implementation: Implementation, device: str) -> str | None:
    targets = {target.lower() for target in implementation.target_hardware}
    if device == "cpu" and "cpu" not in targets and implementation.language != "triton":
        return f"targets {', '.join(sorted(targets))}; this run is on the CPU"
    if device == "cuda" and targets == {"cpu"}:
        return "targets the CPU only; this run is on CUDA"
    return None
