"""A definition and implementations of it, as requests have them."""

from pytest_fib.data import (
    BuildSpec,
    Definition,
    EvaluationRequest,
    Solution,
    SourceFile,
    SupportedLanguages,
)
from pytest_fib.workloads import make_workload

SCALE = {
    "name": "scale",
    "op_type": "scale",
    "axes": {"n": "var", "width": 3},
    "inputs": {
        "x": {"shape": ["n", "width"], "dtype": "float32"},
        "factor": {"shape": None, "dtype": "float32"},
    },
    "outputs": {"y": {"shape": ["n", "width"], "dtype": "float32"}},
    "reference": "def run(x, factor):\n    return x * factor\n",
    "workloads": {
        "axes": {"n": {"min": 1, "max": 300}},
        "inputs": {"factor": {"value": 3.0}, "x": {"kind": "uniform", "min": -1, "max": 1}},
        "examples": [{"n": 7}],
    },
    "tolerances": {"y": {"rtol": 1e-4, "atol": 1e-6}},
    "nondeterministic": True,
}
TEXTS = {
    "right": "def run(x, factor):\n    return x * factor\n",
    "wrong": "def run(x, factor):\n    return x + factor\n",
    "raising": "def run(x, factor):\n    raise ValueError('no')\n",
    "faulty": "import os\ndef run(x, factor):\n    os.kill(os.getpid(), 11)\n",
    "crashing": "import os\ndef run(x, factor):\n    os._exit(3)\n",
    "shape": "def run(x, factor):\n    return (x * factor)[1:]\n",
    "tail": "def run(x, factor):\n    y = x * factor\n    y[100:] = 0\n    return y\n",
    "beside": "from beside import scaled\ndef run(x, factor):\n    return scaled(x, factor)\n",
    "hanging": "def run(x, factor):\n    while True:\n        pass\n",
    "slow": "import time\ndef run(x, factor):\n    time.sleep(0.5)\n    return x * factor\n",
    "loud": "def run(x, factor):\n    print('long line ' * 400_000)\n    return x * factor\n",
    "worldly": (
        "def run(x, factor):\n"
        "    print('\\N{GREEK SMALL LETTER ALPHA} \\ud800 \\x1b[31m \\N{COLLISION SYMBOL}')\n"
        "    raise ValueError('größer: \\N{COLLISION SYMBOL}')\n"
    ),
    "waiting": (
        "import os, pathlib, time\n"
        "def run(x, factor):\n"
        "    folder = pathlib.Path(os.environ['TORCH_EXTENSIONS_DIR'])\n"
        "    folder.joinpath('waiting').write_text(str(os.getpid()))\n"
        "    time.sleep(3600)\n"
    ),
    "into": "def run(x, factor, y):\n    y.copy_(x * factor)\n",
}
BESIDE = "def scaled(x, factor):\n    return x * factor\n"


def definition(**changes):
    return Definition.model_validate({**SCALE, **changes})


def solution(name):
    sources = [SourceFile(path="module.py", content=TEXTS[name])]
    if name == "beside":
        sources.append(SourceFile(path="beside.py", content=BESIDE))
    return Solution(
        name=name,
        definition="scale",
        author="tests",
        spec=BuildSpec(
            language=SupportedLanguages("python"),
            target_hardware=["cpu"],
            entry_point="module.py::run",
            calling="destination" if name == "into" else "value",
        ),
        sources=sources,
    )


def evaluation(name, n=5, seed=0, of=None, **more):
    of = of or definition()
    workload = make_workload(of, {"n": n}, seed=seed, regime={"values": "wide"} if n > 50 else {})
    settings = {"workload": workload, "explain": seed % 2 == 0, **more}
    return EvaluationRequest(definition=of, solution=solution(name), **settings)
