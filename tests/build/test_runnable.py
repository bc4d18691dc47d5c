"""Whether an implementation can run here, and what is lacking where it can't."""

import tomllib
from importlib.metadata import version
from pathlib import Path

import pytest

from pytest_fib.build import why_not_runnable
from pytest_fib.data import SupportedLanguages
from pytest_fib.discovery import Implementation

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


@pytest.fixture
def reason():
    """Why an implementation with these facts can't run on a device."""

    def reason(device="cpu", **facts):
        return why_not_runnable(Implementation("mine", "op", Path("mine.py"), 1, **facts), device)

    return reason


@pytest.mark.parametrize(
    "language", [language for language in SupportedLanguages if language.extra]
)
def test_what_a_language_requires_is_in_its_extra(language):
    extras = tomllib.loads(PYPROJECT.read_text())["project"]["optional-dependencies"]
    names = {name.partition(">")[0] for name in extras[language.extra]}
    assert language.requires
    assert names >= set(language.requires)


@pytest.mark.parametrize("language", ["cpp", "cuda", "tilelang", "cutedsl"])
def test_a_language_without_a_builder_says_which_have_one(reason, language):
    expected = f"no builder for {language!r} yet (there are: python, triton)"
    assert reason(language=language) == expected


@pytest.mark.parametrize(
    ("requirement", "expected"),
    [
        ("torch", None),
        (" torch>=2 ", None),
        ("yaml", None),
        ("torch>=99; sys_platform == 'nowhere'", None),
        ("torch>=99", f"needs torch>=99, {version('torch')} is installed"),
        ("tilelang", "needs tilelang, which is not installed: pip install 'pytest-fib[tilelang]'"),
        ("no-such-thing", "needs no-such-thing, which is not installed: pip install no-such-thing"),
    ],
)
def test_a_dependency_is_read_as_pip_reads_it(reason, requirement, expected):
    assert reason(dependencies=(requirement,)) == expected


@pytest.mark.parametrize(
    ("device", "language", "targets", "expected"),
    [
        ("cpu", "python", ("cpu",), None),
        ("cuda", "python", ("cuda",), None),
        ("cpu", "triton", ("cuda",), None),  # by its interpreter
        ("cpu", "python", ("cuda", "B200"), "targets b200, cuda; this run is on the CPU"),
        ("cuda", "python", ("CPU",), "targets the CPU only; this run is on CUDA"),
    ],
)
def test_an_implementation_runs_on_its_hardware_only(reason, device, language, targets, expected):
    assert reason(device, language=language, target_hardware=targets) == expected
