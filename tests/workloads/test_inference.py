"""Each rule of the table, by an input that it decides; what comes before it, and what is told."""

import json
import re
from math import sqrt

import pytest
import torch
import yaml
from pydantic import TypeAdapter

from pytest_fib.data import Definition, InputRule
from pytest_fib.workloads import (
    INFERENCE_RULES,
    make_inputs,
    make_workload,
    plan,
    why_not_generated,
)
from tests.workloads.signatures import LAST_KV, PAGES, signature

rule_of = TypeAdapter(InputRule).validate_python
PAGED = "len_indptr num_kv_indices num_pages page_size=16"


def near(usual):
    return {"kind": "uniform", "min": usual / 2, "max": usual * 2}


SHARE = {"kind": "uniform", "min": 0.0, "max": 0.9375, "ends": True}
#: An op_type, axes, the input and what else it needs beside it, the parameters, and constraints.
CASES = [
    ("norm", "n", "running_var[n]:f32", {"kind": "uniform", "min": 0}),
    ("scan", "n", "decay[n]:f32", {"kind": "uniform"}),
    ("norm", "n one=1", "momentum[one]:f32", {"kind": "uniform"}),
    ("optimizer", "n", "momentum[n]:f32", {"kind": "values"}),
    ("quantize", "n one=1", "scale_ub[one]:f32", {"kind": "uniform", "min": 0.5, "max": 24.0}),
    ("optimizer", "n", "weight_decay[n]:f32", {"kind": "values"}),
    ("mixer", "n d=8", "log_decay[n,d]:f32", {"kind": "values"}),  # no exponential of it
    ("mixer", "n d=8", "top_p[n,d]:f32", {"kind": "values"}),  # not one for each row
    ("mixer", "n d=8", "temperature[n,d]:f32", {"kind": "values"}),
    (
        "sampling",
        "n",
        "temperatures[n]:f32",
        {"kind": "uniform", "min": 0.5, "max": 2.0, "ends": True},
    ),
    # Scalars.
    ("gqa", "n head_dim=64", "sm_scale:f32", near(1 / 8)),
    ("mla_paged", "n head_dim=64", "sm_scale:f32", near(1 / sqrt(192))),
    ("dsa_paged", "n head_dim_ckv=512", "sm_scale:f32", near(1 / sqrt(192))),
    ("gqa", "n dim=16", "sm_scale:f32 q[n,dim]:f16", near(1 / 4)),
    ("gdn", "n head_size=64", "scale:f32", near(1 / 8)),
    ("norm", "n", "rms_eps:f32", near(1e-6)),
    ("norm", "n", "epsilon:f32", near(1e-6)),
    ("gqa", "n", "logits_soft_cap:f32", {"kind": "uniform", "min": 1.0, "max": 50.0}),
    ("softcap", "n", "softcap:f32", {"kind": "uniform", "min": 1.0, "max": 50.0}),
    (
        "moe",
        "n num_experts=64 num_local_experts=16",
        "local_expert_offset:i32",
        {"kind": "integers", "min": 0, "max": 48},
    ),
    ("moe", "n num_experts=64", "local_expert_offset:i32", {"value": 0}),
    ("moe", "n num_local_experts=64", "local_expert_offset:i32", {"value": 0}),
    ("moe", "n", "routed_scaling_factor:f32", near(2.5)),
    ("sampling", "n", "top_p:f32", {"kind": "uniform", "min": 0.1}),
    ("sampling", "n", "min_p:f32", {"kind": "uniform", "ends": True}),
    ("norm", "n", "offset:f32", {"kind": "uniform", "min": -1.0}),
    ("optimizer", "n", "momentum:f32", SHARE),
    (
        "sampling",
        "n vocab_size=99",
        "top_k:i32",
        {"kind": "integers", "min": 1, "max": "vocab_size", "ends": True},
    ),
    ("rope", "n", "is_neox:bool", {"kind": "boolean"}),
    ("moe", "n", "hidden_states_scale:f32", {"kind": "uniform", "min": 0.5, "max": 2.0}),
    ("op", "n", "top_db:f32", {"kind": "uniform", "min": 10.0, "max": 100.0}),
    ("loss", "n", "label_smoothing:f32", SHARE),
    ("op", "n", "dropout_p:f32", SHARE),
    ("optimizer", "n", "weight_decay:f32", SHARE),
    ("op", "n", "drop_path_scale:f32", {"kind": "uniform", "min": 0.5, "max": 2.0}),
    ("loss", "n", "temperature:f32", near(1)),
    ("dropout", "n", "seed:i32", {"kind": "integers", "min": 0, "max": 2**31 - 1, "ends": True}),
    (
        "dropout",
        "n",
        "rng_seed:i64",
        {"kind": "integers", "min": 0, "max": 2**31 - 1, "ends": True},
    ),
    (
        "attention",
        "b kv_len h=2 d=8",
        "window_size:i32 k[b,kv_len,h,d]:f16",
        {"kind": "integers", "min": 1, "max": "kv_len", "ends": True},
    ),
    # Page tables and sequences.
    ("gqa", PAGED, "kv_indptr[len_indptr]:i32", {"kind": "indptr", "total": "num_kv_indices"}),
    (
        "gdn",
        "m total",
        "cu_seqlens[m]:i64",
        {"kind": "indptr", "total": "total"},
        "total == cu_seqlens[-1].item()",
    ),
    (
        "gqa",
        f"total_q {PAGED}",
        "kv_indptr[len_indptr]:i32 qo_indptr[len_indptr]:i32 kv_indices[num_kv_indices]:i32",
        {
            "kind": "indptr",
            "total": "num_kv_indices",
            "at_least": "qo_indptr",
            "page_size": "page_size",
        },
    ),
    (
        "gqa",
        "m total_kv total_q",
        "kv_indptr[m]:i32 qo_indptr[m]:i32",
        {"kind": "indptr", "total": "total_kv", "at_least": "qo_indptr"},
        LAST_KV,
    ),
    (
        "gqa",
        "m batch_size total_k",
        "cu_seqlens_k[m]:i32",
        {"kind": "indptr", "total": "total_k", "parts": "batch_size"},
    ),
    (
        "gqa",
        PAGED,
        "kv_indices[num_kv_indices]:i32",
        {"kind": "indices", "below": "num_pages", "unique": True},
    ),
    (
        "gqa",
        f"n {PAGED}",
        "kv_last_page_len[n]:i32 kv_indptr[len_indptr]:i32",
        {"kind": "last_page_len", "page_size": "page_size", "indptr": "kv_indptr"},
    ),
    (
        "dsa_paged",
        "n topk=8 num_pages page_size=64",
        "sparse_indices[n,topk]:i32",
        {"kind": "indices", "below": "num_pages * page_size", "pad": -1},
    ),
    (
        "dsa_paged",
        "n pages num_pages page_size=64",
        "seq_lens[n]:i32 block_table[n,pages]:i32",
        {
            "kind": "seq_lens",
            "max": "pages * page_size",
            "pages": "num_pages",
            "page_size": "page_size",
        },
    ),
    ("attention", "n max_seq_len", "seq_lens[n]:i32", {"kind": "seq_lens", "max": "max_seq_len"}),
    (
        "dsa_paged",
        "n pages num_pages page_size=64",
        "block_table[n,pages]:i32 seq_lens[n]:i32",
        {
            "kind": "block_table",
            "pages": "num_pages",
            "page_size": "page_size",
            "lengths": "seq_lens",
        },
    ),
    (
        "mamba_ssu",
        "n state_cache_size",
        "state_batch_indices[n]:i32",
        {"kind": "indices", "below": "state_cache_size", "unique": True},
    ),
    (
        "gdn",
        "n pool_size",
        "initial_state_indices[n]:i32",
        {"kind": "indices", "below": "pool_size", "unique": True},
    ),
    (
        "rope",
        "n rows dim=8",
        "positions[n]:i64 cos_sin_cache[rows,dim]:f32",
        {"kind": "positions", "below": "rows"},
    ),
    (
        "rope",
        "n rows dim=8",
        "pos_ids[n]:i32 cos_cache[rows,dim]:f32",
        {"kind": "positions", "below": "rows"},
    ),
    (
        "embedding",
        "n vocab_size=99 d=8",
        "input_ids[n]:i64 weight[vocab_size,d]:bf16",
        {"kind": "positions", "below": "vocab_size"},
    ),
    (
        "embedding",
        "n rows=99 d=8",
        "token_ids[n]:i32 weight[rows,d]:bf16",
        {"kind": "positions", "below": "rows"},
    ),
    (
        "sampling",
        "n few=3 vocab_size=99",
        "draft_token_ids[n,few]:i32",
        {"kind": "positions", "below": "vocab_size"},
    ),
    # Routing and sampling.
    ("sampling", "n", "uniform_samples[n]:f32", {"kind": "uniform"}),
    ("op", "n", "random_features[n]:f32", {"kind": "values"}),
    (
        "moe",
        "n k=2 num_experts=8",
        "topk_ids[n,k]:i32",
        {"kind": "topk_ids", "experts": "num_experts"},
    ),
    (
        "moe",
        "n k=2 num_local_experts=8",
        "topk_ids[n,k]:i32 topk_weights[n,k]:f32",
        {"kind": "topk_ids", "experts": "num_local_experts"},
    ),
    ("moe", "n k=2", "topk_weights[n,k]:f32", {"kind": "probabilities"}),
    ("moe", "n e=8", "routing_logits[n,e]:bf16", {"kind": "router_logits", "ties": True}),
    ("moe", "n e=8", "gating_output[n,e]:f32", {"kind": "router_logits", "ties": True}),
    (
        "moe",
        "n e=8",
        "routing_bias[e]:bf16",
        {"kind": "integers", "min": -1.5, "max": 1.5, "step": 1 / 8},
    ),
    (
        "moe",
        "n e=9",
        "routing_bias[e]:bf16",
        {"kind": "integers", "min": -0.75, "max": 0.75, "step": 1 / 16},
    ),
    (
        "moe",
        "n e",
        "routing_bias[e]:bf16",
        {"kind": "integers", "min": "-12 / e", "max": "12 / e", "step": "1 / e"},
    ),
    (
        "sampling",
        "n vocab_size=99",
        "top_k[n]:i32",
        {"kind": "integers", "min": 1, "max": "vocab_size", "ends": True},
    ),
    ("sampling", "n", "top_p[n]:f32", {"kind": "uniform", "min": 0.1, "ends": True}),
    ("sampling", "n", "min_p[n]:f32", {"kind": "uniform", "ends": True}),
    ("sampling", "n v=99", "probs[n,v]:f32", {"kind": "probabilities"}),
    ("op", "n v=99", "draft_probs[n,v]:f32", {"kind": "probabilities"}),
    ("op", "n v=99", "log_probs[n,v]:f32", {"kind": "values"}),
    ("op", "n v=99", "grad_probs[n,v]:f32", {"kind": "values"}),
    ("op", "n", "keep_probs[n]:f32", {"kind": "values"}),
    # Tables and scales.
    ("rope", "n dim=8", "cos_sin_cache[n,dim]:f32", {"kind": "cos_sin_cache"}),
    ("rope", "n dim=8", "cos[n,dim]:bf16 q[n,dim]:bf16", {"kind": "cos", "twice": True}),
    ("rope", "b n dim=8", "sin[b,n,dim]:bf16 q[b,n,dim]:bf16", {"kind": "sin", "twice": True}),
    ("rope", "n dim=8 half=4", "cos_cache[n,half]:f32 q[n,dim]:bf16", {"kind": "cos"}),
    ("op", "n", "cos[n]:f32", {"kind": "values"}),  # of which position?
    (
        "dsa_paged",
        "n page_size=64 width=132",
        "k_index_cache_fp8[n,page_size,width]:i8",
        {"kind": "fp8_pages"},
    ),
    ("gemm", "n k=2", "a_scale[n,k]:f32 a[n,k]:i8", {"kind": "scales"}),
    ("norm", "n k=2", "mean_scale[k]:f32", {"kind": "scales", "min": 0.25, "max": 4.0}),
    ("gemm", "n k=2", "sfa[n,k]:fp8", {"kind": "scales"}),
    ("optimizer", "n", "step_size[n]:f32", {"kind": "scales", "min": 2**-9, "max": 32}),
    ("moe", "n", "output1_scale_scalar[n]:f32 a[n]:fp8", {"kind": "scales"}),
    ("gemv", "n k=2", "a[n,k]:fp4", {"kind": "fp4"}),
    ("moe", "n hidden_packed=2", "hidden_states[n,hidden_packed]:u8", {"kind": "fp4"}),
    # Recurrent state.
    ("gdn", "n d=8", "k[n,d]:bf16", {"kind": "l2_normalized"}),
    ("gdn", "n", "A_log[n]:f32", {"kind": "normal", "std": 0.1}),
    ("gdn", "n", "dt_bias[n]:f32", {"kind": "normal", "std": 0.1}),
    ("gdn", "n", "initial_state[n]:f32", {"kind": "normal", "std": 0.01}),
    ("gdn", "n", "intermediate_states_buffer[n]:f32", {"kind": "normal", "std": 0.01}),
    (
        "mamba_ssu",
        "nheads=4 dim=8 dstate=2",
        "A[nheads,dim,dstate]:f32",
        {"kind": "uniform", "min": -1.45, "max": -0.5, "broadcast": ["dim", "dstate"]},
    ),
    (
        "mamba_ssu",
        "n nheads=4 dim=8",
        "dt[n,nheads,dim]:bf16",
        {"kind": "uniform", "min": 0.0, "max": 1.0, "broadcast": ["dim"]},
    ),
    (
        "moe",
        "n experts=8",
        "expert_ids[n]:i32",
        {"kind": "indices", "below": "experts", "unique": False},
    ),
    ("scan", "n", "A_log[n]:f32", {"kind": "uniform", "min": -2.77, "max": 2.77}),
    ("mamba", "d=8 k=4", "A[d,k]:f32", {"kind": "uniform", "min": -16, "max": -1 / 16}),
    ("mamba", "n d=8", "dt[n,d]:f32", {"kind": "uniform"}),
    ("mamba", "n nheads=4 dim=8", "D[nheads,dim]:f32", {"kind": "values", "broadcast": ["dim"]}),
    ("mamba", "n nheads=4", "D[nheads]:f32", {"kind": "values"}),
    ("pad", "n t", "runs[n]:i32", {"kind": "lengths", "total": "t"}, "t == runs.sum().item()"),
    ("pad", "n t", "runs[n]:i64", {"kind": "lengths", "total": "t"}, "sum(runs) == t"),
    ("attention", "n", "attn_mask[n]:i32", {"kind": "boolean"}),
    # What is left.
    ("attention", "n", "keep[n]:bool", {"kind": "boolean"}),
    ("gemm", "n", "x[n]:f16", {"kind": "values"}),
    ("mamba_ssu", "n", "k[n]:f16", {"kind": "values"}),
]


class Inferred:
    """What is inferred for the first of the inputs, and what is said of it."""

    def __init__(self, op_type, axes, inputs, *constraints):
        output = f"y[{axes.split()[0].partition('=')[0]}]:f32"
        data = signature(op_type, axes, inputs, output, *constraints)
        definition = Definition.model_validate(data)
        self.name, self.spec = next(iter(definition.inputs.items()))
        made = plan(definition)
        self.rule = None if self.name in made.unmade else made.rules[self.name]
        notes = dict(note.split(": ", 1) for note in made.notes)
        self.says = notes.get(self.name, "by the value pattern (")

    def is_by(self, rule):
        """Whether this is what an entry of the table says."""
        is_its_name = re.fullmatch(rule.name, self.name) is not None
        says = self.says.startswith(f"{rule.says} (")
        return says and is_its_name and self.spec.is_scalar == rule.scalar


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case[0]}-{case[2].partition(':')[0]}")
def test_a_rule_gives_its_parameters(case):
    op_type, axes, inputs, params, *constraints = case
    assert Inferred(op_type, axes, inputs, *constraints).rule == rule_of(params)


@pytest.mark.parametrize(
    ("result", "kind"),
    [
        ("logits.topk(2).values[:, 0]", "router_logits"),
        ("logits.sort(-1, stable = True).values[:, 0]", "values"),
        ("logits.topk(2).indices.flatten().argsort(stable=True)", "router_logits"),
        ("logits.sort(-1).indices[:, 0].argsort(stable=True)", "router_logits"),
        ("logits.logsumexp(-1)", "values"),
    ],
)
def test_logits_of_a_router_have_no_ties_where_something_is_chosen_by_them(result, kind):
    definition = Definition.model_validate(
        {
            "name": "loss",
            "op_type": "moe_loss",
            "axes": {"n": "var", "e": 8},
            "inputs": {"router_logits": {"shape": ["n", "e"], "dtype": "float32"}},
            "outputs": {"y": {"shape": ["n"], "dtype": "float32"}},
            "reference": f"def run(logits):\n    return {result}\n",
        }
    )
    assert plan(definition).rules["router_logits"].kind == kind


@pytest.mark.parametrize("rule", INFERENCE_RULES, ids=lambda rule: f"{rule.says}-{rule.name}")
def test_every_rule_decides_a_case(rule):
    cases = ((op_type, axes, inputs, *more) for op_type, axes, inputs, _, *more in CASES)
    referred = {_says(case[0]) for case in REFERENCES if case[1] is not None}
    referred |= {_says(result, "float32") for result in ("which.sqrt()", "x / which")}
    referred |= {_says("x * which.float()[:, None]", "int8"), _says("(which & 7) + 1")}
    referred |= {_says("(which[:, None] * x).sin()"), SCALAR_THAT_PICKS, SCALAR_EXPONENT}
    referred |= {SCALAR_THAT_OTHERS_ARE_COMPARED_WITH, SCALAR_ZERO_POINT, LABELS_ASKED_FOR}
    referred |= {SCALAR_PUT, SCALAR_TIED, WHOLE_DIVISOR}
    referred |= BY_NAME | {OF_SHARES, SCALAR_CHOICE}
    referred |= SCALAR_COUNTS | {OF_START, _says("torch.bincount(which >> 4)", "uint8")}
    referred |= {
        SCALAR_LENGTH,
        SCALAR_TAKEN,
        PIXELS,
        SCALAR_LIMIT,
        _says("torch.searchsorted(which, x)"),
    }
    referred |= {_of_name(name).says for name, _ in CALCULATED_BY_NAME}
    referred |= {_first_of(*case[:2], *case[3:]).inferred[_name_of(case)].says for case in BY_USE}
    log_decay = _of_reference("x * log_decay.exp()[:, None]", "float32", name="log_decay")
    referred.add(plan(log_decay).inferred["log_decay"].says)
    assert any(Inferred(*case).is_by(rule) for case in cases) or rule.says in referred


