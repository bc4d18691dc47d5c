"""How the blocks of each page are run: `HOW`, and what that needs."""

import json
import os
import re
import runpy
import shlex
import shutil
import subprocess
import sys
from argparse import ArgumentParser
from collections.abc import Callable
from contextlib import redirect_stdout
from importlib.util import find_spec
from io import StringIO
from itertools import product
from math import exp
from pathlib import Path
from textwrap import dedent
from typing import NamedTuple

import pytest

from pytest_fib import Solution, TraceSet, disable_apply, executors
from pytest_fib.build import write_manifest
from pytest_fib.commands import main
from pytest_fib.data import load_definition_file
from pytest_fib.integrations import flashinfer
from tests.conftest import ROOT, SCALE, Project

_EXAMPLE = re.compile(r"```\w+\n(?:#|//) ([\w./]+)\n(.*?)```", re.DOTALL)
LANGUAGES = ROOT / "docs/languages.md"
EXAMPLES = dict(_EXAMPLE.findall(LANGUAGES.read_text(encoding="utf-8")))
#: Those that are one implementation.
LAYERS = [path for path in EXAMPLES if path.startswith("layers/")]
DOUBLED = """\
name: doubled
op_type: elementwise
axes: {n: var}
inputs:
  x: {shape: [n], dtype: float32}
outputs:
  y: {shape: [n], dtype: float32}
reference: |
  def run(x):
      return x + x
workloads:
  axes: {n: {min: 1, max: 256}}
"""


class Block(NamedTuple):
    """A block of a page: its text, and what it holds.

    The kind is the language of its fence, ``output`` if that names none, and ``shell`` of a block
    that is indented.
    """

    kind: str
    text: str


PAGES = sorted((ROOT / "docs").rglob("*.md"))
NAMED = {str(path.relative_to(ROOT)): path for path in (*ROOT.glob("*.md"), *PAGES)}
_BLOCK = re.compile(
    r"^```(?P<kind>\S*)\n(?P<fenced>.*?)^```$|(?<=\n\n)(?P<indented>(?: {4}[^\n]*\n|\n(?= {4}))+)",
    re.MULTILINE | re.DOTALL,
)


def blocks_of(page):
    """All blocks of a page."""
    found = _BLOCK.finditer(NAMED[page].read_text("utf-8"))
    return [
        Block("shell", dedent(block["indented"]))
        if block["indented"]
        else Block(block["kind"] or "output", block["fenced"])
        for block in found
    ]


#: What differs from one run to the next, or one machine to another.
_FIGURE = re.compile(r"~?[-+]?\d+(\.\d+)?(e[-+]\d+)?( ([kMGT]?B|µs|ms|s)\b)?")
_STATUSES = re.compile(r"(?<= )[.s]{3,}|^[.s]{3,}")
_WALLS = re.compile(r"^(fib: sandbox: ).*")
#: How long a run took is in minutes too from one on; a rule is as long as there is room.
_MINUTES = re.compile(r"(?<=s) \(\d+:\d\d:\d\d\)")
_RULE = re.compile("={3,}")
#: What is said in between of an item that waits or takes long, and the line that it splits.
_PROGRESS = re.compile(r"\n(?:fib: (?:waiting for .*|.*, \d+ s(?:; \d+ more run)?)\n)+([.sFE]+ )?")


def without_progress(printed):
    """What a run prints where nothing takes long."""
    return _PROGRESS.sub(lambda lines: lines[1] or "\n", printed)


def alike(line):
    """A line without its figures, and however wide its columns are."""
    line = _RULE.sub("===", _MINUTES.sub("", line))
    for figure in (_STATUSES, _FIGURE):
        line = figure.sub("N", line)
    return " ".join(_WALLS.sub(r"\1", line).split())


def assert_shown(shown, printed):
    """All lines of a block are printed, in their order, whatever their figures."""
    rest = iter(map(alike, without_progress(printed).splitlines()))
    is_noisy = "\n~ noisy" in printed
    for line in shown.splitlines():
        if line.strip() in ("", "...") or line.startswith("(Pdb)"):
            continue
        if line.startswith("~ noisy") and not is_noisy:  # only a busy machine gets that line
            continue
        assert any(alike(line) in found for found in rest), f"{line}\nnot in\n{printed}"


def run_apart(command, folder, options="", typed=""):
    """What a command of the docs prints in a process of its own, 80 columns wide."""
    return subprocess.run(
        re.sub(r"^(python -m )?", f"{sys.executable} -m ", command, count=1),
        cwd=folder,
        shell=True,
        input=typed,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "80", "PYTEST_ADDOPTS": f"{options} --fib-device=cpu"},
    ).stdout


