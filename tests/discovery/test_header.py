"""C++ and CUDA files say in comments what they implement."""

import pytest

from pytest_fib.discovery import find_implementations


@pytest.fixture
def found(tmp_path):
    """The implementations in one file with this text."""

    def found(text, name="kernel.cu"):
        (tmp_path / name).write_text(text)
        return find_implementations([tmp_path])

    return found


def test_two_lines_are_enough(found):
    (one,) = found("// implements: rmsnorm_d4096\n// target: sm_90\n#include <x>\n")
    assert (one.name, one.definition, one.language) == ("kernel", "rmsnorm_d4096", "cuda")
    assert (one.symbol, one.calling, one.target_hardware) == ("run", "destination", ("sm_90",))
    assert (one.line, one.problem) == (1, None)


@pytest.mark.parametrize(("name", "target"), [("k.cu", ("cuda",)), ("k.cpp", ("cpu",))])
def test_the_target_is_by_default_what_the_suffix_means(found, name, target):
    (one,) = found("// implements: scale\n", name)
    assert one.target_hardware == target


def test_a_header_gives_every_fact(found):
    text = (
        "// Copyright: someone\n\n// implements: scale\n// calling: value\n// binding: torch\n"
        "// flags: -use_fast_math -DTILE=4\n// target: sm_90a, sm_100\n// Note: prose is prose.\n"
    )
    (one,) = found(text)
    assert (one.calling, one.binding, one.line) == ("value", "torch", 3)
    assert one.target_hardware == ("sm_90a", "sm_100")
    spec = one.solution("scale").spec
    assert spec.compile_options.cuda_cflags == ["-use_fast_math", "-DTILE=4"]


def test_libraries_among_the_flags_are_linked_and_commas_are_theirs(found):
    flags = "-Xptxas=-O3,-v -DNAME='a b' -lineinfo -L/opt/lib -lmine /opt/lib/libother.a"
    (one,) = found(f"// implements: scale\n// flags: {flags}\n")
    options = one.solution("scale").spec.compile_options
    assert options.cuda_cflags == options.cflags == ["-Xptxas=-O3,-v", "-DNAME=a b", "-lineinfo"]
    assert options.ld_flags == ["-L/opt/lib", "-lmine", "/opt/lib/libother.a"]


def test_requirements_may_have_commas_of_their_own(found):
    (one,) = found("// implements: scale\n// dependencies: numpy, flash-attn>=2,<3 torch\n")
    assert one.dependencies == ("numpy", "flash-attn>=2,<3", "torch")


@pytest.mark.parametrize("suffix", ["cuh", "hip", "c", "CU"])
def test_a_file_that_nothing_compiles_is_told_how_to_be_named(found, suffix, tmp_path):
    (one,) = found("// implements: scale\n", f"kernel.{suffix}")
    remedy = "is not compiled by itself: name it kernel.cu or kernel.cpp"
    assert one.problem == f"{tmp_path}/kernel.{suffix}:1: {remedy}"
    assert not found("// implements: what is said there\n", f"kernel.{suffix}")


def test_several_entry_points_are_several_implementations(found):
    text = "// implements: scale_f16\n// entry: half\n// implements: scale_f32\n// entry: full\n"
    half, full = found(text)
    assert (half.name, half.definition) == ("kernel_half", "scale_f16")
    assert (full.name, full.symbol) == ("kernel_full", "full")


@pytest.mark.parametrize(
    ("line", "problem"),
    [
        ("// targets: sm_90", "// targets: is not known; did you mean 'target'?"),
        (
            "// target: cuda, sm_9x",
            "// target: 'sm_9x' is not an architecture, such as sm_90 or sm_90a",
        ),
        (
            "// target: sm90",
            "// target: 'sm90' is not an architecture, such as sm_90 or sm_90a",
        ),
        ("// flags: -DNAME='a b", "// flags: a quotation has no end"),
        ("// calling: inplace", "// calling: 'inplace' is not one of value, destination, tuple"),
    ],
)
def test_a_wrong_line_is_the_problem_of_its_file(found, line, problem, tmp_path):
    (one,) = found(f"// implements: scale\n{line}\n")
    assert one.problem == f"{tmp_path}/kernel.cu:1: {problem}"


@pytest.mark.parametrize(
    "line", ["/* implements: scale */", "  // implements: scale", '// @implements("scale")']
)
def test_what_is_nearly_a_header_is_said_to_be_none(found, line, tmp_path):
    (one,) = found(f"#include <x>\n{line}\n")
    assert one.definition == "scale"
    assert one.problem == (
        f"{tmp_path}/kernel.cu:2: is no header; begin a line with // implements: scale"
    )


def test_a_byte_order_mark_is_read_over(found):
    (one,) = found("\ufeff// implements: scale\n")
    assert one.problem is None


def test_a_file_that_is_no_text_has_the_language_of_its_name(found, tmp_path):
    (tmp_path / "binary.cu").write_bytes(b"\xff\xfe")
    (one,) = find_implementations([tmp_path])
    assert (one.language, one.problem) == (
        "cuda",
        f"{tmp_path}/binary.cu:1: not UTF-8: invalid start byte",
    )


def test_files_without_a_header_are_only_sources(found):
    assert found("#include <x>\nint implements = 3;\n") == ()


def test_what_a_file_includes_from_its_folder_are_its_sources(found, tmp_path):
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "inner.cuh").write_text('#include "deep.cuh"\n#include "outer.cuh"\n')
    (tmp_path / "parts" / "deep.cuh").write_text("")
    (tmp_path / "outer.cuh").write_text('#include "../secret.h"\n#include <system.h>\n')
    (tmp_path / "unused.cuh").write_text("")
    (one,) = found('// implements: scale\n#include "parts/inner.cuh"\n')
    paths = {source.path for source in one.solution("scale").sources}
    assert paths == {"kernel.cu", "parts/inner.cuh", "parts/deep.cuh", "outer.cuh"}
