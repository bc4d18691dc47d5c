// NVFP4 matrix-vector product in whole numbers: sums of 16 products are exact in int32.
//
// implements: nvfp4_gemv
// description: Blocks that stay; e2m1 is looked up in registers, 4 products an instruction.
//
// Twice an e2m1 number is a whole number of a byte, and the 8 sizes of them fit in two registers.
// The instruction prmt selects 4 of these bytes by 4 numbers' codes, and gives 0 where the highest
// bit of a code, the sign, is set. So a word of codes and its complement in the signs give the
// positive and the negative numbers apart.
#include <cuda_fp16.h>
#include <cuda_fp8.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

#include <algorithm>

namespace {

namespace ffi = tvm::ffi;

constexpr int kWarps = 8, kThreads = 32 * kWarps, kBlocksEachSM = 4;
constexpr int kUnit = 32;  // numbers in 16 bytes: two blocks of 16 with a scale each
constexpr int kRows = 2;   // that a warp reads at once, 32 units of each
constexpr int kStages = 3;
static_assert(kRows % 2 == 0);
constexpr uint32_t kSigns = 0x88888888u;

struct Matrix {
  const uint4* values;
  const uint16_t* scales;  // two of e4m3
  int64_t values_row, values_matrix, scales_row, scales_matrix;
};

/// Twice the sizes of the numbers with no sign, of the 4 lower codes; 0 for the others.
__device__ uint32_t positive(uint32_t codes) {
  // The compiler doesn't know that y is 0. A constant it would put in a register again each time.
  const uint32_t small = 0x03020100u + threadIdx.y;
  uint32_t bytes;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(small), "r"(0x0C080604u), "r"(codes));
  return bytes;
}

/// Twice the numbers of 4 codes, as signed bytes.
__device__ uint32_t whole(uint32_t codes) {
  return __vsub4(positive(codes), positive(codes ^ kSigns));
}

__device__ float2 scales_of(uint16_t pair) {
  const __half2_raw raw = __nv_cvt_fp8x2_to_halfraw2(pair, __NV_E4M3);
  return __half22float2(*reinterpret_cast<const __half2*>(&raw));
}

/// Adds 4 times the products of 8 codes with 8 bytes: of positive numbers, and of negative ones.
__device__ void add_products(uint32_t codes, uint32_t low, uint32_t high, int& plus, int& minus) {
  const uint32_t flipped = codes ^ kSigns;
  plus = __dp4a(static_cast<int>(positive(codes)), static_cast<int>(low), plus);
  plus = __dp4a(static_cast<int>(positive(codes >> 16)), static_cast<int>(high), plus);
  minus = __dp4a(static_cast<int>(positive(flipped)), static_cast<int>(low), minus);
  minus = __dp4a(static_cast<int>(positive(flipped >> 16)), static_cast<int>(high), minus);
}

/// 4 times the sum of 16 products.
__device__ int block_sum(uint32_t first, uint32_t second, const uint4& vector) {
  int plus = 0, minus = 0;
  add_products(first, vector.x, vector.y, plus, minus);
  add_products(second, vector.z, vector.w, plus, minus);
  return plus - minus;
}

/// What a warp reads at once: each lane a unit of every row.
struct Stage {
  uint4 codes[kRows][32];
  alignas(4) uint16_t scales[kRows][32];
};

/// 32 units of the vector, decoded. Their halves are apart, so that neighbours read neighbouring
/// banks.
struct Chunk {
  uint4 even[32], odd[32];
  float2 scales[32];
};

__device__ void decode(Chunk* chunks, const uint4* values, const uint16_t* scales, int units) {
  for (int i = threadIdx.x; i < units; i += kThreads) {
    Chunk& chunk = chunks[i / 32];
    const uint4 codes = values[i];
    const float2 scale = scales_of(scales[i]);
    chunk.even[i % 32] = make_uint4(whole(codes.x), whole(codes.x >> 16), whole(codes.y),
                                    whole(codes.y >> 16));
    chunk.odd[i % 32] = make_uint4(whole(codes.z), whole(codes.z >> 16), whole(codes.w),
                                   whole(codes.w >> 16));
    chunk.scales[i % 32] = make_float2(0.25f * scale.x, 0.25f * scale.y);
  }
}

