"""Command line options and ini values, and what they amount to."""

from __future__ import annotations

import os
import re
from argparse import ArgumentTypeError
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

MARK = (
    "fib(definition, implementation, op_type, language, kind): set on every kernel test by "
    "pytest-fib; select with -m 'fib(kind=\"bench\")'"
)
DEFAULT_TRACES = "fib-traces.jsonl"
#: What ``--fib-compare`` takes besides a path.
BEST = "best"
_SUFFIXES = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


@dataclass(frozen=True)
class Settings:
    """One run's settings. Directories and files are absolute."""

    rootdir: Path
    definitions: tuple[str, ...]
    implementations: tuple[str, ...]
    bench: bool
    start: Path
    definition_dirs: tuple[Path, ...]
    definition_dirs_given: bool
    implementation_dirs: tuple[Path, ...]
    implementation_dirs_given: bool
    datasets: tuple[Path, ...]
    keep_failures: bool
    traces: Path
    traces_given: bool
    device: str
    examples: int
    seed: int
    max_bytes: int | None
    timeout: float
    precision: str
    isolation: Literal["process", "none"]
    workload: str | None
    compare: str | None
    fail_on: float | None

    @property
    def active(self) -> bool:
        """Whether there is anything here for this plugin to do."""
        asked = self.selective or self.definition_dirs_given or self.datasets
        return bool(asked) or any(folder.is_dir() for folder in self.definition_dirs)

    @property
    def selective(self) -> bool:
        """Whether the command line names definitions or implementations."""
        return bool(self.definitions or self.implementations)

    def is_definition_file(self, path: Path) -> bool:
        """Whether the file is YAML under a definition directory, or JSON under a dataset's."""
        if path.suffix == ".json":
            return _under(path, self.dataset_dirs("definitions"))
        return path.suffix in (".yaml", ".yml") and _under(path, self.definition_dirs)

    def dataset_dirs(self, kind: str) -> tuple[Path, ...]:
        """The ``definitions``, ``solutions`` or ``traces`` of every dataset."""
        return tuple(dataset / kind for dataset in self.datasets)

    def is_implementation_file(self, path: Path) -> bool:
        """Whether the file is under an implementation directory."""
        return _under(path, self.implementation_dirs)

    def wants_definition(self, name: str) -> bool:
        """Whether the command line selects that definition."""
        return _matches(name, self.definitions)

    def may_want_definition(self, pattern: str) -> bool:
        """Whether it may select one of the definitions that a glob stands for."""
        return not self.definitions or any(_meet(glob, pattern) for glob in self.definitions)

    def wants_implementation(self, name: str) -> bool:
        """Whether the command line selects that implementation."""
        return _matches(name, self.implementations)

    @property
    def replay_options(self) -> tuple[str, ...]:
        """What a command needs to find the same kernels again."""
        named = (
            ("--fib-defs", self.definition_dirs if self.definition_dirs_given else ()),
            ("--fib-impls", self.implementation_dirs if self.implementation_dirs_given else ()),
            ("--fib-dataset", self.datasets),
        )
        # One word each: pytest takes an existing path after a blank for one to find its rootdir by.
        return tuple(f"{name}={self.shown(path)}" for name, paths in named for path in paths)

    def place(self, text: str) -> Path:
        """The path that the command line means: relative to where pytest was started."""
        return _absolute(self.start, text)

    def shown(self, path: Path) -> str:
        """A path as messages and node ids have it: relative to the rootdir."""
        return os.path.relpath(path, self.rootdir)


SETTINGS = pytest.StashKey[Settings]()