def _first_of(inputs, body, *constraints):
    """The plan of a kernel with these inputs and this reference."""
    data = signature("op", "n m v=64 d=8", inputs, "y[m]:f32", *constraints)
    arguments = ", ".join(data["inputs"])
    data["reference"] = (
        f"import torch\nF = torch.nn.functional\ndef run({arguments}):\n    {body}\n"
    )
    return plan(Definition.model_validate(data))


def _name_of(case):
    return re.match(r"\w+", case[0])[0]


#: Inputs, what the reference does with the first of them, and how that is made.
BY_USE = [
    ("eps:f32 x[n]:f32", "return x.exp().clamp(1 - eps, 1.0 + eps)", "uniform, min 0.05, max 0.5"),
    ("clip_eps:f32 x[n]:f32", "return x.clamp(max=1 + clip_eps)", "uniform, min 0.05, max 0.5"),
    ("eps:f32 x[n]:f32", "return x.clamp(eps, 1 - eps).log()", "uniform, min 5e-07, max 2e-06"),
    ("theta:f32 x[n]:f32", "return (theta ** -x).sin()", "uniform, min 10000.0, max 500000.0"),
    ("theta:f32 x[n]:f32", "return (x * theta).sin()", "uniform, min 0.0, max 2.0"),
    (
        "scale:f32 x[n,v]:f32 labels[n]:i64",
        "return F.cross_entropy(x * scale, labels) + x.gather(1, labels[:, None])",
        "uniform, min 1.0, max 64.0",
    ),
    (
        "scale:f32 q[n,d]:f32",
        "return (q @ q.T * scale).log_softmax(-1)",
        "uniform, min 0.0, max 2.0",
    ),
    ("scale:f32 x[n,v]:f32", "return x * scale", "uniform, min 0.0, max 2.0"),
    (
        "lens[n]:i32 x[n,m]:f32",
        "return x * (lens[:, None] - torch.arange(x.shape[1])).clamp(min=0)",
        "seq_lens, max m, allow_empty False",
    ),
    (
        "lengths[n]:i32 x[n,m]:f32",
        "return torch.stack([x[i, : k // 2].sum() for i, k in enumerate(lengths.tolist())])",
        "seq_lens, max m, allow_empty True",
    ),
    (
        "cap:i32 x[n,m]:f32",
        "return (x.tolist() + [0] * cap)[:cap]",
        "integers, min 0, max 4096",
        "m == cap",
    ),
    (
        "restart:f32 x[n]:f32",
        "return torch.where(x < restart, 0, x / (1 - restart))",
        "uniform, min 0.0625, max 0.99609375",
    ),
    (
        "ids[n]:i32 x[n,m]:f32",
        "return x[ids].sum(1) + x.T[ids].sum(1)",
        "indices, below min(n, m), unique False",
    ),
    (
        "inv_scale:f32 x[n]:f32",
        "return x * inv_scale",
        "uniform, min 1.52587890625e-05, max 1.0, ends True",
    ),
    (
        "min_tokens[m]:i32 lens[m]:i32 x[m]:f32",
        "return torch.where(lens < min_tokens, 0.0, x)",
        "integers, min 0, max 16",
    ),
    (
        "targets[n]:i64 x[n,v]:f32",
        "return F.cross_entropy(x, targets, ignore_index=-1, reduction='none')",
        "indices, sentinels [-1], below v, unique False",
    ),
    (
        "targets[n]:i64 x[n,v]:f32",
        "return F.nll_loss(F.log_softmax(x, -1), targets)",
        "indices, below v, unique False",
    ),
    (
        "labels[n]:u8 x[n,v]:f32",
        "at = labels.long()\n    known = at != 255\n"
        "    return x.gather(1, torch.where(known, at, 0)[:, None])",
        "indices, sentinels [255], below v, unique False",
    ),
    ("k:i32 x[n,v]:f32", "return x.topk(int(k), dim=1)[0]", "integers, min 1, max v, ends True"),
    ("k:i32 x[n,d]:f32", "return x.kthvalue(k).values", "integers, min 1, max d, ends True"),
    (
        "left:i32 x[n,n]:f32",
        "at = torch.arange(x.shape[0])\n    rel = at[None] - at[:, None]\n"
        "    return x.masked_fill(rel < -left, 0.0)",
        "integers, min 0, max n - 1, ends True",
    ),
    (
        "offs[v]:i32 x[n,d]:f32",
        "o = offs.tolist()\n    return torch.stack([x[a:b].sum(0) for a, b in zip(o[:-1], o[1:])])",
        "indptr, total n",
    ),
    (
        "starts[m]:i32 x[n,d]:f32",
        "o = starts.tolist() + [len(x)]\n"
        "    rows = []\n"
        "    for i, (a, b) in enumerate(zip(o[:-1], o[1:])):\n"
        "        rows.append(x[a:b].sum(0))\n"
        "    return torch.stack(rows)",
        "starts, total n",
    ),
    (
        "row_ends[m]:i32 x[n,d]:f32",
        "first = 0\n    rows = []\n    for last in row_ends.tolist():\n"
        "        rows.append(x[first:last].sum(0))\n        first = last\n"
        "    return torch.stack(rows)",
        "ends, total n",
    ),
    (
        "bag_offsets[m]:i64 ids[n]:i64 table[v,d]:f32",
        "return F.embedding_bag(ids, table, bag_offsets, mode='sum')",
        "starts, total n",
    ),
    (
        "sizes[m]:i32 x[m,v]:f32",
        "return torch.stack([r[: min(int(k), 9)].sum() for r, k in zip(x, sizes)])",
        "seq_lens, max v, allow_empty True",
    ),
    (
        "seed:i64 x[n]:f32",
        "low, high = seed & 0xFFFFFFFF, seed >> 32\n"
        "    return torch.where((torch.arange(len(x)) * low ^ high) % 2 == 0, x, 0.0)",
        f"integers, min 0, max {2**63 - 1}, ends True",
    ),
    (
        "keys[n]:i32",
        "return torch.bincount((keys >> 8) & 255, minlength=256)",
        f"integers, min {-(2**31)}, max {2**31 - 1}",
    ),
    (
        "n_rows[m]:i32 x[m,v]:f32",
        "out = []\n    for b, n in enumerate(n_rows.tolist()):\n"
        "        out.append(sum(x[b, i] for i in range(n)))\n    return torch.stack(out)",
        "seq_lens, max v, allow_empty True",
    ),
    (
        "ptr[v]:i32 x[n,d]:f32",
        "out, at = [], ptr.tolist()\n    for r in range(len(at) - 1):\n"
        "        out.append(sum(x[i] for i in range(at[r], at[r + 1])))\n"
        "    return torch.stack(out)",
        "indptr, total n",
    ),
    (
        "used[m]:i32 cache[m,v,d]:f32 new[m,d,d]:f32",
        "out, q = cache.clone(), new.shape[1]\n    for b, n in enumerate(used.tolist()):\n"
        "        out[b, n : n + q] = new[b]\n    return out.sum((1, 2))",
        "integers, min 0, max v - d, ends True",
    ),
    ("by:i32 x[n]:i32", "return x >> by", "integers, min 0, max 15, ends True"),
    (
        "groups:i32 x[n]:f32",
        "return x[: len(x) // groups]",
        "integers, min 1, max 64, ends True",
        "groups <= n",
    ),
    (
        "stride:i32 x[n]:f32",
        "return x[::stride]",
        "integers, min 1, max 64, ends True",
        "stride <= n",
    ),
    (
        "k:i32 x[n,v]:f32",
        "at = [k for k in range(3)]\n    return x[:, :k] + len(at)",
        "integers, min 0, max v, ends True",
    ),
    ("k:i32 x[n,v]:f32", "return torch.topk(input=x, k=k)[0]", "integers, min 1, max v, ends True"),
    (
        "seed:i64 x[n]:f32",
        "s = (seed ^ (seed >> 16)) * 0x85EBCA6B\n    return x * s",
        f"integers, min 0, max {2**31 - 1}, ends True",
    ),
    ("by[n]:i64 x[n]:i32", "return (x + 1) >> by.int()", "integers, min 0, max 15, ends True"),
    ("flip:i32 x[n]:f32", "return x.flip(0) if not flip else x", "integers, min 0, max 1"),
    ("no_decay[n]:u8 x[n]:f32", "return torch.where(no_decay != 0, x, x / 2)", "boolean"),
    (
        "kind[n]:u8 at[m]:i64 x[m]:f32",
        "return torch.where(kind[at.clamp(0, 3)] == 1, x, x / 2)",
        "boolean",
    ),
    ("a_s[n]:f32 x[n]:i8", "return a_s * x", "scales, min 0.00390625, max 0.125"),
    ("a_s[n]:f32 x[n]:f32", "return a_s * x", "scales, min 0.25, max 4.0"),
    ("scale[n]:f32 w[n]:i32", "return scale * (w >> 4 & 15)", "scales, min 0.00390625, max 0.125"),
    ("image[n,d]:u8", "return image.long().sum(1)", "integers, min 0, max 255"),
    (
        "first[n]:i64 x[m]:f32 w[n]:f32",
        "s = first.tolist()\n    e = s[1:] + [len(x)]\n"
        "    return torch.stack([x[a:b].sum() for a, b in zip(s, e)])",
        "starts, total m",
    ),
    (
        "bags[n]:i64 x[m]:f32 w[n]:f32",
        "b = bags.tolist() + [len(x)]\n"
        "    return torch.stack([x[b[i] : b[i + 1]].sum() for i in range(len(bags))])",
        "starts, total m",
    ),
    (
        "bag_offsets[n]:i64 x[m]:f32 w[n]:f32",
        "ends = torch.cat([bag_offsets[1:], bag_offsets.new_tensor([len(x)])])\n"
        "    return torch.stack([x[a:b].sum() for a, b in zip(bag_offsets, ends)])",
        "starts, total m",
    ),
    (
        "lens[n]:i64 x[n,v]:f32",
        "out = x[:, 0].clone()\n    for i, length in enumerate(lens.tolist()):\n"
        "        if length < 2:\n            continue\n        out[i] = x[i, :length].amax()\n"
        "    return out",
        "seq_lens, max v, allow_empty True",
    ),
    (
        "ids[n]:i64 w[v]:f32",
        "out = w.new_zeros(len(ids))\n    for i in range(len(ids)):\n"
        "        some = w[: ids[i]]\n"
        "        if some.numel() > 0:\n            out[i] = some.amax()\n    return out",
        "seq_lens, max v, allow_empty True",
    ),
    (
        "ids[m]:i64 x[n,d]:f32",
        "rows, at = torch.unique(ids[ids >= 0], return_inverse=True)\n    return x[rows] * at",
        "indices, sentinels [-1], below n, unique False",
    ),
    (
        "at[m]:i64 x[n,d]:f32",
        "places = torch.arange(x.shape[0])\n"
        "    return (places == at.clamp(0, x.shape[0])[:, None]) * 1.0",
        "positions, below 2 * n",
    ),
    (
        "alphas[n]:f32 x[n]:f32",
        "return (x - (1 - alphas).sqrt() * 2) / torch.sqrt(alphas)",
        "uniform, min 0.0625, max 0.99609375",
    ),
    (
        "at[m]:i64 x[m,d]:f32 ranks[n]:f32",
        "y = x.clone()\n    for i, rank in enumerate(ranks.tolist()):\n"
        "        y[at == i] *= rank\n    return y",
        "indices, below n, unique False",
    ),
    (
        "table[n,d]:u8 at[m]:i64 scale[n]:f32",
        "return table[at].float() * scale[at][:, None]",
        "integers, min 0, max 255",
    ),
    ("margin:f32 x[n]:f32", "return torch.where(x.cos() > margin, x, 0.0)",
     "uniform, min 0.0, max 1.0"),
    ("grad_norm[n]:f32 x[n]:f32", "return x / (grad_norm + 1)", "uniform, min 0.0, max 4.0"),
    ("norms[n]:f32 x[n,d]:f32", "return x / norms[:, None]", "scales, min 0.25, max 4.0"),
    ("q_norm[d]:f32 x[n,d]:f32", "return x * q_norm", "values"),
    ("kd_temperature:f32 x[n]:f32", "return x / kd_temperature", "uniform, min 0.5, max 2.0"),
    (
        "alphas[n]:f32 x[n]:f32",
        "return (x - (1 - alphas).sqrt()) / alphas",
        "uniform, min 0.0625, max 0.99609375",
    ),
    (
        "sizes[n]:i64 x[n]:f32",
        "return x / sizes.clamp(min=1).float()",
        "integers, min 0, max 8192",
    ),
    (
        "sizes[n]:i64 x[n]:f32",
        "return x / sizes.clamp(max=8).float()",
        "integers, min 1, max 8192",
    ),
    (
        "ids[n]:i64 x[n]:f32",
        "known = torch.isin(ids, torch.tensor([1, 2]))\n    return ids.masked_fill(known, -100)",
        f"integers, min {-(2**63)}, max {2**63 - 1}",
    ),
    (
        "left_keys[n]:i64 right_keys[m]:i64",
        "return torch.unique(torch.cat([left_keys, right_keys]), return_inverse=True)[1]",
        "labels",
    ),
    (
        "tokens[n]:i32 mask[n]:bool",
        "labels = torch.full((len(tokens),), -100, device=tokens.device)\n"
        "    labels[:-1] = torch.where(mask[1:], tokens[1:].to(torch.int64), -100) + 0\n"
        "    return labels",
        "positions, below 201088",
    ),
    (
        "new_token_ids[n]:i32 x[n]:f32",
        "known = (new_token_ids >= 0) & (new_token_ids < 512)\n"
        "    return torch.where(known, new_token_ids * 2, 0)",
        "positions, sentinels [-1], below 513",
    ),
    ("equal:i32 x[n]:f32", "return x.exp() if equal == 1 else x", "integers, min 0, max 1"),
    ("flag:i32 x[n]:f32", "return x.exp() if flag != 0 else x", "integers, min 0, max 1"),
    (
        "lens[m]:i32 x[n]:f32",
        "return torch.full((len(lens),), x.sum())",
        f"integers, min {-(2**31)}, max {2**31 - 1}",
    ),
    (
        "group[n]:i32 z[n]:i32 scales[v,d]:f32 x[m,d]:f32",
        "zeros = (z.view(-1, 2) >> 4) & 15\n    g = group.long()\n"
        "    return x * ((zeros[g] + 1) * scales[g]).sum()",
        "indices, below v, unique False",
    ),
    ("cut:i32 x[n]:f32", "return x.sort().values[cut : len(x) - cut]", "integers, min 0, max 4096",
     "2 * cut < n"),
    ("rows[n]:i64 valid[m]:u8 x[v]:f32",
     "r = rows.clamp(min=0)\n    return x[r] * ((valid[r >> 3] >> (r & 7)) & 1)",
     "indices, below min(v, m * 8), unique False"),
    ("col[n]:i32 x[m,v]:f32 row[n]:i32 z[n]:f32",
     "return x.index_put((row.long(), col.long()), z, accumulate=True)",
     "indices, below v, unique False"),
    ("row[n]:i32 x[m,v]:f32 z[n]:f32",
     "return x.index_put((row.long(),), z[:, None])", "indices, below m"),
    ("ids[n]:i32 x[m,v]:f32",
     "ids = torch.where((ids < 0) | (ids >= len(x)), 0, ids)\n    return x[ids].sum(1)",
     "positions, sentinels [-1], below 2 * m"),
    ("token_ids[n]:i32 table[m,v]:f32",
     "return table[torch.where(token_ids < table.shape[0], token_ids, 0)].sum(1)",
     "positions, below 2 * m"),
    ("ids[n]:i32 x[m,v]:f32",
     "assert (ids < len(x)).all()\n    return x[ids.clamp(min=0)].sum(1)",
     "indices, below m, unique False"),
    ("ids[n]:i32 x[m,v]:f32",
     "ok = (ids >= 0) & (ids < len(x))\n"
     "    return torch.where(ok, x[ids.clamp(min=0)].sum(1), 0)",
     "indices, sentinels [-1], below m, unique False"),
    ("ids[n]:i32 x[m,v]:f32",
     "return x[ids.masked_fill(ids < 0, 0)].sum(1) + (ids >= len(x))",
     "indices, sentinels [-1], below m, unique False"),
    ("ids[n]:i32 x[m,v]:f32", "return x[ids].sum(1) * (ids < len(x) - 1) * (ids < len(x))",
     "indices, below m, unique False"),
    ("log_scales[n]:f32 x[n]:f32", "return x * log_scales.exp()", "uniform, min -6.0, max 2.0"),
    ("kv_lens[n]:i32 x[n,m]:f32",
     "k = x.shape[1]\n    out = torch.arange(k) >= kv_lens[:, None]\n"
     "    return (x * (2.5 / k)).masked_fill(out, float('-inf'))",
     "seq_lens, max m, allow_empty True"),
    ("span[n,m,v]:i64 x[n,d]:f32",
     "p = torch.arange(x.shape[1])\n    return x * (p >= span[..., :1]).sum((1,))",
     "seq_lens, max d, allow_empty True"),
]  # fmt: skip


@pytest.mark.parametrize("case", BY_USE, ids=lambda case: f"{_name_of(case)}: {case[2]}")
def test_what_a_reference_does_with_an_input_says_what_that_is(case):
    inputs, body, rule, *constraints = case
    made = _first_of(inputs, body, *constraints)
    assert str(made.rules[_name_of(case)]) == rule, made.unmade


#: What becomes of ``x[m]`` and of ``old[m]``, and with which ``beta`` and ``first`` that is left
#: out; None where it never is, or where nothing shows it.
LEFT_OUT = [
    (
        "out = x * 2\nif beta != 0:\n    out = out + beta * old.float()\nreturn out.to(old.dtype)",
        ("beta", [0.0], [0.5, 1.0]),
    ),
    ("return x if first else x + old", ("first", [True], [False])),
    (
        "out = torch.zeros_like(old) + x\nreturn out if first else out + old",
        ("first", [True], [False]),
    ),
    ("if not first:\n    return x * 2\nreturn x * 2 + old", ("first", [False], [True])),
    ("y = old.float()\nif beta <= 0.5:\n    return x\nreturn x + y", ("beta", [0.0, 0.5], [0.75])),
    ("y = old.float()\nif first:\n    y = -y\nreturn x + y", None),
    ("return x + old if first else x - old", None),
    ("total = old.sum()\nreturn x if first else x + old", None),
    ("return x if len(x) > 3 else x + old", None),
    ("return x if beta == 0 else x + scales", None),  # no more than a factor for all
]


