"""The circle: calls are captured, tested and timed, and then served by what was fastest."""

import torch

from pytest_fib import (
    Definition,
    Solution,
    TraceSet,
    apply,
    enable_apply,
    enable_tracing,
)
from pytest_fib.commands import main
from pytest_fib.dispatch import stats

NORM = Definition.model_validate(
    {
        "name": "rmsnorm_h64",
        "op_type": "rmsnorm",
        "axes": {"batch_size": "var", "hidden_size": 64},
        "inputs": {
            "hidden_states": {"shape": ["batch_size", "hidden_size"], "dtype": "float32"},
            "weight": {"shape": ["hidden_size"], "dtype": "float32"},
        },
        "outputs": {"output": {"shape": ["batch_size", "hidden_size"], "dtype": "float32"}},
        "reference": """\
import torch

def run(hidden_states, weight):
    rows = [row * torch.rsqrt(row.square().mean() + 1e-6) for row in hidden_states]
    return torch.stack(rows) * weight
""",
    }
)
PICK = Definition.model_validate(
    {
        "name": "pick_h64",
        "op_type": "gather",
        "axes": {"rows": "var", "batch_size": "var", "hidden_size": 64},
        "inputs": {
            "table": {"shape": ["rows", "hidden_size"], "dtype": "float32"},
            "tokens": {"shape": ["batch_size"], "dtype": "int64"},
        },
        "outputs": {"output": {"shape": ["batch_size", "hidden_size"], "dtype": "float32"}},
        "reference": "def run(table, tokens):\n    return table[tokens]\n",
    }
)
QUICK = "import torch\n\ndef run(hidden_states, weight):\n    "
QUICK += "return torch.nn.functional.rms_norm(hidden_states, (64,), weight, 1e-6)\n"
WRONG = "def run(hidden_states, weight):\n    return hidden_states * weight\n"
BENCH = ("-m", 'fib(kind="bench")')
# In this process, a test on the CPU starts none; on CUDA only sandboxes have the device.
DEVICES = {
    "cpu": ("--fib-device=cpu", "--fib-isolation=none"),
    "cuda": ("--fib-device=cuda", "--fib-isolation=process"),
}
# Of a project: what a person writes while looking for something faster.
LOOKUP = """\
import torch
from pytest_fib import implements

@implements("pick_h64")
def run(table, tokens):
    return torch.nn.functional.embedding(tokens, table)
"""


def solution(name, source):
    return Solution.model_validate(
        {
            "name": name,
            "definition": "rmsnorm_h64",
            "author": "tests",
            "spec": {
                "language": "python",
                "target_hardware": ["cpu", "cuda"],
                "entry_point": "main.py::run",
                "destination_passing_style": False,
            },
            "sources": [{"path": "main.py", "content": source}],
        }
    )


@apply("rmsnorm_h64")
def rmsnorm(hidden_states, weight):
    scale = torch.rsqrt(hidden_states.square().mean(-1, keepdim=True) + 1e-6)
    return hidden_states * scale * weight


@apply("pick_h64")
def pick(table, tokens):
    return table[tokens]


def serve(device, sizes=(2, 9, 2)):
    """A toy server: what it answers to batches of these sizes."""
    made = torch.Generator().manual_seed(0)
    table, weight = torch.randn(50, 64, generator=made), torch.rand(64, generator=made)
    table, weight = table.to(device), weight.to(device)
    answers = []
    for size in sizes:
        tokens = torch.randint(50, (size,), generator=made).to(device)
        for _ in range(4):
            states = rmsnorm(pick(table, tokens), weight)
            tokens = (states @ table.T).argmax(-1)
        answers.append(tokens.tolist())
    return answers


def go_round(project, device):
    """Capture, test and time, choose and serve, in the current directory, which is the project's.

    Asserts that the winners serve all calls and that the answers are what they were.
    """
    made = TraceSet([NORM, PICK], [solution("quick", QUICK), solution("wrong", WRONG)])
    made.to_path("dataset")
    project.write("kernel_impls/gather/lookup.py", LOOKUP)
    with enable_tracing("dataset"):
        answers = serve(device)
    assert TraceSet.from_path("dataset").summary().workloads == 4

    options = ("--fib-dataset=dataset", "--fib-bench", "--fib-precision=quick", *BENCH)
    result = project.run(*options, *DEVICES[device])
    failed = [row for row in project.traces() if row["evaluation"]["status"] != "PASSED"]
    assert {row["solution"] for row in failed} == {"wrong"}, result.stdout.str()
    assert main(["traces", "merge", "dataset", "fib-traces.jsonl", "-o", "dataset"]) == 0

    measured = TraceSet.from_path("dataset")
    winners = {trace.solution for trace in measured.fastest("rmsnorm_h64")}
    assert winners == {"quick"}
    assert {trace.solution for trace in measured.fastest("pick_h64")} == {"pick_h64_lookup"}
    shown = project.run("--fib-select=dataset")
    shown.stdout.fnmatch_lines(["rmsnorm_h64 * 12 *", "  quick * 12 *", "2 of 3 implementations*"])

    with enable_apply("dataset"):
        assert serve(device) == answers
        served = stats()
    assert served["rmsnorm_h64"].solutions == {"quick": 12}
    assert served["pick_h64"].solutions == {"pick_h64_lookup": 12}
