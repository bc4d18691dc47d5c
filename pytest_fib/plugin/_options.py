"""Command line options and ini values, and the settings that follow from them.

An option is declared once: as a field of ``Settings``.
"""

from __future__ import annotations

import os
import re
from argparse import ArgumentTypeError
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, fields
from fnmatch import fnmatchcase
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import pytest

MARK = (
    "fib(definition, implementation, op_type, language, kind): set on every kernel test by "
    "pytest-fib; select with -m 'fib(kind=\"bench\")'"
)
#: What ``--fib-compare`` takes besides a path.
BEST = "best"
#: Seconds, eleven days: clocks have limits.
LONGEST = 1e6
#: The metavars of options that take a path.
_PATHS = ("DIR", "FILE", "TRACES")
_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}
_INI_DIRECTORIES = {
    "fib_defs": ("kernel_defs", "definitions"),
    "fib_impls": ("kernel_impls", "implementations"),
}


def size(text: str) -> int:
    """Bytes from ``4096``, ``512M``, ``4G`` or ``1.5GiB``."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise ArgumentTypeError(f"{text!r} is not a size such as 512M or 4G")
    number = int(float(match.group(1)) * (1 << _UNITS[match.group(2).upper()]))
    if not number:
        raise ArgumentTypeError(f"{text!r} is less than one byte")
    return number


def condition(text: str) -> float:
    """0.05 from ``slower > 5%``."""
    match = re.fullmatch(r"slower\s*>\s*(\d+(?:\.\d+)?)\s*%", text.strip())
    if match is None:
        raise ArgumentTypeError(f"{text!r} is not a condition such as 'slower > 5%'")
    return float(match.group(1)) / 100


def seeds(text: str) -> tuple[int, int | None]:
    """(3, None) from ``3``; (0, 42) from ``0:42``, of which the second is a run's own seed."""
    match = re.fullmatch(r"(-?\d{1,18})(?::(-?\d{1,18}))?", text.strip())
    if match is None:
        raise ArgumentTypeError(f"{text!r} is not a seed such as 7, or two such as 0:3141592653")
    fixed, of_the_run = match.groups()
    return int(fixed), None if of_the_run is None else int(of_the_run)


def shard(text: str) -> tuple[int, int]:
    """(3, 64) from ``3/64``."""
    match = re.fullmatch(r"(\d{1,6})/(\d{1,6})", text.strip())
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise ArgumentTypeError(f"{text!r} is not a shard such as 1/4, the first of four")
    return int(match[1]), int(match[2])


def _checked(kind: type[int] | type[float], least: int) -> Callable[[str], float]:
    def number(text: str) -> float:
        try:
            value = kind(text)
        except ValueError:
            raise ArgumentTypeError(f"{text!r} is not a number") from None
        if not value >= least:
            raise ArgumentTypeError(f"{text} is less than {least}")
        return value

    return number


def seconds(text: str) -> float:
    """A timeout: 0.5 from ``0.5``."""
    value = _checked(float, 0)(text)
    if not 0 < value <= LONGEST:
        raise ArgumentTypeError(f"{text} should be above 0 and at most {LONGEST:.0f} seconds")
    return value


def _filled(what: str) -> Callable[[str], str]:
    """Text that isn't empty: the text of an unset variable would be."""

    def filled(text: str) -> str:
        if not text.strip():
            raise ArgumentTypeError(f"is empty; it should be {what}")
        return text

    return filled


def path(text: str) -> str:
    """A path that isn't empty: that of an unset variable would be the current folder."""
    if not text:
        raise ArgumentTypeError("is empty; it should be a path")
    return text


def _option(flag: str, metavar: str | None, text: str, **arguments: Any) -> Any:
    """A field that a command line option sets; ``arguments`` are those of argparse."""
    if metavar is not None:
        arguments["metavar"] = metavar
    if metavar in _PATHS:
        arguments["type"] = path
    return field(metadata={"flag": flag, "help": text, **arguments})


def _flag(flag: str, text: str) -> Any:
    return _option(flag, None, text, action="store_true")


def _list(flag: str, metavar: str, text: str) -> Any:
    return _option(flag, metavar, f"{text}; repeatable", action="append", default=[])


