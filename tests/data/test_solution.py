import pytest
from pydantic import ValidationError

from pytest_fib.data import BuildSpec, Solution, SourceFile, SupportedLanguages


def spec(**changes):
    fields = {"language": "triton", "target_hardware": ["cuda"], "entry_point": "main.py::run"}
    return fields | changes


def solution(**changes):
    fields = {
        "name": "scale_fast",
        "definition": "scale_d128",
        "author": "someone",
        "spec": spec(),
        "sources": [{"path": "main.py", "content": "def run(x, y): ..."}],
    }
    return Solution(**(fields | changes))


def complaint(**changes):
    with pytest.raises(ValidationError) as caught:
        solution(**changes)
    (error,) = caught.value.errors()
    return ".".join(map(str, error["loc"])), error["msg"].removeprefix("Value error, ")


def test_the_languages_are_the_fields_and_cutedsl():
    assert [*SupportedLanguages] == ["python", "triton", "cpp", "cuda", "tilelang", "cutedsl"]


def test_destination_passing_is_the_default():
    build = BuildSpec(**spec())
    assert (build.destination_passing_style, build.calling) == (True, "destination")


@pytest.mark.parametrize(("in_place", "calling"), [(True, "destination"), (False, "value")])
def test_calling_follows_from_destination_passing_style(in_place, calling):
    assert BuildSpec(**spec(destination_passing_style=in_place)).calling == calling


@pytest.mark.parametrize("given", [{}, {"destination_passing_style": True}])
@pytest.mark.parametrize("calling", ["value", "destination", "tuple"])
def test_calling_given_decides_destination_passing_style(calling, given):
    build = BuildSpec(**spec(calling=calling, **given))
    assert build.calling == calling
    assert build.destination_passing_style == (calling == "destination")


@pytest.mark.parametrize("calling", ["value", "destination", "tuple"])
def test_calling_is_exported_only_where_the_schema_cannot_say_it(calling):
    record = solution(spec=spec(calling=calling))
    exported = record.to_flashinfer()
    assert ("calling" in exported["spec"]) == (calling == "tuple")
    assert Solution(**exported) == record


def test_export_has_plain_values_and_no_absent_keys():
    assert solution().to_flashinfer() == {
        "name": "scale_fast",
        "definition": "scale_d128",
        "author": "someone",
        "spec": {
            "language": "triton",
            "target_hardware": ["cuda"],
            "entry_point": "main.py::run",
            "dependencies": [],
            "destination_passing_style": True,
        },
        "sources": [{"path": "main.py", "content": "def run(x, y): ..."}],
    }
    assert type(solution().to_flashinfer()["spec"]["language"]) is str


@pytest.mark.parametrize(
    "wrong",
    [
        {"language": "fortran"},
        {"target_hardware": []},
        {"target_hardware": ["sm_banana"]},
        {"dependencies": ["torch >== 2"]},
        {"binding": "ctypes"},
        {"calling": "name"},
        {"destination_passing_style": "yes"},
    ],
)
def test_specs_outside_the_schema_are_refused(wrong):
    assert complaint(spec=spec(**wrong))[0].startswith(f"spec.{next(iter(wrong))}")


@pytest.mark.parametrize("name", ["sm_80", "SM_90a", "sm_100f", "NVIDIA_H100", "LOCAL", "cuda"])
def test_hardware_has_many_names(name):
    assert solution(spec=spec(target_hardware=[name])).spec.target_hardware == [name]


@pytest.mark.parametrize(
    "entry", ["main.py", "main.py::", "::run", "main.py::A::run", "main.py:run"]
)
def test_an_entry_point_is_a_file_and_a_symbol(entry):
    loc, message = complaint(spec=spec(entry_point=entry))
    assert (loc, message) == ("spec.entry_point", f"{entry!r} should read file::symbol")


def test_the_entry_file_is_among_the_sources():
    loc, message = complaint(spec=spec(entry_point="man.py::run"))
    assert loc == "spec.entry_point"
    assert message == "no file 'man.py' among the sources; did you mean 'main.py'?"


def test_the_entry_point_is_found_however_its_path_is_spelt():
    sources = [{"path": "a.py", "content": ""}, {"path": "./sub/main.py", "content": ""}]
    record = solution(spec=spec(entry_point="sub/main.py::go"), sources=sources)
    assert (record.entry_file, record.entry_symbol) == ("./sub/main.py", "go")


@pytest.mark.parametrize("path", ["main.py", "./main.py"])
def test_source_paths_are_unique(path):
    sources = [{"path": "main.py", "content": ""}, {"path": path, "content": ""}]
    assert complaint(sources=sources) == ("sources.1", f"{path!r} is given twice")


@pytest.mark.parametrize("path", ["/etc/x.py", "../x.py", "a/../x.py", "C:\\x.py", "..\\x.py", ""])
def test_source_paths_stay_in_their_folder(path):
    with pytest.raises(ValidationError):
        SourceFile(path=path, content="")


def test_records_may_be_built_from_records():
    source = SourceFile(path="main.py", content="")
    assert solution(spec=BuildSpec(**spec()), sources=[source]).entry_file == "main.py"
