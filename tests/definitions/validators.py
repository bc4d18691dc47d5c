"""What makes the inputs of a workload valid, by op_type; none of it uses the generators."""

from collections.abc import Callable
from math import isfinite
from typing import Any

import torch

VALIDATORS: dict[str, Callable[..., None]] = {}


def validates(*op_types: str):
    """Register a function of axes and inputs, which fails where inputs aren't valid."""

    def register(function):
        VALIDATORS.update(dict.fromkeys(op_types, function))
        return function

    return register


def validate(definition, axes: dict[str, int], inputs: dict[str, Any]) -> None:
    """Assert that inputs have the shapes and dtypes of the definition, and mean something.

    They are finite, unless the definition asks for NaN or infinities.
    """
    axes = {**definition.const_axes, **axes}
    special = {"nan", "inf"} & {*(definition.workloads.values if definition.workloads else ())}
    assert inputs.keys() == definition.inputs.keys()
    for name, spec in definition.inputs.items():
        value = inputs[name]
        if spec.shape is None:
            assert isinstance(value, (bool, int, float)), name
            continue
        if spec.dtype.value != "float4_e2m1":  # of which two share a byte
            assert list(value.shape) == [axes[axis] for axis in spec.shape], name
            assert str(value.dtype) == f"torch.{spec.dtype.value}", name
        if value.dtype.is_floating_point and value.element_size() > 1 and not special:
            assert value.isfinite().all(), name
    if definition.op_type in VALIDATORS:
        VALIDATORS[definition.op_type](axes, **inputs)


def is_indptr(indptr, total):
    """Assert that sequences follow one another from 0 to the total; they may be empty."""
    assert indptr[0] == 0
    assert indptr[-1] == total
    assert (indptr.long().diff() >= 0).all()


@validates("gemm")
def _gemm(axes, A, B):
    assert A.shape[1] == B.shape[1]


@validates("grouped_gemm")
def _grouped_gemm(axes, A, B, m_indptr):
    assert len(m_indptr) == len(B) + 1
    is_indptr(m_indptr, len(A))


@validates("rmsnorm", "fused_add_rmsnorm")
def _rmsnorm(axes, weight, residual=None, eps=1e-6, **inputs):
    (x,) = inputs.values()  # whatever its name
    assert len(weight) == x.shape[-1]
    assert residual is None or residual.shape == x.shape
    assert 0 < eps < 1e-3


@validates("scale")
def _scale(axes, x, factor):
    assert isfinite(factor)


@validates("layernorm")
def _layernorm(axes, x, weight, bias, eps):
    assert len(weight) == len(bias) == x.shape[-1]
    assert 0 < eps < 1e-3


@validates("embedding")
def _embedding(axes, input_ids, weight):
    assert ((input_ids >= 0) & (input_ids < len(weight))).all()


@validates("rope")
def _rope(axes, q, k, cos_sin_cache=None, positions=None, is_neox=True, cos=None, sin=None):
    assert isinstance(is_neox, bool)
    if cos_sin_cache is None:  # a row for each position, that of 0 being the first
        for half in (0, 1):
            are_rotations(cos.chunk(2, dim=-1)[half], sin.chunk(2, dim=-1)[half])
        assert cos.shape[-1] == q.shape[-1]
        return
    are_rotations(*cos_sin_cache.chunk(2, dim=-1))
    assert (positions >= 0).all()
    assert (positions < len(cos_sin_cache)).all()
    assert len(q) == len(k) == len(positions)
    assert positions.dtype == torch.int64


def are_rotations(cos, sin):
    """Assert that they are those of real angles, a position in each row, that of 0 being 0."""
    cos, sin, error = cos.double(), sin.double(), 4 * torch.finfo(cos.dtype).eps
    assert cos.shape == sin.shape
    assert torch.allclose(cos.square() + sin.square(), torch.ones_like(cos), atol=max(error, 1e-5))
    assert (cos[..., 0, :] == 1).all()
    assert (sin[..., 0, :] == 0).all()
    # The first frequency is one radian a position.
    angles = torch.arange(cos.shape[-2], dtype=torch.float64)
    assert torch.allclose(sin[..., 0], angles.sin(), atol=max(error, 1e-5))


@validates("silu_and_mul")
def _silu_and_mul(axes, x):
    assert x.shape[-1] == 2 * axes["d"]


@validates("routing")
def _routing(axes, logits):
    assert axes["topk"] <= logits.shape[-1]


@validates("sampling")
def _sampling(axes, probs, top_k=None, top_p=None, min_p=None):
    assert (probs >= 0).all()
    sums = probs.double().sum(dim=-1)
    assert torch.allclose(sums, torch.ones_like(sums), atol=1e-4)
    assert top_k is None or (top_k.dtype == torch.int32 and (top_k >= 1).all())
    assert top_k is None or (top_k <= probs.shape[-1]).all()
    assert top_p is None or ((top_p > 0) & (top_p <= 1)).all()
    assert min_p is None or ((min_p >= 0) & (min_p <= 1)).all()
