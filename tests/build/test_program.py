"""What a definition says of arguments is part of a program where that decides what is compiled."""

from pathlib import Path

import pytest

from pytest_fib.build import Hardware, Parameter, Program, program_of
from pytest_fib.data import BuildSpec, Solution, SourceFile, load_definition_file

DEFINITIONS = Path(__file__).parents[2] / "kernel_defs"
H200 = Hardware("cuda", (9, 0), "NVIDIA H200")


@pytest.fixture
def parameters():
    """The parameters by name that a program in a language has for a shipped definition."""

    def parameters(file, language="cutedsl"):
        definition = load_definition_file(DEFINITIONS / file)[0].definition
        spec = BuildSpec(language=language, target_hardware=["cuda"], entry_point="k.py::run")
        sources = [SourceFile(path="k.py", content="")]
        solution = Solution(
            name="k", definition=definition.name, author="a", spec=spec, sources=sources
        )
        program = program_of(solution, definition, None, H200)
        assert program.compilation.target == "sm_90a"
        return {each.name: each for each in program.compilation.parameters}

    return parameters


def test_sizes_that_vary_are_named_and_numbers_have_no_shape(parameters):
    found = parameters("rmsnorm/rmsnorm_d4096.yaml")
    assert [*found] == ["x", "weight", "eps", "out"]
    assert found["x"] == Parameter("x", "float16", ("batch", 4096), (0, 1))
    assert found["eps"] == Parameter("eps", "float32", None)


def test_packed_numbers_and_the_order_in_memory_are_known(parameters):
    found = parameters("nvfp4_gemv/nvfp4_gemv.yaml")
    assert found["a"] == Parameter("a", "float4_e2m1", ("m", "k / 2", "l"), (2, 0, 1))
    assert found["b"].shape == (1, "k / 2", "l")
    assert found["c"] == Parameter("c", "float16", ("m", 1, "l"), (0, 1, 2))


def test_inputs_that_may_have_gaps_are_not_called_compact(parameters):
    found = parameters("gemm/gemm_n128_k72.yaml")
    assert not found["A"].compact
    assert found["C"].compact


def test_other_languages_are_compiled_for_any_arguments(parameters):
    assert parameters("rmsnorm/rmsnorm_d4096.yaml", "tilelang") == {}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("side = torch.cuda.Stream()", True),
        ("from torch.cuda import Stream as Other", True),
        ("cudaStreamCreateWithFlags(&side, cudaStreamNonBlocking);", True),
        ("auto side = at::cuda::getStreamFromPool();", True),
        ("auto stream = at::cuda::getCurrentCUDAStream();", False),
        ("cudaStream_t stream = TVMFFIEnvGetStream(device.device_type, device.device_id);", False),
        ("with torch.cuda.stream(torch.cuda.current_stream()):", False),
    ],
)
def test_programs_that_make_streams_are_known(text, expected):
    program = Program("k", "python", "k.py", "run", "value", (), (("a.h", ""), ("k.py", text)))
    assert program.makes_streams is expected