def _choice(flag: str, choices: Sequence[str], default: str, text: str) -> Any:
    return _option(flag, None, text, choices=choices, default=default)


#: In seconds.
DEFAULT_TIMEOUT = 60.0


# Every run of pytest imports this, so methods that nobody calls are not generated.
@dataclass(frozen=True, kw_only=True, repr=False, eq=False)
class Settings:
    """One run's settings. xdist sends options to its workers as builtin types."""

    rootdir: Path
    #: Where pytest was started: paths on the command line are relative to it.
    start: Path
    #: The directories of the ini file, by the name of the ini value.
    ini_dirs: dict[str, tuple[Path, ...]]
    #: The remote machines of the ini file.
    ini_remotes: tuple[str, ...]
    #: Folders that may be the user's project, if pytest found no ini file.
    elsewhere: tuple[Path, ...] = ()

    definitions: tuple[str, ...] = _list(
        "--fib-definition", "GLOB", "test only the definitions with these names"
    )
    implementations: tuple[str, ...] = _list(
        "--fib-implementation", "GLOB", "test only the implementations with these names"
    )
    bench: bool = _flag("--fib-bench", "also time the implementations")
    defs: tuple[str, ...] = _list(
        "--fib-defs", "DIR", "where definitions are, instead of the ini value fib_defs"
    )
    impls: tuple[str, ...] = _list(
        "--fib-impls", "DIR", "where implementations are, instead of the ini value fib_impls"
    )
    dataset: tuple[str, ...] = _list(
        "--fib-dataset", "DIR", "also test what is in a FlashInfer Trace dataset"
    )
    explain_inputs: bool = _flag(
        "--fib-explain-inputs",
        "run no test; show how the inputs of the selected definitions are made, and why",
    )
    keep_failures: bool = _flag(
        "--fib-keep-failures", "record failing workloads, so that every later run tests them"
    )
    traces_file: str | None = _option(
        "--fib-traces", "FILE", "where to write trace records (default: fib-traces.jsonl)"
    )
    device: Literal["auto", "cpu", "cuda"] = _choice(
        "--fib-device",
        ("auto", "cpu", "cuda"),
        "auto",
        "where to run kernels (default: auto, which is CUDA where there is a device)",
    )
    examples: int = _option(
        "--fib-examples",
        "N",
        "how many workloads to try in a correctness test (default: 25), and three small ones each",
        type=_checked(int, 1),
        default=25,
    )
    repeat: int = _option(
        "--fib-repeat",
        "N",
        "how many times to check each workload, with two calls each time (default: 1)",
        type=_checked(int, 1),
        default=1,
    )
    seeds: tuple[int, int | None] | None = _option(
        "--fib-seed",
        "N[:M]",
        "which workloads to try: N decides them all, N:M repeats those of a run that "
        "ends with it (default: most from 0, a fifth from a seed that is drawn for the run)",
        type=seeds,
    )
    max_bytes: int | None = _option(
        "--fib-max-bytes",
        "SIZE",
        "memory limit of a workload, such as 512M or 4G (default: "
        "256M on CPU, 4G on CUDA, 4M in Triton's interpreter)",
        type=size,
    )
    timeout: float = _option(
        "--fib-timeout",
        "SECONDS",
        "time limit of an evaluation (default: 60)",
        type=seconds,
        default=DEFAULT_TIMEOUT,
    )
    build_timeout: float = _option(
        "--fib-build-timeout",
        "SECONDS",
        "time limit for compiling an implementation (default: 600)",
        type=seconds,
        default=600.0,
    )
    targets: tuple[str, ...] = _list(
        "--fib-target",
        "SM",
        "compile kernels for this architecture, such as sm_90 (default: the device's own; sm_80, "
        "sm_90 and sm_100 where there is none)",
    )
    cache_dir: str | None = _option(
        "--fib-cache-dir",
        "DIR",
        "where to keep what was compiled (default: pytest-fib in the user's cache)",
    )
    prebuilt_dir: str | None = _option(
        "--fib-prebuilt",
        "DIR",
        "load what `python -m pytest_fib build --out DIR` built (default: $FIB_PREBUILT_PATH)",
    )
    cache_clear: bool = _flag(
        "--fib-cache-clear", "first empty the cache of compiled implementations"
    )
    lock_timeout: float = _option(
        "--fib-lock-timeout",
        "SECONDS",
        "time limit for waiting until other processes release the device (default: 600)",
        type=_checked(float, 0),
        default=600.0,
    )
    precision: Literal["quick", "default", "strict"] = _choice(
        "--fib-precision",
        ("quick", "default", "strict"),
        "default",
        "time until the confidence interval is within 2, 0.5 or 0.25 %% (default: 0.5)",
    )
    remote: tuple[str, ...] = _list(
        "--fib-remote",
        "ssh://USER@HOST:PORT/DIR",
        "run kernels on that machine, which needs torch (and triton) alone; of user, port and "
        "directory for pytest-fib's files there, each may be left out",
    )
    remote_python: str = _option(
        "--fib-remote-python",
        "COMMAND",
        "the Python to use there (default: python3)",
        type=_filled("a command"),
        default="python3",
    )
    remote_grace: float = _option(
        "--fib-remote-grace",
        "SECONDS",
        "how long to try to reconnect, and how long work there goes on without a "
        "connection (default: 60)",
        type=_checked(float, 0),
        default=60.0,
    )
    ray: str | None = _option(
        "--fib-ray",
        "ADDRESS",
        "run kernels on a cluster of Ray: its address, 'auto' for one that is known here, or "
        "'local' to start one",
        type=_filled("an address, auto or local"),
    )
    isolation: Literal["process", "container", "none"] = _choice(
        "--fib-isolation",
        ("process", "container", "none"),
        "process",
        "run kernels in child processes, also in a container (bwrap), or in pytest's own process, "
        "as with --pdb (default: process)",
    )
    workload: str | None = _option(
        "--fib-workload", "JSON", 'test only this workload: \'{"axes": {"batch": 7}, "seed": 3}\''
    )
    shard: tuple[int, int] | None = _option(
        "--fib-shard",
        "I/N",
        "run only the I-th of N parts of the tests; all tests of a definition are in one part",
        type=shard,
    )
    shard_by: str | None = _option(
        "--fib-shard-by",
        "TRACES",
        "balance parts by the durations in trace records of an earlier run, a file or "
        "directory that is the same for all parts (default: by the number of tests)",
    )
    compare: str | None = _option(
        "--fib-compare",
        "TRACES",
        "compare times with those in a file or directory of traces, or, "
        "with 'best', with the fastest in the datasets and the last run",
    )
    github_summary: bool = _flag(
        "--fib-github-summary", "write the run's tables to the summary of a GitHub job"
    )
    fail_on: float | None = _option(
        "--fib-fail-on",
        "CONDITION",
        "fail implementations that --fib-compare finds slower, such as 'slower > 5%%'",
        type=condition,
    )

    select: str | None = _option(
        "--fib-select",
        "DIR",
        "run no test; show the fewest implementations that serve the calls captured in a dataset "
        "within 1 %% of the fastest, and what they save",
    )

    @property
    def active(self) -> bool:
        """Whether this plugin has anything to do."""
        given = self.selective or self.defs or self.datasets
        return bool(given) or any(folder.is_dir() for folder in self.definition_dirs)

    @property
    def hint(self) -> str | None:
        """For a run that finds no kernels: where they may be, or what is missing."""
        if self.active or self.select is not None:
            return None
        for folder in self.elsewhere:
            if (folder / "kernel_defs").is_dir():
                ini = folder / "pytest.ini"
                return (
                    f"fib: no kernel is collected: kernel_defs is in {folder}, which has no ini "
                    f"file. Run pytest there, or make {ini} with the line [pytest]"
                )
        tried = ", ".join(map(self.shown, self.definition_dirs))
        if self.bench or self.explain_inputs:
            what = "timed" if self.bench else "explained"
            return f"fib: nothing is {what}: there is no {tried}"
        if (beside := next(filter(Path.is_dir, self.implementation_dirs), None)) is not None:
            return f"fib: no kernel is collected: there is no {tried} beside {self.shown(beside)}"
        return None

    @property
    def selective(self) -> bool:
        """Whether the command line names definitions or implementations."""
        return bool(self.definitions or self.implementations)

    @cached_property
    def definition_dirs(self) -> tuple[Path, ...]:
        return self._directories(self.defs) or self.ini_dirs["fib_defs"]

    @cached_property
    def implementation_dirs(self) -> tuple[Path, ...]:
        return self._directories(self.impls) or self.ini_dirs["fib_impls"]

    @cached_property
    def datasets(self) -> tuple[Path, ...]:
        return tuple(dict.fromkeys(self._directories(self.dataset)))

    @property
    def remotes(self) -> tuple[str, ...]:
        """The URLs of remote machines; none where kernels run here, or on a cluster."""
        return () if self.ray is not None else self.remote or self.ini_remotes

    @property
    def is_remote(self) -> bool:
        return bool(self.remotes) or self.ray is not None

    @property
    def traces(self) -> Path:
        return self.place(self.traces_file or "fib-traces.jsonl")

    @property
    def cache(self) -> Path | None:
        """The folder of compiled implementations; None is the default."""
        return None if self.cache_dir is None else self.place(self.cache_dir)

    @property
    def prebuilt(self) -> Path | None:
        """The folder of implementations built ahead of time, if any."""
        from pytest_fib.build import PREBUILT_VARIABLE

        given = self.prebuilt_dir or os.environ.get(PREBUILT_VARIABLE)
        return self.place(given) if given else None

    def _directories(self, texts: Sequence[str]) -> tuple[Path, ...]:
        return tuple(map(self.place, texts))

    def is_definition_file(self, path: Path) -> bool:
        """Whether the file is YAML under a definition directory, or JSON under a dataset's."""
        if path.suffix == ".json":
            return _under(path, self.dataset_dirs("definitions"))
        return path.suffix in (".yaml", ".yml") and _under(path, self.definition_dirs)

    def dataset_dirs(self, kind: str) -> tuple[Path, ...]:
        """The ``definitions``, ``solutions`` or ``traces`` of every dataset.

        They may also lie under its ``pytest_fib/``, which has what other tools would refuse.
        """
        return tuple(folder for dataset in self.datasets for folder in _both(dataset, kind))

    def is_implementation_file(self, path: Path) -> bool:
        return _under(path, self.implementation_dirs)

    def wants_definition(self, name: str) -> bool:
        return _matches(name, self.definitions)

    def may_want_definition(self, pattern: str) -> bool:
        """Whether the selection may include a definition that matches this glob."""
        return not self.definitions or any(_overlap(glob, pattern) for glob in self.definitions)

    def wants_implementation(self, name: str) -> bool:
        return _matches(name, self.implementations)

    def why_not_selected(self, definition: str, function: str) -> str | None:
        """Why a function of a test isn't checked against a definition, or None."""
        if not self.wants_definition(definition):
            return f"--fib-definition selects other definitions than {definition}"
        if not self.wants_implementation(function):
            return f"--fib-implementation selects other implementations than {function}"
        return None

    @property
    def replay_options(self) -> tuple[str, ...]:
        """The options that a command in the same directory needs to check the same kernels."""
        named = (
            ("--fib-defs", self._directories(self.defs)),
            ("--fib-impls", self._directories(self.impls)),
            ("--fib-dataset", self.datasets),
        )
        # One word each: pytest looks for its rootdir at any path that is a word of its own.
        options = tuple(
            f"{name}={self.from_start(path)}" for name, paths in named for path in paths
        )
        if self.repeat != 1:
            options += (f"--fib-repeat={self.repeat}",)
        if self.timeout != DEFAULT_TIMEOUT:
            options += (f"--fib-timeout={self.timeout:g}",)
        options += tuple(f"--fib-remote={url}" for url in self.remote)
        if self.remote_python != "python3":
            options += (f"--fib-remote-python={self.remote_python}",)
        if self.ray is not None:
            options += (f"--fib-ray={self.ray}",)
        return options

    def place(self, text: str) -> Path:
        """The path that the command line means: relative to where pytest was started."""
        return _absolute(self.start, text)

    def from_start(self, path: Path) -> str:
        """A path for a command line."""
        return os.path.relpath(path, self.start)

    def shown(self, path: Path) -> str:
        """A path for messages and node ids: relative to the rootdir."""
        return os.path.relpath(path, self.rootdir)

    def readable(self, message: str) -> str:
        """A message with paths relative to the rootdir, and control characters made visible."""
        from pytest_fib.data import visible

        return visible(message.replace(f"{self.rootdir}/", ""))


