"""What makes the inputs of a workload valid, by op_type; none of it uses the generators."""

from collections.abc import Callable
from math import isfinite, sqrt
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


def are_distinct(indices, below):
    """Assert that these are different numbers from 0 and below a bound."""
    assert ((indices >= 0) & (indices < below)).all()
    assert len(indices.unique()) == len(indices)


def are_pages(axes, kv_indptr, kv_indices, kv_last_page_len):
    """Assert that sequences share no page, and that their last pages hold what they may."""
    assert kv_indptr.dtype == kv_indices.dtype == torch.int32
    is_indptr(kv_indptr, len(kv_indices))
    are_distinct(kv_indices, axes["num_pages"])
    if kv_last_page_len is not None:
        assert kv_last_page_len.dtype == torch.int32
        assert len(kv_last_page_len) in (len(kv_indptr) - 1, len(kv_indptr))
        assert ((kv_last_page_len >= 1) & (kv_last_page_len <= axes["page_size"])).all()


def tokens_of_pages(axes, kv_indptr, kv_last_page_len):
    """How many tokens each sequence has in the cache."""
    pages = kv_indptr.long().diff()
    if kv_last_page_len is None:
        return pages * axes["page_size"]
    full = (pages - 1) * axes["page_size"] + kv_last_page_len[: len(pages)]
    return torch.where(pages > 0, full, 0)


@validates("gqa_paged")
def _gqa_paged(
    axes, q, k_cache, v_cache, kv_indptr, kv_indices, sm_scale, qo_indptr=None,
    kv_last_page_len=None,
):  # fmt: skip
    are_pages(axes, kv_indptr, kv_indices, kv_last_page_len)
    assert 0.5 <= sm_scale * sqrt(q.shape[-1]) <= 2
    if qo_indptr is None:
        assert len(kv_indptr) == len(q) + 1
        return
    assert len(qo_indptr) == len(kv_indptr)
    is_indptr(qo_indptr, len(q))
    assert (tokens_of_pages(axes, kv_indptr, kv_last_page_len) >= qo_indptr.long().diff()).all()


@validates("gqa_ragged", "mla_ragged")
def _ragged(axes, q, k, v, qo_indptr, kv_indptr, sm_scale):
    assert qo_indptr.dtype == kv_indptr.dtype == torch.int32
    assert len(qo_indptr) == len(kv_indptr)
    is_indptr(qo_indptr, len(q))
    is_indptr(kv_indptr, len(k))
    assert (kv_indptr.long().diff() >= qo_indptr.long().diff()).all()
    # Queries of latent attention have 128 + 64 dimensions before absorption.
    assert 0.5 <= sm_scale * sqrt(q.shape[-1]) <= 2


@validates("mla_paged")
def _mla_paged(
    axes, q_nope, q_pe, ckv_cache, kpe_cache, kv_indptr, kv_indices, sm_scale, qo_indptr=None,
    kv_last_page_len=None,
):  # fmt: skip
    are_pages(axes, kv_indptr, kv_indices, kv_last_page_len)
    assert 0.5 <= sm_scale * sqrt(128 + 64) <= 2
    if qo_indptr is None:
        assert len(kv_indptr) == len(q_nope) + 1
        return
    assert len(qo_indptr) == len(kv_indptr)
    is_indptr(qo_indptr, len(q_nope))
    assert (tokens_of_pages(axes, kv_indptr, kv_last_page_len) >= qo_indptr.long().diff()).all()


@validates("dsa_paged")
def _dsa_paged(axes, **inputs):
    (_indexer if "block_table" in inputs else _sparse_attention)(axes, **inputs)


def _sparse_attention(axes, q_nope, q_pe, ckv_cache, kpe_cache, sparse_indices, sm_scale):
    assert sparse_indices.shape == (len(q_nope), axes["topk"])
    assert 0.5 <= sm_scale * sqrt(128 + 64) <= 2
    for row in sparse_indices:
        are_distinct(row[row != -1], axes["num_pages"] * axes["page_size"])


