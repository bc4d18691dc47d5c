"""Signatures of kernels that serving engines use, as FlashInfer Trace definitions have them.

Each is JSON data without a ``workloads`` section, so everything about its inputs is inferred.
"""

from typing import Any

SHORT = {
    "bf16": "bfloat16",
    "f16": "float16",
    "f32": "float32",
    "fp8": "float8_e4m3fn",
    "fp4": "float4_e2m1",
    "i8": "int8",
    "u8": "uint8",
    "i32": "int32",
    "i64": "int64",
    "bool": "bool",
}


def signature(
    op_type: str, axes: str, inputs: str, outputs: str, *constraints: str, **more: Any
) -> dict[str, Any]:
    """A definition from ``batch head_dim=128`` and ``q[batch,head_dim]:bf16 scale:f32``."""
    given = _tensors(inputs)
    return {
        "name": "op",
        "op_type": op_type,
        "axes": dict(map(_axis, axes.split())),
        "constraints": list(constraints),
        "inputs": given,
        "outputs": _tensors(outputs),
        "reference": f"def run({', '.join(given)}):\n    raise NotImplementedError\n",
        **more,
    }


def _axis(text: str) -> tuple[str, dict[str, Any]]:
    name, _, value = text.partition("=")
    return name, {"type": "const", "value": int(value)} if value else {"type": "var"}


def _tensors(text: str) -> dict[str, Any]:
    return dict(map(_tensor, text.split()))


def _tensor(text: str) -> tuple[str, dict[str, Any]]:
    shaped, _, dtype = text.rpartition(":")
    name, bracket, shape = shaped.partition("[")
    axes = [axis for axis in shape.rstrip("]").split(",") if axis] if bracket else None
    return name, {"shape": axes, "dtype": SHORT[dtype]}


LEN = "len_indptr == batch_size + 1"
LAST_Q = "total_q == qo_indptr[-1].item()"
LAST_KV = "total_kv == kv_indptr[-1].item()"
PAGES = "num_kv_indices == kv_indptr[-1].item()"

HEADS = "num_qo_heads=4 num_kv_heads=2 head_dim=8"
CACHES = (
    "k_cache[num_pages,page_size,num_kv_heads,head_dim]:bf16 "
    "v_cache[num_pages,page_size,num_kv_heads,head_dim]:bf16 "
)
TABLE = "kv_indptr[len_indptr]:i32 kv_indices[num_kv_indices]:i32 "
LAST = "kv_last_page_len[batch_size]:i32 "
PAGED = "num_pages len_indptr num_kv_indices "
DECODED = "output[batch_size,num_qo_heads,head_dim]:bf16 lse[batch_size,num_qo_heads]:f32"
PREFILLED = "output[total_q,num_qo_heads,head_dim]:bf16 lse[total_q,num_qo_heads]:f32"
QO = "qo_indptr[len_indptr]:i32 "
Q = "q[batch_size,num_qo_heads,head_dim]:bf16 "
QS = "q[total_q,num_qo_heads,head_dim]:bf16 "

MLA = "num_qo_heads=2 head_dim_ckv=16 head_dim_kpe=8 "
LATENT = (
    "ckv_cache[num_pages,page_size,head_dim_ckv]:bf16 "
    "kpe_cache[num_pages,page_size,head_dim_kpe]:bf16 "
)


def _latent(tokens: str) -> tuple[str, str]:
    """Queries and outputs of latent attention."""
    queries = (
        f"q_nope[{tokens},num_qo_heads,head_dim_ckv]:bf16 "
        f"q_pe[{tokens},num_qo_heads,head_dim_kpe]:bf16 "
    )
    outputs = f"output[{tokens},num_qo_heads,head_dim_ckv]:bf16 lse[{tokens},num_qo_heads]:f32"
    return queries, outputs


QB, OB = _latent("batch_size")
QT, OT = _latent("total_q")
QN, ON = _latent("num_tokens")

GDN = "num_q_heads=2 num_k_heads=2 num_v_heads=4 head_size=8 "
GDN_HEADS = ("num_v_heads >= num_q_heads", "num_v_heads % num_q_heads == 0")


def _gdn(tokens: str, state: str) -> str:
    heads = f"[{tokens},num_{{}}_heads,head_size]:bf16"
    qkv = " ".join(name + heads.format(name) for name in "qkv")
    gates = (
        f"A_log[num_v_heads]:f32 a[{tokens},num_v_heads]:bf16 "
        f"dt_bias[num_v_heads]:f32 b[{tokens},num_v_heads]:bf16"
    )
    return f"{qkv} {state} {gates} "