def session(blocks, project):
    """Files to write and commands to run, in this order: what is shown of each is printed."""
    (project.path / "tox.ini").unlink()
    for kind, text in blocks:
        if kind != "console":
            name, content = text.split("\n", 1)
            project.write(name.removeprefix("# "), content)
            continue
        for command, shown in re.findall(r"^\$ (.*)\n((?:(?!\$ ).*\n)*)", text, re.MULTILINE):
            typed = re.findall(r"^\(Pdb\) (.*\n)", shown, re.MULTILINE)
            assert_shown(shown, run_apart(command, project.path, "--fib-seed=0", "".join(typed)))


def session_on_scale(blocks, project):
    """The same in a folder with the definition ``scale``."""
    project.define(SCALE)
    project.write("pytest.ini", "[pytest]\n")
    session(blocks, project)


def examples(blocks, project):
    """Files that have tests of their own, above."""
    assert [text.split("\n", 1)[1] for _, text in blocks] == [*EXAMPLES.values()]


MYKERNELS = """\
import torch

def scale(x, factor):
    return (x.float() * factor).to(x.dtype)

def rmsnorm(x, weight, eps):
    wide = torch.nn.functional.rms_norm(x.float(), (x.shape[-1],), weight.float(), eps)
    return wide.to(x.dtype)
"""


def passing_tests(blocks, project):
    """Tests of the kernels above, on shipped definitions; they pass."""
    project.write("mykernels.py", MYKERNELS)
    for number, block in enumerate(blocks):
        project.write(f"test_block_{number}.py", block.text)
    result = project.run(f"--fib-defs={ROOT / 'kernel_defs'}", "-p", "no:randomly", ".")
    outcomes = result.parseoutcomes()
    assert set(outcomes) <= {"passed", "warnings"}
    assert outcomes["passed"] >= len(blocks)


def in_one_process(blocks, project):
    """Blocks that are run one after the other; one that needs FlashInfer, up to there."""
    names = {}
    for block in blocks:
        try:
            exec(compile(block.text, "a block of the page", "exec"), names)
        except ModuleNotFoundError as error:
            if error.name != "flashinfer":
                raise
    return names


def timed(n, definition="scale_w4"):
    """A line that a run of pytest writes."""
    times = {"latency_ms": 0.01, "reference_latency_ms": 0.02, "speedup_factor": 2.0}
    evaluation = {"status": "PASSED", "hardware": "my machine", "max_relative_error": 0.0, **times}
    facts = {"definition": definition, "solution": "scale_mul", "evaluation": evaluation}
    return json.dumps({**facts, "workload": {"axes": {"n": n}, "inputs": {}, "uuid": f"w{n}"}})


def in_production(blocks, project):
    """Traces, routed calls, a benchmark: each block goes on where the one before it ended."""
    project.write("run.jsonl", "".join(f"{timed(n)}\n" for n in (1, 7)))
    printed = StringIO()
    try:
        with redirect_stdout(printed):
            names = in_one_process(blocks, project)
    finally:
        disable_apply()
        flashinfer.uninstall()
    best, few, *evaluated = printed.getvalue().splitlines()
    assert (best, few) == ("scale_mul", "('scale_mul',) 3 0.5")
    assert evaluated == ["scale_mul PASSED 1.0"] * 2
    assert names["benchmark"].skipped == []
    if find_spec("flashinfer") is not None:
        assert "flashinfer.norm.rmsnorm" in names["report"].routed


def on_a_cluster(blocks, project):
    """A dataset's kernels by Ray; without it by this process, which has the same methods."""
    trace_set = TraceSet([definition_of(DOUBLED)], [DOUBLING])
    trace_set.to_path("dataset")
    with pytest.MonkeyPatch.context() as patch:
        if find_spec("ray") is None:
            patch.setattr(executors, "RayExecutor", lambda address: executors.LocalExecutor())
            names = in_one_process(blocks, project)
        else:
            from ray.cluster_utils import Cluster

            cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 2, "num_gpus": 0})
            patch.setenv("RAY_ADDRESS", cluster.address)
            try:
                names = in_one_process(blocks, project)
            finally:
                cluster.shutdown()
    traces = names["trace_set"].traces["doubled"]
    assert traces
    assert {trace.evaluation.status for trace in traces} == {"PASSED"}
    assert Path("journal.jsonl").is_file()


def definition_of(text):
    """The definition in a file."""
    Path("definition.yaml").write_text(text, "utf-8")
    [loaded] = load_definition_file(Path("definition.yaml"))
    return loaded.definition