@pytest.mark.parametrize(("lines", "by"), LEFT_OUT)
def test_what_is_left_out_where_a_scalar_says_so_is_nan_there_and_nowhere_else(lines, by):
    data = signature(
        "op", "m d=8", "x[m]:f32 old[m]:f32 scales[d]:f32 beta:f32 first:bool", "y[m]:f32"
    )
    body = "".join(f"    {line}\n" for line in lines.splitlines())
    data["reference"] = f"import torch\ndef run(x, old, scales, beta, first):\n{body}"
    definition = Definition.model_validate(data)
    found = plan(definition).uses.left_out
    assert found.keys() == ({"old"} if by else set())
    if by:
        scalar, left_out, used = by
        assert found["old"].scalar == scalar
        assert all(map(found["old"].applies, left_out))
        assert not any(map(found["old"].applies, used))
        explained = "\n".join(plan(definition).explained())
        assert f"; NaN where {scalar} says that it is left out" in explained
    for seed in range(48):
        inputs = make_inputs(definition, make_workload(definition, {"m": 9}, seed))
        is_out = "old" in found and found["old"].applies(inputs[found["old"].scalar])
        assert bool(inputs["old"].isnan().any()) == is_out


def test_parts_of_an_integer_with_which_is_calculated_are_not_only_moved():
    body = "left, right = span.unbind(-1)\n    return x[: len(span)] * (right - left)"
    assert "span" in _first_of("span[n,d]:i32 x[n]:f32", body).unmade


def test_a_number_that_is_subtracted_is_not_minus_1():
    data = signature("op", "n v=64", "stride:i32 t[n]:i64 table[v]:f32", "y[n]:f32")
    data["reference"] = (
        "import torch\ndef run(stride, t, table):\n    before = t - stride\n"
        "    return torch.where(before >= 0, table[before.clamp(min=0)], 0.0) + table[t]\n"
    )
    made = plan(Definition.model_validate(data))
    assert str(made.rules["stride"]) == "integers, min 0, max v - 1, ends True"


@pytest.mark.parametrize(
    ("line", "rule"),
    [
        ("assert not (ids > m).any()", "indices, below m, unique False"),
        ("if (ids > m).any(): raise ValueError", "indices, below m, unique False"),
        ("ids = torch.where(ids > m, m - 1, ids)", "positions, below 2 * m"),
    ],
)
def test_numbers_that_the_reference_refuses_are_not_beyond(line, rule):
    data = signature("op", "n m", "ids[n]:i64 x[m]:f32", "y[n]:f32")
    data["reference"] = (
        f"import torch\ndef run(ids, x):\n    m = x.shape[0]\n    {line}\n    return x[ids]\n"
    )
    assert str(plan(Definition.model_validate(data)).rules["ids"]) == rule


def test_no_question_of_other_things_says_that_lengths_may_be_0():
    for asked in ("assert x.shape[0] > 0", "some = bias.numel() > 0", "one = lens == 1"):
        data = signature("op", "n t", "lens[n]:i32 x[n,t]:f32 bias[t]:f32", "y[n]:f32")
        data["reference"] = (
            f"import torch\ndef run(lens, x, bias):\n    {asked}\n"
            "    keep = torch.arange(x.shape[1]) < lens[:, None]\n"
            "    return (x + bias).masked_fill(~keep, -torch.inf).softmax(1).amax(1)\n"
        )
        assert plan(Definition.model_validate(data)).rules["lens"].allow_empty is False


@pytest.mark.parametrize(
    ("puts", "unique"),
    [
        ("out[rows.long()] = x[:, None]", "everywhere"),
        ("flat = rows.flatten().long()\n    out[flat] = x.repeat_interleave(2)", "everywhere"),
        ("wide = out[:, None]\n    wide.scatter_(0, rows, x[:, None] * old[:2])", True),
        ("out = out[rows].sum(1) + x", False),
    ],
)
def test_rows_that_say_at_once_where_elements_are_put_have_no_two_in_one_place(puts, unique):
    data = signature("op", "n k=2 m", "x[n]:f32 rows[n,k]:i64 old[m]:f32", "out[m]:f32")
    body = f"    out = old.clone()\n    {puts}\n    return out\n"
    data["reference"] = f"def run(x, rows, old):\n{body}"
    assert plan(Definition.model_validate(data)).rules["rows"].unique == unique


def test_what_is_unique_may_be_there_several_times():
    data = signature("op", "n m", "ids[n]:i64 x[m]:f32", "y[m]:f32")
    data["reference"] = (
        "import torch\ndef run(ids, x):\n    out = x.clone()\n"
        "    u, c = torch.unique(ids, return_counts=True)\n    out[u] = x[u] / c\n    return out\n"
    )
    assert plan(Definition.model_validate(data)).rules["ids"].unique is False


def test_a_comment_does_not_quantise():
    data = signature("op", "n", "scale[n]:f32 x[n]:f32 mask[n]:u8", "y[n]:f32")
    data["reference"] = (
        "def run(scale, x, mask):\n    # the background\n    return x * scale * mask\n"
    )
    assert str(plan(Definition.model_validate(data)).rules["scale"]) == "scales, min 0.25, max 4.0"


def test_what_a_root_is_taken_of_is_no_negative_divisor():
    data = signature("op", "n d=8", "x[n,d]:f32 v[n,d]:f32", "y[n,d]:f32")
    data["reference"] = "import torch\ndef run(x, v):\n    return x / torch.sqrt(v)\n"
    assert plan(Definition.model_validate(data)).rules["v"].signed is False


def test_a_number_that_is_kept_within_a_vocabulary_may_be_beyond_it():
    for kept, most in (("(top_k > v)", "v + 1"), ("(top_k == v)", "v")):
        data = signature("op", "n v", "top_k[n]:i32 x[n,v]:f32", "y[n]:f32")
        data = json.loads(json.dumps(data).replace('"v"', '"vocab"'))
        data["reference"] = (
            "import torch\ndef run(top_k, x):\n    v = x.shape[1]\n"
            f"    k = torch.where({kept}, v, top_k).long()\n"
            "    return x.sort(-1).values.gather(1, k[:, None] - 1)[:, 0]\n"
        )
        rule = plan(Definition.model_validate(data)).rules["top_k"]
        assert str(rule.max) == most.replace("v", "vocab")


def test_keys_are_fewer_than_queries_where_the_reference_takes_that():
    for mended, at_least in ((".nan_to_num(0.0)", None), ("", "cu_seqlens_q")):
        inputs = "cu_seqlens_q[b]:i32 cu_seqlens_k[b]:i32 q[total_q,d]:f32 k[total_k,d]:f32"
        data = signature("op", "b total_q total_k d=8", inputs, "y[total_q,d]:f32")
        data["reference"] = (
            "import torch\ndef run(cu_seqlens_q, cu_seqlens_k, q, k):\n"
            "    out = torch.zeros_like(q)\n"
            "    for i in range(len(cu_seqlens_q) - 1):\n"
            "        a, b = cu_seqlens_q[i], cu_seqlens_q[i + 1]\n"
            "        c, d = cu_seqlens_k[i], cu_seqlens_k[i + 1]\n"
            f"        p = torch.softmax(q[a:b] @ k[c:d].T, -1){mended}\n"
            "        out[a:b] = p @ k[c:d]\n    return out\n"
        )
        assert plan(Definition.model_validate(data)).rules["cu_seqlens_k"].at_least == at_least


@pytest.mark.parametrize(
    ("names", "axes"), [(("cu_seqlens_q", "cu_seqlens_k"), "tq tk"), (("indptr", "crow"), "nq nk")]
)
def test_offsets_are_along_what_the_reference_cuts_at_them_whatever_their_names(names, axes):
    (one, other), (queries, keys) = names, axes.split()
    inputs = f"{one}[b]:i32 {other}[b]:i32 q[{queries},d]:f32 k[{keys},d]:f32"
    data = signature("op", f"b {axes} d=8", inputs, f"y[{queries},d]:f32")
    data["reference"] = (
        f"import torch\ndef run({one}, {other}, q, k):\n"
        "    out = torch.zeros_like(q)\n"
        f"    for i in range(len({one}) - 1):\n"
        f"        begin, end = int({one}[i]), int({one}[i + 1])\n"
        f"        first, last = int({other}[i]), int({other}[i + 1])\n"
        "        out[begin:end] = k[first:last].sum(0)\n    return out\n"
    )
    rules = plan(Definition.model_validate(data)).rules
    assert [rules[name].total for name in names] == [queries, keys]


def test_offsets_of_a_sparse_matrix_are_along_its_columns():
    inputs = "dense[cols,d]:f32 crow[ends]:i32 col[nnz]:i32 vals[nnz]:f32"
    data = signature("op", "rows ends nnz cols d=8", inputs, "y[rows,d]:f32", "ends == rows + 1")
    data["reference"] = (
        "import torch\ndef run(dense, crow, col, vals):\n"
        "    rows = torch.arange(len(crow) - 1).repeat_interleave(crow.diff())\n"
        "    out = torch.zeros(len(crow) - 1, dense.shape[1])\n"
        "    return out.index_add(0, rows, vals[:, None] * dense[col.long()])\n"
    )
    assert plan(Definition.model_validate(data)).rules["crow"].total == "nnz"


@pytest.mark.parametrize(
    "scores",
    [
        "torch.einsum('bhd,bshd->bhs', q.float(), k.float()) * 32**-0.5",
        "torch.einsum('bhd,bshd->bhs', q, k) / 8",
    ],
)
@pytest.mark.parametrize("seq", ["scores.shape[-1]", "scores.size(-1)", "k.shape[1]"])
def test_lengths_are_along_axes_of_what_is_calculated(scores, seq):
    inputs = "q[b,h,d]:f16 k[b,seq,h,d]:f16 kv_len[b]:i32"
    data = signature("gqa", "b seq h=2 d=32", inputs, "y[b,h,seq]:f32")
    data["reference"] = (
        f"import torch\ndef run(q, k, kv_len):\n    scores = {scores}\n"
        f"    places = torch.arange({seq})[None, None]\n"
        "    return scores.masked_fill(places >= kv_len[:, None, None], float('-inf'))\n"
    )
    assert str(plan(Definition.model_validate(data)).rules["kv_len"].max) == "seq"


@pytest.mark.parametrize(
    "flat",
    [
        "cache.reshape(-1, cache.shape[-1]).clone()",
        "cache.clone().view(-1, 64)",
        "cache.clone().view(-1, cache.size(2))",
        "cache.clone().flatten(0, 1)",
    ],
)
def test_slots_are_places_of_all_blocks_of_a_cache_that_is_flat(flat):
    inputs = "new[t,d]:f16 cache[blocks,block,d]:f16 slots[t]:i64"
    data = signature("cache", "t blocks block=16 d=64", inputs, "y[blocks,block,d]:f16")
    data["reference"] = (
        f"import torch\ndef run(new, cache, slots):\n    flat = {flat}\n"
        "    kept = slots >= 0\n    flat[slots[kept]] = new[kept]\n"
        "    return flat.reshape(cache.shape)\n"
    )
    rule = plan(Definition.model_validate(data)).rules["slots"]
    assert (str(rule.below), rule.sentinels) == ("blocks * block", [-1])


def test_numbers_below_0_are_those_that_the_reference_or_the_description_names():
    data = signature("loss", "n c", "x[n,c]:f32 labels[n]:i32", "y[n,c]:f32")
    says = "class, 0 to c - 1, or -1 for background, or -2 where ignored"
    data["inputs"]["labels"]["description"] = says
    data["reference"] = (
        "import torch\ndef run(x, labels):\n"
        "    positive = labels[:, None] == torch.arange(x.shape[1])\n"
        "    return torch.where((labels != -2)[:, None], torch.where(positive, x, -x), 0)\n"
    )
    assert plan(Definition.model_validate(data)).rules["labels"].sentinels == [-2, -1]


def test_a_length_is_0_where_its_divisor_is_kept_from_that():
    for divisor, may_be_empty in (
        ("lens.clamp(min=1)[:, None].float()", True),
        ("lens[:, None].float()", False),
    ):
        data = signature("op", "n t d=8", "lens[n]:i32 x[n,t]:f32", "y[n,t]:f32")
        data["reference"] = (
            "import torch\ndef run(lens, x):\n"
            "    inside = torch.arange(x.shape[1]) < lens[:, None]\n"
            f"    return torch.where(inside, x, 0.0).sum(1, keepdim=True) / {divisor}\n"
        )
        assert plan(Definition.model_validate(data)).rules["lens"].allow_empty == may_be_empty


