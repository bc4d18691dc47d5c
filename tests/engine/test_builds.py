"""Compiled implementations: built in a sandbox of their own, kept, loaded, called."""

import platform
import shutil

import pytest

from pytest_fib.build import default_builds_directory
from pytest_fib.data import BuildRequest, BuildSpec, SourceFile, SupportedLanguages
from pytest_fib.engine import Judge

pytest.importorskip("tvm_ffi")
pytestmark = pytest.mark.skipif(shutil.which("g++") is None, reason="no g++")

#: y = factor * x. What a request to build or a call does besides is put in place of the marks.
SCALE = """\
#include <tvm/ffi/c_api.h>
{before}
extern "C" int __tvm_ffi_run(void*, const TVMFFIAny* arguments, int32_t, TVMFFIAny*) {{
  const DLTensor* x = TVMFFITensorGetDLTensorPtr(arguments[0].v_obj);
  const DLTensor* y = TVMFFITensorGetDLTensorPtr(arguments[2].v_obj);
  const float factor = arguments[1].v_float64;
  {first}
  for (int64_t i = 0; i < x->shape[0]; ++i)
    static_cast<float*>(y->data)[i] = factor * static_cast<const float*>(x->data)[i];
  return 0;
}}
"""


#: Takes a compiler minutes.
SLOW = """\
template <int N, int M> struct Slow {
  enum { value = Slow<N - 1, M>::value + Slow<N - 1, M + N>::value };
};
template <int M> struct Slow<0, M> { enum { value = M }; };
int slow = Slow<200, 1>::value;"""


@pytest.fixture
def builds():
    """Where the judge keeps what it builds."""
    return default_builds_directory()


@pytest.fixture
def scale(request_for):
    """A request to evaluate SCALE with other lines in it."""

    def scale(before="", first="", build_timeout=60.0, target="cpu"):
        request = request_for("")
        text = SCALE.format(before=before, first=first)
        spec = BuildSpec(language="cpp", target_hardware=[target], entry_point="scale.cpp::run")
        sources = [SourceFile(path="scale.cpp", content=text)]
        solution = request.solution.model_copy(update={"spec": spec, "sources": sources})
        return request.model_copy(update={"solution": solution, "build_timeout": build_timeout})

    return scale


def test_a_kernel_is_built_once_and_again_only_if_the_entry_was_changed(
    judge, builds, scale, fork_server
):
    before = set(builds.glob("*.artifact"))
    request = scale(before="// kept")
    evaluation = judge.evaluate(request)
    assert evaluation.status == "PASSED"
    assert evaluation.compiled.target == "cpu"
    assert evaluation.compiled.binary_bytes > 1000
    (entry,) = set(builds.glob("*.artifact")) - before
    file = entry.stat().st_ino
    with Judge(fork_server=fork_server) as another:
        assert another.evaluate(request).status == "PASSED"
        assert entry.stat().st_ino == file
        entry.write_bytes(entry.read_bytes()[:-1] + b"\x01")
        assert another.evaluate(scale()).status == "PASSED"  # so that the first is loaded anew
        assert another.evaluate(request).status == "PASSED"
        assert entry.stat().st_ino != file


def test_a_compile_error_leaves_nothing(judge, builds, scale):
    before = set(builds.glob("*.artifact"))
    evaluation = judge.evaluate(scale(first="missing();"))
    assert evaluation.status == "COMPILE_ERROR"
    sentence, line, *_ = evaluation.log.splitlines()
    assert sentence == "scale.cpp:7: 'missing' was not declared in this scope"
    assert line.strip() == "7 | missing();"
    assert set(builds.glob("*.artifact")) == before
    assert not list(builds.glob("*.new"))


def test_the_log_has_all_that_the_compiler_said(judge, scale):
    evaluation = judge.evaluate(scale(before="int missing() { " + "gone();\n" * 500 + "}"))
    assert evaluation.status == "COMPILE_ERROR"
    assert evaluation.log.count("error: 'gone' was not declared") == 1  # g++ says it once
    evaluation = judge.evaluate(scale(before="\n".join(f"gone{i} x{i};" for i in range(500))))
    assert evaluation.log.count("does not name a type") >= 500


