"""Definitions matched with implementations."""

import errno
import os
from pathlib import Path

import pytest

from pytest_fib.discovery import find_implementations, load_catalogue


@pytest.fixture
def catalogue(tmp_path, scale_yaml):
    """The catalogue of definitions by these names and marks ``module: definition``."""

    def catalogue(names, **marks):
        files = []
        for name in names:
            path = tmp_path / f"{name}.yaml"
            path.write_text(scale_yaml.replace("name: scale", f"name: {name}"))
            files.append(path)
        for module, definition in marks.items():
            path = tmp_path / f"{module}.py"
            path.write_text(f'@implements("{definition}")\ndef run(x): ...\n')
        return load_catalogue([files], find_implementations([tmp_path]))

    return catalogue


def test_names_and_globs_find_their_definitions(catalogue):
    known = catalogue(["scale_f16", "scale_f32", "norm"], b="scale_*", a="scale_f32", c="norm")
    assert known.names == ["norm", "scale_f16", "scale_f32"]
    found = {name: [i.name for i in known.implementations_of(name)] for name in known.names}
    assert found == {"norm": ["c"], "scale_f16": ["b"], "scale_f32": ["a", "b"]}
    assert known.strays() == []


@pytest.mark.parametrize("glob", ["*", "s?ale_f16", "scale_f[0-9]6", "*16"])
def test_any_glob_matches_as_the_shell_does(catalogue, glob):
    known = catalogue(["scale_f16"], a=glob)
    assert [i.name for i in known.implementations_of("scale_f16")] == ["a"]


def test_a_stray_is_reported_with_the_nearest_name(catalogue, tmp_path):
    known = catalogue(["scale"], b="scael", a="conv_*", c="scale")
    assert known.strays() == [
        f"{tmp_path}/a.py:2: implements 'conv_*', which no file defines",
        f"{tmp_path}/b.py:2: implements 'scael', which no file defines; did you mean 'scale'?",
    ]


def test_many_strays_end_in_one_sentence(catalogue):
    known = catalogue(["scale"], **{f"m{i:02}": "conv" for i in range(23)})
    sentences = known.strays()
    assert len(sentences) == 21
    assert sentences[-1] == "3 more implementations name unknown definitions"


def test_two_implementations_of_one_name_are_one_problem(catalogue, tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.py").write_text('@implements("scale")\ndef run(x): ...\n')
    [found] = catalogue(["scale"], a="scale").implementations_of("scale")
    assert found.problem == (
        f"two implementations are named 'a': {tmp_path}/a.py:2 and {tmp_path}/sub/a.py:2; "
        "rename one of them"
    )


def test_one_name_for_two_definitions_is_no_problem(catalogue, tmp_path):
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "a.py").write_text('@implements("norm")\ndef run(x): ...\n')
    known = catalogue(["scale", "norm"], a="scale")
    assert [i.problem for name in known.names for i in known.implementations_of(name)] == [
        None,
        None,
    ]


def test_a_broken_definition_is_known_by_the_name_it_seems_to_have(tmp_path, scale_yaml):
    plain, family, nameless = (tmp_path / f"{n}.yaml" for n in ("plain", "family", "nameless"))
    plain.write_text(scale_yaml.replace("n: var", "n: vra"))
    family.write_text('family: {t: [a]}\nname: "scale_${t}"\n')
    nameless.write_text("axes: [")
    known = load_catalogue([[plain, family, nameless]], ())
    likely = {path: file.names for path, file in known.broken.items()}
    assert likely == {plain: "scale", family: "scale_*", nameless: "nameless"}
    assert all(file.problem.startswith(f"{path}:") for path, file in known.broken.items())
    assert known.definitions == {}


@pytest.fixture
def unreadable(tmp_path):
    """Links that lead nowhere and in a circle, and a pipe, by what is said of them."""
    pipe = tmp_path / "pipe.yaml"
    os.mkfifo(pipe)
    lost, circle = tmp_path / "lost.yaml", tmp_path / "circle.yaml"
    lost.symlink_to("gone")
    circle.symlink_to("circle.yaml")
    return {
        lost: f"{lost}:1: can't be read: it links to gone, which does not exist",
        circle: f"{circle}:1: can't be read: Too many levels of symbolic links",
        pipe: f"{pipe}:1: can't be read: it is no regular file",
    }


def test_what_leads_to_no_file_is_one_sentence_and_the_others_go_on(
    tmp_path, scale_yaml, unreadable
):
    path = tmp_path / "scale.yaml"
    path.write_text(scale_yaml)
    known = load_catalogue([[*unreadable, path]], ())
    assert known.names == ["scale"]
    assert known.strays() == list(unreadable.values())
    assert known.broken == {}


def test_a_file_that_may_not_be_read_is_an_error_of_its_own(tmp_path, scale_yaml, monkeypatch):
    closed, path = tmp_path / "closed.yaml", tmp_path / "scale.yaml"
    for file in (closed, path):
        file.write_text(scale_yaml)
    read_text = Path.read_text

    def refuse(self, *args, **kwargs):
        if self == closed:
            raise PermissionError(errno.EACCES, "Permission denied", str(self))
        return read_text(self, *args, **kwargs)

    monkeypatch.setattr(Path, "read_text", refuse)
    known = load_catalogue([[closed, path]], ())
    assert known.names == ["scale"]
    [(path, broken)] = known.broken.items()
    assert (path, broken.names) == (closed, "closed")
    assert broken.problem == f"{closed}:1: can't be read: Permission denied"