DOUBLING = Solution.model_validate(
    {
        "name": "add",
        "definition": "doubled",
        "author": "someone",
        "spec": {
            "language": "python",
            "target_hardware": ["cpu", "cuda"],
            "entry_point": "main.py::run",
            "destination_passing_style": False,
        },
        "sources": [{"path": "main.py", "content": "def run(x):\n    return x + x\n"}],
    }
)


#: Where a block of YAML is only one section: what the definition has besides.
AROUND = {
    "workloads": """\
name: around
op_type: any
axes: {batch: var, seq_len: var, top_k: var}
inputs:
  x: {shape: [batch, seq_len, top_k], dtype: float32}
  mask: {shape: [seq_len], dtype: int32}
  eps: {shape: null, dtype: float32}
  factor: {shape: null, dtype: float32}
outputs:
  y: {shape: [batch, seq_len, top_k], dtype: float32}
reference: |
  def run(x, mask, eps, factor):
      return x * factor + eps
""",
    "tolerances": """\
name: around
op_type: any
axes: {rows: var, width: 8}
inputs:
  logits: {shape: [rows, width], dtype: float32}
outputs:
  out: {shape: [rows, width], dtype: float32}
  count: {shape: [rows], dtype: int32}
  level: {shape: [rows], dtype: int32}
  sums: {shape: [rows], dtype: float32}
  ids: {shape: [rows], dtype: int64}
  samples: {shape: [rows], dtype: int64}
reference: |
  import torch

  def run(logits):
      ids = logits.argmax(-1)
      count = (logits > 0).sum(-1).to(torch.int32)
      return logits * 2, count, count, logits.sum(-1), ids, ids
""",
}


def sound_definitions(blocks, project):
    """Definitions, or a section of one: ``python -m pytest_fib check`` finds nothing wrong."""
    for number, block in enumerate(blocks):
        text = AROUND.get(block.text.partition(":")[0], "") + block.text
        project.write(f"definitions/{number}.yaml", text)
    assert main(["check", "definitions"]) == 0


def diagrams(blocks, project):
    """Pictures and formulas, in which nothing can be run."""


# What commands of the docs name.
WORLD = {
    "softcap": ("candidate_1",),
    "rmsnorm_d4096": ("triton_row", "mine", "cuda_row", "tilelang_row", "cutedsl_row"),
}


def commands(blocks, project):
    """Lines for a shell: what is this project's is parsed by its own parser.

    pytest also collects, unless that takes another machine or a GPU.
    """
    for name, implementations in WORLD.items():
        project.define(SCALE.replace("name: scale", f"name: {name}"), f"kernel_defs/{name}.yaml")
        for each in implementations:
            more = ', language="triton"' if each == "triton_row" else ""
            body = "x, factor\nreturn x * factor"
            project.implement(f"{name}/{each}", body, name, more)
    for folder in ("dataset", "path/to/dataset"):
        TraceSet([definition_of(DOUBLED)], [DOUBLING]).to_path(folder)
    project.write("tests/gpu/test_sandbox_cuda.py", "def test_gpu(): pass\n")
    project.write("baseline.jsonl", f"{timed(1, 'softcap')}\n")
    write_manifest(project.path / "builds", [])
    lines = [line for block in blocks for line in block.text.splitlines()]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GITHUB_STEP_SUMMARY", str(project.path / "summary.md"))
        for line in lines:
            for command in re.split(" && |; ", line):
                parse(shlex.split(command, comments=True), project)


class ParsedError(Exception):
    """A command's arguments were read; what it would do is not done."""


def parse(words, project):
    """Have a command's arguments read by what reads them."""
    while words and re.match(r"[A-Z_]+=", words[0]):
        del words[0]
    match words:
        case ["pytest", *arguments]:
            parse_by_pytest(arguments, project)
        case ["python", "-m", "pytest_fib", *arguments]:
            for choice in alternatives(arguments):
                stopped_when_parsed(lambda choice=choice: main(choice))
        case ["python", script, *arguments] if script.startswith("benchmarks/"):
            parse_by_script(ROOT / script, arguments)
        case ["bash", script]:
            assert (ROOT / script).is_file()
        case [] | ["pip" | "tox" | ".", *_] | ["python", "-m", "venv", _] | ["python", "serve.py"]:
            pass  # commands of others, and the user's own script
        case _:
            pytest.fail(f"nothing says how to hold {words}")


def parse_by_pytest(arguments, project):
    """Collect with these options, or only read them."""
    if re.search("--fib-(remote|ray|device=cuda)", " ".join(arguments)):
        project.pytester.parseconfig(*arguments)
    else:
        result = project.run("--collect-only", *arguments)
        assert result.ret == pytest.ExitCode.OK, f"{arguments}: {result.stderr}"