def declare(parser: pytest.Parser) -> None:
    """Add the options and ini values to pytest's."""
    group = parser.getgroup("fib", "kernel tests (pytest-fib)")
    many = {"action": "append", "default": []}
    group.addoption(
        "--fib-definition", metavar="GLOB", help="only these definitions; repeatable", **many
    )
    group.addoption(
        "--fib-implementation",
        metavar="GLOB",
        help="only these implementations; repeatable",
        **many,
    )
    group.addoption("--fib-bench", action="store_true", help="also time the implementations")
    group.addoption(
        "--fib-defs",
        metavar="DIR",
        help="where definitions are; repeatable, replaces fib_defs",
        **many,
    )
    group.addoption(
        "--fib-impls",
        metavar="DIR",
        help="where implementations are; repeatable, replaces fib_impls",
        **many,
    )
    group.addoption(
        "--fib-dataset",
        metavar="DIR",
        help="also test a FlashInfer Trace dataset (definitions, solutions, workloads); repeatable",
        **many,
    )
    group.addoption(
        "--fib-keep-failures",
        action="store_true",
        help="record failing workloads beside their definition; they are tested from then on",
    )
    group.addoption(
        "--fib-traces", metavar="FILE", help=f"where trace records go (default: {DEFAULT_TRACES})"
    )
    group.addoption(
        "--fib-device",
        choices=("auto", "cpu", "cuda"),
        default="auto",
        help="where kernels run (default: auto, CUDA where there is a device)",
    )
    group.addoption(
        "--fib-examples",
        metavar="N",
        type=_checked(int, 1),
        default=25,
        help="how many workloads a correctness test draws (default: 25)",
    )
    group.addoption(
        "--fib-seed", metavar="N", type=int, default=0, help="which workloads it draws (default: 0)"
    )
    group.addoption(
        "--fib-max-bytes",
        metavar="SIZE",
        type=size,
        help="memory of one workload, as 512M or 4G (default: 256M on CPU, 4G on CUDA, "
        "4M in Triton's interpreter)",
    )
    group.addoption(
        "--fib-timeout",
        metavar="SECONDS",
        type=_checked(float, 0),
        default=60.0,
        help="the longest one call may take (default: 60)",
    )
    group.addoption(
        "--fib-precision",
        choices=("quick", "default", "strict"),
        default="default",
        help="measure until times are known within 2, 0.5 or 0.25 %% (default: 0.5)",
    )
    group.addoption(
        "--fib-isolation",
        choices=("process", "none"),
        default="process",
        help="run kernels in child processes, or in this one for --pdb (default: process)",
    )
    group.addoption(
        "--fib-workload",
        metavar="JSON",
        help='test only this workload, as \'{"axes": {"batch": 7}, "seed": 3}\'',
    )
    group.addoption(
        "--fib-compare",
        metavar="TRACES",
        help="compare times with those of a file or directory of traces, or with the best of the "
        "known ones ('best': the datasets' and the last run's)",
    )
    group.addoption(
        "--fib-fail-on",
        metavar="CONDITION",
        type=condition,
        help="fail what --fib-compare shows to be slower, as 'slower > 5%%'",
    )
    for name, default in (("fib_defs", "kernel_defs"), ("fib_impls", "kernel_impls")):
        what = "definitions" if name == "fib_defs" else "implementations"
        parser.addini(
            name,
            f"directories of kernel {what}, relative to rootdir (default: {default})",
            type="args",
            default=[default],
        )


def read(config: pytest.Config) -> Settings:
    """The settings of a run."""
    option = config.option
    start = config.invocation_params.dir
    datasets = tuple(dict.fromkeys(_absolute(start, text) for text in option.fib_dataset))
    # After a blank, pytest takes an existing path for one to find its rootdir by; where it finds no
    # ini file that way, the rootdir may be the folder of a dataset or of trace records.
    root = start if config.inipath is None else config.rootpath
    return Settings(
        rootdir=config.rootpath,
        definitions=tuple(option.fib_definition),
        implementations=tuple(option.fib_implementation),
        bench=option.fib_bench,
        start=start,
        definition_dirs=_directories(config, root, option.fib_defs, "fib_defs"),
        definition_dirs_given=bool(option.fib_defs),
        implementation_dirs=_directories(config, root, option.fib_impls, "fib_impls"),
        implementation_dirs_given=bool(option.fib_impls),
        datasets=datasets,
        keep_failures=option.fib_keep_failures,
        traces=_absolute(start, option.fib_traces or DEFAULT_TRACES),
        traces_given=option.fib_traces is not None,
        device=option.fib_device,
        examples=option.fib_examples,
        seed=option.fib_seed,
        max_bytes=option.fib_max_bytes,
        timeout=option.fib_timeout,
        precision=option.fib_precision,
        isolation="none" if option.usepdb else option.fib_isolation,
        workload=option.fib_workload,
        compare=option.fib_compare,
        fail_on=option.fib_fail_on,
    )


def size(text: str) -> int:
    """Bytes from ``4096``, ``512M``, ``4G`` or ``1.5GiB``."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?", text.strip(), re.IGNORECASE)
    if match is None:
        raise ArgumentTypeError(f"{text!r} is not a size such as 512M or 4G")
    return int(float(match.group(1)) * (1 << _SUFFIXES[match.group(2).upper()]))


def condition(text: str) -> float:
    """0.05 from ``slower > 5%``."""
    match = re.fullmatch(r"slower\s*>\s*(\d+(?:\.\d+)?)\s*%", text.strip())
    if match is None:
        raise ArgumentTypeError(f"{text!r} is not a condition such as 'slower > 5%'")
    return float(match.group(1)) / 100


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


def _directories(
    config: pytest.Config, root: Path, given: Sequence[str], ini: str
) -> tuple[Path, ...]:
    if given:
        return tuple(_absolute(config.invocation_params.dir, text) for text in given)
    return tuple(_absolute(root, text) for text in config.getini(ini))


def _absolute(start: Path, text: str) -> Path:
    return Path(os.path.normpath(start / text))


def _under(path: Path, directories: Sequence[Path]) -> bool:
    return any(path.is_relative_to(directory) for directory in directories)


def _meet(one: str, other: str) -> bool:
    """Whether a name may match both globs; where both vary, their beginnings are compared."""
    if fnmatchcase(one, other) or fnmatchcase(other, one):
        return True
    start, *varies = re.split(r"[*?\[]", one, maxsplit=1)
    beginning, *differs = re.split(r"[*?\[]", other, maxsplit=1)
    alike = start.startswith(beginning) or beginning.startswith(start)
    return alike and bool(varies) and bool(differs)


def _matches(name: str, globs: Sequence[str]) -> bool:
    return not globs or any(fnmatchcase(name, glob) for glob in globs)
