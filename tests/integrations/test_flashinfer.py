"""FlashInfer's calls are those of definitions: against the real package's Python layer.

What needs its kernels (making a wrapper, and the originals of ``plan`` and ``run``) is replaced;
signatures, aliases and attributes are those of the package.
"""

import functools
from pathlib import Path

import pytest
import torch

from pytest_fib import (
    Solution,
    TraceSet,
    disable_apply,
    disable_tracing,
    enable_apply,
    enable_tracing as tracing,
)
from pytest_fib.data import Definition, Evaluation, Trace, Workload, load_definition_file
from pytest_fib.dispatch import stats

flashinfer = pytest.importorskip("flashinfer")

ROOT = Path(__file__).parents[2]
HERE = "this machine"
NORM = {
    "name": "rmsnorm_h64",
    "op_type": "rmsnorm",
    "axes": {"batch_size": "var", "hidden_size": 64},
    "inputs": {
        "hidden_states": {"shape": ["batch_size", "hidden_size"], "dtype": "bfloat16"},
        "weight": {"shape": ["hidden_size"], "dtype": "bfloat16"},
    },
    "outputs": {"output": {"shape": ["batch_size", "hidden_size"], "dtype": "bfloat16"}},
    "reference": """\
import torch

def run(hidden_states, weight):
    x = hidden_states.float()
    y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * weight.float()
    return y.to(hidden_states.dtype)
""",
}
ADDED = {
    **NORM,
    "name": "fused_add_rmsnorm_h64",
    "inputs": {"residual": NORM["inputs"]["hidden_states"], **NORM["inputs"]},
    "reference": """\
import torch

def run(residual, hidden_states, weight):
    x = hidden_states.float() + residual.float()
    y = x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * weight.float()
    return y.to(hidden_states.dtype)
""",
}
WRAPPERS = {
    "decode": flashinfer.decode.BatchDecodeWithPagedKVCacheWrapper,
    "prefill": flashinfer.prefill.BatchPrefillWithPagedKVCacheWrapper,
    "ragged": flashinfer.prefill.BatchPrefillWithRaggedKVCacheWrapper,
    "mla": flashinfer.mla.BatchMLAPagedAttentionWrapper,
}


def shipped(path, name):
    loaded = load_definition_file(ROOT / "kernel_defs" / path)
    return next(each.definition for each in loaded if each.definition.name == name)


def served_by_references(*definitions):
    """A trace set whose implementations are the references, right at any size."""
    made = TraceSet(definitions)
    for definition in definitions:
        name = f"of_{definition.name}"
        source = {"path": "main.py", "content": definition.reference}
        spec = {"language": "python", "target_hardware": ["cpu"], "entry_point": "main.py::run"}
        facts = {"name": name, "definition": definition.name, "author": "tests"}
        spec["destination_passing_style"] = False
        made.add_solution(Solution.model_validate({**facts, "spec": spec, "sources": [source]}))
        evaluation = {"status": "PASSED", "hardware": HERE, "latency_ms": 1.0}
        evaluation |= {"max_relative_error": 0.0, "speedup_factor": 1.0}
        made.add_trace(
            Trace(
                definition=definition.name,
                workload=Workload(axes=dict.fromkeys(definition.var_axes, 1)),
                solution=name,
                evaluation=Evaluation.model_validate(evaluation),
            )
        )
    return made


def anywhere(shape, measured):
    return next(iter(measured.values()))


def enable(*definitions):
    return enable_apply(served_by_references(*definitions), policy=anywhere, hardware=HERE)


@pytest.fixture
def installed(monkeypatch):
    """The integration, over wrappers whose own ``plan`` and ``run`` do nothing."""
    from pytest_fib.integrations import flashinfer as integration

    for wrapper in WRAPPERS.values():
        plan, run = wrapper.plan, wrapper.run
        planned = functools.wraps(plan)(lambda self, *arguments, **keywords: None)
        ran = functools.wraps(run)(lambda self, *arguments, **keywords: "flashinfer's own")
        for name, member in list(vars(wrapper).items()):
            if member is plan:
                monkeypatch.setattr(wrapper, name, planned)
            elif member is run:
                monkeypatch.setattr(wrapper, name, ran)
            elif isinstance(member, functools.partialmethod) and member.func is run:
                monkeypatch.setattr(wrapper, name, functools.partialmethod(ran, **member.keywords))
    integration.install()
    yield integration
    integration.uninstall()
    disable_apply()
    disable_tracing()


def wrapper(kind, **attributes):
    made = object.__new__(WRAPPERS[kind])
    vars(made).update(attributes)
    return made