def _indexer(axes, q_index_fp8, k_index_cache_fp8, weights, seq_lens, block_table):
    pages, size = axes["num_pages"], axes["page_size"]
    assert axes["topk"] <= axes["max_num_pages"] * size
    assert ((seq_lens >= 1) & (seq_lens <= axes["max_num_pages"] * size)).all()
    used = [row[: -(-int(n) // size)] for row, n in zip(block_table, seq_lens, strict=True)]
    are_distinct(torch.cat(used), pages)
    raw = k_index_cache_fp8.contiguous().view(torch.uint8).view(pages, -1)
    values, scales = raw[:, : 128 * size], raw[:, 128 * size :]
    assert values.contiguous().view(torch.float8_e4m3fn).float().isfinite().all()
    scales = scales.contiguous().view(torch.float32)
    assert scales.shape == (pages, size)
    assert (scales > 0).all()
    assert scales.isfinite().all()


@validates("gdn")
def _gdn(
    axes, q, k, v, A_log, a, dt_bias, b, scale, state=None, cu_seqlens=None, initial_state=None,
    initial_state_indices=None, intermediate_states_buffer=None,
):  # fmt: skip
    lengths = k.double().norm(dim=-1)
    assert torch.allclose(lengths, torch.ones_like(lengths), atol=1e-2)
    for gate in (A_log, a, dt_bias, b):
        assert gate.abs().max() < 1  # of a deviation of 0.1
    state = initial_state if state is None else state
    assert state.abs().max() < 0.1
    assert 0.5 <= scale * sqrt(q.shape[-1]) <= 2
    if cu_seqlens is not None:
        assert cu_seqlens.dtype == torch.int64
        assert len(cu_seqlens) == len(state) + 1
        is_indptr(cu_seqlens, len(q))
    if initial_state_indices is not None:
        assert len(initial_state_indices) == len(q)
        are_distinct(initial_state_indices, len(initial_state))


@validates("mamba_ssu")
def _mamba_ssu(axes, state, x, dt, A, B, C, D, dt_bias, state_batch_indices):
    are_distinct(state_batch_indices, axes["state_cache_size"])
    assert len(state_batch_indices) == len(x)
    assert ((A > -1.5) & (A <= -0.5)).all()
    # One value for each head, whatever comes after it.
    assert dt.stride()[2:] == D.stride()[1:] == dt_bias.stride()[1:] == (0,)
    assert A.stride()[1:] == (0, 0)


def are_scales(scale):
    """Assert that nothing is multiplied by zero, or becomes negative."""
    assert (scale.float() > 0).all()


def are_factors(inputs):
    """Assert that scales are positive, and what they are for is finite."""
    for name, value in inputs.items():
        if "scale" in name and isinstance(value, torch.Tensor):
            are_scales(value)
        elif name == "hidden_states_scale":
            assert value > 0
        elif isinstance(value, torch.Tensor) and value.dtype == torch.float8_e4m3fn:
            assert value.float().isfinite().all(), name


@validates("moe")
def _moe(axes, **inputs):
    are_factors(inputs)
    experts = axes.get("num_experts", axes.get("num_local_experts"))
    local = axes.get("num_local_experts", experts)
    assert 0 <= inputs.get("local_expert_offset", 0) <= experts - local
    if "topk_weights" in inputs:
        _weighted(experts, inputs["topk_ids"], inputs["topk_weights"])
    elif "topk_ids" in inputs and (inputs["topk_ids"] < experts).all():
        for row in inputs["topk_ids"]:
            are_distinct(row, experts)
    elif "topk_ids" in inputs:
        _routed(experts, inputs["topk_ids"])
    logits = inputs.get("routing_logits", inputs.get("gating_output"))
    if logits is not None:
        assert logits.shape == (len(inputs["hidden_states"]), experts)
        _routes(logits, inputs.get("routing_bias"), axes.get("top_k", 8))


def _weighted(experts, topk_ids, topk_weights):
    """Experts, and weights of a softmax beside them."""
    for row in topk_ids:
        are_distinct(row, experts)
    sums = topk_weights.double().sum(dim=-1)
    assert (topk_weights >= 0).all()
    assert torch.allclose(sums, torch.ones_like(sums), atol=1e-4)


def _routed(experts, topk_ids):
    """Experts in the high 16 bits, and weights of a softmax in the low ones."""
    assert topk_ids.dtype == torch.int32
    for row in topk_ids >> 16:
        are_distinct(row, experts)
    weights = (topk_ids & 0xFFFF).to(torch.int16).view(torch.bfloat16)
    assert ((weights > 0) & (weights <= 1)).all()
    assert (weights.float().sum(dim=-1) - 1).abs().max() < 0.02


def _routes(logits, bias, most):
    """Assert that no rounding of a sum decides which experts are chosen, ``most`` of them.

    Logits of 16 bits can't keep apart those that nobody chooses.
    """
    if logits.element_size() == 2:
        chosen = logits.double().topk(min(most + 1, logits.shape[-1]), dim=-1).values
        assert (chosen.diff(dim=-1) < 0).all()
        return
    biased = logits.double().sigmoid() + (0 if bias is None else bias.double())
    # Sums of float32 are rounded by 6e-8 at most.
    assert biased.sort(dim=-1).values.diff(dim=-1).min() > 1e-6


@validates("fp8_block_scale_gemm")
def _fp8_block_scale_gemm(axes, a, b, a_scale, b_scale):
    assert a_scale.shape == (len(a), a.shape[1] // 128)
    assert b_scale.shape == (-(-len(b) // 128), b.shape[1] // 128)
    for scale in (a_scale, b_scale):
        are_scales(scale)
    for fp8 in (a, b):
        assert fp8.float().isfinite().all()


@validates("nvfp4_gemv")
def _nvfp4_gemv(axes, a, b, sfa, sfb):
    m, k, batch = (axes[axis] for axis in "mkl")
    for packed, scale, rows in ((a, sfa, m), (b, sfb, 1)):
        assert packed.shape == (rows, k // 2, batch)
        assert scale.shape == (rows, k // 16, batch)
        for tensor in (packed, scale):  # k is contiguous, and then the rows
            inner = tensor.shape[1]
            assert tensor.stride() == (inner, 1, rows * inner)
        are_scales(scale)
        assert scale.float().isfinite().all()