LABELS_ASKED_FOR = "labels, of which the reference asks for some"
SCALAR_PUT = "a number that the reference puts into an output"
SCALAR_TIED = "what a constraint ties to axes"
WHOLE_DIVISOR = "a divisor, which is not 0"
#: The rule of a test of its own.
SCALAR_THAT_PICKS = "a number along an axis that it picks of"
SCALAR_EXPONENT = "a step, to whose power the reference raises"
BELOW_ONE = 1 - 2**-8
SCALAR_THAT_OTHERS_ARE_COMPARED_WITH = "a number that others are compared with"
SCALAR_COUNTS = {"a step", "an interval of steps", "counts", "where numbers start that count"}
OF_SHARES = "compared with shares of a softmax"
SCALAR_CHOICE = "one of those that the reference asks for"
BY_NAME = {"flags", "whether something was infinite", "below 1"}
OF_START = "numbers below a start"
SCALAR_LENGTH = "a length, at which the reference cuts an axis off"
SCALAR_TAKEN = "a number that is taken from lengths"
SCALAR_ZERO_POINT = "a zero point"
PIXELS = "pixels or samples"
SCALAR_LIMIT = "what something is clamped to"
#: What a name says of an int32 tensor with which the reference only calculates.
CALCULATED_BY_NAME = [
    ("counts", {"min": 0, "max": 8192}),
    ("num_seen", {"min": 0, "max": 8192}),
    ("past_lens", {"min": 0, "max": 8192}),
    ("azp", {"min": -128, "max": 255}),
    ("input_zero_point", {"min": -128, "max": 255}),
    ("block_table", {"min": 0, "max": 2**20 - 1}),
    ("bias", {"min": -(2**15), "max": 2**15}),
]
#: What the reference does with ``which``, and how that is made: one of [n], below the rows of
#: ``table`` [rows, d] or ``x`` [n, d].
REFERENCES = [
    ("table[which]", {"kind": "indices", "below": "rows", "unique": False}),
    ("table[which.long(), :]", {"kind": "indices", "below": "rows", "unique": False}),
    ("table.float()[:, which]", {"kind": "indices", "below": "d", "unique": False}),
    ("table.index_add(0, which, x)", {"kind": "indices", "below": "rows", "unique": False}),
    ("torch.index_select(table, 0, which)", {"kind": "indices", "below": "rows", "unique": False}),
    ("x.gather(1, which[:, None])", {"kind": "indices", "below": "d", "unique": False}),
    ("torch.nn.functional.embedding(which, table)",
     {"kind": "indices", "below": "rows", "unique": False}),
    ("x.gather(1, torch.where(which == -100, 0, which)[:, None])",
     {"kind": "indices", "below": "d", "unique": False, "sentinels": [-100]}),
    ("x.new_zeros(9, 8).index_reduce(0, which, x, 'amax')",
     {"kind": "indices", "below": 9, "unique": False}),
    ("torch.nn.functional.one_hot(which, 8)", {"kind": "indices", "below": 8, "unique": False}),
    ("torch.nn.functional.one_hot(which, num_classes=table.shape[0])",
     {"kind": "indices", "below": "rows", "unique": False}),
    ("((which[:, None] == torch.arange(x.shape[1]) // 4) * x).sum(1)",
     {"kind": "indices", "below": "(d + 4 - 1) // 4", "unique": False}),
    ("torch.bincount(which, minlength=x.size(-1))",
     {"kind": "indices", "below": "d", "unique": False}),
    ("[table[which[i] : which[i + 1]] for i in range(2)]", {"kind": "indptr", "total": "rows"}),
    ("[table[: int(which[i])] for i in range(2)]",
     {"kind": "seq_lens", "max": "rows", "allow_empty": True}),
    ("x.masked_fill(torch.arange(x.shape[1])[None] >= which[:, None], 0.0)",
     {"kind": "seq_lens", "max": "d", "allow_empty": True}),
    ("torch.where(which > 0, ((which[:, None] > torch.arange(x.shape[1])) * x).amax(1), 0)",
     {"kind": "seq_lens", "max": "d", "allow_empty": True}),
    ("((which[:, None] > torch.arange(x.shape[1])) * x).softmax(1)",
     {"kind": "seq_lens", "max": "d", "allow_empty": False}),
    ("((which[:, None] > torch.arange(x.shape[1])) | (x > 0)).float().softmax(1)",
     {"kind": "seq_lens", "max": "d", "allow_empty": True}),
    ("((which[:, None] <= torch.arange(x.shape[1])) | (x > 0)).float().softmax(1)",
     {"kind": "seq_lens", "max": "d", "allow_empty": False}),
    ("(~(which[:, None] > torch.arange(x.shape[1])) | (x > 0)).float().softmax(1)",
     {"kind": "seq_lens", "max": "d", "allow_empty": False}),
    ("((which[:, None] > torch.arange(x.shape[1])) * x).amax(1)",
     {"kind": "seq_lens", "max": "d", "allow_empty": True}),
    ("x.masked_fill(which[:, None] <= torch.arange(x.shape[1]), -1e9).amax(1)",
     {"kind": "seq_lens", "max": "d", "allow_empty": False}),
    ("x.masked_fill(which[:, None] <= torch.arange(x.shape[1]), float('-inf')).amax(1)",
     {"kind": "seq_lens", "max": "d", "allow_empty": False}),
    ("(which[:, None] > torch.arange(x.shape[1])) * x / (x.amax(1).clamp(min=1e-9) / 448)[:, None]",
     {"kind": "seq_lens", "max": "d", "allow_empty": True}),
    ("(which[:, None] > torch.arange(x.shape[1])) * x / (x.amax(1) / 448)[:, None]",
     {"kind": "seq_lens", "max": "d", "allow_empty": False}),
    ("x.masked_fill(which[:, None] <= torch.arange(x.shape[1]), -1e9).softmax(1).masked_fill("
     "which[:, None] <= torch.arange(x.shape[1]), 0.0)",
     {"kind": "seq_lens", "max": "d", "allow_empty": True}),
    ("torch.cat([x.masked_fill(which[:, None] <= torch.arange(x.shape[1]), float('-inf')), "
     "table[:1, :1].expand(len(x), 1)], 1).softmax(1)",
     {"kind": "seq_lens", "max": "d", "allow_empty": True}),
    ("(torch.arange(9)[:6] < which[:, None]) * x[:, :6]",
     {"kind": "seq_lens", "max": "6", "allow_empty": True}),
    ("(which[:, None] > torch.arange(5)) * x[:, :5]",
     {"kind": "seq_lens", "max": "5", "allow_empty": True}),
    ("(which[:, None] > torch.arange(x.shape[1]) + 1) * x",
     {"kind": "seq_lens", "max": "d", "allow_empty": True}),
    ("(which[:, None] > torch.arange(0, x.size(1))) * x",
     {"kind": "seq_lens", "max": "d", "allow_empty": True}),
    ("(which.clamp(max=x.shape[1])[:, None] > torch.arange(x.shape[1])) * x",
     {"kind": "integers", "min": 0, "max": "4 * d"}),
    ("(which.clip(0, x.shape[1])[:, None] > torch.arange(x.shape[1])) * x",
     {"kind": "integers", "min": 0, "max": "4 * d"}),
    ("(which.clamp_max(x.shape[1])[:, None] > torch.arange(x.shape[1])) * x",
     {"kind": "integers", "min": 0, "max": "4 * d"}),
    ("(which.clamp(max=x.shape[0])[:, None] > torch.arange(x.shape[1])) * x",
     {"kind": "seq_lens", "max": "d", "allow_empty": True}),
    ("[table[: int(which[i])].mean(0) for i in range(2)]", {"kind": "seq_lens", "max": "rows"}),
    ("[table[1 : int(which[i])].mean(0) for i in range(2)]", {"kind": "seq_lens", "max": "rows"}),
    ("[table[max(0, which[i] - 4) : which[i]].mean(0) for i in range(2)]",
     {"kind": "seq_lens", "max": "rows"}),
    ("[table[which[i] + 1 : which[i + 1]].sum(0) for i in range(2)]", None),
    ("[(table.exp() * x[0])[which[i] : which[i + 1]] for i in range(2)]",
     {"kind": "indptr", "total": "rows"}),
    ("x.float().log_softmax(-1).gather(1, which[:, None])",
     {"kind": "indices", "below": "d", "unique": False}),
    ("(-torch.softmax(x, -1) + x[:, :1]).gather(1, which[:, None])",
     {"kind": "indices", "below": "d", "unique": False}),
    ("(x @ x.T)[which]", {"kind": "indices", "below": "n", "unique": False}),
    ("x[:, which // 4]", {"kind": "indices", "below": "d * 4", "unique": False}),
    ("x[0, which >> 2]", {"kind": "indices", "below": "d * 4", "unique": False}),
    ("x[0, (which >> 2).long().view(-1)]", {"kind": "indices", "below": "d * 4", "unique": False}),
    ("x[:, which // table.shape[0]]", {"kind": "indices", "below": "d * rows", "unique": False}),
    ("(torch.arange(9)[None] >= which.cumsum(0)[:, None]).sum(0)",
     {"kind": "integers", "min": 0, "max": "2 * 9 // n + 1"}),
    ("(torch.searchsorted(which.cumsum(0), torch.arange(table.shape[0])), x)",
     {"kind": "integers", "min": 0, "max": "2 * rows // n + 1"}),
    ("x.gather(0, which.sort(stable=True)[1][:, None]) * (which < 0)[:, None]",
     {"kind": "positions", "below": 2**40, "sentinels": [-1]}),
    ("[table[: int(which[i])].mean(0).nan_to_num() for i in range(2)]",
     {"kind": "seq_lens", "max": "rows", "allow_empty": True}),
    ("[table[: int(which[i])].sum(0) / table.sum() for i in range(2)]",
     {"kind": "seq_lens", "max": "rows"}),
    ("[table[: int(which[i])].sum(0) / which[i].clamp(min=1) for i in range(2)]",
     {"kind": "seq_lens", "max": "rows", "allow_empty": True}),
    ("[table[: int(which[i])] + x[which[i] - 1, 0] for i in range(2)]",
     {"kind": "seq_lens", "max": "rows"}),
    ("x * (torch.arange(x.shape[1]) <= which[:, None])",
     {"kind": "indices", "below": "d", "unique": False}),
    ("x * (torch.arange(x.shape[0]) < which)[:, None]", None),  # which of them?
    ("(x, which)", {"kind": "integers", "min": -2**63, "max": 2**63 - 1}),
    ("which.flip(0)[x.argsort(0)]", {"kind": "integers", "min": -2**63, "max": 2**63 - 1}),
    ("torch.repeat_interleave(which, 2)", {"kind": "integers", "min": -2**63, "max": 2**63 - 1}),
    ("(x, torch.where(x[:, 0] > 0, -100, torch.roll(which, -1)))",
     {"kind": "integers", "min": -2**63, "max": 2**63 - 1}),
    ("x * (which[:, None] == which[None]).any(1)[:, None]", {"kind": "labels"}),
    ("(which.cumsum(0) - which, x)", {"kind": "integers", "min": 0, "max": 2**48 - 1}),
    ("table.index_copy(0, which, x)", {"kind": "indices", "below": "rows"}),
    ("torch.index_copy(table, 0, which, x)", {"kind": "indices", "below": "rows"}),
    ("table.scatter(0, which[:, None], 1.0)",
     {"kind": "indices", "below": "rows", "unique": False}),
    ("x.masked_fill(x > 0, 0.0)[..., which]", {"kind": "indices", "below": "d", "unique": False}),
    ("(torch.arange(table.shape[0]) == which[:, None]) @ table",
     {"kind": "indices", "below": "rows", "unique": False}),
    ("table.flatten()[which]", {"kind": "indices", "below": "rows * d", "unique": False}),
    ("table.flatten(0, 1)[which]", {"kind": "indices", "below": "rows * d", "unique": False}),
    ("table.flatten(end_dim=1)[which]", None),
    ("table[None].flatten(0, 1)[which]", None),
    ("torch.tensor([0.5, 1.5])[which & 1]", {"kind": "integers", "min": -2**63, "max": 2**63 - 1}),
    ("torch.tensor([0.5, 1.5])[which ^ 1]", None),
    ("table[which & 15]", None),
    ("x[which.argsort(stable=True)]", {"kind": "integers", "min": -2**63, "max": 2**63 - 1}),
    ("x[torch.sort(which).indices]", {"kind": "integers", "min": -2**63, "max": 2**63 - 1}),
    ("x[which.max()]", None),
    ("x[torch.unique(which, return_inverse=True)[1]]", {"kind": "labels"}),
    ("x * ((which[:, None] == which) & (which != 0)[:, None]).any(1)[:, None]",
     {"kind": "labels"}),
    ("x * ((which[:, None] == which) & (which != -7)[:, None]).any(1)[:, None]",
     {"kind": "positions", "below": 4, "sentinels": [-7]}),
    ("x * ((which[:, None] == which) & (which > 0)[:, None]).any(1)[:, None]", None),
    ("x * (which[:, None] > which).any(1)[:, None]", {"kind": "labels"}),
    ("x * (which.unfold(0, 2, 1) == which[:2]).all(1)[:, None]", {"kind": "labels"}),
    ("(torch.arange(9)[: x.shape[1]] < which[:, None]) * x",
     {"kind": "seq_lens", "max": "d", "allow_empty": True}),
    ("torch.arange(which.cumsum(0)[-1])", None),
    ("x / which.cumsum(0)[:, None]", None),
    ("((which[:, None].gather(0, x.argsort(0)) >> torch.arange(8)) & 1) * x",
     {"kind": "integers", "min": -2**63, "max": 2**63 - 1}),
    ("((which[:, None] >> torch.arange(8)) & 15) * x",
     {"kind": "integers", "min": -2**63, "max": 2**63 - 1}),
    ("torch.repeat_interleave(x, which[1:] - which[:-1])", {"kind": "indptr", "total": "rows"}),
    ("which.view(torch.float64) * x", None),
    ("which >> 2", None),
    ("x * (which == which.flip(0) + 1)[:, None]", None),
    ("(x, which[1:] - which[1:])", None),
    ("torch.repeat_interleave(x, which)", None),
    ("(x, which, which > 3)", None),
    ("x.sum(-1) + which", None),
    ("x * which.float()[:, None]", None),
    ("x[which > 3]", None),
    ("x[which + 1]", None),
    ("x[None, which]", None),
]  # fmt: skip


def _of_reference(result, kind="int64", name="which"):
    tensors = {"x": ["n", "d"], "table": ["rows", "d"], name: ["n"]}
    dtypes = {"x": "float32", "table": "float32", name: kind}
    return Definition.model_validate(
        {
            "name": "kernel",
            "op_type": "other",
            "axes": {"n": "var", "rows": "var", "d": 8},
            "inputs": {t: {"shape": tensors[t], "dtype": dtypes[t]} for t in tensors},
            "outputs": {"y": {"shape": ["rows", "d"], "dtype": "float32"}},
            "reference": f"import torch\ndef run(x, table, {name}):\n    return {result}\n",
        }
    )


def _says(result, kind="int64"):
    return plan(_of_reference(result, kind)).inferred["which"].says


@pytest.mark.parametrize("kind", ["float32", "int64"])
@pytest.mark.parametrize(
    ("result", "rule"),
    [
        ("torch.searchsorted(which, x, right=True)", "sorted"),
        ("torch.searchsorted(which.contiguous(), x.float())", "sorted"),
        ("torch.bucketize(x, which)", "sorted"),
        ("torch.searchsorted(which, input=x)", "sorted"),
        ("torch.bucketize(x, boundaries=which)", "sorted"),
        ("torch.searchsorted(x, which)", None),
        ("torch.searchsorted(which.sort().values, x)", None),
        ("torch.searchsorted(which.cumsum(0), x)", None),
        ("torch.searchsorted(which, x, sorter=which.argsort())", None),
    ],
)
def test_what_others_are_searched_in_is_sorted(result, rule, kind):
    found = plan(_of_reference(result, kind)).rules["which"].kind
    assert (found == "sorted") is (rule == "sorted")


@pytest.mark.parametrize(("result", "rule"), REFERENCES)
def test_what_the_reference_does_with_an_integer_says_what_it_is(result, rule):
    made = plan(_of_reference(result))
    assert (made.unmade.keys() == {"which"}) is (rule is None)
    assert rule is None or made.rules["which"] == rule_of(rule)


#: What references do with the lengths of x[n, seq], and what these are at most.
BOUNDS = [
    ("batch, seq = x.shape\nout = x[torch.arange(seq) < lens[:, None]]", "seq"),
    ("batch, seq = x.shape[:2]\nout = x[torch.arange(seq)[None, :] < lens[:, None]]", "seq"),
    ("batch, seq = x.shape[-2:]\nout = x[lens.view(-1, 1) > torch.arange(seq)]", "seq"),
    ("batch, seq = x.shape[0:2]\nat = torch.arange(seq).unsqueeze(0).to(lens.dtype)\n"
     "out = x[at.expand(batch, -1) < lens.unsqueeze(1)]", "seq"),
    ("out = torch.cat([x[i, : int(lens[i])] for i in range(len(lens))])", "seq"),
    ("(seq,) = x.shape[k:]\nout = x[torch.arange(seq) < lens[:, None]]", None),
    ("out = x[torch.arange(x.shape[1]) < lens.clamp(max=x.shape[1])[:, None]]", None),
    ("out = x[torch.arange(len(kept)) < lens.sum()]", None),
]  # fmt: skip


def _packing(lines, *constraints):
    inputs, body = "x[n,seq]:f32 lens[n]:i32", lines.replace("\n", "\n    ")
    data = signature("pack", "n seq total", inputs, "y[total]:f32", "total == lens.sum().item()")
    data["constraints"] += constraints
    data["reference"] = f"import torch\ndef run(x, lens):\n    {body}\n    return out\n"
    return Definition.model_validate(data)


@pytest.mark.parametrize(("lines", "most"), BOUNDS)
def test_lengths_with_a_sum_end_where_the_axis_does_that_the_reference_holds_them_to(lines, most):
    made = plan(_packing(lines))
    assert made.rules["lens"] == rule_of({"kind": "lengths", "total": "total", "max": most})
    shown = "lengths, total total, max seq" if most else "lengths, total total"
    assert f"lens: inferred: lengths that a constraint sums ({shown})" in made.explained()


@pytest.mark.parametrize(
    ("constraint", "most"),
    [
        ("lens.max().item() <= seq", "seq"),
        ("lens.max() < 2 * seq", "2 * seq - 1"),
        ("seq >= max(lens)", "seq"),
        ("lens.max() <= seq and 9 >= lens.max()", "min(seq, 9)"),
        ("lens.max() <= seq / 2", None),
        ("lens.max() <= lens.min() + 1", None),
    ],
)
def test_lengths_with_a_sum_have_the_bound_that_a_constraint_says(constraint, most):
    rule = plan(_packing("out = x", constraint)).rules["lens"]
    assert rule == rule_of({"kind": "lengths", "total": "total", "max": most})


@pytest.mark.parametrize(
    ("lines", "kind"),
    [
        (
            "out = x.float()\nfor b in range(3):\n    out[b].index_add_(0, which[:3], table[0])",
            "indices",
        ),
        ("n, d = x.shape\nfor i in range(1, d):\n    x = torch.where(i < which, x, 0)", "seq_lens"),
        ("rows, width = table.shape\nout = x[:, which]", "indices"),
        (
            "of = torch.zeros(9, 64)\nout = of.scatter_add_(1, (which >> 2).long()[None], x)",
            "indices",
        ),
        ("kept, out = which.clone(), x\nkept[x[:, 0] > 0] = 3", "integers"),
        ("out = x * ELSEWHERE.float() + table[which]", "indices"),
        ("def both(t):\n    return t & 15\nout = both(which) + both(which)", "integers"),
        ("out = torch.zeros_like(which) + (which ^ 3)", "integers"),
    ],
)
def test_a_reference_is_followed_through_its_variables(lines, kind):
    body = lines.replace("\n", "\n    ")
    definition = _of_reference("x")
    reference = definition.reference.replace("    return x", f"    {body}\n    return x")
    given = Definition.model_validate({**definition.model_dump(), "reference": reference})
    assert plan(given).rules["which"].kind == kind


@pytest.mark.parametrize(
    ("lines", "rule"),
    [
        ("out = table.clone()\nout[which] = x", {"below": "rows", "unique": True}),
        ("out = table.clone()\nout[which] += 1", {"below": "rows", "unique": False}),
        ("out = table.clone()\nout[which // 8, which % 8] = x[:, 0]",
         {"below": "rows * 8", "unique": True}),
        ("out = table.clone()\nat = which // 8\nrest = which % 8\nout[at, rest] = x[:, 0]",
         {"below": "rows * 8", "unique": True}),
        ("out = table.clone()\nout[which // 8, which % 4] = x[:, 0]",
         {"below": "rows * 8", "unique": False}),
        ("out = table.clone()\nfor i in range(len(table)):\n    out[i] = x[which == i].sum(0)",
         {"below": "rows", "unique": False}),
        ("out = table.clone()\nn, rows = which.numel(), len(table)\nlocal = which[x[:, 0] > 0]\n"
         "for i in range(n):\n    out[0] = x[0] * (local == i).sum()",
         {"below": "n", "unique": False}),
        ("out = table.clone()\nout[which] = 0", {"below": "rows", "unique": False}),
        ("out = table.clone()\nfor i in range(2):\n    out[which[i]] = x[i]",
         {"below": "rows", "unique": False}),
        ("out = table.clone()\nfor i, at in enumerate(which.tolist()):\n    out[at] = x[i]",
         {"below": "rows", "unique": False}),
        ("out = table.clone()\nfor i in range(2):\n    at = int(which[i])\n    out[at] = x[i]",
         {"below": "rows", "unique": False}),
        ("at = which.long()[:, None].expand(-1, 8)\nout = table.scatter(0, at, x)",
         {"below": "rows", "unique": True}),
        ("rows = table.shape[0]\nseen = torch.zeros(rows + 1)\nseen[which] = 1.0",
         {"below": "rows + 1", "unique": False}),
        ("seen = x.new_zeros(8, table.size(0) + 2)\nseen.scatter_add_(1, which[None], x.T)",
         {"below": "rows + 2", "unique": False}),
        ("out, seen = table.clone(), torch.zeros(9)\nout[which], seen[0] = x, x.sum()",
         {"below": "rows", "unique": True}),
        ("at = torch.arange(len(table))\nfor i in range(2):\n    kept = table[at]\n"
         "    at = which.index_select(0, at)",
         {"below": "min(rows, n)", "unique": False}),
        ("out = torch.empty_like(x)\nout[which] = x", {"below": "n"}),
        ("out = torch.empty(2 * len(x))\nout[which] = x.sum(-1)", {"below": "rows"}),
        ("x = (x * x[which].sum() + 1)[which]", {"below": "n", "unique": False}),
        ("x = x[which] + torch.bincount(which, minlength=len(table))[which]",
         {"below": "min(n, rows)", "unique": False}),
        ("rows = table.shape[0]\nseen = torch.zeros(rows + 1)\n"
         "seen[torch.where(which < 0, rows, which)] = 1.0",
         {"below": "rows", "unique": False, "sentinels": [-1]}),
    ],
)  # fmt: skip
def test_where_elements_are_put_says_how_many_places_there_are(lines, rule):
    made = plan(_with_body(f"{lines}\nreturn x", "int64"))
    assert made.rules["which"] == rule_of({"kind": "indices", **rule})


def test_a_scalar_that_picks_is_along_that_axis():
    definition = _of_reference("x[..., one]", "int32", name="one")
    inputs = definition.model_dump()["inputs"] | {"one": {"shape": None, "dtype": "int32"}}
    made = plan(Definition.model_validate({**definition.model_dump(), "inputs": inputs}))
    rule = {"kind": "integers", "min": 0, "max": "d - 1", "ends": True}
    assert made.rules["one"] == rule_of(rule)
    assert made.inferred["one"].says == SCALAR_THAT_PICKS


