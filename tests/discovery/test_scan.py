"""Reading implementations out of source files."""

import os
import sys
from textwrap import dedent

import pytest

from pytest_fib.discovery import find_implementations


@pytest.fixture
def scan(tmp_path):
    """Scan one module, or a file of another name."""

    def scan(text, name="module.py"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(text), encoding="utf-8")
        return find_implementations([tmp_path])

    return scan


def test_a_mark_gives_every_fact(scan, tmp_path):
    [found] = scan(
        """\
        from pytest_fib import implements

        @implements(
            "rmsnorm",
            language="triton",
            target_hardware=["cuda"],
            dependencies=("numpy",),
            calling="destination",
            author="someone",
            description="One row per program.",
        )
        def run(x, out): ...
        """
    )
    assert vars(found) == {
        "name": "module",
        "definition": "rmsnorm",
        "path": tmp_path / "module.py",
        "line": 12,
        "symbol": "run",
        "language": "triton",
        "target_hardware": ("cuda",),
        "dependencies": ("numpy",),
        "calling": "destination",
        "binding": None,
        "supported_major_versions": (),
        "flags": (),
        "author": "someone",
        "description": "One row per program.",
        "record": None,
        "problem": None,
    }


def test_a_bare_mark_has_the_defaults_of_implements(scan):
    [found] = scan('@implements("op")\ndef run(x): ...')
    assert (found.language, found.calling) == ("python", "value")
    assert found.target_hardware == ("cpu", "cuda")


@pytest.mark.parametrize(
    "mark",
    ['pytest_fib.implements("op")', 'implements(definition="op")', 'implements("op",)'],
)
def test_a_mark_may_be_spelled(scan, mark):
    [found] = scan(f"@{mark}\ndef run(x): ...")
    assert (found.definition, found.problem) == ("op", None)


KERNELS = """\
import triton
from pytest_fib import implements

@triton.autotune([], [])
@triton.jit
def kernel(x): ...

def launch(x):
    kernel[(1,)](x)

@implements("toy"{more})
def run(x):
    {body}
"""


@pytest.mark.parametrize(
    ("body", "more", "language"),
    [
        ("kernel[(1,)](x)", "", "triton"),
        ("return launch(x)", "", "triton"),
        ("return run(x + x)", "", "python"),
        ("kernel[(1,)](x)", ', language="python"', "python"),
    ],
)
def test_what_launches_a_kernel_of_its_file_is_triton_without_saying_so(scan, body, more, language):
    [found] = scan(KERNELS.format(body=body, more=more))
    assert found.problem is None
    assert found.language == language


def test_several_functions_are_several_implementations(scan):
    found = scan(
        """\
        @implements("one")
        def run(x): ...

        @implements("two")
        @implements("three")
        def other(x): ...

        def helper(x): ...
        """
    )
    assert [(i.name, i.definition) for i in found] == [
        ("module", "one"),
        ("module_other", "two"),
        ("module_other", "three"),
    ]


def test_a_function_under_a_condition_is_found(scan):
    found = scan(
        """\
        if HAVE_GPU:
            @implements("one")
            def first(x): ...
        try:
            import triton
        except ImportError:
            @implements("two")
            def second(x): ...
        else:
            with something:
                @implements("three")
                def third(x): ...
        """
    )
    assert [i.symbol for i in found] == ["first", "second", "third"]


def test_alternatives_of_one_name_are_one_implementation(scan):
    [found] = scan(
        """\
        if FAST:
            @implements("one")
            def run(x): ...
        else:
            @implements("one")
            def run(x): ...
        """
    )
    assert (found.line, found.problem) == (6, None)


def test_two_functions_of_one_name_for_one_definition_are_no_alternatives(scan, tmp_path):
    hidden, last = scan(
        """\
        @implements("one")
        def run(x): ...

        @implements("one")
        def run(x): ...
        """
    )
    assert hidden.problem.endswith(":2: 'run' is defined again on line 5, which hides this one")
    assert last.problem is None


