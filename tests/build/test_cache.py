"""Builds are kept by what decides them, and nothing else."""

import hashlib
import os
import threading
import time
from dataclasses import replace

import pytest

from pytest_fib.build import Artifact, ArtifactCache, Built, KernelResources
from pytest_fib.temporary import remove_folder

KEY = "0" * 64
ARTIFACT = Artifact(b"a library\nof two lines", Built("x.so", kernels=(KernelResources("k", 32),)))


@pytest.fixture
def cache(tmp_path):
    (tmp_path / "builds").mkdir()
    return ArtifactCache(tmp_path / "builds")


@pytest.mark.parametrize("same", [{"name": "other"}, {"directory": "/elsewhere"}])
def test_names_and_folders_are_no_part_of_the_key(double, same):
    assert ArtifactCache.key(replace(double, **same)) == ArtifactCache.key(double)


@pytest.mark.parametrize(
    "other",
    [
        {"sources": (("double.cpp", "int x;"), ("factor.h", ""))},
        {"calling": "value"},
        {"target": "sm_90a"},
        {"cflags": ("-g",)},
        {"include_paths": ("/opt",)},
        {"binding": "torch"},
    ],
)
def test_all_that_changes_the_binary_is_in_the_key(double, other):
    fields = {name for name in other if name in vars(double)}
    changed = replace(
        double,
        compilation=replace(
            double.compilation, **{k: v for k, v in other.items() if k not in fields}
        ),
        **{name: other[name] for name in fields},
    )
    assert ArtifactCache.key(changed) != ArtifactCache.key(double)


def test_the_version_of_the_compiler_is_in_the_key(double, monkeypatch, tmp_path):
    compiler = tmp_path / "newer"
    compiler.write_text("#!/bin/sh\necho version 99\n")
    compiler.chmod(0o755)
    key = ArtifactCache.key(double)
    monkeypatch.setenv("CXX", str(compiler))
    assert ArtifactCache.key(double) != key


def test_what_the_environment_has_compilers_do_is_in_the_key(double, monkeypatch):
    key = ArtifactCache.key(double)
    monkeypatch.setenv("CPATH", "/opt/include")
    assert ArtifactCache.key(double) != key


def test_what_was_added_is_found(cache):
    assert cache.find(KEY) is None
    cache.add(KEY, ARTIFACT)
    assert cache.find(KEY) == ARTIFACT
    cache.clear()
    assert cache.find(KEY) is None


def test_a_folder_that_holds_other_things_is_not_removed(cache):
    cache.add(KEY, ARTIFACT)
    (cache.folder / "thesis.tex").write_text("")
    with pytest.raises(ValueError, match=r"is not removed: 'thesis\.tex' in it is not a build"):
        cache.clear()
    assert cache.find(KEY) == ARTIFACT


@pytest.mark.parametrize("place", [0, 70, -1])
def test_an_entry_that_was_changed_counts_as_missing(cache, place):
    cache.add(KEY, ARTIFACT)
    (entry,) = cache.folder.iterdir()
    content = bytearray(entry.read_bytes())
    content[place] ^= 1
    entry.write_bytes(content)
    assert cache.find(KEY) is None
    entry.write_bytes(content[:40])
    assert cache.find(KEY) is None


def test_an_entry_in_the_place_of_another_counts_as_missing(cache):
    cache.add(KEY, ARTIFACT)
    (entry,) = cache.folder.iterdir()
    other = "1" * 64
    entry.rename(entry.with_name(entry.name.replace(KEY, other)))
    assert cache.find(other) is None
    cache.add(other, ARTIFACT)
    assert cache.find(other) == ARTIFACT


def test_an_entry_is_of_no_use_once_a_header_has_changed(cache, tmp_path):
    header = tmp_path / "lib.h"
    header.write_text("")
    empty = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
    cache.add(KEY, replace(ARTIFACT, built=Built("x.so", headers=((str(header), empty),))))
    assert cache.find(KEY) is not None
    header.write_text("#define NEW")
    assert cache.find(KEY) is None


@pytest.mark.parametrize("name", ["pipe", "/dev/zero", "/proc/self/pagemap", "gone", "a\0b"])
def test_a_header_that_is_no_file_is_not_waited_for(cache, tmp_path, name):
    os.mkfifo(tmp_path / "pipe")
    headers = ((str(tmp_path / name), hashlib.sha256(b"#pragma once").hexdigest()),)
    cache.add(KEY, replace(ARTIFACT, built=Built("x.so", headers=headers)))
    assert cache.find(KEY) is None


