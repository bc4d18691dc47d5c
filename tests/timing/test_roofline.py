"""Where times lie below a device's ceilings, and where those are kept."""

import json
import os
from pathlib import Path

import pytest

from pytest_fib.data import Definition
from pytest_fib.timing import Ceilings, DeviceCeilings, compute_dtype, roofline

CACHE_BYTES = 32 << 20
DEVICE = Ceilings(4e12, {"bfloat16": 8e14, "float8_e4m3fn": 16e14, "float32": 4e14}, 60 << 20)


def test_a_copy_is_bound_by_memory():
    roof = roofline(10**9, 0, "bfloat16", DEVICE, 500e-6)
    assert roof.bound_by == "memory"
    assert roof.ceiling_share == pytest.approx(0.5)
    assert roof.gigabytes_per_second == pytest.approx(2000)
    assert roof.teraflops_per_second == 0
    assert roofline(10**9, None, "bfloat16", DEVICE, 500e-6).teraflops_per_second is None


def test_a_large_product_is_bound_by_its_operations():
    roof = roofline(10**6, 8 * 10**11, "bfloat16", DEVICE, 4e-3)
    assert (roof.bound_by, roof.ceiling_share) == ("compute", pytest.approx(0.25))
    assert roof.teraflops_per_second == pytest.approx(200)


@pytest.mark.parametrize(
    ("dtype", "rate"),
    [
        ("float8_e5m2", 16e14),
        ("float4_e2m1", 16e14),
        ("float16", 4e14),  # was not measured, so the next wider
        ("float32", 4e14),
    ],
)
def test_what_was_not_measured_has_a_stand_in(dtype, rate):
    assert DEVICE.flops_of(dtype) == rate


@pytest.mark.parametrize(("size", "bound"), [(10 << 20, None), (1 << 30, "memory")])
def test_with_warm_caches_memory_binds_only_what_they_cannot_hold(size, bound):
    roof = roofline(size, 0, "bfloat16", DEVICE, 1e-3, cold=False)
    assert roof.bound_by == bound
    assert (roof.ceiling_share is None) == (bound is None)
    assert roofline(size, 0, "bfloat16", DEVICE, 1e-3).bound_by == "memory"


@pytest.mark.parametrize(
    ("dtypes", "expected"),
    [
        ({"a": ("bfloat16", 2), "s": ("float32", 1)}, "bfloat16"),
        ({"a": ("float8_e4m3fn", 2), "s": ("float32", 2)}, "float8_e4m3fn"),
        ({"x": ("float16", 1), "i": ("int32", 2)}, "float16"),
        ({"i": ("int32", 2)}, "float32"),
    ],
)
def test_products_may_be_of_the_narrowest_matrices(dtypes, expected):
    inputs = {n: {"shape": ["n"] * dims, "dtype": dtype} for n, (dtype, dims) in dtypes.items()}
    definition = Definition.model_validate(
        {
            "name": "op",
            "op_type": "op",
            "axes": {"n": "var"},
            "inputs": inputs,
            "outputs": {"y": {"shape": ["n"], "dtype": "float32"}},
            "reference": f"def run({', '.join(inputs)}): ...",
        }
    )
    assert compute_dtype(definition) == expected


@pytest.fixture
def measured(monkeypatch, tmp_path):
    """How often ceilings were measured; the cache is empty, and measuring takes no time."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    calls = []

    def measure():
        calls.append(1)
        return Ceilings(4e10, {"float32": 1e11}, CACHE_BYTES)

    monkeypatch.setattr("pytest_fib.timing._roofline._cpu_ceilings", measure)
    monkeypatch.setattr("pytest_fib.timing._roofline.last_cache_bytes", lambda: CACHE_BYTES)
    return calls


def ceilings(threads=1):
    """What a judge that starts now goes by."""
    return DeviceCeilings("cpu", threads).known()


def kept():
    """The only file that they are kept in."""
    [file] = Path(os.environ["XDG_CACHE_HOME"], "pytest-fib/ceilings").glob("cpu-*.json")
    return file


def test_ceilings_are_measured_once_for_each_number_of_threads(measured):
    first = ceilings()
    assert ceilings() == first
    assert len(measured) == 1
    ceilings(threads=2)
    assert len(measured) == 2


def test_the_file_says_what_was_measured_on_what(measured):
    ceilings()
    content = json.loads(kept().read_text())
    assert content["device"].keys() == {"model", "threads", "torch"}
    assert content["ceilings"]["bytes_per_second"] == 4e10


@pytest.mark.parametrize(
    "content",
    [
        *("", "{}", "[1]", '{"ceilings": {"rate": 1}}', '{"ceilings": []}'),
        '{"ceilings": {"bytes_per_second": -1.0, "flops_per_second": {}}}',
        '{"ceilings": {"bytes_per_second": NaN, "flops_per_second": {}}}',
        '{"ceilings": {"bytes_per_second": Infinity, "flops_per_second": {}}}',
        '{"ceilings": {"bytes_per_second": 1.0, "flops_per_second": {"float32": "1"}}}',
        '{"ceilings": {"bytes_per_second": 1.0, "flops_per_second": [1.0]}}',
    ],
)
def test_a_file_that_is_something_else_is_replaced(measured, content):
    ceilings()
    kept().write_text(content)
    assert ceilings() == ceilings()
    assert len(measured) == 2


def test_what_is_written_while_a_judge_runs_is_not_for_it(measured):
    first, second = DeviceCeilings("cpu", 1), DeviceCeilings("cpu", 1)
    found = first.known()
    forged = kept().read_text().replace("40000000000.0", "4e30")
    assert "4e30" in forged
    kept().write_text(forged)
    assert first.known() == found
    assert second.known() == found
    assert len(measured) == 2


def test_how_large_the_cache_is_is_not_taken_from_a_file(measured):
    ceilings()
    content = json.loads(kept().read_text())
    content["ceilings"]["cache_bytes"] = 1 << 50
    kept().write_text(json.dumps(content))
    assert ceilings().cache_bytes == CACHE_BYTES
    assert len(measured) == 1


def test_without_a_place_to_keep_them_ceilings_are_measured_all_the_same(measured, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", "/proc/none")
    assert ceilings() == ceilings()
    assert len(measured) == 2


def test_measuring_leaves_the_number_of_threads_as_it_was(measured):
    import torch

    before = torch.get_num_threads()
    ceilings(threads=before + 1)
    assert torch.get_num_threads() == before


def test_this_machine_copies_and_multiplies(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    measured = ceilings()
    assert 1e8 < measured.bytes_per_second < 1e13
    assert 1e8 < measured.flops_per_second["float32"] < 1e14
    assert measured.cache_bytes > 1 << 18