@pytest.mark.parametrize("outer", ["class Kernels:", "def make():", "if FAST:\n  class Kernels:"])
def test_what_nobody_can_call_by_its_name_is_a_problem(scan, tmp_path, outer):
    [found] = scan(f'{outer}\n    @implements("one")\n    def run(x): ...\n')
    line = outer.count("\n") + 3
    assert (found.name, found.definition, found.line) == ("module", "one", line)
    assert found.problem == (
        f"{tmp_path}/module.py:{line}: @implements: marks what is inside a class or function; "
        "it goes on one of the module's"
    )


def test_a_function_that_a_later_one_hides_is_a_problem(scan, tmp_path):
    hidden, last = scan(
        """\
        @implements("one")
        def run(x): ...

        @implements("two")
        def run(x): ...
        """
    )
    place = f"{tmp_path}/module.py:2"
    assert hidden.problem == f"{place}: 'run' is defined again on line 5, which hides this one"
    assert last.problem is None


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("", 'takes one definition name: @implements("rmsnorm_d4096", ...)'),
        ("('a', 'b')", 'takes one definition name: @implements("rmsnorm_d4096", ...)'),
        ("()", "names no definition"),
        (
            "(NAME)",
            "argument 'definition' is not a literal (NAME); "
            "it is read without running the file, so write the value itself",
        ),
        (
            "('a', author={[]: 1})",
            "argument 'author' is not a literal ({[]: 1}); "
            "it is read without running the file, so write the value itself",
        ),
        (r"('a', author='\ud800')", r"argument 'author' is no Unicode text: '\ud800'"),
        ("('a', author=None)", "argument 'author' is not a string"),
        (
            "('a', dependencies='numpy')",
            "argument 'dependencies' is not a list of strings, as ['numpy'] is",
        ),
        ("('a', calling='copy')", "calling 'copy' is not one of value, destination, tuple"),
        (
            "('a', target_hardware=[])",
            "target_hardware is empty; name what it runs on, as in ['cpu', 'cuda']",
        ),
        (
            "('a', target_hardware=['sm_9'])",
            "target_hardware: 'sm_9' is not an architecture, such as sm_90 or sm_90a",
        ),
        (
            "('a', target_hardware=['\\n::error::owned'])",
            r"target_hardware: '\n::error::owned' is not the name of a device",
        ),
        (
            "('a', dependencies=['torch', 'numpy >== 2'])",
            "dependencies: 'numpy >== 2' is not a requirement such as 'torch>=2.6': "
            "Expected semicolon (after name with no version specifier) or end",
        ),
    ],
)
def test_a_wrong_mark_is_a_problem_with_its_place(scan, tmp_path, arguments, message):
    [found] = scan(f"@implements{arguments}\ndef run(x): ...")
    assert found.problem == f"{tmp_path}/module.py:1: @implements: {message}"


@pytest.mark.parametrize(
    ("marked", "kind"), [("class Kernel", "a class"), ("async def run(x)", "an async function")]
)
def test_only_a_plain_function_can_be_marked(scan, tmp_path, marked, kind):
    [found] = scan(f"@implements('a')\n{marked}: ...")
    where = f"{tmp_path}/module.py:2"
    assert found.problem == f"{where}: @implements: marks {kind}; it goes on a plain function"


def test_a_file_that_does_not_parse_is_a_problem_with_its_place(scan, tmp_path):
    [found] = scan("@implements('a')\ndef run(x: ...")
    assert found.problem == f"{tmp_path}/module.py:2: syntax error: '(' was never closed"


def test_a_broken_file_belongs_to_what_it_names(scan):
    [found] = scan("@implements('rmsnorm')\ndef run(x: ...")
    assert found.definition == "rmsnorm"


def test_a_broken_file_that_names_nothing_belongs_to_what_its_folder_names(scan):
    [found] = scan("from pytest_fib import implements(", "norms/rmsnorm/mine.py")
    assert (found.name, found.definition) == ("mine", "rmsnorm")