def test_the_entries_that_were_not_used_for_longest_go(tmp_path):
    cache = ArtifactCache(tmp_path, size_limit=5000)
    large = replace(ARTIFACT, content=bytes(2000))
    for number, used in enumerate((20, 10)):
        cache.add(f"{number:064}", large)
        os.utime(tmp_path / f"{number:064}.artifact", (used, used))
    cache.add(f"{2:064}", large)
    assert [cache.find(f"{number:064}") is not None for number in range(3)] == [True, False, True]


def test_what_compilers_keep_counts_and_goes_unless_it_is_in_use(tmp_path):
    cache = ArtifactCache(tmp_path, size_limit=5000)
    long_ago = time.time() - 1e6
    for name, used in (("old", long_ago), ("older", long_ago - 1), ("now", time.time())):
        folder = tmp_path / "triton" / name / "kernel"
        folder.mkdir(parents=True)
        (folder / "kernel.cubin").write_bytes(bytes(2000))
        os.utime(folder.parent, (used, used))
    cache.add(KEY, replace(ARTIFACT, content=bytes(500)))
    assert {path.name for path in (tmp_path / "triton").iterdir()} == {"old", "now"}
    cache.add("1" * 64, replace(ARTIFACT, content=bytes(2500)))
    assert [path.name for path in (tmp_path / "triton").iterdir()] == ["now"]
    assert cache.find("1" * 64) is not None


def test_whatever_is_planted_among_what_compilers_keep_leaves_the_cache_as_it_is(tmp_path):
    cache = ArtifactCache(tmp_path / "builds", size_limit=5000)
    caches, mine = tmp_path / "builds" / "triton", tmp_path / "mine"
    mine.mkdir()
    (mine / "thesis.tex").write_bytes(bytes(6000))
    caches.mkdir(parents=True)
    (caches / "lost").symlink_to("gone")
    (caches / "mine").symlink_to(mine)
    os.mkfifo(caches / "pipe")
    (caches / "hole").touch()
    os.truncate(caches / "hole", 1 << 40)
    (caches / "tomorrow").mkdir()
    (caches / "tomorrow/kernel").write_bytes(bytes(6000))
    os.utime(caches / "tomorrow", (time.time() + 1e6,) * 2)
    deep = os.open(caches, os.O_RDONLY)
    for _ in range(1500):
        os.mkdir("deep", dir_fd=deep)
        deeper = os.open("deep", os.O_RDONLY, dir_fd=deep)
        os.close(deep)
        deep = deeper
    os.close(deep)
    cache.add(KEY, ARTIFACT)
    assert cache.find(KEY) == ARTIFACT
    assert (mine / "thesis.tex").exists()
    assert not (caches / "tomorrow").exists()
    cache.clear()
    assert (mine / "thesis.tex").exists()
    remove_folder(tmp_path / "builds", seconds=60.0)  # pytest could not


def test_one_builds_and_the_others_wait(cache, monkeypatch):
    monkeypatch.setattr("pytest_fib.build._cache.BUILD_PATIENCE", 0.0)
    told = threading.Event()
    messages, waited_for = [], []
    waiting = ArtifactCache(cache.folder, lambda message: (messages.append(message), told.set()))

    def wait():
        waited_for.append(waiting.get(KEY, "double for cpu", 60.0, lambda: "built once more"))

    thread = threading.Thread(target=wait)

    def build():
        thread.start()
        assert told.wait(30.0)
        return ARTIFACT

    assert cache.get(KEY, "double for cpu", 60.0, build) == ARTIFACT
    thread.join(30.0)
    assert waited_for == [ARTIFACT]
    assert messages == ["waiting for another process that builds double for cpu"]


def test_who_waits_for_too_long_builds_anyway(cache):
    def build():
        return cache.get(KEY, "x", 0.05, lambda: ARTIFACT)

    assert cache.get(KEY, "x", 60.0, build) == ARTIFACT


def test_a_failure_is_tried_again(cache):
    assert cache.get(KEY, "x", 60.0, lambda: "no compiler") == "no compiler"
    assert cache.get(KEY, "x", 60.0, lambda: ARTIFACT) == ARTIFACT


def test_without_a_folder_nothing_is_kept():
    cache = ArtifactCache(None)
    assert cache.get(KEY, "x", 1.0, lambda: ARTIFACT) == ARTIFACT
    assert cache.find(KEY) is None
