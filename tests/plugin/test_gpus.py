"""Which worker gets which GPU."""

from types import SimpleNamespace

import pytest

from pytest_fib.build import gpus


@pytest.fixture
def bind(scale, monkeypatch):
    """The GPUs of so many workers, on a machine with so many devices under such a mask."""

    def bind(workers, devices, mask=None, environments=None):
        monkeypatch.setattr(gpus, "count", lambda: devices)
        if mask is None:
            monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        else:
            monkeypatch.setenv("CUDA_VISIBLE_DEVICES", mask)
        specs = [SimpleNamespace(env=dict(e)) for e in environments or [{}] * workers]
        config = scale.pytester.parseconfigure("--fib-device=auto")
        config.pluginmanager.getplugin("fib-devices").pytest_xdist_setupnodes(specs)
        return [spec.env.get("CUDA_VISIBLE_DEVICES") for spec in specs]

    return bind


def test_workers_are_spread_over_the_devices(bind):
    assert bind(workers=3, devices=2) == ["0", "1", "0"]


def test_every_worker_shares_an_only_device(bind):
    assert bind(workers=8, devices=1) == ["0"] * 8


def test_workers_get_devices_of_the_callers_own_mask(bind):
    assert bind(workers=3, devices=2, mask="5, 3") == ["5", "3", "5"]


def test_a_mask_may_name_devices_by_uuid(bind):
    mask = "GPU-8932f937-d72c,MIG-3a8b1c0d-5e6f"
    assert bind(workers=2, devices=2, mask=mask) == ["GPU-8932f937-d72c", "MIG-3a8b1c0d-5e6f"]


def test_names_after_an_invalid_one_are_not_used(bind):
    # The driver stops reading a mask at the first device that it does not know.
    assert bind(workers=2, devices=1, mask="0,17,1") == ["0", "0"]


@pytest.mark.parametrize("mask", [None, ""])
def test_without_devices_the_environment_is_left_alone(bind, mask):
    assert bind(workers=2, devices=0, mask=mask) == [None, None]


def test_a_worker_that_names_its_device_keeps_it(bind):
    environments = [{"CUDA_VISIBLE_DEVICES": "1"}, {}]
    assert bind(workers=2, devices=2, environments=environments) == ["1", "1"]


def test_a_torch_without_cuda_has_no_devices(monkeypatch):
    monkeypatch.setattr(gpus, "_on_the_driver", lambda: 2)
    monkeypatch.setattr("importlib.metadata.version", lambda name: "2.13.0+cpu")
    assert gpus.count.__wrapped__() == 0
    assert gpus.why_none() == "torch is built without CUDA"
    monkeypatch.setattr("importlib.metadata.version", lambda name: "2.13.0")
    assert gpus.count.__wrapped__() == 2


def test_a_machine_without_a_driver_has_no_devices(monkeypatch):
    def refuse(name):
        raise OSError(name)

    monkeypatch.setattr("ctypes.CDLL", refuse)
    assert gpus.count.__wrapped__() == 0
    assert gpus.why_none() == "there is no CUDA device on this machine"


@pytest.mark.thorough
def test_workers_are_bound_before_they_start(scale, monkeypatch):
    scale.write(
        "conftest.py",
        """\
        import os
        from pytest_fib.build import gpus

        gpus.count = lambda: 2

        def pytest_collection_finish():
            if worker := os.environ.get("PYTEST_XDIST_WORKER"):
                open(worker, "w").write(os.environ["CUDA_VISIBLE_DEVICES"])
        """,
    )
    for name in ("CUDA_VISIBLE_DEVICES", "PYTEST_XDIST_WORKER"):
        monkeypatch.delenv(name, raising=False)
    scale.implement("good", "x, factor\nreturn x", more=', target_hardware=["cpu"]')
    scale.run_apart("-n", "2", "--fib-device=auto").assert_outcomes(skipped=1)
    assert [(scale.path / name).read_text() for name in ("gw0", "gw1")] == ["0", "1"]