def ints(*numbers):
    return torch.tensor(numbers, dtype=torch.int32)


def bfloats(*shape):
    return torch.randn(shape).bfloat16()


def test_all_are_there_and_installing_twice_changes_nothing(installed):
    before = flashinfer.norm.rmsnorm
    report = installed.install()
    assert flashinfer.norm.rmsnorm is flashinfer.rmsnorm is before
    assert (len(report.routed), dict(report.missing)) == (6, {})
    installed.uninstall()
    assert flashinfer.norm.rmsnorm is not before
    assert WRAPPERS["decode"].begin_forward is WRAPPERS["decode"].plan


def test_norms_with_the_eps_of_the_reference(installed, monkeypatch):
    definition = Definition.model_validate(NORM)
    x, weight = bfloats(5, 64), bfloats(64)
    monkeypatch.setattr(flashinfer.norm, "_rmsnorm_impl", lambda out, *rest: out.zero_())
    with enable(definition):
        out = torch.empty_like(x)
        assert flashinfer.rmsnorm(x, weight, 1e-5, out) is out
        assert out.abs().sum() > 0
        assert flashinfer.rmsnorm(x, weight, eps=1e-5).equal(out)
        assert flashinfer.rmsnorm(x, weight).abs().sum() == 0
        assert flashinfer.rmsnorm(x.float(), weight, eps=1e-5).abs().sum() == 0
        assert stats()["rmsnorm_h64"].solutions == {"of_rmsnorm_h64": 2}
    reason = "eps is 1e-06, unlike in the reference of rmsnorm_h64"
    assert installed.unrouted() == {"flashinfer.norm.rmsnorm": {reason: 1}}
    assert flashinfer.rmsnorm(x, weight, eps=1e-5).abs().sum() == 0


def test_addition_and_norm_write_both_where_flashinfer_does(installed):
    x, residual, weight = bfloats(5, 64), bfloats(5, 64), bfloats(64)
    total = x + residual
    with enable(Definition.model_validate(ADDED)):
        assert flashinfer.fused_add_rmsnorm(x, residual, weight, 1e-5) is None
    assert residual.equal(total)
    wide = total.float()
    norm = wide * torch.rsqrt(wide.square().mean(-1, keepdim=True) + 1e-5) * weight.float()
    torch.testing.assert_close(x, norm.bfloat16(), rtol=2e-2, atol=2e-2)


@pytest.mark.parametrize("size", [1, 64])
def test_paged_decode(installed, size):
    name = f"gqa_paged_decode_h32_kv8_d128_ps{size}"
    definition = shipped(f"gqa_paged/gqa_paged_decode_ps{size}.yaml", name)
    q, k, v = bfloats(2, 32, 128), bfloats(3, size, 8, 128), bfloats(3, size, 8, 128)
    made = wrapper("decode", _kv_layout="NHD")
    with enable(definition):
        made.plan(ints(0, 1, 3), ints(2, 0, 1), ints(1, 1), 32, 8, 128, size)
        out, lse = made.run_return_lse(q, (k, v))
        assert (out.shape, lse.shape) == (q.shape, (2, 32))
        # The first sequence has one token, and its output is that token's value.
        expected = v[2, 0].repeat_interleave(4, dim=0)
        torch.testing.assert_close(out[0], expected, rtol=1e-2, atol=1e-2)
        buffer = torch.empty_like(out)
        assert made.forward(q, (k, v), sm_scale=0.1) is not None
        assert made.run(q, (k, v), out=buffer) is buffer
        assert stats()[name].hits == 3
    assert installed.unrouted() == {}


def test_paged_prefill_and_one_more_last_page(installed):
    name = "gqa_paged_prefill_causal_h32_kv8_d128_ps64"
    definition = shipped("gqa_paged/gqa_paged_prefill_ps64.yaml", name)
    q, k, v = bfloats(4, 32, 128), bfloats(3, 64, 8, 128), bfloats(3, 64, 8, 128)
    made = wrapper("prefill", _kv_layout="NHD", _causal=True)
    plan = (ints(0, 1, 4), ints(0, 1, 3), ints(2, 0, 1), ints(9, 7), 32, 8, 128, 64)
    with enable(definition):
        made.plan(*plan, causal=True, q_data_type=torch.bfloat16)
        assert made.run(q, (k, v)).shape == q.shape
        made.begin_forward(*plan, causal=True, window_left=128)
        assert made.run(q, (k, v)) == "flashinfer's own"
        made.plan(*plan, causal=True)
        assert made.run(q, torch.stack((k, v), 1)) == "flashinfer's own"
        made._causal = False
        assert made.run(q, (k, v)) == "flashinfer's own"
        assert stats()[name].hits == 1
    assert installed.unrouted()["flashinfer.prefill.BatchPrefillWithPagedKVCacheWrapper"] == {
        "plan(window_left=128)": 1,
        "k and v are not contiguous as pages of tokens (NHD)": 1,
        "it is not causal": 1,
    }