def _gdn_out(tokens: str, state: str, rows: str) -> str:
    return (
        f"output[{tokens},num_v_heads,head_size]:bf16 "
        f"{state}[{rows},num_v_heads,head_size,head_size]:f32"
    )


STATE = "state[{},num_v_heads,head_size,head_size]:f32"

EXPERTS = (
    "seq_len num_experts=16 num_local_experts=4 hidden_size=128 intermediate_size=128 "
    "gemm1_out_size=256 num_hidden_blocks=1 num_intermediate_blocks=1 num_gemm1_out_blocks=2"
)
WEIGHTS = (
    "gemm1_weights[num_local_experts,gemm1_out_size,hidden_size]:fp8 "
    "gemm1_weights_scale[num_local_experts,num_gemm1_out_blocks,num_hidden_blocks]:f32 "
    "gemm2_weights[num_local_experts,hidden_size,intermediate_size]:fp8 "
    "gemm2_weights_scale[num_local_experts,num_hidden_blocks,num_intermediate_blocks]:f32 "
)
TOKENS = (
    "hidden_states[seq_len,hidden_size]:fp8 hidden_states_scale[num_hidden_blocks,seq_len]:f32 "
)
MOE_SHAPES = (
    "gemm1_weights.shape[1] == 2 * intermediate_size",
    "gemm2_weights.shape[1] == hidden_size",
    "gemm2_weights.shape[2] == intermediate_size",
)
MOE_OUT = "output[seq_len,hidden_size]:bf16"

INDEXER = (
    "batch_size num_index_heads=4 index_head_dim=128 page_size=64 topk=256 max_num_pages "
    "num_pages kv_cache_num_heads=1 head_dim_with_scale=132"
)
INDEXED = (
    "q_index_fp8[batch_size,num_index_heads,index_head_dim]:fp8 "
    "k_index_cache_fp8[num_pages,page_size,kv_cache_num_heads,head_dim_with_scale]:i8 "
    "weights[batch_size,num_index_heads]:f32 seq_lens[batch_size]:i32 "
    "block_table[batch_size,max_num_pages]:i32"
)
SPARSE = (
    "sparse_indices.shape[0] == num_tokens",
    "sparse_indices.shape[-1] == topk",
    "ckv_cache.shape[1] == page_size",
)
SAMPLED = "samples[batch_size]:i64"
PROBS = "probs[batch_size,vocab_size]:f32 "
ROPE = "num_tokens num_qo_heads num_kv_heads max_seq_len head_size=16 rotary_dim=8"
ROTATED = (
    "q_out[num_tokens,num_qo_heads,head_size]:bf16 k_out[num_tokens,num_kv_heads,head_size]:bf16"
)

MAMBA = "batch_size state_cache_size nheads=4 head_dim=8 dstate=16 ngroups=2"