def test_a_build_that_takes_too_long_is_a_compile_error(judge, scale):
    evaluation = judge.evaluate(scale(before=SLOW, build_timeout=0.5))
    assert evaluation.status == "COMPILE_ERROR"
    first, *_ = evaluation.log.splitlines()
    assert first == "not built within 0.5 s (--fib-build-timeout)"


def test_what_a_kernel_throws_is_a_runtime_error_with_its_message(judge, scale):
    throw = 'TVMFFIErrorSetRaisedFromCStr("ValueError", "n should be even"); return -1;'
    evaluation = judge.evaluate(scale(first=throw))
    assert evaluation.status == "RUNTIME_ERROR"
    assert evaluation.log.startswith("ValueError: n should be even")


def test_a_crash_is_one_evaluation(judge, scale):
    evaluation = judge.evaluate(scale(first="*(volatile int*)0 = 1;"))
    assert evaluation.status == "RUNTIME_ERROR"
    assert evaluation.log.startswith("the process was killed by SIGSEGV")
    assert judge.evaluate(scale()).status == "PASSED"


def test_an_implementation_for_other_hardware_is_not_built(judge, scale):
    evaluation = judge.evaluate(scale(target="sm_90"))
    assert evaluation.status == "COMPILE_ERROR"
    assert evaluation.log == "targets sm_90; this run is on the CPU"


TRITON = """\
import torch
import triton
import triton.language as tl


@triton.jit
def scaled(x, y, n, factor, BLOCK: tl.constexpr):
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(y + at, tl.load(x + at, mask=at < n) * factor, mask={mask})


def run(x, factor):
    {host}
    y = torch.empty_like(x)
    scaled[(triton.cdiv(len(x), 128),)](x, y, len(x), factor, BLOCK=128)
    return y
"""


@pytest.fixture
def triton_build(judge, definition, solution):
    """What comes of compiling a Triton kernel for a device that is not here."""
    pytest.importorskip("triton")

    def triton_build(mask="at < n", host="", target="sm_90"):
        given = solution(TRITON.format(mask=mask, host=host))
        spec = {"language": SupportedLanguages.TRITON, "target_hardware": ["cuda"]}
        given = given.model_copy(update={"spec": given.spec.model_copy(update=spec)})
        request = BuildRequest(definition=definition, solution=given, target=target)
        return judge.build(BuildRequest.from_json(request.to_json()))

    return triton_build


@pytest.mark.parametrize("number", [-1, pytest.param(10**300, marks=pytest.mark.thorough)])
def test_a_build_with_numbers_that_no_compiler_gives_is_forged(triton_build, number):
    host = f"""
    from dataclasses import replace
    import pytest_fib.sandbox._worker as worker
    encoded = worker.encode_reply

    def forged(reply):
        kernels = tuple(replace(each, registers={number}) for each in reply.built.kernels)
        return encoded(replace(reply, built=replace(reply.built, kernels=kernels)))

    worker.encode_reply = forged
"""
    result = triton_build(host=host)
    assert result.status == "COMPILE_ERROR"
    assert result.message == (
        "the process forged a message: numbers of registers or bytes that no kernel takes"
    )


@pytest.mark.thorough
def test_triton_is_compiled_without_a_device(triton_build):
    result = triton_build()
    assert (result.status, result.message) == ("PASSED", "")
    assert result.registers > 0
    assert result.binary_bytes > 1000
    wrong = triton_build(mask="at < m")
    assert wrong.status == "COMPILE_ERROR"
    assert wrong.message.startswith("module.py:9: NameError(")
    assert wrong.log.startswith("    9 | tl.store(y + at, tl.load(")


def test_each_program_of_triton_has_a_cache_of_its_own_beside_what_else_is_built(
    triton_build, builds, monkeypatch
):
    monkeypatch.delenv("TRITON_CACHE_DIR", raising=False)
    before = set((builds / "triton").glob("*"))
    assert triton_build(host="pass  # kept by itself").status == "PASSED"
    (folder,) = set((builds / "triton").glob("*")) - before
    assert list(folder.rglob("*.cubin"))


def test_host_code_that_needs_a_device_is_no_compile_error(triton_build):
    result = triton_build(host="raise RuntimeError('no GPU')")
    why = "without a device its host code can't launch kernels: RuntimeError: no GPU"
    assert (result.status, result.message) == ("SKIPPED", why)


