"""Definitions built in memory."""

import pytest

from pytest_fib.data import Definition


@pytest.fixture
def define():
    """A definition of one output; ``domains`` and ``rules`` are its workloads' axes and inputs."""

    def define(axes=None, inputs=None, domains=None, rules=None, bench=(), values=()):
        axes = axes or {"n": "var"}
        inputs = inputs or {"x": {"shape": list(axes), "dtype": "float32"}}
        return Definition.model_validate(
            {
                "name": "op",
                "op_type": "op",
                "axes": axes,
                "inputs": inputs,
                "outputs": {"y": {"shape": list(axes), "dtype": "float32"}},
                "reference": f"def run({', '.join(inputs)}): ...",
                "workloads": {
                    "axes": domains or {},
                    "inputs": rules or {},
                    "values": list(values),
                    "bench": list(bench),
                },
            }
        )

    return define