SETTINGS = pytest.StashKey[Settings]()
_OPTIONS = [each for each in fields(Settings) if "flag" in each.metadata]


def declare(parser: pytest.Parser) -> None:
    group = parser.getgroup("fib", "kernel tests (pytest-fib)")
    for option in _OPTIONS:
        arguments = dict(option.metadata)
        group.addoption(arguments.pop("flag"), **arguments)
    for name, (default, what) in _INI_DIRECTORIES.items():
        text = f"directories of kernel {what}, relative to rootdir (default: {default})"
        parser.addini(name, text, type="args", default=[default])
    parser.addini("fib_remote", "machines for --fib-remote", type="args", default=[])


def check_spelling(arguments: Sequence[str]) -> None:
    """Raise UsageError for an option that is none of ours and nearly one: pytest names no other."""
    prefix = "--fib-"
    known = [each.metadata["flag"].removeprefix(prefix) for each in _OPTIONS]
    given = [text.partition("=")[0] for text in arguments if text.startswith(prefix)]
    if not given:
        return
    from difflib import get_close_matches

    for name in (each.removeprefix(prefix) for each in given):
        if name not in known and (near := get_close_matches(name, known, n=1, cutoff=0.75)):
            message = f"unknown option {prefix}{name}; did you mean {prefix}{near[0]}?"
            raise pytest.UsageError(message)


