"""Definitions matched with implementations."""

import pytest

from pytest_fib.implementations import find_implementations, load_catalogue


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


def test_strays_are_told_with_the_nearest_name(catalogue, tmp_path):
    known = catalogue(["scale"], b="scael", a="conv_*", c="scale")
    assert known.strays() == [
        f"{tmp_path}/a.py:2: implements 'conv_*', which no file defines",
        f"{tmp_path}/b.py:2: implements 'scael', which no file defines; did you mean 'scale'?",
    ]


def test_many_strays_end_in_one_sentence(catalogue):
    known = catalogue(["scale"], **{f"m{i:02}": "conv" for i in range(23)})
    sentences = known.strays()
    assert len(sentences) == 21
    assert sentences[-1] == "3 more implementations are of definitions that no file has"


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
    assert known.broken == {plain: "scale", family: "scale_*", nameless: "nameless"}
    assert known.errors.keys() == known.broken.keys()
    assert known.definitions == {}