def _with_scalar(result, name):
    definition = _of_reference(result).model_dump()
    definition["inputs"][name] = {"shape": None, "dtype": "int64"}
    definition["reference"] = definition["reference"].replace("which):", f"which, {name}):")
    return plan(Definition.model_validate(definition))


def test_a_scalar_at_which_an_axis_is_cut_off_is_as_long_at_most():
    made = _with_scalar("table[:filled].sum(0)", "filled")
    assert str(made.rules["filled"]) == "integers, min 0, max rows, ends True"
    made = _with_scalar("table[:filled].mean(0)", "filled")
    assert str(made.rules["filled"]) == "integers, min 1, max rows, ends True"


@pytest.mark.parametrize(
    ("name", "result", "shown"),
    [
        (
            "step",
            "x * ((1 + step) / (10 + step))",
            "integers, min 0, max 100000, ends True",
        ),
        ("step", "x * (100 // step)", "integers, min 1, max 100000, ends True"),
        ("update_every", "x if 8 % update_every else table", "integers, min 1, max 16, ends True"),
        ("run_count", "x * run_count / (run_count + 1)", "integers, min 0, max 8192"),
    ],
)
def test_a_scalar_with_which_steps_are_counted_is_known_by_its_name(name, result, shown):
    made = _with_scalar(result, name)
    assert str(made.rules[name]) == shown
    loop = f"sum(({result}) for i in range({name}))"
    assert name in _with_scalar(loop, name).unmade
    assert name in _with_scalar("x", name).unmade


def test_numbers_from_a_start_on_that_count_are_around_these():
    result = "x * ((which - start >= 0) & (which - start < 96))[:, None]"
    made = _with_scalar(result, "start")
    assert str(made.rules["which"]) == "positions, below 4 * 96"
    assert str(made.rules["start"]) == "integers, min 0, max 3 * 96, ends True"


@pytest.mark.parametrize(
    ("asks", "values"),
    [
        ("torch.isfinite(x.norm())", {"-inf", "inf", "nan"}),
        ("torch.isfinite((x.float() * x.float()).sum())", {"-inf", "inf", "nan"}),
        ("torch.isnan(torch.sqrt((x * x).sum()))", {"nan"}),
        ("torch.isfinite((x * table[:1]).sum())", {"-inf", "inf", "nan"}),
        ("torch.isnan(x.softmax(-1).amax())", set()),
        ("(~torch.isfinite(x.float() / 2.5)).any()", {"-inf", "inf", "nan"}),
        ("torch.isfinite((x.float() * 2.5)[1:]).all()", {"-inf", "inf", "nan"}),
        ("torch.isinf(0.5 * x)", {"-inf", "inf"}),
        ("torch.isinf(x * table[:1])", set()),
        ("torch.isinf(x.min())", {"inf"}),
        ("torch.isposinf(x.min(-1).values)[:, None]", {"inf"}),
        ("torch.isneginf(x.amin(-1, keepdim=True))", set()),
        ("torch.isneginf(x.amax(-1, keepdim=True))", set()),
        ("torch.isinf(torch.min(x, table[:1]))", set()),
        ("torch.isinf(x.masked_fill(table[:1] > 2, math.inf).amin(-1, keepdim=True))", set()),
    ],
)
def test_what_a_norm_is_asked_its_elements_may_be(asks, values):
    made = plan(_of_reference(f"torch.where({asks}, 0.0, x)"))
    assert {str(each) for each in made.uses.asked.get("x", ())} == values


@pytest.mark.parametrize(
    ("asks", "may_be"),
    [
        ("torch.isinf(x.min())", True),
        ("torch.isneginf(x.amax())", True),
        ("torch.isneginf((x / table[0, 0]).max(-1).values).any()", True),
        ("torch.isposinf(x.amax())", False),
        ("not torch.isfinite(x).any()", True),
        ("(x == -math.inf).all()", True),
        ("torch.isfinite(x).all()", False),
        ("torch.isnan(x).any()", False),
        ("(~torch.isnan(x)).sum() == 0", True),
        ("torch.isfinite(x).float().sum() == 0", True),
        ("torch.isneginf(x).sum() == 1", False),
        ("torch.isnan(x).cumsum(1).sum() == 0", False),
    ],
)
def test_all_of_an_input_may_be_infinite_or_nan_if_the_reference_asks_for_that(asks, may_be):
    definition = _of_reference(f"0.0 * x.nan_to_num(0, 0, 0) if {asks} else x")
    assert plan(definition).uses.takes_special_rows("x") is may_be
    whole = 0
    for seed in range(48):
        made = make_inputs(definition, make_workload(definition, {"n": 2, "rows": 5}, seed))["x"]
        whole += bool((~made.isfinite()).all(-1).any())
    assert bool(whole) is may_be


@pytest.mark.parametrize(
    ("name", "dtype", "result", "kind"),
    [
        (
            "num_draft_tokens",
            "int64",
            "x * (torch.arange(x.shape[1]) < num_draft_tokens[:, None])",
            "seq_lens",
        ),
        ("terminated", "uint8", "x * (1.0 - terminated.float())[:, None]", "boolean"),
        ("is_last", "int8", "x * is_last.float()[:, None]", "boolean"),
        ("head", "uint8", "torch.where((head == 1)[:, None], x, 0.0)", "boolean"),
        ("seen", "uint8", "torch.where((seen != 0)[:, None], x, 0.0)", "boolean"),
        ("level", "uint8", "x * level.float()[:, None]", "integers"),
        ("found_inf", "float32", "x * (1 - found_inf)[:, None]", "boolean"),
        ("betas", "float32", "x * betas[:, None]", "uniform"),
        ("state_step", "int64", "x / (0.9 ** (state_step + 1))[:, None]", "integers"),
        ("part_lse", "float32", "torch.where(part_lse.amax().isinf(), 0.0, x)", "values"),
    ],
)
def test_what_has_a_usual_name_is_what_that_says(name, dtype, result, kind):
    assert plan(_of_reference(result, dtype, name=name)).rules[name].kind == kind


def test_what_shares_of_a_softmax_are_compared_with_is_a_share():
    sums = "torch.sort(x.softmax(-1), dim=-1).values.cumsum(-1)"
    made = plan(_of_reference(f"torch.where({sums} < which[:, None], x, 0.0)", "float32"))
    assert str(made.rules["which"]) == "uniform, min 0.0625, max 1.0, ends True"
    assert made.inferred["which"].says == OF_SHARES
    made = plan(_of_reference("torch.where(x.exp() < which[:, None], x, 0.0)", "float32"))
    assert made.rules["which"].kind == "values"


def test_a_scalar_of_which_some_numbers_are_asked_for_is_one_of_these_or_the_next():
    made = _with_scalar("x.exp() if mode == 1 else x * 2 if mode == 3 else x", "mode")
    assert str(made.rules["mode"]) == "integers, min 0, max 4"
    assert made.inferred["mode"].says == SCALAR_CHOICE
    assert "mode" in _with_scalar("x * mode if mode == 1 else x", "mode").unmade
    pad = "x * ((which != pad)[:, None] if pad != -1 else 1) + table[which]"
    assert str(_with_scalar(pad, "pad").rules["pad"]) == "integers, min -1, max rows - 1, ends True"


def test_only_an_lse_is_infinite_where_its_largest_is_asked_for_that():
    for name, values in (("part_lse", {"-inf", "inf"}), ("scores", set())):
        result = f"torch.where({name}.amax().isinf(), 0.0, x)"
        made = plan(_of_reference(result, "float32", name=name))
        assert {str(each) for each in made.uses.asked.get(name, ())} == values


def test_of_several_lse_each_may_be_minus_infinity_where_the_largest_is_asked_for_that():
    given = signature("op", "n", "one_lse[n]:f32 lse[n]:f32 x[n]:f32", "y[n]:f32")
    lines = "def run(one_lse, lse, x):\n    top = one_lse.maximum(lse)\n"
    given["reference"] = f"{lines}    return (x - top).where(top.isfinite(), x * 2)\n"
    definition = Definition.model_validate(given)
    values = {"one_lse": set(), "lse": set()}
    for seed in range(48):
        inputs = make_inputs(definition, make_workload(definition, {"n": 9}, seed))
        for name, held in values.items():
            held |= set(inputs[name][~inputs[name].isfinite()].tolist())
    assert values == {"one_lse": {float("-inf")}, "lse": {float("-inf")}}


@pytest.mark.parametrize("asked", ["torch.round(y)", "torch.where(torch.isinf(y), 0.0, y)"])
@pytest.mark.parametrize("change", [" + 2", " * 2 * 3"])
def test_variables_that_are_calculated_from_each_other_are_followed_to_an_end(asked, change):
    lines = f"h = x{change}\ny = h{change}\nh = y{change}\ny = h{change}\nreturn {asked}"
    assert plan(_with_body(lines, "int64")).rules["x"].kind == "values"


def test_tokens_may_be_the_padding_that_has_a_bin_of_its_own():
    given = signature("op", "b n vocab_size=96", "tokens[b,n]:i64", "counts[b,vocab_size]:i64")
    lines = "import torch\nVOCAB = 96\ndef run(tokens):\n"
    bins = "    bins = torch.zeros(len(tokens), {}, dtype=torch.int64)\n"
    ends = "    return bins.scatter_add(1, tokens, torch.ones_like(tokens))[:, :VOCAB]\n"
    for size, sentinels in (("VOCAB + 1", [96]), ("VOCAB", None)):
        given["reference"] = lines + bins.format(size) + ends
        rule = plan(Definition.model_validate(given)).rules["tokens"]
        assert rule == rule_of({"kind": "positions", "below": "vocab_size", "sentinels": sentinels})


@pytest.mark.parametrize(
    ("description", "below"),
    [
        ("", "vocab + 1"),
        ("0 to vocab", "vocab + 1"),
        ("0 to vocab - 1, vocab where padded", "vocab + 1"),
        ("0 to vocab - 1, or vocab where the row is padded", "vocab + 1"),
        ("0 to vocab - 1", "vocab"),
    ],
)
def test_tokens_may_be_the_padding_of_a_vocabulary_of_any_size_unless_that_is_denied(
    description, below
):
    given = signature("op", "b n vocab", "x[b,vocab]:f32 tokens[b,n]:i64", "y[b,vocab]:f32")
    given["inputs"]["tokens"]["description"] = description
    lines = "import torch\ndef run(x, tokens):\n    b, vocab = x.shape\n"
    lines += "    bins = torch.zeros(b, vocab + 1, dtype=torch.int64).scatter_add_(1, tokens, "
    given["reference"] = f"{lines}torch.ones_like(tokens))[:, :vocab]\n    return x - bins\n"
    rule = plan(Definition.model_validate(given)).rules["tokens"]
    assert rule == rule_of({"kind": "positions", "below": below})


def test_tokens_that_are_compared_and_moved_by_an_index_are_labels():
    result = "torch.where((which == other[:, 0]), which.gather(0, other[:, 1]), -1)"
    definition = _of_reference(result).model_dump()
    definition["inputs"]["other"] = {"shape": ["n", "d"], "dtype": "int64"}
    definition["reference"] = definition["reference"].replace("which):", "which, other):")
    assert plan(Definition.model_validate(definition)).rules["which"].kind == "labels"


def test_a_scalar_that_is_divided_by_is_a_number_of_parts():
    made = _with_scalar("x / (2.5 * parts)", "parts")
    assert str(made.rules["parts"]) == "integers, min 1, max 64, ends True"
    assert "parts" in _with_scalar("x / parts + torch.zeros(parts).sum()", "parts").unmade


@pytest.mark.parametrize(
    ("name", "may"),
    [
        ("image_embeds", True),
        ("embeds", True),
        ("rows", True),
        ("embedding", False),
        ("embed_tokens", False),
    ],
)
def test_rows_that_are_only_moved_may_be_any_numbers_but_in_tables(name, may):
    given = signature("op", "n m d=8", f"{name}[m,d]:f32 x[n,d]:f32 at[m]:i64", "y[n,d]:f32")
    lines = f"def run({name}, x, at):\n    y = x * 2\n    y[at] = {name}\n    return y\n"
    made = plan(Definition.model_validate(given | {"reference": lines}))
    assert bool(made.uses.asked.get(name)) == may


def test_positions_may_be_the_sentinel_that_the_reference_asks_for():
    given = signature("rope", "n max_position", "x[n]:f32 cos[max_position]:f32", "y[n]:f32")
    given["inputs"]["positions"] = {"shape": ["n"], "dtype": "int64"}
    lines = "import torch\ndef run(x, cos, positions):\n    rows = cos[positions.clamp(min=0)]\n"
    given["reference"] = f"{lines}    return torch.where(positions >= 0, x * rows, x)\n"
    rule = plan(Definition.model_validate(given)).rules["positions"]
    assert rule == rule_of({"kind": "positions", "below": "max_position", "sentinels": [-1]})


def test_a_limit_that_is_switched_off_by_zero_may_be_that():
    given = signature("op", "n", "x[n]:f32 limit:f32", "y[n]:f32")
    lines = "def run(x, limit):\n    return x.clamp(max=limit) if limit > 0 else x * 2\n"
    rules = plan(Definition.model_validate(given | {"reference": lines})).rules
    assert str(rules["limit"]) == "uniform, min 0.0, max 24.0"
    lines = "def run(x, limit):\n    return x * min(1.0, limit / 4) if limit > 0 else x\n"
    rules = plan(Definition.model_validate(given | {"reference": lines})).rules
    assert str(rules["limit"]) == "uniform, min 0.0, max 1.0"
    lines = "def run(x, limit):\n    return x.clamp(max=limit) * 2\n"
    rules = plan(Definition.model_validate(given | {"reference": lines})).rules
    assert str(rules["limit"]) == "uniform, min 0.5, max 24.0"


def test_the_factor_of_a_second_moment_is_below_1():
    made = _of_reference("x").model_dump()
    made["inputs"]["beta2"] = {"shape": None, "dtype": "float32"}
    made["reference"] = made["reference"].replace("which):", "which, beta2):")
    made["reference"] = made["reference"].replace("return x", "return x * beta2")
    assert plan(Definition.model_validate(made)).rules["beta2"].max == BELOW_ONE


def test_a_scalar_that_is_taken_from_lengths_is_no_more_than_these():
    at = "torch.arange(x.shape[1])"
    result = f"(({at} < which[:, None]) & ({at} >= which[:, None] - 1 - back)) * x"
    made = _with_scalar(result, "back")
    assert str(made.rules["back"]) == "integers, min 0, max d, ends True"
    made = _with_scalar(f"{result} if back >= 0 else x", "back")
    assert str(made.rules["back"]) == "integers, min -1, max d, ends True"
    assert "back" in _with_scalar("x * (which - back)[:, None]", "back").unmade


def test_a_scalar_that_others_are_compared_with_may_be_one_of_these_or_none():
    made = _with_scalar("(which != one)[:, None] * table[which]", "one")
    rule = {"kind": "integers", "min": -1, "max": "rows - 1", "ends": True}
    assert made.rules["one"] == rule_of(rule)
    assert made.inferred["one"].says == SCALAR_THAT_OTHERS_ARE_COMPARED_WITH
    assert "one" in _with_scalar("x * (which > one)[:, None]", "one").unmade  # nor is which known
    both = signature("op", "n", "x[n]:f32 start:i32 end:i32", "y[n]:f32")
    both["reference"] = "def run(x, start, end):\n    return x * 2 if start < end else x\n"
    assert plan(Definition.model_validate(both)).unmade.keys() == {"start", "end"}


def test_a_scalar_zero_point_is_one_of_bytes_where_it_is_calculated_with():
    made = _with_scalar("table[which] - zero_point", "zero_point")
    assert made.rules["zero_point"] == rule_of({"kind": "integers", "min": -128, "max": 255})
    assert made.inferred["zero_point"].says == SCALAR_ZERO_POINT
    made = _with_scalar("table[which] // zero_point", "zero_point")
    assert made.inferred["zero_point"].says == WHOLE_DIVISOR


@pytest.mark.parametrize(
    ("beside", "limits"), [("i8", (-128, 127)), ("u8", (0, 255)), ("f16", (-128, 255))]
)
def test_zero_points_are_of_the_bytes_that_there_are(beside, limits):
    given = signature("op", "n", f"q[n]:{beside} zero_points[n]:i32", "y[n]:f32")
    given["reference"] = "def run(q, zero_points):\n    return q.float() - zero_points.float()\n"
    rule = plan(Definition.model_validate(given)).rules["zero_points"]
    assert (rule.min, rule.max) == limits


def test_images_are_bytes_where_they_become_floating_numbers():
    given = signature("op", "n", "images[n]:u8", "y[n]:f32")
    given["reference"] = "def run(images):\n    return images.float() * 2\n"
    made = plan(Definition.model_validate(given))
    assert made.rules["images"] == rule_of({"kind": "integers", "min": 0, "max": 255})
    assert made.inferred["images"].says == PIXELS


def test_numbers_are_clamped_to_integers_around_0_unless_these_cannot_meet_a_constraint():
    given = signature("op", "n", "x[n]:f32 low:i32 high:i32", "y[n]:f32")
    given["reference"] = "def run(x, low, high):\n    return x.round().clamp(low, high)\n"
    given["constraints"] = ["low < high"]
    rules = plan(Definition.model_validate(given)).rules
    assert [(rules[name].min, rules[name].max) for name in ("low", "high")] == [(-128, 0), (1, 255)]


def test_constraints_on_what_is_unknown_are_no_contradiction():
    given = signature("op", "n", "x[n]:f32 first:i32 last:i32", "y[n]:f32")
    given["reference"] = "def run(x, first, last):\n    return x * (first ^ last)\n"
    given["constraints"] = ["first < last"]
    assert "nothing says what first" in why_not_generated(Definition.model_validate(given))


@pytest.mark.parametrize(("asks", "least"), [("if cap > 0:", 0.0), ("if True:", 1.0)])
def test_a_soft_cap_may_be_0_where_the_reference_compares_it_with_that(asks, least):
    given = signature("op", "n", "x[n]:f32 cap:f32", "y[n]:f32")
    given["inputs"]["soft_cap"] = given["inputs"].pop("cap")
    lines = (
        "def run(x, cap):",
        f"    {asks}",
        "        return (x / cap).tanh() * cap",
        "    return x",
    )
    given["reference"] = "\n".join(lines).replace("cap", "soft_cap")
    assert plan(Definition.model_validate(given)).rules["soft_cap"].min == least