def test_ragged_prefill(installed):
    name = "gqa_ragged_prefill_causal_h32_kv4_d128"
    definition = shipped("gqa_ragged/gqa_ragged_prefill_causal_h32_d128.yaml", name)
    q, k, v = bfloats(3, 32, 128), bfloats(5, 4, 128), bfloats(5, 4, 128)
    made = wrapper("ragged", _kv_layout="NHD")
    with enable(definition):
        made.plan(ints(0, 1, 3), ints(0, 2, 5), 32, 4, 128, causal=True)
        assert made.run(q, k, v).shape == q.shape
        assert made.run(q, k, v, k_scale=0.5) == "flashinfer's own"
        assert stats()[name].hits == 1
    place = "flashinfer.prefill.BatchPrefillWithRaggedKVCacheWrapper"
    assert installed.unrouted() == {place: {"run(k_scale=0.5)": 1}}


def test_latent_attention(installed):
    name = "mla_paged_decode_h16_ckv512_kpe64_ps64"
    definition = shipped("mla_paged/mla_paged_decode_ps64.yaml", name)
    q, pe, ckv, kpe = (
        bfloats(2, 16, 512),
        bfloats(2, 16, 64),
        bfloats(3, 64, 512),
        bfloats(3, 64, 64),
    )
    sizes = {"num_heads": 16, "head_dim_ckv": 512, "head_dim_kpe": 64, "page_size": 64}
    made = wrapper("mla")
    with enable(definition):
        lengths = ints(1, 64 + 9)
        tensors = (ints(0, 1, 2), ints(0, 1, 3), ints(2, 0, 1), lengths)
        made.plan(*tensors, **sizes, causal=False, sm_scale=0.07)
        out = made.run(q, pe, ckv, kpe)
        expected = ckv[2, 0].expand(16, 512)
        torch.testing.assert_close(out[0], expected, rtol=1e-2, atol=1e-2)
        assert stats()[name].hits == 1
        made.plan(*tensors, **sizes, causal=False)
        assert made.run(q, pe, ckv, kpe) == "flashinfer's own"
    place = "flashinfer.mla.BatchMLAPagedAttentionWrapper"
    assert installed.unrouted() == {place: {"plan() was given no sm_scale": 1}}


def test_calls_are_recorded_with_what_was_planned(installed, tmp_path):
    name = "gqa_paged_decode_h32_kv8_d128_ps1"
    definition = shipped("gqa_paged/gqa_paged_decode_ps1.yaml", name)
    TraceSet([definition]).to_path(tmp_path)
    q, k, v = bfloats(2, 32, 128), bfloats(3, 1, 8, 128), bfloats(3, 1, 8, 128)
    made = wrapper("decode", _kv_layout="NHD")
    with tracing(tmp_path):
        made.plan(ints(0, 1, 3), ints(2, 0, 1), ints(1, 1), 32, 8, 128, 1)
        for _ in range(3):
            assert made.run(q, (k, v)) == "flashinfer's own"
    (recorded,) = TraceSet.from_path(tmp_path).workloads[name]
    assert recorded.workload.axes["num_kv_indices"] == 3
    assert recorded.workload.inputs["kv_indices"].type == "safetensors"
    assert list(TraceSet.from_path(tmp_path).counts(name).values()) == [3]


def test_graphs_are_not_routed_and_no_definition_is_said(installed, caplog):
    made = wrapper("decode", _kv_layout="NHD", _use_cuda_graph=True)
    q, k, v = bfloats(2, 32, 128), bfloats(3, 1, 8, 128), bfloats(3, 1, 8, 128)
    with enable(Definition.model_validate(NORM)):
        made.plan(ints(0, 1, 3), ints(2, 0, 1), ints(1, 1), 32, 8, 128, 1)
        made.run(q, (k, v))
        made._use_cuda_graph = False
        made.plan(ints(0, 1, 3), ints(2, 0, 1), ints(1, 1), 32, 8, 128, 1)
        made.run(q, (k, v))
        made.run(q, (k, v))
    reasons = installed.unrouted()["flashinfer.decode.BatchDecodeWithPagedKVCacheWrapper"]
    assert reasons["there is no definition gqa_paged_decode_h32_kv8_d128_ps1"] == 2
    assert any("CUDA graph mode" in reason for reason in reasons)
    assert len(caplog.records) == 2