def parse_by_script(script, arguments):
    """Read the arguments of a script; some take none."""
    if "ArgumentParser" not in script.read_text("utf-8"):
        assert not arguments, script
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(script.parent)
        patch.setattr(sys, "argv", [str(script), *arguments])
        stopped_when_parsed(lambda: runpy.run_path(str(script), run_name="__main__"))


def alternatives(arguments):
    """``summary|best PATH`` is two commands."""
    return product(*(argument.split("|") for argument in arguments))


def stopped_when_parsed(run):
    """Run something up to where its arguments are parsed; wrong ones are a SystemExit."""

    def parse_only(parser, *arguments, **options):
        parse_args(parser, *arguments, **options)
        raise ParsedError

    parse_args = ArgumentParser.parse_args
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ArgumentParser, "parse_args", parse_only)
        with pytest.raises(ParsedError):
            run()


def copy_kernels(project):
    """The definition that these pages show, and its implementations."""
    name = "rmsnorm/rmsnorm_d4096"
    project.write(
        f"kernel_defs/{name}.yaml", (ROOT / f"kernel_defs/{name}.yaml").read_text("utf-8")
    )
    shutil.copytree(ROOT / f"kernel_impls/{name}", project.path / f"kernel_impls/{name}")


def readme(blocks, project):
    """The message about a kernel that is wrong; a test of its own has the run before that."""
    copy_kernels(project)
    _, failed = (block.text for block in blocks)
    project.write(
        "kernel_impls/rmsnorm/rmsnorm_d4096/triton_tiled.py",
        """\
        from pytest_fib import implements
        from torch.nn.functional import rms_norm


        @implements("rmsnorm_d4096")
        def run(x, weight, eps):
            y = rms_norm(x.float(), (x.shape[-1],), weight.float(), eps).half()
            y[:, -1] = 0
            return y
        """,
    )
    printed = project.run("--fib-implementation=triton_tiled", "-k", "correctness").stdout.str()
    assert_shown(failed, printed)


def compared(blocks, project):
    """The second run of the same kernels, without a clock: all calls take a millisecond."""
    copy_kernels(project)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("tests.no_clock.METHOD", "cpu, 1 thread")
        printed = printed_by_a_comparison(project)
    [block] = blocks
    assert_shown(block.text, printed)


def printed_by_a_comparison(project):
    """Two runs, the second a fifth slower; of the largest workload that isn't certain."""
    command = ("--fib-implementation=torch_functional", "--fib-bench", "-k", "bench")
    project.run(*command)
    records = project.traces()
    for record, width in zip(records, (0.01, 0.01, 0.5), strict=True):
        times = record["evaluation"]["performance"]
        times["latency_ms"] /= 1.2
        times["ci_ms"] = [times["latency_ms"] * exp(way * width) for way in (-1, 1)]
    project.write("baseline.jsonl", "".join(json.dumps(record) + "\n" for record in records))
    more = "--fib-compare=baseline.jsonl", "--fib-fail-on=slower > 5%"
    return project.run(*command, *more).stdout.str()


How = Callable[[list[Block], Project], None]
SHELL: dict[str, How] = {"shell": commands}
#: For each page, how blocks of each kind are run; kinds that are run together have one name.
HOW: dict[str, dict[str, How]] = {
    "CHANGELOG.md": {},
    "CONTRIBUTING.md": SHELL,
    "README.md": {**SHELL, "output": readme},
    "docs/design.md": {"text": diagrams},
    "docs/distributed.md": {**SHELL, "python": on_a_cluster},
    "docs/hand-written-tests.md": {"python": passing_tests},
    "docs/how-to/agents.md": SHELL,
    "docs/how-to/ci.md": SHELL,
    "docs/how-to/compare.md": {**SHELL, "output": compared},
    "docs/how-to/datasets.md": SHELL,
    "docs/how-to/debug.md": {"python console": session_on_scale},
    "docs/how-to/flaky.md": SHELL,
    "docs/how-to/from-a-model.md": {"console": session},
    "docs/index.md": {},
    "docs/languages.md": {**SHELL, "python cpp yaml": examples},
    "docs/measured.md": SHELL,
    "docs/options.md": SHELL,
    "docs/production.md": {**SHELL, "python": in_production},
    "docs/records.md": {},
    "docs/threat-model.md": {},
    "docs/tutorial.md": {**SHELL, "yaml python console": session},
    "docs/when-input-is-bad.md": {},
    "docs/writing-definitions.md": {"yaml": sound_definitions, "text": diagrams},
}
#: These take long.
THOROUGH = {session, session_on_scale}
