"""What was built on one machine is loaded on another, by what it was built from."""

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

import pytest

from pytest_fib.build import (
    Artifact,
    Built,
    KernelResources,
    Prebuilt,
    PrebuiltEntry,
    write_artifact,
    write_manifest,
)

ARTIFACT = Artifact(b"a library", Built("x.so", kernels=(KernelResources("k", 32),)))


@pytest.fixture
def prebuilt(double, tmp_path):
    """A folder that has what one program was built to, and says that another fails."""
    named = "scale", "double", "cpp", "cpu"
    digest = write_artifact(tmp_path, "x.so", ARTIFACT)
    key = Prebuilt.key(double)
    entries = [
        PrebuiltEntry(*named, "PASSED", "", "x.so", digest, key, ARTIFACT.built.kernels),
        PrebuiltEntry(*named, "COMPILE_ERROR", "double.cpp:1: no"),
    ]
    write_manifest(tmp_path, entries)
    return Prebuilt(tmp_path)


def test_threads_may_write_the_same_artifact(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        digests = list(pool.map(lambda _: write_artifact(tmp_path, "x.so", ARTIFACT), range(400)))
    assert len({*digests}) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["x.so"]


@pytest.mark.parametrize("same", [{}, {"name": "other"}, {"directory": "/elsewhere"}])
def test_it_is_found_without_any_compiler(prebuilt, double, same, monkeypatch):
    monkeypatch.setenv("CXX", "no-such-compiler")
    assert prebuilt.has(replace(double, **same))
    assert prebuilt.find(replace(double, **same)) == ARTIFACT


@pytest.mark.parametrize("other", [{"sources": (("double.cpp", ""),)}, {"language": "cuda"}])
def test_what_was_built_from_something_else_is_not_found(prebuilt, double, other):
    changed = replace(double, **other)
    assert not prebuilt.has(changed)
    assert prebuilt.find(changed) is None


def test_what_was_built_for_another_target_is_not_found(prebuilt, double):
    changed = replace(double, compilation=replace(double.compilation, target="sm_80"))
    assert prebuilt.find(changed) is None


@pytest.mark.parametrize("content", [b"a Library", b"", None])
def test_a_file_that_was_changed_counts_as_missing(prebuilt, double, content):
    path = prebuilt.folder / "x.so"
    path.unlink() if content is None else path.write_bytes(content)
    assert prebuilt.find(double) is None


@pytest.mark.parametrize("text", ["", "[]", '{"format": 2}', '{"builds": [{}], "format": 2}'])
def test_what_is_no_manifest_is_an_error(tmp_path, text):
    (tmp_path / "manifest.json").write_text(text)
    with pytest.raises(ValueError, match="is not a manifest of builds"):
        Prebuilt(tmp_path)


def test_a_manifest_of_another_format_is_an_error(prebuilt):
    path = prebuilt.folder / "manifest.json"
    path.write_text(json.dumps({**json.loads(path.read_text()), "format": 0}))
    with pytest.raises(ValueError, match="another version of pytest-fib: build anew"):
        Prebuilt(prebuilt.folder)


def test_the_environment_may_name_the_folder(prebuilt, monkeypatch):
    assert Prebuilt.from_environment() is None
    monkeypatch.setenv("FIB_PREBUILT_PATH", str(prebuilt.folder))
    assert Prebuilt.from_environment().folder == prebuilt.folder
