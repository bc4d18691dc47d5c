"""pytest's entry point. Loaded in every pytest run, so it imports nothing heavy."""

from __future__ import annotations

import sys
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pytest_fib.plugin import _options as options

if TYPE_CHECKING:
    from pytest_fib.testing import KernelCheck


#: What pytest calls this module as an entry point, and as ``-p pytest_fib.plugin``.
NAMES = ("fib", __name__)


def pytest_plugin_registered(plugin: object, manager: pytest.PytestPluginManager) -> None:
    """Have it loaded once: pytest refuses to load a module by a second name."""
    if (name := manager.get_name(plugin)) in NAMES and plugin is sys.modules[__name__]:
        manager.set_blocked(NAMES[name == NAMES[0]])


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the options and ini values."""
    options.declare(parser)


def pytest_load_initial_conftests(args: list[str]) -> None:
    """Say which option a misspelt one may have been."""
    options.check_spelling(args)


@pytest.hookimpl(trylast=True)
def pytest_configure(config: pytest.Config) -> None:
    """Read the options; where there are kernels to test, take part in the run."""
    config.addinivalue_line("markers", options.MARK)
    settings = options.read(config)
    config.stash[options.SETTINGS] = settings
    if settings.select is not None:
        from pytest_fib.plugin._selection import SelectionRun

        config.pluginmanager.register(SelectionRun(settings), "fib-selection")
    elif settings.active:
        from pytest_fib.plugin._session import Session

        Session.of(config).start()


def pytest_report_header(config: pytest.Config) -> str | None:
    """Say where kernels are, if this run can't find them."""
    return config.stash[options.SETTINGS].hint


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect the YAML files under the definition directories."""
    settings = parent.config.stash[options.SETTINGS]
    if not settings.active or not settings.is_definition_file(file_path):
        return None
    from pytest_fib.plugin._collection import DefinitionFile

    nodeid = settings.shown(file_path)
    return DefinitionFile.from_parent(parent, path=file_path, nodeid=nodeid)


def pytest_pycollect_makemodule(
    module_path: Path, parent: pytest.Collector
) -> pytest.Collector | None:
    """Keep implementations from being collected as Python test modules."""
    settings = parent.config.stash[options.SETTINGS]
    if not settings.active or not settings.is_implementation_file(module_path):
        return None
    from pytest_fib.plugin._collection import ImplementationFile

    return ImplementationFile.from_parent(parent, path=module_path)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With ``--fib-shard``, keep one part of the selected tests."""
    if config.stash[options.SETTINGS].shard is not None:
        from pytest_fib.plugin._session import Session

        Session.of(config).keep_shard(items)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Start what runs kernels in the background, if this process will run any."""
    settings = session.config.stash[options.SETTINGS]
    if settings.active:
        from pytest_fib.build import repair_if_used

        repair_if_used()  # the interpreter that Triton kernels of tests written by hand run in
    runs_none = session.config.option.collectonly or settings.explain_inputs
    if runs_none or not any(hasattr(item, "skip_if_unable") for item in session.items):
        return
    from pytest_fib.plugin._session import Session

    Session.of(session.config).warm()


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """With ``--fib-explain-inputs``, explain the inputs of what could be read, and run no test."""
    settings = session.config.stash[options.SETTINGS]
    if not (settings.active and settings.explain_inputs):
        return None
    from pytest_fib.plugin._collection import explain_inputs

    return explain_inputs(session)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip kernels that can't run here, before pytest looks at the skip marks."""
    if hasattr(item, "skip_if_unable"):
        item.skip_if_unable()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Send the outcome of a kernel test along with its report."""
    if hasattr(item, "add_properties"):
        item.add_properties()
    report = yield
    if hasattr(item, "attach_outcome"):
        item.attach_outcome(report)
    elif "kernel_check" in getattr(item, "fixturenames", ()) or _is_of_a_kernel(call):
        from pytest_fib.plugin._kernel_check import attach_records

        attach_records(item, report)
    return report


def _is_of_a_kernel(call: pytest.CallInfo[None]) -> bool:
    """Whether this is a failure of `assert_kernel_close`."""
    frames = () if call.excinfo is None else call.excinfo.traceback
    return any(each.frame.f_globals.get("__name__") == "pytest_fib.testing" for each in frames)


@pytest.fixture
def kernel_check(request: pytest.FixtureRequest) -> KernelCheck:
    """Assert that a function computes a kernel definition: kernel_check(definition, function)."""
    from pytest_fib.plugin._session import Session

    return Session.of(request.config).kernel_check(request.node)