#: What a library does that it shouldn't, and how the evaluation ends.
CHEATS = {
    "a cache on the host": (
        {"first": "static void* seen; if (seen == x->data) return 0; seen = x->data;"},
        "INCORRECT_NUMERICAL",
        "out: ",
    ),
    "one read too far": (
        {"first": "*const_cast<char**>((char**)&x->data) += 4;"},
        "INCORRECT_NUMERICAL",
        "out: ",
    ),
    "a block written beyond the end": (
        {"first": "for (int i = 0; i < 128; ++i) ((float*)y->data)[x->shape[0] + i] = 1;"},
        "RUNTIME_ERROR",
        "out: overwritten by the next call; do all writes stay within the outputs of their call?",
    ),
    "a constructor that ends the process": (
        {"before": 'extern "C" void _exit(int);\nstatic int gone = (_exit(7), 0);'},
        "RUNTIME_ERROR",
        "the process exited with code 7",
    ),
    "a thread that nobody waits for": (
        {
            "before": "#include <chrono>\n#include <thread>",
            "first": "std::thread([x = *x, y = *y, factor] {"
            " std::this_thread::sleep_for(std::chrono::seconds(1));"
            " for (int64_t i = 0; i < x.shape[0]; ++i)"
            " ((float*)y.data)[i] = factor * ((float*)x.data)[i]; }).detach(); return 0;",
        },
        "INCORRECT_NUMERICAL",
        "out: never written",
    ),
}
#: A clock that is a thousand times slower than the system's.
SLOW_CLOCK = """
#include <sys/syscall.h>
#include <unistd.h>
static int slow(int clock, struct timespec* time) {
  const int result = syscall(SYS_clock_gettime, clock, time);
  const int64_t ns = (time->tv_sec * int64_t{1000000000} + time->tv_nsec) / 1000;
  *time = {ns / 1000000000, ns % 1000000000};
  return result;
}
"""
#: A library that has others read that clock: one that patches libc when it is loaded, and one that
#: has a symbol of libc's.
PATCHING = (
    "#include <cstring>\n#include <dlfcn.h>\n#include <sys/mman.h>\n#include <time.h>\n"
    + SLOW_CLOCK
    + """
__attribute__((constructor)) static void patch() {
  auto* code = static_cast<unsigned char*>(dlsym(RTLD_DEFAULT, "clock_gettime"));
  auto page = reinterpret_cast<uintptr_t>(code) & ~uintptr_t{4095};
  mprotect(reinterpret_cast<void*>(page), 8192, PROT_READ | PROT_WRITE | PROT_EXEC);
  const unsigned char jump[] = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0};
  auto* target = &slow;
  std::memcpy(code, jump, sizeof jump);
  std::memcpy(code + 2, &target, sizeof target);
}
"""
)
INTERPOSING = (
    "#include <dlfcn.h>\n#include <time.h>\n"
    + SLOW_CLOCK
    + """
extern "C" __attribute__((visibility("default"))) int clock_gettime(clockid_t clock,
                                                                    struct timespec* time) {
  return slow(clock, time);
}
__attribute__((constructor)) static void spread() {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&slow), &info)) dlopen(info.dli_fname, RTLD_NOW | RTLD_GLOBAL);
}
"""
)


@pytest.mark.thorough
@pytest.mark.skipif(platform.machine() != "x86_64", reason="patches with x86-64's instructions")
def test_a_library_that_patches_the_clock_is_refused(judge, scale):
    evaluation = judge.evaluate(scale(before=PATCHING).model_copy(update={"timing": True}))
    assert evaluation.status == "RUNTIME_ERROR", evaluation.log
    assert evaluation.log.startswith("its times are false: rounds of calls take ")


@pytest.mark.thorough
def test_a_library_whose_symbols_take_the_place_of_others_gains_no_time(judge, scale):
    evaluation = judge.evaluate(scale(before=INTERPOSING).model_copy(update={"timing": True}))
    assert evaluation.status == "PASSED", evaluation.log
    assert evaluation.performance.speedup_factor < 100  # who was fooled would say thousands


@pytest.mark.parametrize("name", CHEATS)
def test_a_library_that_cheats_is_caught(judge, scale, name):
    lines, status, log = CHEATS[name]
    evaluation = judge.evaluate(scale(**lines))
    assert (evaluation.status, evaluation.log[: len(log)]) == (status, log)