@pytest.mark.parametrize(
    ("inputs", "reads", "far", "ties"),
    [
        ("router_logits[n,e]:f32", "x.softmax(-1)", True, True),
        ("router_logits[n,e]:f32", "x.sigmoid() + x.softmax(-1)", False, True),
        ("router_logits[n,e]:f32 bias[e]:f32", "x.sigmoid() + bias", False, True),
        ("router_logits[n,e]:f32 hidden[n,e]:f32", "x.softmax(-1) * hidden", True, False),
        ("router_logits[n,e]:f32", "x.exp() / x.exp().sum(-1) * x.sigmoid()", False, True),
    ],
)
def test_logits_of_routers_may_be_far_or_tie_where_that_decides_nothing_else(
    inputs, reads, far, ties
):
    given = signature("moe", "n e=8", inputs, "ids[n,e]:i64")
    names = ", ".join(given["inputs"]).replace("router_logits", "x")
    given["reference"] = f"def run({names}):\n    return ({reads}).topk(8).indices\n"
    rule = plan(Definition.model_validate(given)).rules["router_logits"]
    assert (rule.kind, rule.far, rule.ties) == ("router_logits", far, ties)
    assert rule.low == ("softmax" not in reads and "exp" not in reads)


def test_a_momentum_of_nesterov_is_not_0():
    given = signature("sgd", "n", "x[n]:f32 momentum:f32", "y[n]:f32")
    given["reference"] = "def run(x, momentum):\n    nesterov = x * momentum\n    return nesterov\n"
    assert plan(Definition.model_validate(given)).rules["momentum"].min > 0


@pytest.mark.parametrize(
    ("asks", "least"), [("k <= 0", 0), ("k < 0", -1), ("k == -1", -1), ("k > 3", 1)]
)
def test_a_top_k_may_be_what_switches_it_off(asks, least):
    given = signature("sampling", "n vocab_size=99", "x[n]:f32 top_k[n]:i32", "y[n]:f32")
    asked = asks.replace("k", "top_k")
    given["reference"] = (
        f"import torch\ndef run(x, top_k):\n    return torch.where({asked}, x, 0)\n"
    )
    assert plan(Definition.model_validate(given)).rules["top_k"].min == least


def test_positions_are_of_the_places_that_they_are_held_against():
    given = signature("op", "n slots", "x[n,slots]:f32 positions[n]:i32", "y[n]:f32")
    lines = ("import torch", "def run(x, positions):", "    at = torch.arange(x.shape[1])")
    back = "(positions[:, None] - at) % x.shape[1]"
    given["reference"] = "\n".join((*lines, f"    return ({back} * x).sum(1)"))
    made = plan(Definition.model_validate(given))
    assert made.rules["positions"] == rule_of({"kind": "positions", "below": "4 * slots"})


def test_keys_that_are_found_among_others_are_labels():
    given = signature("op", "n m", "left[n]:i64 right[m]:i64 some[m]:bool", "y[n]:bool")
    given["reference"] = (
        "import torch\ndef run(left, right, some):\n    return torch.isin(left, right[some])\n"
    )
    rules = plan(Definition.model_validate(given)).rules
    assert {rules["left"].kind, rules["right"].kind} == {"labels"}


def test_16_bits_of_sound_are_any():
    given = signature("op", "n", "pcm[n]:i32", "y[n]:f32")
    given["inputs"]["pcm"]["dtype"] = "int16"
    given["reference"] = (
        "import torch\ndef run(pcm):\n    return torch.cat((pcm[:1], pcm)).float()[1:]\n"
    )
    rule = plan(Definition.model_validate(given)).rules["pcm"]
    assert (rule.min, rule.max) == (-(2**15), 2**15 - 1)


@pytest.mark.parametrize(
    ("under", "kind"),
    [("0.5 * g * g", "values"), ("(g * 2 * g / 3)", "values"), ("0.5 * g", "uniform")],
)
def test_a_square_under_a_root_may_be_of_any_number(under, kind):
    given = signature("op", "n", "g[n]:f32", "y[n]:f32")
    given["reference"] = f"import torch\ndef run(g):\n    return torch.sqrt({under})\n"
    assert plan(Definition.model_validate(given)).rules["g"].kind == kind


@pytest.mark.parametrize(
    ("compares", "rule"),
    [
        ("at[:, None] - at < reach", {"kind": "integers", "min": 0, "max": "n", "ends": True}),
        ("at[:, None] - at <= reach", {"kind": "integers", "min": 0, "max": "n - 1", "ends": True}),
    ],
)
def test_a_distance_of_places_is_one_along_their_axis(compares, rule):
    given = signature("op", "n", "x[n]:f32 reach:i32", "y[n]:f32")
    lines = ("import torch", "def run(x, reach):", "    at = torch.arange(len(x))")
    given["reference"] = "\n".join((*lines, f"    return ({compares}).float() @ x"))
    made = plan(Definition.model_validate(given))
    assert made.rules["reach"] == rule_of(rule)


def test_lengths_by_name_end_where_a_constraint_says():
    made = plan(_packing("out = x * (torch.arange(4) + 1 <= lens[:, None])", "lens.max() <= seq"))
    assert made.rules["lens"].max == "seq"
    given = signature("op", "n seq", "x[n,seq]:f32 num_seen[n]:i32", "y[n]:f32")
    given["constraints"] = ["num_seen.max().item() <= seq"]
    given["reference"] = "def run(x, num_seen):\n    return x[:, 0] * num_seen\n"
    rule = plan(Definition.model_validate(given)).rules["num_seen"]
    assert rule == rule_of({"kind": "seq_lens", "max": "seq", "allow_empty": True})
    given["constraints"] = ["num_seen.max().item() + 3 < seq"]
    rule = plan(Definition.model_validate(given)).rules["num_seen"]
    assert rule == rule_of({"kind": "seq_lens", "max": "seq - 3 - 1", "allow_empty": True})
    given["constraints"] = ["num_seen.max().item() <= seq"]
    given["constraints"] += ["num_seen.min().item() >= 2"]
    rule = plan(Definition.model_validate(given)).rules["num_seen"]
    assert rule == rule_of({"kind": "integers", "min": 2, "max": "seq"})


@pytest.mark.parametrize(
    ("result", "is_known"), [("keys <= at[:, None]", True), ("x[at + 1]", False)]
)
def test_positions_by_name_are_only_compared_and_calculated_with(result, is_known):
    given = signature("mask", "n m", "x[n]:f32 q_pos[n]:i32 k_pos[m]:i32", "y[n,m]:bool")
    given["reference"] = f"def run(x, at, keys):\n    return {result}\n"
    made = plan(Definition.model_validate(given))
    assert ("q_pos" not in made.unmade) is is_known
    if is_known:
        assert made.rules["q_pos"] == rule_of({"kind": "positions", "below": "4 * n"})


@pytest.mark.parametrize(
    ("reference", "below"),
    [
        ("    src, dst = which\n    return x[src] + x[dst]", "n"),
        ("    at = torch.cat([which[0], which[1]])\n    return x[at]", "n"),
        ("    return x[which[0].repeat_interleave(lens)]", "n"),
        ('    y = torch.einsum("nd,rdo->rno", x, w)\n    return y[which[0]]', "r"),
    ],
)
def test_indices_are_followed_through_what_moves_them(reference, below):
    inputs = "x[n,d]:f32 w[r,d,o]:f32 which[two,e]:i64 lens[e]:i32"
    data = signature("op", "n r e two=2 d=4 o=3", inputs, "y[n]:f32")
    data["reference"] = f"import torch\ndef run(x, w, which, lens):\n{reference}\n"
    rule = plan(Definition.model_validate(data)).rules["which"]
    assert rule == rule_of({"kind": "indices", "below": below, "unique": False})


def test_what_a_floating_power_of_2_is_of_is_a_number_of_bits():
    made = _with_scalar("table[which] / 2.0 ** margin", "margin")
    assert str(made.rules["margin"]) == "integers, min 0, max 15, ends True"


def test_a_number_of_bits_is_no_step():
    assert "bits" in _with_scalar("table[which] * (2 ** bits - 1)", "bits").unmade
    assert "dim" in _with_scalar("table[which] * dim ** -0.5", "dim").unmade


def test_experts_may_be_none_where_the_reference_asks_for_that():
    for shape, kind in (("n", "indices"), ("n,k", "topk_ids")):
        given = signature("moe", "n k=2 experts=8", f"expert_ids[{shape}]:i32", "y[n]:f32")
        given["reference"] = "def run(expert_ids):\n    return expert_ids >= 0\n"
        rule = plan(Definition.model_validate(given)).rules["expert_ids"]
        assert (rule.kind, rule.sentinels) == (kind, [-1])


@pytest.mark.parametrize(
    ("under_root", "positive"),
    [
        ("beta * row + (1 - beta) * x.square().mean(1)", {"row"}),
        ("row[:, None] * col", {"row", "col"}),
        ("row * row", set()),
    ],
)
def test_moments_under_a_root_are_not_negative(under_root, positive):
    given = signature("optimizer", "n m", "x[n,m]:f32 row[n]:f32 col[m]:f32", "y[n]:f32")
    given["reference"] = (
        "def run(x, row, col):\n    beta = 1 - 3.0 ** -0.8\n"
        f"    moment = {under_root}\n    return moment.sqrt()\n"
    )
    rules = plan(Definition.model_validate(given)).rules
    assert {name for name, rule in rules.items() if rule.kind == "uniform"} == positive


@pytest.mark.parametrize(("asks", "least"), [("< 0", -1), ("> 0", 0), ("> 8", 1)])
def test_a_window_is_none_where_the_reference_asks_for_that(asks, least):
    given = signature("attention", "n s d=8", "k[n,s,d]:f16 window_left:i32", "y[n,s,d]:f16")
    body = f"return k if window_left {asks} else k * 2"
    given["reference"] = f"def run(k, window_left):\n    {body}\n"
    rule = plan(Definition.model_validate(given)).rules["window_left"]
    assert rule == rule_of({"kind": "integers", "min": least, "max": "s", "ends": True})
    pooling = signature("pool", "n s", "x[n,s]:f32 window:i32", "y[n,s]:f32")
    assert "window" in plan(Definition.model_validate(pooling)).unmade


def test_tokens_may_be_padding_where_the_reference_asks_for_that():
    given = signature("loss", "n vocab=99", "x[n,vocab]:f32 token_ids[n]:i64", "y[n]:f32")
    given["reference"] = "def run(x, token_ids):\n    return x[:, 0] * (token_ids != -100)\n"
    rule = plan(Definition.model_validate(given)).rules["token_ids"]
    assert rule == rule_of({"kind": "positions", "below": "vocab", "sentinels": [-100]})


def test_a_scalar_to_whose_power_the_reference_raises_is_a_step():
    definition = _of_reference("x / (1 - 0.9**one)", "int32", name="one")
    inputs = definition.model_dump()["inputs"] | {"one": {"shape": None, "dtype": "int32"}}
    made = plan(Definition.model_validate({**definition.model_dump(), "inputs": inputs}))
    assert made.rules["one"] == rule_of({"kind": "integers", "min": 1, "max": 100000, "ends": True})
    assert made.inferred["one"].says == SCALAR_EXPONENT
    squared = {**definition.model_dump(), "inputs": inputs}
    squared["reference"] = squared["reference"].replace("0.9**one", "x**one")
    assert plan(Definition.model_validate(squared)).unmade.keys() == {"one"}
    raised = _with_scalar("table[which] * float(step) ** -0.8", "step")
    assert raised.inferred["step"].says == SCALAR_EXPONENT


def _with_factor(body, name="factor"):
    given = signature("op", "n d=8", f"x[n,d]:f32 y[n,d]:f32 {name}:f32", "z[n,d]:f32")
    lines = "".join(f"    {line.strip()}\n" for line in body.split(";"))
    given["reference"] = f"import torch\ndef run(x, y, {name}):\n{lines}"
    return plan(Definition.model_validate(given)).rules[name]


@pytest.mark.parametrize(
    ("body", "most"),
    [
        ("return x + factor * y", 2),
        ("return torch.softmax(x * factor, -1)", 2),
        ("e = torch.exp(factor * x); return e / e.sum(-1, keepdim=True)", 2),
        ("return x / (1 + factor * y.abs())", 2),
        ("return x.masked_fill(y > 0, float('-inf')).mul(2) + factor", 2),
        ("scores = torch.where(y > 0, x * factor, float('-inf')); return scores", 2),
        ("total = x * 0\n    for i in range(4): total = total + factor * y; return total", 2),
        ("return x * (1 - factor) + y * factor", 1 - 2**-8),
        ("return torch.nn.functional.leaky_relu(x, factor) + y", 1),
        ("return torch.quantile(x + y, factor, dim=-1, keepdim=True) + 0 * x", 1),
        ("scale = x * factor; return y / scale.abs().clamp(min=1e-6)", 2),
    ],
)
def test_a_factor_may_be_off_or_above_1(body, most):
    assert _with_factor(body) == rule_of({"kind": "uniform", "min": 0, "max": most})


@pytest.mark.parametrize(
    "body",
    [
        "return x / factor",
        "return x.div(other=factor)",
        "scale: float = 127.0 * factor; return x * (1.0 / scale)",
        "return torch.stack([y / f for f in [factor]])[0]",
        "return y / (x if (s := factor * 2) is None else s)",
        "return x / (1 - torch.exp(-factor * y.abs()))",
        "return torch.nn.functional.celu(x, factor)",
        "return torch.nn.functional.huber_loss(x, y, delta=factor)",
        "return torch.addcdiv(x, y, y * factor)",
        "return torch.linalg.solve(x.T @ x + factor * torch.eye(8), y.T).T",
        "return torch.softmax(x * factor, -1).topk(8).values",
        "return (1 + x * factor).sort(-1).values",
        "return x.masked_fill(y > 0, -torch.inf) * factor",
        "if factor > 0:\n        return x / factor\n    else:\n        raise ValueError(factor)",
        "torch._assert(factor > 0, 'factor'); return x * factor",
        "last = x[:, 0]\n    for i in range(8):\n        kept = factor * last\n"
        "        last = kept + x[:, i]\n    return last",
        "last = x[:, 0]\n    for i in range(8): last = last.mul(factor).add(x[:, i]); return last",
        "last, i = x[:, 0], 0\n    while i < 8:\n"
        "        last, i = torch.add(x[:, i], last, alpha=factor), i + 1\n    return last",
        "return x // (y * factor)",
        "return x.div(factor)",
        "scaled = x * factor; return scaled / scaled.sum(-1, keepdim=True)",
        "scaled = x.mul(factor); scaled /= scaled.norm(); return scaled",
        "return torch.log(x * factor)",
        "return x / (y.square() + factor * factor).sqrt()",  # y may be 0
        "return x * (y.square() + factor) ** -0.5",
        "return x * factor ** y",
        "return (x * factor).topk(8).values",  # which of equal ones
        "scores = x.masked_fill(y > 0, float('-inf')); return scores * factor",  # NaN
        "if factor <= 0:\n        raise ValueError(factor); return x * factor",
        "assert factor > 0; return x * factor",
        # Other ways divide by its powers.
        "last = x[:, 0]\n    for i in range(8): last = x[:, i] + factor * last; return last",
        "return sum(map(lambda f: x * f, [factor]))",
        "z = x.clone(); z *= factor; return y / z",
        "z = x.clone(); z.mul_(factor); return y / z",
    ],
)
def test_a_factor_is_not_0_if_the_reference_is_undefined_then(body):
    assert _with_factor(body) == rule_of({"kind": "uniform", "min": 0.5, "max": 1})


@pytest.mark.parametrize(
    ("body", "name", "ends"),
    [
        ("return (x.square() + y.square() <= factor).float()", "factor", (1 / 16, 1)),
        ("return x * (y > threshold)", "threshold", (1 / 16, 24)),
        ("return x * (y.softmax(-1) > threshold)", "threshold", (1 / 16, 1)),
        ("return x if factor == 0 else y / factor", "factor", (0, 1)),
        ("return x if factor == 1 else y / (1 - factor)", "factor", (0, 1)),
        ("return torch.full_like(x, padding_value) + y", "padding_value", (-1, 1)),
    ],
)
def test_a_factor_that_is_compared_is_on_either_side(body, name, ends):
    assert _with_factor(body, name) == rule_of({"kind": "uniform", "min": ends[0], "max": ends[1]})


def test_a_temperature_may_be_0_if_the_reference_asks_for_that():
    greedy = "if temperature == 0: return x.argmax(-1); return x / temperature"
    assert _with_factor(greedy, "temperature").min == 0
    assert _with_factor("return x / temperature", "temperature").min == 0.5
    refused = "if temperature <= 0:\n        raise ValueError\n    return x / temperature"
    assert _with_factor(refused, "temperature").min == 0.5
    greedy = "x / torch.where({} < 1e-5, 1.0, {})[:, None]".format(*["temperature"] * 2)
    rule = plan(_of_reference(greedy, "float32", name="temperature")).rules["temperature"]
    assert rule == rule_of({"kind": "uniform", "min": 0, "max": 2, "ends": True})


@pytest.mark.parametrize(("result", "ends"), [("u.clamp(1e-6, 0.9)", True), ("(u > 0.5)", False)])
def test_a_random_number_is_1_only_if_the_reference_clamps_it(result, ends):
    definition = _of_reference(f"x * ({result.replace('u', 'rand')})[:, None]", "float32", "rand")
    assert plan(definition).rules["rand"] == rule_of({"kind": "uniform", "ends": ends})


@pytest.mark.parametrize(
    ("result", "sentinels"),
    [
        ("x * (which != -100)[:, None]", [-100]),
        ("x.masked_fill((which == 0)[:, None], 0.0)", None),
        ("x * ((which == 7) | (which >= 0))[:, None]", [-1, 7]),
    ],
)
def test_what_is_only_asked_for_some_numbers_is_a_label(result, sentinels):
    made = plan(_of_reference(result, "int64"))
    assert made.rules["which"] == rule_of({"kind": "positions", "below": 4, "sentinels": sentinels})
    assert made.inferred["which"].says == LABELS_ASKED_FOR
    assert "which" in plan(_of_reference("x * (which == 1)[:, None]", "int64")).unmade  # a flag


