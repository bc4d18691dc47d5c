"""Wrong kernels and cheats in CUDA: a shipped one, with a part of its source replaced."""

from dataclasses import dataclass
from pathlib import Path

from pytest_fib.data import Definition, Solution, load_definition_file
from pytest_fib.discovery import find_implementations

ROOT = Path(__file__).parents[2]
LAUNCH = "rmsnorm<<<x.size(0), kThreads, 0, stream>>>"


@dataclass(frozen=True)
class Shipped:
    """A kernel of this project, the definition it is used for, and sizes that show mistakes."""

    file: str
    name: str
    definition: str
    axes: tuple[tuple[str, int], ...]

    def solution(self, old: str = "", new: str = "") -> Solution:
        """Its record; with ``new`` in place of ``old``, which is in one of its sources."""
        path = ROOT / "kernel_impls" / self.file
        found = find_implementations([path.parent])
        solution = next(i for i in found if i.path == path and i.name == self.name).solution(
            self.definition
        )
        assert old in "".join(source.content for source in solution.sources)
        sources = [
            source.model_copy(update={"content": source.content.replace(old, new, 1)})
            if old
            else source
            for source in solution.sources
        ]
        return solution.model_copy(update={"sources": sources})

    def of(self) -> Definition:
        """The definition."""
        files = (ROOT / "kernel_defs").rglob("*.yaml")
        loaded = (each.definition for file in files for each in load_definition_file(file))
        return next(each for each in loaded if each.name == self.definition)


RMSNORM = Shipped(
    "rmsnorm/rmsnorm_d4096/cuda_row.cu", "cuda_row", "rmsnorm_d4096", (("batch", 4096),)
)
FUSED = Shipped(
    "fused_add_rmsnorm/fused_add_rmsnorm_d4096/cuda_row.cu",
    "cuda_row",
    "fused_add_rmsnorm_d4096",
    (("batch", 33),),
)
SCALE = Shipped(
    "scale/scale/cuda_layers/solution.yaml", "cuda_layers", "scale_float32", (("n", 1001),)
)
DECODE = Shipped(
    "gqa_paged/gqa_paged_decode/cuda_split.cu",
    "cuda_split_run_pages",
    "gqa_paged_decode_h32_kv8_d128_ps64",
    (("batch_size", 4), ("num_kv_indices", 64), ("num_pages", 64), ("len_indptr", 5)),
)
GEMM = Shipped("gemm/gemm/cutedsl_mma.py", "cutedsl_mma", "gemm_n128_k72_bfloat16", (("M", 129),))
GEMV = Shipped(
    "nvfp4_gemv/nvfp4_gemv/cuda_dp4a.cu",
    "cuda_dp4a",
    "nvfp4_gemv",
    (("m", 65), ("k", 4096), ("l", 2), ("k_blocks", 256)),
)
#: A fake of what events are read with, which claims that hardly any time has passed.
FAKE = """
static cudaError_t fake(float* ms, cudaEvent_t, cudaEvent_t) { *ms = 1e-6f; return cudaSuccess; }
"""
#: A kernel, and what a wrong one has in place of a part of it.
MUTANTS = {
    "without a barrier": (RMSNORM, "  __syncthreads();\n", ""),
    "one read too far": (RMSNORM, "values[i] = x[row + at];", "values[i] = x[row + at + 1];"),
    "a cache on the host": (
        RMSNORM,
        LAUNCH,
        "static const void* seen = nullptr; if (seen == from) return; seen = from;\n" + LAUNCH,
    ),
    "heads that read the KV heads in another order": (
        DECODE,
        "token % kPage) * kv_heads + kv_head)",
        "token % kPage) * kv_heads + (kv_head + 1) % kv_heads)",
    ),
    "a chunk that is not merged": (DECODE, "if (slots > batch.sequences)", "if (slots < 0)"),
    "the last page taken for full": (DECODE, "+ batch.last_lengths[number]", "+ kPage"),
    "halves of a byte that changed places": (
        GEMV,
        "plus = __dp4a(static_cast<int>(positive(codes)),",
        "plus = __dp4a(static_cast<int>(positive(codes >> 4)),",
    ),
    "one scale for two blocks": (GEMV, "(own.y * scale.y)", "(own.x * scale.x)"),
}
#: What RMSNorm's source has instead, to seem faster than it is.
CHEATS = {
    "a stream of its own": (
        LAUNCH,
        "static cudaStream_t own = [] { cudaStream_t s;"
        "cudaStreamCreateWithFlags(&s, cudaStreamNonBlocking); return s; }();\n"
        + LAUNCH.replace("stream>", "own>"),
    ),
    "a constructor that patches libcudart": (
        "namespace {\n",
        "#include <cstring>\n#include <dlfcn.h>\n#include <sys/mman.h>\n"
        + FAKE
        + """
__attribute__((constructor)) static void patch() {
  for (const char* library : {"libcudart.so.12", "libcudart.so.13"})
    if (void* handle = dlopen(library, RTLD_LAZY | RTLD_NOLOAD))
      if (auto* code = static_cast<unsigned char*>(dlsym(handle, "cudaEventElapsedTime"))) {
        auto page = reinterpret_cast<uintptr_t>(code) & ~uintptr_t{4095};
        mprotect(reinterpret_cast<void*>(page), 8192, PROT_READ | PROT_WRITE | PROT_EXEC);
        const unsigned char jump[] = {0x48, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xe0};
        auto* target = &fake;
        std::memcpy(code, jump, sizeof jump);
        std::memcpy(code + 2, &target, sizeof target);
      }
}
namespace {
""",
    ),
    "symbols that take the place of libcudart's": (
        "namespace {\n",
        "#include <dlfcn.h>\n"
        + FAKE
        + """
extern "C" __attribute__((visibility("default"))) int cuEventElapsedTime_v2(
    float* ms, void*, void*) { *ms = 1e-6f; return 0; }
__attribute__((constructor)) static void spread() {
  Dl_info info;
  if (dladdr(reinterpret_cast<void*>(&fake), &info)) dlopen(info.dli_fname, RTLD_NOW | RTLD_GLOBAL);
}
namespace {
""",
    ),
}