__device__ void copy_codes(uint32_t to, const uint4* from) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(to), "l"(from) : "memory");
}

__device__ void copy_scales(uint32_t to, const uint16_t* from) {
  asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(to), "l"(from) : "memory");
}

__device__ void end_of_stage() { asm volatile("cp.async.commit_group;" ::: "memory"); }

__device__ void wait_for_stage() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 2) : "memory");
}

/// Copies what a warp will need, one stage at each call. Few instructions are what counts here:
/// nearly all that the kernel does is decode.
struct Reader {
  const uint4* values;     // of this lane's unit
  const uint16_t* scales;  // of two units: lanes share this work between rows
  int64_t next_values, next_scales;  // from the end of a row to the next that is this warp's
  uint32_t codes_to, scales_to;
  int row, unit, stage;
};

__device__ Reader reader_of(const Matrix& a, Stage* stages, int matrix, int row, int rows,
                            int units) {
  const int lane = threadIdx.x % 32, own = lane / 16, covered = (units + 31) / 32 * 32;
  return {a.values + matrix * a.values_matrix + row * a.values_row + lane,
          a.scales + matrix * a.scales_matrix + (row + own) * a.scales_row + lane % 16 * 2,
          rows * a.values_row - covered,
          rows * a.scales_row - covered,
          static_cast<uint32_t>(__cvta_generic_to_shared(&stages->codes[0][lane])),
          static_cast<uint32_t>(__cvta_generic_to_shared(&stages->scales[own][lane % 16 * 2])),
          row,
          0,
          0};
}

__device__ void read_ahead(Reader& reader, const Matrix& a, int m, int units, int rows) {
  const int lane = threadIdx.x % 32;
  const uint32_t stage = reader.stage * static_cast<uint32_t>(sizeof(Stage));
#pragma unroll
  for (int r = 0; r < kRows; ++r)
    if (reader.row + r < m && reader.unit + lane < units)
      copy_codes(reader.codes_to + stage + r * sizeof(Stage::codes[0]),
                 reader.values + r * a.values_row);
#pragma unroll
  for (int r = 0; r < kRows; r += 2)
    if (reader.row + r + lane / 16 < m && reader.unit + lane % 16 * 2 < units)
      copy_scales(reader.scales_to + stage + r * sizeof(Stage::scales[0]),
                  reader.scales + r * a.scales_row);
  end_of_stage();
  reader.stage = reader.stage + 1 == kStages ? 0 : reader.stage + 1;
  reader.unit += 32;
  reader.values += 32;
  reader.scales += 32;
  if (reader.unit >= units) {
    reader.unit = 0;
    reader.row += rows;
    reader.values += reader.next_values;
    reader.scales += reader.next_scales;
  }
}