def test_what_the_reference_puts_below_0_is_no_sentinel_of_the_input():
    kept = "table[which] * (torch.where(x[:, 0] > 0, which, -1) >= 0)[:, None]"
    assert plan(_of_reference(kept, "int64")).rules["which"].sentinels is None
    asked = "table[which.clamp(min=0)] * (which >= 0)[:, None]"
    assert plan(_of_reference(asked, "int64")).rules["which"].sentinels == [-1]


@pytest.mark.parametrize("compared", ["which < INF * other[:, 0]", "which // other[:, 0] < INF"])
def test_infinity_is_no_multiple(compared):
    definition = _of_reference(f"({compared})[:, None] * x").model_dump()
    definition["inputs"]["other"] = {"shape": ["n", "d"], "dtype": "int64"}
    reference = definition["reference"].replace("which):", "which, other):")
    definition["reference"] = reference.replace("    return", "    INF = 1e999\n    return", 1)
    assert not plan(Definition.model_validate(definition)).uses.scaled_edges


def test_a_scalar_among_labels_is_one_of_these():
    made = _with_scalar("x * (which == eos_id)[:, None]", "eos_id")
    assert made.rules["which"] == rule_of({"kind": "positions", "below": 4})
    eos = {"kind": "integers", "min": -1, "max": 3, "ends": True}
    assert made.rules["eos_id"] == rule_of(eos)


def test_a_scalar_that_is_only_put_into_an_output_is_any_number():
    given = signature("op", "n", "x[n]:i64 pad_id:i32", "y[n]:i64")
    given["reference"] = (
        "import torch\ndef run(x, pad_id):\n    return torch.where(x < 0, pad_id, x)\n"
    )
    made = plan(Definition.model_validate(given))
    rule = {"kind": "integers", "min": -1, "max": 2**31 - 1, "ends": True}
    assert made.rules["pad_id"] == rule_of(rule)
    assert made.inferred["pad_id"].says == SCALAR_PUT
    given["outputs"]["y"]["dtype"] = "int8"
    assert "pad_id" in plan(Definition.model_validate(given)).unmade


def test_a_scalar_that_a_constraint_ties_to_axes_follows_these():
    given = signature("op", "n m", "x[n]:f32 more:i32", "y[m]:f32", "m == n + more")
    given["reference"] = (
        "import torch\ndef run(x, more):\n    return torch.cat([x, x.new_zeros(more)])\n"
    )
    definition = Definition.model_validate(given)
    assert plan(definition).inferred["more"].says == SCALAR_TIED
    for seed in range(4):
        workload = make_workload(definition, {"n": 3 + seed, "m": 3 + 3 * seed}, seed)
        assert make_inputs(definition, workload)["more"] == 2 * seed


def test_numbers_that_become_floating_and_are_divided_by_are_not_zero():
    made = plan(_of_reference("x / which.float()[:, None]", "uint8"))
    assert made.rules["which"] == rule_of({"kind": "integers", "min": 1, "max": 255})
    assert made.inferred["which"].says == WHOLE_DIVISOR


def test_what_is_summed_under_a_root_is_not_negative():
    for total in ("which.sum()", "torch.zeros(4).index_add(0, ids, which)"):
        made = plan(_of_reference(f"x * ({total}).rsqrt()", "float32"))
        assert made.rules["which"] == rule_of({"kind": "uniform"})


def test_an_axis_of_heads_says_not_how_many_tokens_a_page_has():
    lengths = "seq_lens[b]:i32 block_table[b,m]:i32"
    axes = "b m num_pages d=4 heads=2 tokens=16"
    assert Inferred("gqa", axes, f"{lengths} k[num_pages,heads,d]:f32").rule is None
    of_tokens = Inferred("gqa", axes, f"{lengths} k[num_pages,tokens,d]:f32")
    assert of_tokens.rule.page_size == "tokens"


@pytest.mark.parametrize(
    ("result", "least", "most"),
    [
        ("x.exp().clamp(low, high)", (0.01, 0.5), (0.5, 24)),
        ("torch.clamp(x, max=high, min=low)", (0.01, 0.5), (0.5, 24)),
        ("x.clip(-high, high) * low", (0, 2), (0.5, 24)),
        ("x.clamp_min(low).clamp_max(high)", (0.01, 0.5), (0.5, 24)),
        ("x.clamp(1 - low, 1 + high)", (0, BELOW_ONE), (0, 2)),
        ("low * x / (1.0 - low ** 3) + high", (0, BELOW_ONE), (0, 2)),
        ("x / (1 - pow(low, 3)) + (0.1 - high)", (0, BELOW_ONE), (0, 1)),
    ],
)
def test_scalars_that_the_reference_clamps_to_are_within_and_beyond_what_is_usual(
    result, least, most
):
    definition = _of_reference(result, "float32", name="low")
    scalars = {name: {"shape": None, "dtype": "float32"} for name in ("low", "high")}
    inputs = definition.model_dump()["inputs"] | scalars
    reference = definition.reference.replace("low):", "low, high):")
    given = {**definition.model_dump(), "inputs": inputs, "reference": reference}
    made = plan(Definition.model_validate(given))
    for name, (low, high) in {"low": least, "high": most}.items():
        assert made.rules[name] == rule_of({"kind": "uniform", "min": low, "max": high})
        is_limit = made.inferred[name].says == SCALAR_LIMIT
        assert is_limit == (high not in (1, 2, BELOW_ONE))


def _of_name(name, result="x * {}[:, None] + ({} > 0)[:, None]"):
    made = plan(_of_reference(result.replace("{}", name), "int32", name=name))
    return made.inferred.get(name)


@pytest.mark.parametrize(("name", "limits"), CALCULATED_BY_NAME)
def test_a_name_says_what_numbers_are_that_the_reference_only_calculates_with(name, limits):
    inferred = _of_name(name)
    assert inferred.rule == rule_of({"kind": "integers", **limits})
    assert inferred.doubts
    assert _of_name(name, "torch.repeat_interleave(x, {})") is None
    assert _of_name(name, "torch.where({} == 1, 1.0, 2.0)[:, None]") is None


def test_numbers_of_pages_are_any_where_places_are_wider():
    definition = _of_reference("block_table.long() * 16", "int32", name="block_table")
    outputs = {"y": {"shape": ["n"], "dtype": "int64"}}
    made = plan(Definition.model_validate({**definition.model_dump(), "outputs": outputs}))
    assert made.rules["block_table"] == rule_of({"kind": "integers", "min": 0, "max": 2**31 - 1})


@pytest.mark.parametrize(
    ("result", "of_bits"),
    [
        ("((x.view(torch.int32) + which) & -65536).view(torch.float32)", True),
        ("(which << 16).to(torch.int32).view(torch.float32).bfloat16()[None].clone()", True),
        ("((which << 16).to(torch.int32).view(torch.float32), x)", True),
        ("(which << 16).to(torch.int32).view(torch.float32) * x", False),
        ("(x + 1).view(torch.float32)", False),
        ("torch.where(x > 0, (which << 16).view(torch.float32), x.bfloat16())", True),
        ("torch.where(x > 0, (which << 16).view(torch.float32), x * 2)", False),
        ("torch.where(x > 0, x.bfloat16(), x)", False),
        ("(x, (which << 16).to(torch.int32).view(torch.float32))", False),
        ("(which << 16).view(4, 2)", False),
    ],
)
def test_an_output_is_of_bits_where_integers_are_only_viewed_as_numbers(result, of_bits):
    assert plan(_of_reference(result)).outputs_of_bits == ({"y"} if of_bits else set())


@pytest.mark.parametrize(
    "result",
    ["x * which.to(x.dtype)[:, None]", "x.int() @ which.int().T", "torch.mm(x.int(), which.int())"],
)
def test_an_int8_that_is_calculated_with_is_any(result):
    made = plan(_of_reference(result, "int8"))
    assert made.rules["which"] == rule_of({"kind": "integers", "min": -128, "max": 127})


@pytest.mark.parametrize(
    ("kind", "lines"),
    [
        ("uint8", "return which.float() @ x"),
        ("uint8", "h = which.long()\nfor i in range(3):\n    h = h * 31 + which[i]\nreturn h"),
        ("int32", "different = which ^ which.flip(0)\nreturn (different >> 3 & 1 != 0).sum(0)"),
        ("int16", "total = 0\nfor one in which:\n    total += one & 15\nreturn total"),
        ("uint8", "q = torch.stack((which & 15, which >> 4)).float()\nreturn x @ q.t()"),
        (
            "uint8",
            "code = torch.hstack((which & 15, which >> 4)).float()\n"
            "return code.unflatten(0, (-1, 2)) * x[:, None]",
        ),
        ("int32", "bit = which >> 3 & 1\nreturn torch.where(bit == 1, x, 0.0)"),
        ("int64", "y = torch.empty_like(which)\ny[1:] = which[:-1]\nreturn y"),
        ("int32", "return (which & 15).repeat_interleave(4, dim=0) * x"),
        (
            "uint8",
            "planes = []\nfor b in range(8):\n    planes.append((which.int() >> b) & 1)\n"
            "return torch.stack(planes, -1) * x",
        ),
        (
            "uint8",
            "kept = (which[:, None] >> torch.arange(8) & 1).bool()\n"
            "return x.masked_fill(~kept, float('-inf')).softmax(-1)",
        ),
        (
            "int32",
            "bits = (which[..., None] >> torch.arange(32)) & 1\n"
            "allowed = bits.flatten()[: x.shape[0]].bool()\n"
            "allowed = allowed | (x[:, 0] < 0)\n"
            "return x.masked_fill(~allowed[:, None], 0.0)",
        ),
        ("uint8", "return x * (which > 3)"),
        ("uint8", "return torch.where(which == 255, 0.0, which.float() - 127)[:, None] * x"),
        ("uint8", "return (x * which.float() + 0.5).floor().sqrt()"),
        ("int16", "return torch.log((which.float() / 32768).square() + 1e-6)"),
        (
            "uint8",
            "for i, at in enumerate(range(3)):\n    x[at] = which.float()[i : i + 3]\nreturn x",
        ),
        (
            "uint8",
            "m = torch.stack([which & 15, which >> 4], -1).view(-1).long()\n"
            "return torch.where(torch.arange(4) == (m & 3)[:, None], 1.0, 0.0)",
        ),
    ],
)
def test_bytes_and_bits_that_are_only_calculated_with_are_any(kind, lines):
    rule = plan(_with_body(lines, kind)).rules["which"]
    limits = torch.iinfo(getattr(torch, kind))
    least, most = limits.min, limits.max
    assert rule == rule_of({"kind": "integers", "min": least, "max": most})


@pytest.mark.parametrize(
    ("kind", "lines"),
    [
        ("uint8", "return x[(which + 1).long()]"),
        ("uint8", "return x // which"),
        ("uint8", "return torch.where(which == 1, 0.0, which.float())"),
        ("int16", "return x[(which.float() / 32768).long()]"),
        ("uint8", "return torch.where(which.bool(), 1, 2)"),
        ("uint8", "flag = which.flip(0)\nreturn torch.where(flag.bool(), 1, 2)"),
        ("uint8", "return which.view(torch.float8_e4m3fn).float() + 1"),
        ("int32", "return which + 1"),
        ("int32", "low = which & 3\nreturn torch.repeat_interleave(x, low)"),
        ("int32", "low = which & 3\nreturn x.repeat_interleave(low)"),
        ("int32", "for i in (which & 3).tolist():\n    x = x[i:]\nreturn x"),
    ],
)
def test_integers_on_which_places_or_sizes_may_depend_are_not(kind, lines):
    assert plan(_with_body(lines, kind)).unmade.keys() == {"which"}


@pytest.mark.parametrize(
    ("helper", "call", "kind"),
    [
        ("def rows(t, at):\n    return t[at]", "rows(table, which)", "indices"),
        ("def rows(t, *, at=None):\n    return t[at]", "rows(table, at=which)", "indices"),
        ("def both(x):\n    y = x & 15\n    return y + (x >> 4)", "both(which)", "integers"),
        ("def inner(t, i):\n    return t[i]\ndef rows(t, i):\n    out = inner(t, i)\n"
         "    return out", "rows(table, which) + x", "indices"),
        ("def rows(t, at):\n    if at is None:\n        return t\n    return t[at]",
         "rows(table, which)", None),
        ("def down(x, i):\n    return down(x, i - 1)", "down(x, which)", None),
    ],
)  # fmt: skip
def test_functions_that_the_reference_calls_are_read_where_it_calls_them(helper, call, kind):
    definition = _of_reference(call, "int32")
    given = {**definition.model_dump(), "reference": f"{helper}\n{definition.reference}"}
    made = plan(Definition.model_validate(given))
    assert (None if made.unmade else made.rules["which"].kind) == kind


@pytest.mark.parametrize(
    "lines",
    [
        "angle = which[:, None] * x\nreturn torch.cat([angle.cos(), angle.sin()], -1)",
        "return torch.polar(x, torch.outer(which.float(), x[0]))",
    ],
)
def test_what_the_reference_takes_sines_of_are_positions(lines):
    made = plan(_with_body(lines, "int32"))
    assert made.rules["which"] == rule_of({"kind": "positions", "below": 8192})
    assert "a guess" in str(made.inferred["which"])


def _with_body(lines, kind):
    definition = _of_reference("x", kind)
    body = lines.replace("\n", "\n    ")
    reference = definition.reference.replace("return x", body)
    return Definition.model_validate({**definition.model_dump(), "reference": reference})


@pytest.mark.parametrize(
    ("result", "kind"),
    [
        ("x * torch.rsqrt(which + 1e-6)[:, None]", "uniform"),
        ("x * (0.9 * which + 0.1 * x.sum(-1) ** 2).sqrt()[:, None]", "uniform"),
        ("x * torch.maximum(x.sum(-1) ** 2, which).sqrt()[:, None]", "uniform"),
        ("x * which.maximum(x.sum(-1) ** 2).sqrt()[:, None]", "uniform"),
        ("which.clamp(min=1e-9).log()", "uniform"),
        ("x * torch.rsqrt(which / which.mean())[:, None]", "uniform"),
        ("x * torch.rsqrt(which / x.mean())[:, None]", "values"),
        ("x * (1 - which).sqrt()[:, None]", "uniform"),
        ("x * which[:, None] ** 0.5", "uniform"),
        ("x * which[:, None] ** 2", "values"),
        ("(which * which).sqrt()", "values"),
        ("which.exp().log()", "values"),
        ("which + x.sqrt()", "values"),
    ],
)
def test_what_stands_under_a_root_is_not_negative(result, kind):
    assert plan(_of_reference(result, "float32")).rules["which"].kind == kind


def test_a_variable_that_takes_a_new_value_is_followed_to_what_it_was():
    lines = "which = 0.9 * which + x.sum(-1) ** 2\nreturn x / which.sqrt()[:, None]"
    assert plan(_with_body(lines, "float32")).rules["which"].kind == "uniform"


@pytest.mark.parametrize(
    ("name", "result", "limits"),
    [
        ("log_decay", "x * which.cumsum(0).exp()[:, None]", (-2, 0)),
        ("head_log_decay", "x * torch.exp2(which)[:, None]", (-2, 0)),
        ("decay_log", "x * which.exp()[:, None]", (-2, 0)),
        ("decay", "x * which[:, None]", (0, 1)),
        ("decay", "x * torch.exp(-which)[:, None]", (0, 1)),
        ("decay", "x * which.float().exp()[:, None]", (-2, 0)),
        ("time_decay", "x * torch.exp(-torch.exp(which))[:, None]", (-6, 2)),
    ],
)
def test_what_a_decay_holds_follows_from_how_it_is_used(name, result, limits):
    made = plan(_of_reference(result.replace("which", name), "float32", name=name))
    least, most = limits
    assert made.rules[name] == rule_of({"kind": "uniform", "min": least, "max": most})


@pytest.mark.parametrize(
    ("result", "kind"),
    [
        ("x * scale[:, None]", "scales"),
        ("x / (scale + 1e-6)[:, None]", "scales"),
        ("x * (1 + scale)[:, None]", "values"),
        ("x * (scale.float()[:, None] + 1.0)", "values"),
    ],
)
def test_a_scale_that_is_added_is_of_either_sign(result, kind):
    assert plan(_of_reference(result, "float32", name="scale")).rules["scale"].kind == kind


@pytest.mark.parametrize(
    ("result", "kind"),
    [
        ("torch.log_softmax(x / which[:, None], -1)", "scales"),
        ("x.div(2.0 * which.float()[:, None])", "scales"),
        ("torch.div(x, which[:, None] ** 2)", "scales"),
        ("which[:, None] / x", "values"),
        ("x / which.exp()[:, None]", "values"),
        ("x / which.clamp(min=1e-9)[:, None]", "values"),
        ("x / torch.where(which == 0, 1.0, which)[:, None]", "values"),
    ],
)
def test_what_is_divided_by_is_not_zero_unless_that_is_looked_for(result, kind):
    rule = plan(_of_reference(result, "float32")).rules["which"]
    assert rule.kind == kind
    assert kind == "values" or not rule.signed


def test_a_divisor_of_each_element_has_either_sign():
    definition = _of_reference("table / x + which[:, None]", "float32")
    kinds = {name: rule.kind for name, rule in plan(definition).rules.items()}
    assert kinds == {"x": "scales", "table": "values", "which": "values"}
    x = make_inputs(definition, make_workload(definition, {"n": 64, "rows": 64}))["x"]
    assert ((x.abs() >= 0.25) & (x.abs() <= 4)).all()
    assert 0.3 < (x < 0).double().mean() < 0.7


@pytest.mark.parametrize(("result", "kind"), [("topk_ids >> 16", "routing"), ("x", "topk_ids")])
def test_experts_are_packed_with_their_weights_where_the_reference_shifts_bits(result, kind):
    definition = signature("moe", "n k=2 num_experts=8", "topk_ids[n,k]:i32 x[n]:f32", "y[n]:f32")
    reference = f"def run(topk_ids, x):\n    return {result}\n"
    given = Definition.model_validate({**definition, "reference": reference})
    assert plan(given).rules["topk_ids"].kind == kind