def read(config: pytest.Config) -> Settings:
    values: dict[str, Any] = {}
    for each in _OPTIONS:
        value = config.getoption(each.metadata["flag"])
        values[each.name] = tuple(value) if isinstance(value, list) else value
    if config.option.usepdb or config.option.trace:
        values["isolation"] = "none"
    start = config.invocation_params.dir
    # pytest looks for its rootdir at any existing path that is a word of its own. Without an ini
    # file, the rootdir may so be the folder of a dataset or of trace records.
    root = start if config.inipath is None else config.rootpath
    return Settings(
        rootdir=config.rootpath,
        start=start,
        ini_dirs={
            name: tuple(_absolute(root, text) for text in config.getini(name))
            for name in _INI_DIRECTORIES
        },
        ini_remotes=tuple(config.getini("fib_remote")),
        elsewhere=_elsewhere(config),
        **values,
    )


def _elsewhere(config: pytest.Config) -> tuple[Path, ...]:
    """The parents of the current folder and of the paths on the command line."""
    if config.inipath is not None:
        return ()
    start = config.invocation_params.dir
    given = (_absolute(start, path) for path in (".", *config.args))
    return tuple(dict.fromkeys(folder for path in given for folder in path.parents))


def _absolute(start: Path, text: str) -> Path:
    return Path(os.path.normpath(start / text))


def _both(dataset: Path, kind: str) -> list[Path]:
    folder, own = dataset / kind, dataset / "pytest_fib" / kind
    return [folder] * (folder.is_dir() or not own.is_dir()) + [own] * own.is_dir()


def _under(path: Path, directories: Sequence[Path]) -> bool:
    return any(path.is_relative_to(directory) for directory in directories)


def _overlap(one: str, other: str) -> bool:
    """Whether a name may match both globs; with wildcards in both, compares their beginnings."""
    if fnmatchcase(one, other) or fnmatchcase(other, one):
        return True
    start, *varies = re.split(r"[*?\[]", one, maxsplit=1)
    beginning, *differs = re.split(r"[*?\[]", other, maxsplit=1)
    alike = start.startswith(beginning) or beginning.startswith(start)
    return alike and bool(varies) and bool(differs)


def _matches(name: str, globs: Sequence[str]) -> bool:
    return not globs or any(fnmatchcase(name, glob) for glob in globs)
