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
constexpr int kStages = 4;
constexpr uint32_t kSigns = 0x88888888u;

struct Matrix {
  const uint4* values;
  const uint16_t* scales;  // two of e4m3
  int64_t values_row, values_matrix, scales_row, scales_matrix;
};

/// Twice the sizes of the numbers with no sign, of the 4 lower codes; 0 for the others.
__device__ uint32_t positive(uint32_t codes) {
  uint32_t bytes;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(bytes) : "r"(0x03020100u), "r"(0x0C080604u), "r"(codes));
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
  uint32_t scales[kRows][16];
};

/// The vector, decoded. The halves of its units are apart, so that neighbours read neighbouring
/// banks.
struct Vector {
  uint4 *even, *odd;
  float2* scales;
};

__device__ void decode(Vector& vector, const uint4* values, const uint16_t* scales, int units) {
  for (int i = threadIdx.x; i < units; i += kThreads) {
    const uint4 codes = values[i];
    const float2 scale = scales_of(scales[i]);
    vector.even[i] = make_uint4(whole(codes.x), whole(codes.x >> 16), whole(codes.y),
                                whole(codes.y >> 16));
    vector.odd[i] = make_uint4(whole(codes.z), whole(codes.z >> 16), whole(codes.w),
                               whole(codes.w >> 16));
    vector.scales[i] = make_float2(0.25f * scale.x, 0.25f * scale.y);
  }
}

template <typename T>
__device__ void copy_ahead(T* to, const T* from) {
  const auto shared = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  if (sizeof(T) == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(shared), "l"(from) : "memory");
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(shared), "l"(from) : "memory");
}

__device__ void end_of_stage() { asm volatile("cp.async.commit_group;" ::: "memory"); }

__device__ void wait_for_stage() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 2) : "memory");
}

/// Where a warp is: at some rows, and at units of these.
struct Place {
  int row, unit;
};

__device__ Place after(Place place, int units, int rows) {
  place.unit += 32;
  return place.unit < units ? place : Place{place.row + rows, 0};
}

/// All rows of a matrix are dealt to its blocks' warps, each of which reads kStages - 1 ahead.
__global__ void __launch_bounds__(kThreads, kBlocksEachSM)
    gemv(Matrix a, Matrix b, __half* __restrict__ c, int m, int units) {
  extern __shared__ __align__(16) unsigned char memory[];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, matrix = blockIdx.y;
  auto* stages = reinterpret_cast<Stage*>(memory);
  Vector vector;
  vector.even = reinterpret_cast<uint4*>(stages + kWarps * kStages);
  vector.odd = vector.even + units;
  vector.scales = reinterpret_cast<float2*>(vector.odd + units);
  stages += warp * kStages;

  const uint4* values = a.values + matrix * a.values_matrix;
  const uint16_t* scales = a.scales + matrix * a.scales_matrix;
  const auto read_ahead = [&](Stage& stage, Place at) {
#pragma unroll
    for (int r = 0; r < kRows; ++r)
      if (at.row + r < m && at.unit + lane < units)
        copy_ahead(&stage.codes[r][lane], values + (at.row + r) * a.values_row + at.unit + lane);
#pragma unroll
    for (int i = 0; i < kRows; i += 2) {  // two scales of two units, which are an even number
      const int r = i + lane / 16, unit = at.unit + lane % 16 * 2;
      if (r < kRows && at.row + r < m && unit < units)
        copy_ahead(&stage.scales[r][lane % 16],
                   reinterpret_cast<const uint32_t*>(scales + (at.row + r) * a.scales_row + unit));
    }
    end_of_stage();
  };

  const int all = gridDim.x * kWarps * kRows;
  Place now{static_cast<int>(warp * gridDim.x + blockIdx.x) * kRows, 0}, ahead = now;
  for (int i = 0; i < kStages - 1; ++i, ahead = after(ahead, units, all))
    read_ahead(stages[i], ahead);
  decode(vector, b.values + matrix * b.values_matrix, b.scales + matrix * b.scales_matrix, units);
  __syncthreads();

  float sums[kRows] = {};
  for (int i = 0; now.row < m; now = after(now, units, all)) {
    const Stage& stage = stages[i];
    wait_for_stage();
    __syncwarp();  // for scales that others have read, and until they don't use the last stage
    read_ahead(stages[i == 0 ? kStages - 1 : i - 1], ahead);
    ahead = after(ahead, units, all);
    i = i + 1 == kStages ? 0 : i + 1;
    const int unit = now.unit + lane;
    if (unit < units) {
      const uint4 even = vector.even[unit], odd = vector.odd[unit];
      const float2 scale = vector.scales[unit];
#pragma unroll
      for (int r = 0; r < kRows; ++r) {  // rows past the last are not written
        const uint4 codes = stage.codes[r][lane];
        const float2 own = scales_of(stage.scales[r][lane / 2] >> lane % 2 * 16);
        sums[r] += block_sum(codes.x, codes.y, even) * (own.x * scale.x);
        sums[r] += block_sum(codes.z, codes.w, odd) * (own.y * scale.y);
      }
    }
    if (now.unit + 32 < units) continue;
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
#pragma unroll
      for (int step = 16; step > 0; step /= 2) sums[r] += __shfl_xor_sync(~0u, sums[r], step);
      if (lane == 0 && now.row + r < m)
        c[(now.row + r) * int64_t{gridDim.y} + matrix] = __float2half(sums[r]);
      sums[r] = 0;
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
  const int bytes = kWarps * kStages * sizeof(Stage) + units * (2 * sizeof(uint4) + sizeof(float2));
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
