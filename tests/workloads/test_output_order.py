"""Which outputs are computed from others."""

import pytest

from pytest_fib.data import Definition
from pytest_fib.workloads import upstream_outputs
from tests.workloads.signatures import signature


def upstream(body, outputs="y[n]:f32 z[n]:f32"):
    """For each output those that come before it, in the reference with that body."""
    data = signature("op", "n", "x[n]:f32 s[n]:f32", outputs)
    data["reference"] = f"import torch\n{body}\n"
    found = upstream_outputs(Definition.model_validate(data))
    return {name: "".join(sorted(others)) for name, others in found.items()}


@pytest.mark.parametrize(
    ("body", "before"),
    [
        ("codes = x.round()\n    return codes, x - codes * s", {"y": "", "z": "y"}),
        ("codes = x.round()\n    return x - codes * s, codes.to(x.dtype)", {"y": "z", "z": ""}),
        ("a = x.abs()\n    a[0] = 1\n    b = a + 1\n    return b, a", {"y": "z", "z": ""}),
        ("a = x.abs()\n    b = x * 2\n    b.add_(a)\n    return a, b", {"y": "", "z": "y"}),
        ("return x + 1, x + s", {"y": "", "z": ""}),
        ("a = x + s\n    return a, a + 1", {"y": "", "z": "y"}),
        ("a = x + s\n    return a.sum(0), a + 1", {"y": "", "z": ""}),
        ("a = x + s\n    return a.half(), a", {"y": "", "z": ""}),
        ("a, b = x + s, x - s\n    return a, b", {"y": "", "z": ""}),
        ("a, b = x, s\n    for i in range(3):\n        a, b = b + 1, a + 1\n    return a, b",
         {"y": "", "z": ""}),
        ("c = x + 1\n    d = c * 2\n    return {'z': c, 'y': d}", {"y": "z", "z": ""}),
        ("x = x.float()\n    return x, x.sum(0)", {"y": "", "z": "y"}),
        ("x, s = s, x\n    return x, s", {"y": "", "z": ""}),
        ("return torch.frexp(x)", {}),
    ],
)  # fmt: skip
def test_outputs_come_before_those_that_are_computed_from_them(body, before):
    assert upstream(f"def run(x, s):\n    {body}") == before


def test_helpers_are_looked_into():
    helper = "def both(x):\n    c = x.round()\n    return c, x - c\n"
    assert upstream(f"{helper}\ndef run(x, s):\n    c, rest = both(x)\n    return rest, c") == {
        "y": "z", "z": "",
    }  # fmt: skip