def test_a_file_without_marks_is_passed_over_even_where_it_does_not_parse(scan):
    assert scan("def broken(") == ()


@pytest.mark.parametrize("suffix", ["py", "cu"])
def test_a_file_that_is_not_utf_8_is_a_problem_of_what_its_folder_names(tmp_path, suffix):
    path = tmp_path / "scale" / f"module.{suffix}"
    path.parent.mkdir()
    path.write_bytes(b"// implements: a \xff\n")
    [found] = find_implementations([tmp_path])
    assert found.problem == f"{path}:1: not UTF-8: invalid start byte"
    assert found.definition == "scale"


def test_a_byte_order_mark_is_read_over_as_python_does(scan):
    [found] = scan("\ufeff@implements('scale')\ndef run(x): ...")
    assert found.problem is None
    assert found.solution("scale").sources[0].content.startswith("@implements")


def test_a_file_whose_name_would_end_in_the_middle_is_a_problem(scan):
    [found] = scan("@implements('scale')\ndef run(x): ...", "a::b.py")
    assert found.problem.endswith(
        "a::b.py:1: '::' ends the name of a file where a function is named: rename the file"
    )


@pytest.mark.skipif(sys.platform != "linux", reason="names of files are text")
@pytest.mark.parametrize("name", ["a\udcff.py", "b\udcff/run.py"])
def test_a_path_that_is_no_text_is_a_problem(tmp_path, name, monkeypatch):
    (tmp_path / name).parent.mkdir(exist_ok=True)
    (tmp_path / name).write_text("@implements('scale')\ndef run(x): ...", encoding="utf-8")
    [found] = find_implementations([tmp_path])
    assert found.problem.endswith(f"{name}:1: its path is not UTF-8: rename the file or folder")
    monkeypatch.setattr("sys.getfilesystemencoding", lambda: "ascii")
    [found] = find_implementations([tmp_path])
    assert found.problem.endswith(":1: its path can't be read in this locale: set LC_ALL=C.UTF-8")


@pytest.mark.parametrize(
    ("name", "text", "problems"),
    [
        ("a.py", "@implements('scale')\ndef run(x): ...", 1),
        ("a.py", "TABLE = [", 0),
        ("a.cu", "// implements: scale\n", 1),
        ("a.json", '{"spec": {}, "a": "', 1),
        ("a.json", '{"tuned": [', 0),
        ("solution.yaml", "", 1),
    ],
)
def test_of_a_file_that_is_too_large_to_be_sent_only_the_beginning_is_read(
    tmp_path, name, text, problems
):
    path = tmp_path / name
    path.write_text(text, encoding="utf-8")
    os.truncate(path, 1 << 40)  # with a hole, which takes no place
    found = find_implementations([tmp_path])
    assert [each.problem for each in found] == problems * [f"{path}:1: is larger than 64 MiB"]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("elif.py", "if x: pass\n" + "elif x: pass\n" * 2000 + '@implements("op")\ndef run(): 0'),
        ("sum.py", f'@implements({"a + " * 2000}"op")\ndef run(x): ...'),
        ("signs.py", f"@implements({'-' * 2000}1)\ndef run(x): ..."),
        ("lists.json", f'{{"spec": {"[" * 9999}{"]" * 9999}, "definition": "op"}}'),
        ("number.json", f'{{"spec": {"9" * 9999}, "definition": "op"}}'),
    ],
)
def test_what_is_too_much_for_who_reads_it_is_a_problem_of_its_own(scan, tmp_path, name, text):
    (tmp_path / "good.py").write_text('@implements("op")\ndef run(x): ...')
    found = {each.name: each.problem for each in scan(text, name)}
    assert found.pop("good") is None
    (problem,) = found.values()
    assert problem.startswith(f"{tmp_path / name}:1: ")
    assert problem.endswith(("nested too deeply", "too many digits"))