/// All rows of a matrix are dealt to its blocks' warps, each of which reads kStages - 1 ahead.
__global__ void __launch_bounds__(kThreads, kBlocksEachSM)
    gemv(Matrix a, Matrix b, __half* __restrict__ c, int m, int units) {
  extern __shared__ __align__(16) unsigned char memory[];
  const int lane = threadIdx.x % 32, matrix = blockIdx.y;
  const int warp = __shfl_sync(~0u, threadIdx.x / 32, 0);  // seen to be the same in all lanes
  auto* stages = reinterpret_cast<Stage*>(memory) + warp * kStages;
  auto* chunks = reinterpret_cast<Chunk*>(memory + kWarps * kStages * sizeof(Stage));
  const int rows = gridDim.x * kWarps * kRows;  // that all warps have at once
  const int first = static_cast<int>(warp * gridDim.x + blockIdx.x) * kRows;
  Reader reader = reader_of(a, stages, matrix, first, rows, units);
  for (int i = 0; i < kStages - 1; ++i) read_ahead(reader, a, m, units, rows);
  decode(chunks, b.values + matrix * b.values_matrix, b.scales + matrix * b.scales_matrix, units);
  __syncthreads();

  int at = 0;
  for (int row = first; row < m; row += rows) {
    float sums[kRows] = {};
    const Chunk* chunk = chunks;
    for (int unit = 0; unit < units; unit += 32, ++chunk) {
      const Stage& stage = stages[at];
      at = at + 1 == kStages ? 0 : at + 1;
      wait_for_stage();
      __syncwarp();  // for scales that others have read, and until they don't use the last stage
      read_ahead(reader, a, m, units, rows);
      if (unit + lane >= units) continue;
      const uint4 even = chunk->even[lane], odd = chunk->odd[lane];
      const float2 scale = chunk->scales[lane];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {  // rows past the last are not written
        const uint4 codes = stage.codes[r][lane];
        const float2 own = scales_of(stage.scales[r][lane]);
        sums[r] += block_sum(codes.x, codes.y, even) * (own.x * scale.x);
        sums[r] += block_sum(codes.z, codes.w, odd) * (own.y * scale.y);
      }
    }
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int step = 16; step > 0; step /= 2) sums[r] += __shfl_xor_sync(~0u, sums[r], step);
      if (lane == 0 && row + r < m)
        c[(row + r) * int64_t{gridDim.y} + matrix] = __float2half(sums[r]);
    }
  }
}

Matrix matrix_of(const ffi::TensorView& values, const ffi::TensorView& scales, const char* name) {
  if (values.device().device_type != kDLCUDA)
    TVM_FFI_THROW(ValueError) << name << " is not on a CUDA device";
  if (values.ndim() != 3 || values.stride(1) != 1 || scales.stride(1) != 1)
    TVM_FFI_THROW(ValueError) << name << " is not contiguous along k";
  const auto values_at = reinterpret_cast<uintptr_t>(values.data_ptr());
  const auto scales_at = reinterpret_cast<uintptr_t>(scales.data_ptr());
  if (values.size(1) % 32 || values_at % 16 || scales_at % 4)
    TVM_FFI_THROW(ValueError) << name << " needs a k of whole 64 numbers, rows at 16 bytes, "
                              << "and scales at 4";
  return {static_cast<const uint4*>(values.data_ptr()),
          static_cast<const uint16_t*>(scales.data_ptr()),
          values.stride(0) / 16, values.stride(2) / 16, scales.stride(0) / 2, scales.stride(2) / 2};
}

void run(ffi::TensorView a, ffi::TensorView b, ffi::TensorView sfa, ffi::TensorView sfb,
         ffi::TensorView c) {
  const DLDevice device = a.device();
  const Matrix left = matrix_of(a, sfa, "a"), right = matrix_of(b, sfb, "b");
  auto* to = static_cast<__half*>(c.data_ptr());
  auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(device.device_type, device.device_id));
  const int m = a.size(0), matrices = a.size(2), units = a.size(1) * 2 / kUnit;
  int processors = 1;
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device.device_id);
  const int bytes = kWarps * kStages * sizeof(Stage) + (units + 31) / 32 * sizeof(Chunk);
  if (cudaFuncSetAttribute(gemv, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes)) {
    cudaGetLastError();
    TVM_FFI_THROW(ValueError) << "a vector of " << units * kUnit << " numbers needs " << bytes
                              << " bytes of shared memory, which a block of this device hasn't";
  }
  int together = 1;
  cudaOccupancyMaxActiveBlocksPerMultiprocessor(&together, gemv, kThreads, bytes);
  const int most = (m + kWarps * kRows - 1) / (kWarps * kRows);
  const int blocks = std::clamp(together * processors / std::max(matrices, 1), 1, most);
  gemv<<<dim3(blocks, matrices), kThreads, bytes, stream>>>(left, right, to, m, units);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
