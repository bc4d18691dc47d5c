"""Whether an implementation can run here, and what is lacking where it can't."""

import tomllib
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from pytest_fib.build import CPU, Hardware, why_not_runnable
from pytest_fib.data import SupportedLanguages
from pytest_fib.discovery import Implementation

H200 = Hardware("cuda", (9, 0), "NVIDIA H200")
PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


@pytest.fixture
def reason():
    """Why an implementation with these facts can't run on a device."""

    def reason(device="cpu", **facts):
        implementation = Implementation("mine", "op", Path("mine.py"), 1, **facts)
        return why_not_runnable(implementation, CPU if device == "cpu" else H200)

    return reason


@pytest.mark.parametrize(
    "language", [language for language in SupportedLanguages if language.facts.extra]
)
def test_what_a_language_requires_is_in_its_extra(language):
    extras = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]
    names = {Requirement(text).name for text in extras[language.facts.extra]}
    assert language.facts.requires
    assert names >= set(language.facts.requires)


def test_a_missing_compiler_is_named_with_what_to_install(reason, monkeypatch):
    facts = {"language": "cpp", "binding": "torch"}
    monkeypatch.setenv("CXX", "no-such-compiler")
    why = "needs a C++ compiler; there is no no-such-compiler on PATH, which CXX names"
    assert reason(**facts) == why
    monkeypatch.delenv("CXX")
    with monkeypatch.context() as without:
        without.setenv("PATH", "/nowhere")
        why = "needs a C++ compiler: install g++; none of g++, c++, clang++ is on PATH"
        assert reason(**facts) == why
    monkeypatch.setattr("pytest_fib.build._toolchain._nvcc_places", lambda: iter(()))
    facts["language"] = "cuda"
    assert reason("cuda", **facts).startswith("needs nvcc, which is neither in CUDA_HOME nor on")


@pytest.mark.parametrize(
    ("installed", "why"),
    [
        ("2.13.0+cpu", "needs a torch that is built for CUDA, 2.13.0+cpu is installed"),
        ("2.13.0", None),
    ],
)
def test_a_torch_extension_in_cuda_wants_a_torch_for_it(reason, monkeypatch, installed, why):
    monkeypatch.setattr("pytest_fib.build._runnable.installed_version", lambda name: installed)
    monkeypatch.setattr("pytest_fib.build._runnable.why_no_toolchain", lambda language: None)
    assert reason("cuda", language="cuda", binding="torch") == why
    assert reason(language="cpp", binding="torch", target_hardware=("cpu",)) is None


@pytest.mark.parametrize(("language", "binding"), [("cpp", None), ("cuda", "tvm-ffi")])
def test_a_missing_binding_is_a_reason(reason, language, binding, monkeypatch):
    def absent(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", absent)
    monkeypatch.setattr("pytest_fib.build._runnable.find_spec", lambda name: None)
    why = "needs apache-tvm-ffi, which is not installed: pip install 'pytest-fib[cuda]'"
    assert reason("cuda", language=language, binding=binding) == why


@pytest.mark.parametrize(
    ("requirement", "expected"),
    [
        ("torch", None),
        (" torch>=2 ", None),
        ("yaml", None),
        ("torch>=99; sys_platform == 'nowhere'", None),
        ("torch>=99", f"needs torch>=99, {version('torch')} is installed"),
        ("no-such-thing", "needs no-such-thing, which is not installed: pip install no-such-thing"),
    ],
)
def test_a_dependency_is_read_as_pip_reads_it(reason, requirement, expected):
    assert reason(dependencies=(requirement,)) == expected


def test_what_an_extra_has_is_installed_by_its_name(reason, monkeypatch):
    def absent(name):
        raise PackageNotFoundError(name)

    monkeypatch.setattr("importlib.metadata.version", absent)
    monkeypatch.setattr("pytest_fib.build._runnable.find_spec", lambda name: None)
    why = "needs tilelang, which is not installed: pip install 'pytest-fib[tilelang]'"
    assert reason(dependencies=("tilelang",)) == why


@pytest.mark.parametrize(
    ("device", "language", "targets", "expected"),
    [
        ("cpu", "python", ("cpu",), None),
        ("cuda", "python", ("cuda",), None),
        ("cpu", "triton", ("cuda",), None),  # by its interpreter
        ("cpu", "python", ("cuda", "B200"), "targets b200, cuda; this run is on the CPU"),
        ("cuda", "python", ("CPU",), "targets the CPU only; this run is on NVIDIA H200 (sm_90)"),
        ("cuda", "triton", ("sm_90a",), None),
        ("cuda", "triton", ("NVIDIA_H100",), None),  # of the same architecture
        ("cuda", "triton", ("B200",), "targets b200; this run is on NVIDIA H200 (sm_90)"),
        ("cuda", "cuda", ("sm_80",), "targets sm_80; this run is on NVIDIA H200 (sm_90)"),
        ("cuda", "triton", ("hip",), "targets hip; this run is on NVIDIA H200 (sm_90)"),
    ],
)
def test_an_implementation_runs_on_its_hardware_only(reason, device, language, targets, expected):
    assert reason(device, language=language, target_hardware=targets) == expected


def test_major_versions_say_which_devices_are_meant(reason):
    facts = {"language": "triton", "target_hardware": ("cuda",)}
    assert reason("cuda", supported_major_versions=(9, 10), **facts) is None
    why = "supports compute capabilities 10.x; this run is on NVIDIA H200 (sm_90)"
    assert reason("cuda", supported_major_versions=(10,), **facts) == why