def test_imports_of_what_is_no_file_are_not_waited_for(scan, tmp_path):
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "endless.py").symlink_to("/dev/zero")
    (tmp_path / "nested.py").write_text("-" * 100_000 + "1")
    text = "import pipe, endless, nested\n@implements('op')\ndef run(x): ..."
    found = {each.name: each for each in scan(text)}
    sources = found["module"].solution("op").sources
    assert [source.path for source in sources] == ["module.py", "nested.py"]


def test_scanning_runs_no_code(scan):
    [found] = scan("import sys\nsys.was_here = True\n@implements('op')\ndef run(x): ...")
    assert found.problem is None
    assert not hasattr(sys, "was_here")


def test_a_malformed_solution_is_a_problem_of_its_definition(scan, tmp_path):
    [found] = scan('{"name": "mine", "definition": "op", "spec": {}}', "mine.json")
    assert (found.name, found.definition) == ("mine", "op")
    assert f"{tmp_path}/mine.json:1: spec: missing key 'language'" in found.problem.splitlines()


def test_a_solution_yaml_whose_source_is_missing_says_which(scan, tmp_path):
    [found] = scan(
        """\
        name: mine
        definition: op
        author: someone
        spec: {language: cuda, target_hardware: [cuda], entry_point: "main.cu::run"}
        sources: [main.cu]
        """,
        "mine/solution.yaml",
    )
    assert found.definition == "op"
    assert (
        found.problem
        == f"{tmp_path}/mine/solution.yaml:5: sources[0]: file 'main.cu' does not exist"
    )


def test_other_json_is_no_implementation(scan):
    assert scan('{"BLOCK": 128, "num_warps": 4}', "tuned.json") == ()
    assert scan("[1, 2", "notes.json") == ()


def test_hidden_folders_are_not_searched(scan):
    assert scan('@implements("op")\ndef run(x): ...', ".git/module.py") == ()
    assert scan('@implements("op")\ndef run(x): ...', "__pycache__/module.py") == ()


def test_files_come_in_the_order_of_their_paths(scan):
    scan('@implements("op")\ndef run(x): ...', "b/z.py")
    scan('@implements("op")\ndef run(x): ...', "b/a.py")
    found = scan('@implements("op")\ndef run(x): ...', "a/m.py")
    assert [i.name for i in found] == ["m", "a", "z"]


@pytest.mark.parametrize(
    ("file", "name"),
    [("op/lost.py", "lost"), ("op/lost.json", "lost"), ("op/mine/solution.yaml", "mine")],
)
def test_a_link_that_leads_nowhere_is_a_problem_and_the_others_are_found(
    scan, tmp_path, file, name
):
    link = tmp_path / file
    link.parent.mkdir(parents=True)
    link.symlink_to("gone")
    found = {i.name: i for i in scan('@implements("op")\ndef run(x): ...')}
    assert set(found) == {"module", name}
    assert found[name].definition == "op"
    assert found[name].problem == (
        f"{link}:1: can't be read: it links to gone, which does not exist"
    )


def test_what_is_no_regular_file_is_not_read(scan, tmp_path):
    os.mkfifo(tmp_path / "pipe.py")
    (tmp_path / "endless.py").symlink_to("/dev/zero")
    found = {i.name: i for i in scan('@implements("op")\ndef run(x): ...')}
    assert found["module"].problem is None
    for name in ("pipe", "endless"):
        assert found[name].problem == f"{tmp_path / name}.py:1: is no regular file"


def test_a_folder_that_is_linked_is_searched_where_it_is_linked_to_once(scan, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/kernel.cu").write_text("// implements: op\n")
    (tmp_path / "kernels").mkdir()
    (tmp_path / "kernels/linked").symlink_to("../elsewhere")
    (found,) = find_implementations([tmp_path / "kernels"])
    assert found.path == tmp_path / "kernels/linked/kernel.cu"
    (found,) = find_implementations([tmp_path])
    assert found.path == tmp_path / "elsewhere/kernel.cu"


def test_folders_in_a_circle_are_searched_once(scan, tmp_path):
    (tmp_path / "again").symlink_to(".")
    [found] = scan('@implements("op")\ndef run(x): ...')
    assert found.path == tmp_path / "module.py"
