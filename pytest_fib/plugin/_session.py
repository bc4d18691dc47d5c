"""One pytest run, from the command line to the tables."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cached_property
from itertools import chain
from pathlib import Path
from random import SystemRandom
from typing import TYPE_CHECKING, Any

import pytest
from _pytest.debugging import pytestPDB

from pytest_fib.build import (
    CPU,
    DEFAULT_TARGETS,
    ArtifactCache,
    Hardware,
    Machine,
    Prebuilt,
    default_builds_directory,
    gpus,
)
from pytest_fib.discovery import (
    Catalogue,
    DefinitionLookup,
    activate,
    files_below,
    find_implementations,
    load_catalogue,
    unused_sources,
)
from pytest_fib.plugin import _gpus
from pytest_fib.plugin._baseline import read_baseline
from pytest_fib.plugin._checks import check_options, check_selection
from pytest_fib.plugin._header import header, repeated_by, unimplemented, untestable
from pytest_fib.plugin._interrupt import Interruption
from pytest_fib.plugin._kernel_check import KernelCheckRecords
from pytest_fib.plugin._options import SETTINGS
from pytest_fib.plugin._progress import Display, Progress
from pytest_fib.plugin._recorder import Recorder
from pytest_fib.plugin._shards import Durations, shard_of
from pytest_fib.plugin._tables import Tables
from pytest_fib.report import (
    Baseline,
    Row,
    append_github_summary,
    github_annotations,
    write_comparison,
)
from pytest_fib.temporary import remove_abandoned

if TYPE_CHECKING:
    from pytest_fib.data import Compiled, TensorFiles
    from pytest_fib.engine import DeviceUse
    from pytest_fib.executors import Executor
    from pytest_fib.plugin._machines import RemoteMachines
    from pytest_fib.plugin._ssh_machines import Connecting
    from pytest_fib.sandbox import LastCall
    from pytest_fib.testing import KernelCheck

_SESSION = pytest.StashKey["Session"]()
#: The key of what the controller sends to each worker of xdist.
_SENT = "fib"
#: The seed of most workloads, unless the command line has another.
FIXED_SEED = 0


class Session:
    """One run's steps, in the order in which pytest calls them, and what its items share.

    Each xdist worker has one too, which runs items and reports nothing.
    """

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.settings = config.stash[SETTINGS]
        self.baseline: Baseline | None = None
        #: In a worker of xdist: its start arguments, and the part of them from this plugin.
        self._worker: dict[str, Any] = getattr(config, "workerinput", {})
        self._sent: dict[str, Any] = self._worker.get(_SENT, {})
        self._stray_warnings_given = False
        self._display: Display | None = None
        #: Whether this run's shard is empty although there are tests.
        self._others_have_all = False
        #: The definition files that can't be collected; under xdist each worker reports them.
        self._uncollected: dict[str, Row] = {}
        #: The compile items that failed for this device, by definition and implementation.
        self.uncompiled: dict[tuple[str, str], str] = {}
        #: The results of this process' compile items for this device.
        self.compiled: dict[tuple[str, str], Compiled] = {}

    @classmethod
    def of(cls, config: pytest.Config) -> Session:
        if _SESSION not in config.stash:
            config.stash[_SESSION] = cls(config)
        return config.stash[_SESSION]

    # First: the command line.

    def start(self) -> None:
        """Check the command line, and set what is collected. Raises UsageError."""
        config, settings = self.config, self.settings
        config.add_cleanup(activate(self.definitions))
        self._have_triton_interpreted()
        config.pluginmanager.register(Interruption(config), "fib-interruption")
        if self._worker:
            config.pluginmanager.register(_Worker(self), "fib-worker")
            self._warm_early()
            self._add_paths()  # a worker reads the command line anew
            if text := self._sent.get("baseline"):
                self.baseline = Baseline.from_json(text)
            return
        check_options(settings)
        if settings.prebuilt is not None:
            _ = self.prebuilt  # an error now, not at the first item
        if settings.cache_clear:
            _clear(settings.cache or default_builds_directory())
        self._warm_early()
        self._add_paths()
        check_selection(settings, lambda: self.catalogue)
        if settings.compare is not None:  # before the recorder replaces what may be the same file
            names = set(filter(settings.wants_definition, self.catalogue.names))
            self.baseline = read_baseline(settings, settings.compare, names)
        self._start_remote_machines()
        self._recorder = Recorder(config, settings)
        self._tables = Tables(config, self._recorder, self.width, self.baseline)
        config.pluginmanager.register(self, "fib-session")
        if self._has_terminal:
            self._show_on_terminal()
        if config.pluginmanager.has_plugin("xdist"):
            self._share_among_workers()

    def _have_triton_interpreted(self) -> None:
        """Without a GPU, have Triton kernels interpreted in this process, as in sandboxes.

        Tests written by hand need that. Triton reads the variable when it is imported, so this is
        too late if a ``conftest.py`` has imported it.
        """
        undecided = "triton" not in sys.modules and "TRITON_INTERPRET" not in os.environ
        if undecided and self._device_here == "cpu":
            os.environ["TRITON_INTERPRET"] = "1"
            self.config.add_cleanup(_forget_the_interpreter)

    def _show_on_terminal(self) -> None:
        """Write tables and progress during the run."""
        config = self.config
        config.pluginmanager.register(self._tables, "fib-tables")
        if config.get_verbosity() >= 0:
            self._display = Display(config)
            config.pluginmanager.register(self._display, "fib-progress")
            config.add_cleanup(self._display.close)

    def _share_among_workers(self) -> None:
        """Have xdist give workers their GPUs, and distribute items for kernels."""
        plugins = self.config.pluginmanager
        if self.settings.device != "cpu":
            plugins.register(_gpus.GpuPerWorker(), "fib-devices")
        if self.config.getoption("dist") == "load":  # xdist's default, where there are workers
            from pytest_fib.plugin._distribution import Distribution

            plugins.register(Distribution(), "fib-distribution")

    def _start_remote_machines(self) -> None:
        """Have what runs items start there; workers of xdist start theirs themselves."""
        if self.remote is None:
            return
        if not getattr(self.config.option, "tx", None):
            _ = self.executor
        self.remote.prepare_check()

    def _add_paths(self) -> None:
        """Also collect datasets; if no path is given, a selection collects kernels alone.

        If the command line names single items, nothing is added.
        """
        config, settings = self.config, self.settings
        datasets = [str(folder) for folder in settings.dataset_dirs("definitions")]
        if config.args_source is pytest.Config.ArgsSource.ARGS:
            paths = [settings.place(argument) for argument in config.args]
            if not any("::" in argument for argument in config.args):
                config.args += [d for d in datasets if not any(p.is_relative_to(d) for p in paths)]
        elif not (settings.selective or settings.defs):
            config.args += datasets
        else:
            existing = list(map(str, self.folders))
            if not existing:
                tried = ", ".join(settings.shown(folder) for folder in settings.definition_dirs)
                raise pytest.UsageError(
                    f"no definition directory: {tried} does not exist; set fib_defs in the ini "
                    "file or give --fib-defs DIR"
                )
            config.args[:] = existing

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node: object) -> None:
        """Send an xdist worker the seeds, and the baseline, since this run may replace its file."""
        node.workerinput[_SENT] = {  # type: ignore[attr-defined]
            "seeds": self.seeds,
            "targets": self.targets,
            "width": self.width,
            "progress": self._display and self._display.address,
            "remote": self.remote and self.remote.to_json(),
            "baseline": self.baseline and self.baseline.to_json(),
        }

    def pytest_report_header(self) -> list[str]:
        return header(self)

    def pytest_report_collectionfinish(self) -> list[str]:
        """Say what has no implementation or can't be one; under xdist the tables and items do."""
        if "catalogue" not in vars(self) or self.config.get_verbosity() < 0:
            return []
        settings = self.settings
        wanted = filter(settings.wants_definition, self.catalogue.names)
        of_each = {name: self.catalogue.implementations_of(name) for name in wanted}
        problems = [
            settings.readable(each.problem)
            for each in chain.from_iterable(of_each.values())
            if each.problem and settings.wants_implementation(each.name)
        ]
        names = [name for name, found in of_each.items() if not found]
        return [*untestable(problems), *([unimplemented(names)] if names else [])]

    @cached_property
    def durations(self) -> Durations:
        """The durations in an earlier run, which balance the shards."""
        return Durations.read(self.settings)

    def keep_shard(self, items: list[pytest.Item]) -> None:
        assert self.settings.shard is not None
        items[:], others = shard_of(items, self.settings.shard, self.durations)
        self.config.hook.pytest_deselected(items=others)
        self._others_have_all = bool(others) and not items
        if self._worker:  # the controller doesn't collect
            self.config.workeroutput[_SENT] = self._others_have_all  # type: ignore[attr-defined]

    @pytest.hookimpl(optionalhook=True)
    def pytest_testnodedown(self, node: object) -> None:
        """Take over the findings of an xdist worker that ended."""
        self._others_have_all |= getattr(node, "workeroutput", {}).get(_SENT, False)

    @cached_property
    def seeds(self) -> tuple[int, int | None]:
        """The seeds of workloads: a fixed one, and one for this run's own workloads, if any.

        The controller draws the second once, unless the command line has it.
        """
        if self._sent:
            fixed, of_the_run = self._sent["seeds"]
            return fixed, of_the_run
        return self.settings.seeds or (FIXED_SEED, SystemRandom().getrandbits(32))

    # Then: collecting and running. All of this is made on first use.

    @cached_property
    def catalogue(self) -> Catalogue:
        settings = self.settings
        groups = [settings.definition_dirs, *([d] for d in settings.dataset_dirs("definitions"))]
        implementations = (*settings.implementation_dirs, *settings.dataset_dirs("solutions"))
        return load_catalogue(
            [self._definition_files(folders) for folders in groups],
            find_implementations(implementations),
        )

    def _definition_files(self, directories: Iterable[Path]) -> Iterator[Path]:
        for directory in directories:
            yield from filter(self.settings.is_definition_file, files_below(directory))

    def unread_definitions(self) -> Iterator[Path]:
        """JSON in the project's definition directories that reads like a definition."""
        for directory in self.settings.definition_dirs:
            for path in files_below(directory):
                is_read = self.settings.is_definition_file(path)
                if path.suffix == ".json" and not is_read and _reads_like_a_definition(path):
                    yield path

    @property
    def folders(self) -> list[Path]:
        """The existing definition directories of the project and its datasets."""
        settings = self.settings
        every = *settings.definition_dirs, *settings.dataset_dirs("definitions")
        return [folder for folder in every if folder.is_dir()]

    @property
    def has_definition_files(self) -> bool:
        return any(self._definition_files(self.settings.definition_dirs))

    @property
    def definitions(self) -> DefinitionLookup:
        return DefinitionLookup(self.config.rootpath, lambda: self.catalogue)

    def stray_warnings(self) -> list[str]:
        """Warnings about implementations of unknown definitions, or of none; once in a run.

        Where inputs are explained, no implementation is wanted.
        """
        if self._stray_warnings_given or self._number != 0 or self.settings.explain_inputs:
            return []
        self._stray_warnings_given = True
        catalogue, folders = self.catalogue, self.settings.implementation_dirs
        unused = unused_sources(folders, catalogue.implementations, catalogue.names)
        return [*catalogue.strays(), *unused]

    @cached_property
    def targets(self) -> Sequence[str]:
        """The architectures that kernels are compiled for; the same ones in all workers."""
        if self._sent:
            return tuple(self._sent["targets"])
        if self.settings.targets:
            return self.settings.targets
        capability = self.hardware.capability
        return DEFAULT_TARGETS if capability is None else (f"sm_{capability[0]}{capability[1]}",)

    @cached_property
    def remote(self) -> RemoteMachines | None:
        """The remote machines that kernels run on, if any. Raises UsageError."""
        if not self._runs_elsewhere:
            return None
        from pytest_fib.plugin._remote import find, from_controller

        if self._sent:
            return from_controller(self.settings, self._sent["remote"])
        processes = getattr(self.config.option, "tx", None) or [None]
        remote = find(self.settings, self._connecting, len(processes))
        self.config.add_cleanup(remote.close)
        return remote

    @property
    def _runs_kernels(self) -> bool:
        """Whether any run: not where items are only listed, or their inputs explained."""
        return not (self.config.option.collectonly or self.settings.explain_inputs)

    @property
    def _runs_elsewhere(self) -> bool:
        return self.settings.is_remote and self._runs_kernels

    @cached_property
    def _connecting(self) -> Connecting | None:
        """The connections of ssh, as soon as they are begun. Raises UsageError."""
        from pytest_fib.plugin._remote import connect

        if (connecting := connect(self.settings)) is not None:
            self.config.add_cleanup(connecting.close)
        return connecting

    @property
    def _number(self) -> int:
        """The number of this process in the run."""
        return int(self._worker.get("workerid", "gw0").removeprefix("gw"))

    @property
    def machine(self) -> Machine | None:
        """The remote machine that kernels run on; None is this one."""
        return None if self.remote is None else self.remote.machine(self._number)

    @property
    def device(self) -> str:
        """``cpu`` or ``cuda``: where kernels of this process run."""
        return self._device_here if self.remote is None else self.remote.device(self._number)

    @property
    def _device_here(self) -> str:
        if self.settings.device == "auto":
            return "cuda" if gpus.count() else "cpu"
        return self.settings.device

    @cached_property
    def hardware(self) -> Hardware:
        if self.device == "cpu":
            return CPU
        return gpus.first() if self.machine is None else self.machine.gpu

    @cached_property
    def prebuilt(self) -> Prebuilt | None:
        """The implementations built ahead of time. Raises UsageError if the folder has none."""
        folder = self.settings.prebuilt
        try:
            return None if folder is None else Prebuilt(folder)
        except (OSError, ValueError) as error:
            raise pytest.UsageError(f"--fib-prebuilt: {error}") from None

    @cached_property
    def executor(self) -> Executor:
        """The executor of this process, which is closed with the run."""
        executor = self._remote_executor() or self._local_executor()
        self.config.add_cleanup(executor.close)
        return executor

    def _remote_executor(self) -> Executor | None:
        if self.remote is None:
            return None
        from pytest_fib.executors import RemoteError, UnreachableExecutor

        try:
            return self.remote.executor(self._number, self.tensor_files, self.progress)
        except RemoteError as error:
            if self._worker:  # tests run by now, which say it
                return UnreachableExecutor(str(error))
            raise pytest.UsageError(str(error)) from None

    def _warm_early(self) -> None:
        """Start the fork server before collecting, where the command line asks for kernels.

        It takes the longest, and is another process: a mistake on the command line is told as soon.
        Connections to remote machines are begun for the same reason.
        """
        from pytest_fib.executors import LocalExecutor

        if self._runs_elsewhere and not self._sent:
            _ = self._connecting

        settings = self.settings
        runs_here = self._worker or not getattr(self.config.option, "tx", None)
        asked_for = settings.selective or settings.bench
        if runs_here and asked_for and self._runs_kernels and not settings.is_remote:
            assert isinstance(self.executor, LocalExecutor)
            self.executor.start_fork_server()

    def warm(self) -> None:
        """Start what runs kernels, if that is this machine. Raises UsageError."""
        from pytest_fib.executors import LocalExecutor

        self._check_remote()
        if self.remote is None and isinstance(executor := self.executor, LocalExecutor):
            executor.warm()

    def _check_remote(self) -> None:
        """After collection, since machines check themselves in the meantime. Raises UsageError."""
        if self.remote is not None:
            from pytest_fib.plugin._remote import check

            check(self.remote)

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids: Sequence[str]) -> None:
        """Check before the controller has tests run: workers don't."""
        if ids:
            self._check_remote()

    def _local_executor(self) -> Executor:
        from pytest_fib.executors import LocalExecutor

        settings = self.settings
        return LocalExecutor(
            self.device,
            settings.isolation,
            self._announce,
            self.tensor_files,
            settings.lock_timeout,
            builds=settings.cache,
            prebuilt=settings.prebuilt,
            timed=settings.bench,
            progress=self._tell,
            last_call=self.last_call,
        )

    @cached_property
    def last_call(self) -> LastCall | None:
        """The frame in which an implementation's last call ended, for ``--pdb`` and ``--trace``."""
        option = self.config.option
        if not (option.usepdb or option.trace):
            return None
        from pytest_fib.sandbox import LastCall

        return LastCall(pytest.exit.Exception, _traced if option.trace else None)

    def kernel_check(self, item: pytest.Item) -> KernelCheck:
        """The fixture ``kernel_check``, which follows the options of this run's items."""
        from pytest_fib.testing import KernelCheck, RunSettings

        settings, (seed, run_seed) = self.settings, self.seeds
        records = KernelCheckRecords(item, settings)
        run = RunSettings(
            device=self._device_here,
            examples=settings.examples,
            seed=seed,
            run_seed=run_seed,
            repeat=settings.repeat,
            max_bytes=settings.max_bytes,
            workload=settings.workload,
            why_not=settings.why_not_selected,
            shown=settings.shown,
            record=records.add,
            keep=records.keep,
        )
        return KernelCheck(self.definitions.find, run)

    @cached_property
    def tensor_files(self) -> TensorFiles:
        from pytest_fib.data import TensorFiles

        return TensorFiles()

    @cached_property
    def progress(self) -> Progress:
        """Reports what this process does to the process that has the terminal."""
        address = self._display.address if self._display else self._sent.get("progress")
        return Progress(address, str(self._worker.get("workerid", "")))

    # What is made before the display must not ask for the progress before it reports.

    def _announce(self, message: str) -> None:
        self.progress.announce(message)

    def _tell(self, activity: str) -> None:
        self.progress.tell(activity)

    @cached_property
    def width(self) -> int:
        """The width of the user's terminal, in columns."""
        if self._sent:
            return int(self._sent["width"])
        return self.config.get_terminal_writer().fullwidth if self._has_terminal else 80

    @property
    def _has_terminal(self) -> bool:
        """Not with ``-p no:terminal``."""
        return self.config.pluginmanager.has_plugin("terminalreporter")

    def take_device_use(self) -> DeviceUse | None:
        """What this process did with its device since this was called last; None if it has none."""
        from pytest_fib.executors import LocalExecutor

        executor = vars(self).get("executor")
        return executor.take_device_use() if isinstance(executor, LocalExecutor) else None

    # Last: the results, in the controller.

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record what an item left."""
        self._recorder.add(report)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Remember where a definition is wrong."""
        if (place := getattr(report.longrepr, "reprcrash", None)) is None or not report.failed:
            return
        path = Path(place.path)
        if self.settings.is_definition_file(path):
            shown = self.settings.shown(path)
            self._uncollected[shown] = Row.untabled(
                shown, place.lineno, item=shown, reason=place.message
            )

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Complete the trace records; fail a run whose records were changed or not written."""
        self._recorder.finish()
        if self.settings.github_summary:
            append_github_summary(self._recorder.file.records, self.baseline, self._failable)
        if self._others_have_all and session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED:
            session.exitstatus = pytest.ExitCode.OK  # else a matrix of jobs would fail
        if self._trace_problems and session.exitstatus == pytest.ExitCode.OK:
            session.exitstatus = pytest.ExitCode.TESTS_FAILED

    @property
    def _failable(self) -> list[Row]:
        return [*self._uncollected.values(), *self._recorder.rows]

    @property
    def _trace_problems(self) -> list[str]:
        return self._recorder.file.problems(self.settings.shown(self.settings.traces))

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """The tables, and what happened to the trace records."""
        anything = self._recorder.rows or self._recorder.file.count
        if anything and terminalreporter.verbosity >= 0:
            self._write_tables(terminalreporter)
        if self._others_have_all and terminalreporter.verbosity >= 0:
            number, count = self.settings.shard or (1, 1)
            terminalreporter.write_line(
                f"fib: shard {number} of {count} is empty: the other shards have all tests"
            )
        if os.environ.get("GITHUB_ACTIONS") == "true":
            failures = [*self._failable, *self._recorder.failures_by_hand]
            for line in github_annotations(failures, self.settings.rootdir):
                terminalreporter.write_line(line)
        if problems := self._trace_problems:
            terminalreporter.section("trace records", red=True, bold=True)
            for line in problems:
                terminalreporter.write_line(line)

    def _write_tables(self, terminal: pytest.TerminalReporter) -> None:
        rows, written = self._recorder.rows, self._recorder.file.count
        width = self.width
        self._tables.write_rest()
        terminal.currentfspath = None  # else there would be another empty line
        terminal.line("")
        if names := sorted({row.definition for row in rows if row.unimplemented}):
            terminal.write_line(unimplemented(names).removeprefix("fib: "))
        if self.baseline is not None:
            write_comparison(terminal, rows, width, self.baseline)
        for line in self._recorder.device_uses.shown():
            terminal.write_line(line)
        if written and not self._trace_problems:
            records = "trace record" if written == 1 else "trace records"
            where = self.settings.shown(self.settings.traces)
            terminal.write_line(f"{written} {records} in {where}")
        if how := repeated_by(self):
            terminal.write_line(how)

    def pytest_unconfigure(self) -> None:
        self._recorder.file.close()
        if not self._worker:  # by now xdist has ended its workers, some perhaps by SIGKILL
            remove_abandoned(tempfile.gettempdir())


class _Worker:
    """What a worker of xdist does when it ends."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def pytest_sessionfinish(self) -> None:
        """Close the executor before xdist says that this has ended, and may kill it 10 s later.

        On a busy machine it would leave files.
        """
        if self._session.remote is None and "executor" in vars(self._session):
            self._session.executor.close()


def _traced(function: Callable[..., Any], *arguments: Any) -> Any:
    """Call a function in the debugger, as pytest calls test functions with ``--trace``."""
    debugger: Any = pytestPDB
    return debugger._init_pdb("runcall").runcall(function, *arguments)


def _reads_like_a_definition(path: Path) -> bool:
    """Whether a JSON file has the keys of a definition, and is no schema of such files."""
    if not path.is_file():  # a pipe, say, that nobody may ever write to
        return False
    try:
        text = path.read_bytes()
    except OSError:
        return False
    return b'"op_type"' in text and b'"reference"' in text and b'"$schema"' not in text


def _forget_the_interpreter() -> None:
    os.environ.pop("TRITON_INTERPRET", None)


def _clear(builds: Path | None) -> None:
    """Empty the cache of compiled implementations. Raises UsageError."""
    try:
        ArtifactCache(builds).clear()
    except ValueError as error:
        raise pytest.UsageError(f"--fib-cache-clear: {error}") from None