def test_inputs_are_explained_without_a_test(project):
    project.define(HEADER)
    project.implement("good", "x, kv_indptr, kv_indices, order, weights\nreturn x", "gather")
    project.implement("stray", "x\nreturn x", "no_definition")
    result = project.run("--fib-explain-inputs", "-k", "gather")
    result.assert_outcomes()
    result.stdout.no_fnmatch_line("*no_definition*")
    result.stdout.fnmatch_lines(
        [
            "gather  kernel_defs/*.yaml:*",
            "  x: inferred: by the value pattern (values)",
            "  kv_indices: inferred: distinct pages (indices, below num_pages)",
            "  order: unknown, int64 tensor",
        ]
    )


def test_all_that_is_unknown_is_named_with_rules_to_paste():
    definition = signature("op", "n", "order[n]:i64 count:i32 x[n]:f32", "y[n]:f32")
    reason = why_not_generated(Definition.model_validate(definition))
    assert reason.startswith(
        "nothing says what order (int64 tensor) and count (int32 scalar) mean;"
    )
    pasted = yaml.safe_load(reason.partition("for example ")[2])
    given = Definition.model_validate({**definition, **pasted})
    assert why_not_generated(given) is None


def test_no_output_says_how_long_joined_tensors_are():
    data = signature("op", "n steps dim win=3",
                     "x[n,steps,dim]:f32 pool[n,dim,win]:f32 taken[n]:i32",
                     "y[n,dim,win]:f32")  # fmt: skip
    data["inputs"]["taken"]["description"] = "0 to steps"
    data["reference"] = (
        "import torch\ndef run(x, pool, taken):\n    out = pool.clone()\n"
        "    for b, a in enumerate(taken.tolist()):\n"
        "        out[b] = torch.cat([pool[b], x[b, :a].T], 1)[:, a : a + pool.shape[2]]\n"
        "    return out\n"
    )
    assert str(plan(Definition.model_validate(data)).rules["taken"]) == (
        "seq_lens, max steps, allow_empty True"
    )


@pytest.mark.parametrize(
    ("how", "below"),
    [
        ("torch.bincount(g * 4 + b, minlength=count * 4)", ("groups", "4")),
        ("torch.zeros(count * x.shape[0]).index_add(0, g * x.shape[0] + b, x)", ("groups", "n")),
        ("torch.zeros(count, 4).reshape(-1).index_add(0, b + 4 * g, x)", (None, None)),
        ("table.reshape(-1)[g * table.shape[1] + b]", ("rows", "cols")),
        ("table.flatten()[g * 5 + b]", ("rows", "5")),
        ("table.flatten()[g * 7 + b]", (None, None)),
    ],
)
def test_indices_that_are_joined_to_one_are_each_below_their_size(how, below):
    data = signature("op", "n groups rows cols=5", "x[n]:f32 table[rows,cols]:f32 g[n]:i64 b[n]:i64"
                     " count:i32", "y[groups]:f32", "groups == count")  # fmt: skip
    data["reference"] = (
        f"import torch\ndef run(x, table, g, b, count):\n"
        f"    z = {how}\n    return z.sum() + torch.zeros(count)\n"
    )
    planned = plan(Definition.model_validate(data))
    found = [getattr(planned.rules[name], "below", None) for name in ("g", "b")]
    assert tuple(each and str(each) for each in found) == below


def test_an_argument_of_a_helper_goes_by_its_own_name():
    data = signature("op", "n", "x[n]:f32 beta:f32", "y[n]:f32")
    data["reference"] = (
        "def mix(x, share):\n    rest = 1.0 if share == 1 else 1.0 - share\n    return x * rest\n"
        "def run(x, beta):\n    y = mix(x, beta)\n    return y\n"
    )
    assert str(plan(Definition.model_validate(data)).rules["beta"]) == "uniform, min 0.0, max 1.0"


def test_a_description_of_which_nothing_is_read_is_named():
    data = signature("op", "n", "order[n]:i64 bits[n]:u8 x[n]:f32", "y[n]:f32")
    data["inputs"]["order"]["description"] = "Where each comes from"
    data["inputs"]["bits"]["description"] = "Bit 3 is the sign."
    data["inputs"]["x"]["description"] = "Weights, from 1 on"
    definition = Definition.model_validate(data)
    unread = "nothing is read of its description"
    lines = plan(definition).explained()
    assert lines[0] == f"order: unknown, int64 tensor; {unread}"
    assert [unread in line for line in lines] == [True, True, False]
    assert f"order (int64 tensor; {unread})" in why_not_generated(definition)


@pytest.mark.parametrize(
    ("dtype", "ends"),
    [("uint8", (0, 255)), ("int8", (-128, 127)), ("int16", (0, 100)), ("int64", (0, 100))],
)
def test_the_rule_to_paste_has_all_bytes_there_are(dtype, ends):
    definition = _of_reference("x.repeat_interleave(which, 0)", dtype)
    pasted = yaml.safe_load(why_not_generated(definition).partition("for example ")[2])
    rule = {"kind": "integers", "min": ends[0], "max": ends[1]}
    assert pasted == {"workloads": {"inputs": {"which": rule}}}


@pytest.mark.parametrize(
    ("result", "dtype", "ends"),
    [
        ("x // which", "uint8", (1, 255)),
        ("x % which", "int64", (1, 100)),
        ("x // torch.where(which == 0, 1, which)", "int64", (0, 100)),
        ("torch.remainder(x, which)", "int16", (1, 100)),
        ("x * (which + 1)[:, None]", "int32", (-(2**31), 2**31 - 1)),
        ("x.repeat_interleave(torch.where(which == -7, 1, which), 0)", "int32", (-7, 100)),
        ("(which.int() & 0xFFFF).view(torch.float32)", "int16", (-(2**15), 2**15 - 1)),
    ],
)
def test_the_rule_to_paste_is_of_numbers_that_the_reference_can_do(result, dtype, ends):
    definition = _of_reference(result, dtype)
    pasted = yaml.safe_load(why_not_generated(definition).partition("for example ")[2])
    rule = {"kind": "integers", "min": ends[0], "max": ends[1]}
    assert pasted == {"workloads": {"inputs": {"which": rule}}}


@pytest.mark.parametrize(("scalar", "ends"), [("dilation", (1, 4)), ("delta", (0, 100))])
def test_the_rule_to_paste_for_a_scalar_is_of_small_numbers(scalar, ends):
    definition = signature("op", "n", f"x[n]:f32 {scalar}:i32", "y[n]:f32")
    definition["reference"] = f"def run(x, {scalar}):\n    return x + ({scalar} - 3)"
    reason = why_not_generated(Definition.model_validate(definition))
    pasted = yaml.safe_load(reason.partition("for example ")[2])
    rule = {"kind": "integers", "min": ends[0], "max": ends[1]}
    assert pasted == {"workloads": {"inputs": {scalar: rule}}}


def test_what_indexes_offsets_and_the_next_ones_is_below_the_last():
    definition = signature("op", "n m s", "x[n]:f32 indptr[m]:i32 ids[s]:i32", "y[s]:f32")
    body = "(indptr[ids + 1] - indptr[ids]) * x.sum()"
    definition["reference"] = f"def run(x, indptr, ids):\n    return {body}"
    definition["workloads"] = {"inputs": {"indptr": {"kind": "indptr", "total": "n"}}}
    assert plan(Definition.model_validate(definition)).rules["ids"].below == "m - 1"


SEEN = """\
import torch
def run(x, seen):
    n, m = x.shape[0], 10
    ids = torch.where(seen < 0, n, seen).long()
    hidden = torch.zeros(len(seen), n + 1, dtype=torch.bool)
    hidden[torch.arange(len(seen))[:, None], ids] = True
    return torch.where(hidden[:, :n], -1.0, x).topk(m, 1).values
"""


def test_a_place_for_padding_that_is_cut_off_is_no_index():
    definition = signature("op", "n b s k=10", "x[n]:f32 seen[b,s]:i32", "y[b,k]:f32")
    planned = plan(Definition.model_validate({**definition, "reference": SEEN}))
    rule = planned.rules["seen"]
    assert (rule.kind, rule.below, rule.sentinels) == ("indices", "n", [-1])


@pytest.mark.parametrize(
    ("rule", "shown"),
    [
        ({"kind": "integers", "max": 255}, "integers, min 0, max 255"),
        ({"kind": "uniform", "ends": True}, "uniform, min 0, max 1, ends True"),
        ({"kind": "normal", "std": 0.1}, "normal, mean 0, std 0.1"),
        ({"kind": "indices", "below": "n"}, "indices, below n"),
    ],
)
def test_a_rule_is_shown_with_both_of_its_ends(rule, shown):
    assert str(rule_of(rule)) == shown


@pytest.mark.parametrize(
    "case",
    [
        ("op", "n", "order[n]:i64"),
        ("op", "n", "count:i32"),
        ("op", "n", "kv_indptr[n]:i32"),  # of what total?
        ("op", "n", "kv_indices[n]:i32"),  # of how many pages?
        ("gemm", "n", "topk_ids[n]:i32"),  # of how many experts?
        ("op", "n", "input_ids[n]:i64"),  # of which table?
        ("moe", "n", "local_expert_offset:i32"),  # of how many experts?
        ("op", "n", "bytes[n]:u8"),
        ("op", "n num_pages num_blocks page_size=2", "block_table[n]:i32"),  # of what lengths?
    ],
)
def test_an_integer_that_nothing_speaks_of_is_not_guessed(case):
    assert Inferred(*case).rule is None


def test_a_choice_among_several_axes_is_a_doubt():
    inferred = Inferred("gqa", "m total_kv num_kv_indices", "kv_indptr[m]:i32")
    assert inferred.says == (
        "offsets of sequences (indptr, total num_kv_indices); "
        "a guess: num_kv_indices rather than total_kv"
    )
    constrained = ("gqa", "m total_kv num_kv_indices", "kv_indptr[m]:i32", LAST_KV)
    assert Inferred(*constrained).says == "offsets by a constraint (indptr, total total_kv)"


def test_offsets_are_along_an_axis_of_the_outputs_that_no_constraint_ties_to_them():
    inputs = "cu_seqlens[m]:i32 last[batch]:f32 x[n]:f32"
    inferred = Inferred("op", "n m batch", inputs, "m == batch + 1")
    assert inferred.says == "offsets of sequences (indptr, total n); a guess: along n"
    assert Inferred("op", "batch m", "cu_seqlens[m]:i32", "m == batch + 1").rule is None


def test_that_both_halves_of_cosines_are_alike_is_a_doubt():
    inferred = Inferred("rope", "n dim=8", "cos[n,dim]:bf16 q[n,dim]:bf16")
    assert inferred.says == "cosines (cos, twice True); a guess: its two halves are alike"


MASK = """
name: masked
op_type: attention
axes: {{n: var}}
inputs:
  scores: {{shape: [n, n], dtype: float32}}
  mask: {{shape: [n, n], dtype: {dtype}}}
outputs: {{out: {{shape: [n, n], dtype: float32}}}}
reference: |
  import torch
  def run(scores, mask):
      {line}
      return scores
"""


@pytest.mark.parametrize(
    ("dtype", "line", "rule"),
    [
        ("float32", "scores = torch.softmax(scores + mask.float(), -1)", "mask, allow_empty False"),
        ("bfloat16", "scores += mask[None]", "mask, allow_empty False"),
        ("float32", "scores = torch.softmax(scores + mask, -1).nan_to_num(0)", "mask"),
        ("float32", "scores = torch.nan_to_num((scores + mask).softmax(-1), nan=0.0)", "mask"),
        ("float32", "sdpa(scores, scores, scores, attn_mask=mask)", "mask, allow_empty False"),
        ("float32", "scores = scores * mask", "boolean"),
        ("float32", "scores = scores * mask + mask", "boolean"),
        ("int32", "scores = scores.masked_fill(mask == 0, -1e9)", "boolean"),
        ("float32", "scores = torch.where(mask > 0, scores, 0)", "values"),
    ],
)
def test_what_a_mask_holds_follows_from_how_it_is_used(dtype, line, rule):
    definition = Definition.model_validate(yaml.safe_load(MASK.format(dtype=dtype, line=line)))
    assert str(plan(definition).rules["mask"]) == rule


@pytest.mark.parametrize("rule", [{"value": 3}, {"kind": "permutation"}])
def test_what_the_definition_says_comes_before_any_rule(rule):
    data = signature("gqa", PAGED, "kv_indices[num_kv_indices]:i32", "y[num_kv_indices]:f32")
    given = Definition.model_validate({**data, "workloads": {"inputs": {"kv_indices": rule}}})
    assert plan(given).rules["kv_indices"] == rule_of(rule)
    assert plan(given).notes == []


def test_a_step_before_a_softplus_has_either_sign():
    definition = signature("mamba_ssu", "n", "dt[n]:bf16 x[n]:f32", "y[n]:f32")
    lines = "return torch.nn.functional.softplus(dt.float()) * x"
    reference = f"import torch\ndef run(dt, x):\n    {lines}\n"
    given = Definition.model_validate({**definition, "reference": reference})
    assert plan(given).rules["dt"] == rule_of({"kind": "uniform", "min": -6.0, "max": 2.0})


def test_the_number_of_sequences_is_inferred_only_where_nothing_says_it():
    axes, inputs = f"batch_size {PAGED}", "kv_indptr[len_indptr]:i32"
    assert Inferred("gqa", axes, inputs, PAGES).rule.parts == "batch_size"
    stated = Inferred("gqa", axes, inputs, PAGES, "batch_size + 1 == len_indptr")
    assert stated.rule.parts is None


HEADER = """\
name: gather
op_type: gqa
axes: {n: var, m: var, num_pages: var, num_kv_indices: var, total_kv: var}
inputs:
  x:          {shape: [num_pages], dtype: float32}
  kv_indptr:  {shape: [m], dtype: int32}
  kv_indices: {shape: [num_kv_indices], dtype: int32}
  order:      {shape: [n], dtype: int64}
  weights:    {shape: [total_kv], dtype: float32}
outputs:
  y: {shape: [n], dtype: float32}
reference: |
  def run(x, kv_indptr, kv_indices, order, weights):
      return x + order
"""


def test_what_was_inferred_is_in_the_header(project):
    project.define(HEADER)
    project.implement("good", "x, kv_indptr, kv_indices, order, weights\nreturn x", "gather")
    result = project.run("-v", "--collect-only")
    result.stdout.fnmatch_lines(
        [
            "fib: inferred for the inputs of gather:",
            "  kv_indptr: offsets of sequences (indptr, total num_kv_indices); a guess:",
            "    num_kv_indices rather than total_kv",
            "  kv_indices: distinct pages (indices, below num_pages)",
            "  nothing says what order (int64 tensor) means; add that to the definition, for",
            "    example workloads: {inputs: {order: {kind: integers, min: -2147483648, max:",
            "    2147483647}}}",
        ],
        consecutive=True,
    )
    assert all(len(line) <= 80 for line in result.outlines if line.startswith("  "))
    result.stdout.no_fnmatch_line("*weights: *")
    quiet = project.run("--collect-only")
    quiet.stdout.no_fnmatch_line("*inferred for*")


def test_a_loop_from_the_last_place_to_the_first_is_along_the_axis():
    """As in a recurrence that goes back, which ends at lengths."""
    lines = (
        "out = x[:, 0] * 0\n    for j in range(x.shape[1] - 1, -1, -1):\n"
        "        out = torch.where(j < which, out + x[:, j], out)\n    return out"
    )
    data = signature("op", "n d", "x[n,d]:f32 which[n]:i32", "y[n]:f32")
    data["reference"] = f"import torch\ndef run(x, which):\n    {lines}\n"
    made = plan(Definition.model_validate(data))
    assert str(made.rules["which"]) == "seq_lens, max d, allow_empty True"


@pytest.mark.parametrize(
    ("made", "index"),
    [
        ("(table[:-1] - table[1:] == 1) & flags", "which.clamp(min=0)"),
        ("[[0] * 4 for _ in range(len(flags))]", "int(which[0])"),
        ("[0] * flags.shape[0]", "which.tolist()[0]"),
    ],
)
def test_what_is_as_long_as_an_axis_is_indexed_below_it(made, index):
    inputs = "table[m]:i64 flags[rows]:bool which[n]:i64"
    data = signature("op", "n m rows", inputs, "y[n]:i64 z[n,rows]:f32", "m == rows + 1")
    lines = f"made = {made}\n    return made[{index}], 0"
    data["reference"] = f"import torch\ndef run(table, flags, which):\n    {lines}\n"
    assert plan(Definition.model_validate(data)).rules["which"].below == "rows"


@pytest.mark.parametrize(
    ("description", "rule"),
    [
        ("", "indices, below 3, unique False"),
        ("0 float32, 1 bfloat16, 2 float8", "one_of, values [0, 1, 2]"),
        ("0 or 2", "one_of, values [0, 2]"),
        ("1, 2 or 4", "indices, below 3, unique False"),
    ],
)
def test_a_table_that_is_written_out_is_indexed_below_its_length(description, rule):
    data = signature("op", "n", "x[n]:f32 which[n]:i32", "y[n]:f32")
    data["inputs"]["which"]["description"] = description
    data["reference"] = (
        "import torch\ndef run(x, which):\n"
        "    return x * torch.tensor([4, 2, 1], device=x.device)[which.long()]\n"
    )
    assert str(plan(Definition.model_validate(data)).rules["which"]) == rule


def test_the_scalar_that_is_the_size_of_an_axis_may_be_as_large():
    data = signature("op", "n m", "x[m]:f32 count:i32", "y[n]:f32", "n == count")
    data["workloads"] = {"axes": {"n": {"min": 1, "max": 100000}}}
    data["reference"] = "import torch\ndef run(x, count):\n    return torch.zeros(count)\n"
    made = plan(Definition.model_validate(data))
    assert made.rules["count"].max == 100000
    [line] = [line for line in made.explained() if line.startswith("count")]
    assert line.endswith("; within n == count")
    assert "a guess" not in line


def test_a_scalar_within_an_axis_is_anywhere_below_it():
    """Of one that was drawn up to 8192 and then clamped, nearly all were the size of the axis."""
    data = signature("op", "n", "x[n]:f32 split:i32", "y[n]:f32", "split <= n")
    data["inputs"]["split"]["description"] = "at least 0"
    data["reference"] = "import torch\ndef run(x, split):\n    return x[:split].sum() + x\n"
    definition = Definition.model_validate(data)
    made = [
        make_inputs(definition, make_workload(definition, {"n": 1000}, seed), "cpu")["split"]
        for seed in range(48)
    ]
    assert max(made) <= 1000
    assert sum(10 < split < 990 for split in made) > 8