#: By name; what differs from the plain form of a kernel is part of the name.
SIGNATURES: dict[str, dict[str, Any]] = {
    "gemm": signature("gemm", "M N=64 K=32", "A[M,K]:f16 B[N,K]:f16", "C[M,N]:f16"),
    "rmsnorm": signature(
        "rmsnorm",
        "batch_size hidden_size=128",
        "hidden_states[batch_size,hidden_size]:bf16 weight[hidden_size]:bf16",
        "output[batch_size,hidden_size]:bf16",
    ),
    "fused_add_rmsnorm": signature(
        "rmsnorm",
        "batch_size hidden_size=128",
        "hidden_states[batch_size,hidden_size]:bf16 residual[batch_size,hidden_size]:bf16 "
        "weight[hidden_size]:bf16",
        "output[batch_size,hidden_size]:bf16",
    ),
    "gqa_paged_decode_ps1": signature(
        "gqa_paged",
        f"batch_size {PAGED} page_size=1 {HEADS}",
        f"{Q}{CACHES}{TABLE}sm_scale:f32",
        DECODED,
        LEN,
        PAGES,
    ),
    "gqa_paged_decode_ps64": signature(
        "gqa_paged",
        f"batch_size {PAGED} page_size=64 {HEADS}",
        f"{Q}{CACHES}{TABLE}{LAST}sm_scale:f32",
        DECODED,
        LEN,
        PAGES,
    ),
    "gqa_paged_decode_ps64_last_page_by_len_indptr": signature(
        "gqa_paged",
        f"batch_size {PAGED} page_size=64 {HEADS}",
        f"{Q}{CACHES}{TABLE}kv_last_page_len[len_indptr]:i32 sm_scale:f32",
        DECODED,
        LEN,
        PAGES,
    ),
    "gqa_paged_decode_without_constraints": signature(
        "gqa_paged",
        f"batch_size {PAGED} page_size=16 {HEADS}",
        f"{Q}{CACHES}{TABLE}{LAST}sm_scale:f32",
        DECODED,
    ),
    "gqa_paged_prefill_ps1": signature(
        "gqa_paged",
        f"total_q {PAGED} page_size=1 {HEADS}",
        f"{QS}{CACHES}{QO}{TABLE}sm_scale:f32",
        PREFILLED,
        LAST_Q,
        PAGES,
    ),
    "gqa_paged_prefill_ps64": signature(
        "gqa_paged",
        f"batch_size total_q {PAGED} page_size=64 {HEADS}",
        f"{QS}{CACHES}{QO}{TABLE}{LAST}sm_scale:f32",
        PREFILLED,
        LEN,
        LAST_Q,
        PAGES,
    ),
    "gqa_paged_prefill_ps64_few_constraints": signature(
        "gqa_paged",
        f"batch_size total_q {PAGED} page_size=64 {HEADS}",
        f"{QS}{CACHES}{QO}{TABLE}{LAST}sm_scale:f32",
        PREFILLED,
        "total_q == qo_indptr[-1]",
        "kv_indptr[-1] == num_kv_indices",
    ),
    "gqa_ragged_prefill": signature(
        "gqa_ragged",
        f"total_q total_kv len_indptr {HEADS}",
        f"{QS}k[total_kv,num_kv_heads,head_dim]:bf16 v[total_kv,num_kv_heads,head_dim]:bf16 {QO}"
        "kv_indptr[len_indptr]:i32 sm_scale:f32",
        PREFILLED,
        LAST_Q,
        LAST_KV,
    ),
    "gqa_ragged_prefill_of_two_lengths": signature(
        "gqa_ragged",
        f"total_q total_kv len_q len_kv {HEADS}",
        "q[total_q,num_qo_heads,head_dim]:bf16 k[total_kv,num_kv_heads,head_dim]:bf16 "
        "v[total_kv,num_kv_heads,head_dim]:bf16 qo_indptr[len_q]:i32 kv_indptr[len_kv]:i32 "
        "sm_scale:f32",
        PREFILLED,
        LAST_Q,
        LAST_KV,
    ),
    "mla_ragged_prefill": signature(
        "mla_ragged",
        "total_q total_kv len_indptr num_qo_heads=2 num_kv_heads=2 qk_dim=192 vo_dim=128",
        f"q[total_q,num_qo_heads,qk_dim]:bf16 k[total_kv,num_kv_heads,qk_dim]:bf16 "
        f"v[total_kv,num_kv_heads,vo_dim]:bf16 {QO}kv_indptr[len_indptr]:i32 sm_scale:f32",
        "output[total_q,num_qo_heads,vo_dim]:bf16 lse[total_q,num_qo_heads]:f32",
        LAST_Q,
        LAST_KV,
    ),
    "mla_paged_decode_ps1": signature(
        "mla_paged",
        f"batch_size {PAGED} page_size=1 {MLA}",
        f"{QB}{LATENT}{TABLE}sm_scale:f32",
        OB,
        LEN,
        PAGES,
    ),
    "mla_paged_decode_ps64": signature(
        "mla_paged",
        f"batch_size {PAGED} page_size=64 {MLA}",
        f"{QB}{LATENT}{TABLE}{LAST}sm_scale:f32",
        OB,
        LEN,
        PAGES,
    ),
    "mla_paged_prefill_ps1": signature(
        "mla_paged",
        f"total_q {PAGED} page_size=1 {MLA}",
        f"{QT}{LATENT}{QO}{TABLE}sm_scale:f32",
        OT,
        LAST_Q,
        PAGES,
    ),
    "mla_paged_prefill_ps64": signature(
        "mla_paged",
        f"batch_size total_q {PAGED} page_size=64 {MLA}",
        f"{QT}{LATENT}{QO}{TABLE}{LAST}sm_scale:f32",
        OT,
        LEN,
        LAST_Q,
        PAGES,
    ),
    "dsa_sparse_attention_ps1": signature(
        "dsa_paged",
        f"num_tokens num_pages page_size=1 topk=64 {MLA}",
        f"{QN}{LATENT}sparse_indices[num_tokens,topk]:i32 sm_scale:f32",
        ON,
        *SPARSE,
    ),
    "dsa_sparse_attention_ps64": signature(
        "dsa_paged",
        f"num_tokens num_pages page_size=64 topk=256 {MLA}",
        f"{QN}{LATENT}sparse_indices[num_tokens,topk]:i32 sm_scale:f32",
        ON,
        *SPARSE,
    ),
    "dsa_topk_indexer": signature(
        "dsa_paged",
        INDEXER,
        INDEXED,
        "topk_indices[batch_size,topk]:i32",
        "topk <= max_num_pages * page_size",
    ),
    "gdn_decode": signature(
        "gdn",
        f"batch_size seq_len=1 {GDN}",
        _gdn("batch_size,seq_len", STATE.format("batch_size")) + "scale:f32",
        _gdn_out("batch_size,seq_len", "new_state", "batch_size"),
        *GDN_HEADS,
        "num_k_heads == num_q_heads",
    ),
    "gdn_prefill": signature(
        "gdn",
        f"total_seq_len num_seqs len_cu_seqlens {GDN}",
        _gdn("total_seq_len", STATE.format("num_seqs"))
        + "cu_seqlens[len_cu_seqlens]:i64 scale:f32",
        _gdn_out("total_seq_len", "new_state", "num_seqs"),
        "len_cu_seqlens == num_seqs + 1",
        "total_seq_len == cu_seqlens[-1].item()",
    ),
    "gdn_mtp": signature(
        "gdn",
        f"batch_size seq_len pool_size {GDN}",
        _gdn(
            "batch_size,seq_len",
            "initial_" + STATE.format("pool_size") + " initial_state_indices[batch_size]:i32",
        )
        + "scale:f32 "
        "intermediate_states_buffer[pool_size,seq_len,num_v_heads,head_size,head_size]:f32",
        _gdn_out("batch_size,seq_len", "final_state", "pool_size"),
        *GDN_HEADS,
        "seq_len > 1",
    ),
    "mamba_ssu": signature(
        "mamba_ssu",
        MAMBA,
        "state[state_cache_size,nheads,head_dim,dstate]:bf16 x[batch_size,nheads,head_dim]:bf16 "
        "dt[batch_size,nheads,head_dim]:bf16 A[nheads,head_dim,dstate]:f32 "
        "B[batch_size,ngroups,dstate]:bf16 C[batch_size,ngroups,dstate]:bf16 "
        "D[nheads,head_dim]:bf16 dt_bias[nheads,head_dim]:bf16 state_batch_indices[batch_size]:i32",
        "output[batch_size,nheads,head_dim]:bf16 "
        "new_state[state_cache_size,nheads,head_dim,dstate]:bf16",
        "nheads % ngroups == 0",
        "state_cache_size >= batch_size",
    ),
    "moe_fp8_block_scale": signature(
        "moe",
        EXPERTS,
        "routing_logits[seq_len,num_experts]:f32 routing_bias[num_experts]:bf16 "
        f"{TOKENS}{WEIGHTS}local_expert_offset:i32 routed_scaling_factor:f32",
        MOE_OUT,
    ),
    "moe_fp8_block_scale_renorm": signature(
        "moe",
        EXPERTS.replace("num_experts=16 ", "top_k=2 "),
        f"routing_logits[seq_len,num_local_experts]:bf16 {TOKENS}{WEIGHTS}",
        MOE_OUT,
        *MOE_SHAPES,
    ),
    "moe_fp8_per_tensor_scale": signature(
        "moe",
        EXPERTS,
        "routing_logits[seq_len,num_experts]:bf16 routing_bias[num_experts]:bf16 "
        "hidden_states[seq_len,hidden_size]:fp8 hidden_states_scale:f32 "
        "gemm1_weights[num_local_experts,gemm1_out_size,hidden_size]:fp8 "
        "gemm1_scales[num_local_experts]:f32 "
        "gemm2_weights[num_local_experts,hidden_size,intermediate_size]:fp8 "
        "gemm2_scales[num_local_experts]:f32 local_expert_offset:i32 routed_scaling_factor:f32",
        MOE_OUT,
    ),
    "moe_routed": signature(
        "moe",
        "seq_len num_experts=16 hidden_size=32 intermediate_size=16 gemm1_out_size=32 top_k=4",
        "topk_ids[seq_len,top_k]:i32 hidden_states[seq_len,hidden_size]:bf16 "
        "gemm1_weights[num_experts,gemm1_out_size,hidden_size]:f32 "
        "gemm2_weights[num_experts,hidden_size,intermediate_size]:f32",
        MOE_OUT,
        *MOE_SHAPES,
    ),
    "moe_routed_fp4": signature(
        "moe",
        "seq_len num_experts=16 num_local_experts=4 top_k=4 hidden_size=32 intermediate_size=16 "
        "gemm1_out_size=32 hidden_size_packed=16 intermediate_size_packed=8 hidden_blocks=2 "
        "intermediate_blocks=1",
        "topk_ids[seq_len,top_k]:i32 hidden_states[seq_len,hidden_size_packed]:u8 "
        "hidden_states_scale[seq_len,hidden_blocks]:fp8 "
        "gemm1_weights[num_local_experts,gemm1_out_size,hidden_size_packed]:u8 "
        "gemm1_weights_scale[num_local_experts,gemm1_out_size,hidden_blocks]:fp8 "
        "gemm2_weights[num_local_experts,hidden_size,intermediate_size_packed]:u8 "
        "gemm2_weights_scale[num_local_experts,hidden_size,intermediate_blocks]:fp8 "
        "output1_scale_scalar[num_local_experts]:f32 output2_scale_scalar[num_local_experts]:f32 "
        "local_expert_offset:i32",
        MOE_OUT,
    ),
    "moe_fp8_block_scale_of_local_experts": signature(
        "moe",
        EXPERTS.replace("num_local_experts=4 ", "top_k=2 "),
        "routing_logits[seq_len,num_experts]:f32 routing_bias[num_experts]:bf16 "
        f"{TOKENS}{WEIGHTS.replace('num_local_experts', 'num_experts')}"
        "local_expert_offset:i32 routed_scaling_factor:f32",
        MOE_OUT,
        *MOE_SHAPES,
    ),
    "moe_bf16_with_weights_of_experts": signature(
        "moe",
        "seq_len num_experts=16 hidden_size=32 intermediate_size=16 gemm1_out_size=32 top_k=4",
        "hidden_states[seq_len,hidden_size]:bf16 gating_output[seq_len,num_experts]:f32 "
        "w1[num_experts,gemm1_out_size,hidden_size]:bf16 "
        "w2[num_experts,hidden_size,intermediate_size]:bf16 "
        "topk_weights[seq_len,top_k]:f32 topk_ids[seq_len,top_k]:i32",
        MOE_OUT,
        "gemm1_out_size == 2 * intermediate_size",
    ),
    "embedding": signature(
        "embedding",
        "batch_size vocab_size=1000 embedding_dim=32",
        "input_ids[batch_size]:i64 weight[vocab_size,embedding_dim]:bf16",
        "output[batch_size,embedding_dim]:bf16",
    ),
    "rope_of_cosines_and_sines": signature(
        "rope",
        "batch_size seq_len num_q_heads=4 num_k_heads head_dim=16",
        "q[batch_size,num_q_heads,seq_len,head_dim]:bf16 "
        "k[batch_size,num_k_heads,seq_len,head_dim]:bf16 "
        "cos[seq_len,head_dim]:bf16 sin[seq_len,head_dim]:bf16",
        "q_embed[batch_size,num_q_heads,seq_len,head_dim]:bf16 "
        "k_embed[batch_size,num_k_heads,seq_len,head_dim]:bf16",
    ),
    "rope_of_cosines_and_sines_in_fp8": signature(
        "rope",
        "batch_size seq_len num_q_heads=4 num_k_heads head_dim=16",
        "q[batch_size,num_q_heads,seq_len,head_dim]:fp8 "
        "k[batch_size,num_k_heads,seq_len,head_dim]:fp8 "
        "cos[batch_size,seq_len,head_dim]:fp8 sin[batch_size,seq_len,head_dim]:fp8",
        "q_embed[batch_size,num_q_heads,seq_len,head_dim]:fp8 "
        "k_embed[batch_size,num_k_heads,seq_len,head_dim]:fp8",
    ),
    "rope": signature(
        "rope",
        ROPE,
        "q[num_tokens,num_qo_heads,head_size]:bf16 k[num_tokens,num_kv_heads,head_size]:bf16 "
        "cos_sin_cache[max_seq_len,rotary_dim]:f32 positions[num_tokens]:i64 is_neox:bool",
        ROTATED,
    ),
    "top_k_sampling": signature(
        "sampling",
        "batch_size vocab_size=1000",
        f"{PROBS}top_k[batch_size]:i32",
        SAMPLED,
    ),
    "top_p_sampling": signature(
        "sampling",
        "batch_size vocab_size=1000",
        f"{PROBS}top_p[batch_size]:f32",
        SAMPLED,
    ),
    "top_k_top_p_sampling": signature(
        "sampling",
        "batch_size vocab_size=1000",
        f"{PROBS}top_k[batch_size]:i32 top_p[batch_size]:f32",
        SAMPLED,
    ),
}
