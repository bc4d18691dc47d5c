// NVFP4 matrix-vector product in whole numbers: sums of 16 products are exact in int32.
//
// implements: nvfp4_gemv
// description: A warp for some rows; e2m1 is looked up in registers, 4 products an instruction.
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

namespace {

namespace ffi = tvm::ffi;

constexpr int kWarps = 8, kThreads = 32 * kWarps;
constexpr int kUnit = 32;           // numbers in 16 bytes: two blocks of 16 with a scale each
constexpr int kPanel = 512;         // units of the vector that are in shared memory at once
constexpr int kBlocksEachSM = 6;    // so that no multiprocessor waits long for the last one
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

struct Panel {
  uint4 even[kPanel], odd[kPanel];  // apart, so that neighbours read neighbouring banks
  float2 scales[kPanel];
};

/// Reads a part of the vector, and decodes it.
__device__ void fill(Panel& panel, const uint4* values, const uint16_t* scales, int units) {
  for (int i = threadIdx.x; i < units; i += kThreads) {
    const uint4 codes = values[i];
    const float2 scale = scales_of(scales[i]);
    panel.even[i] = make_uint4(whole(codes.x), whole(codes.x >> 16), whole(codes.y),
                               whole(codes.y >> 16));
    panel.odd[i] = make_uint4(whole(codes.z), whole(codes.z >> 16), whole(codes.w),
                              whole(codes.w >> 16));
    panel.scales[i] = make_float2(0.25f * scale.x, 0.25f * scale.y);
  }
}

/// What a lane reads at once: of some rows, every 32nd unit.
template <int kRows>
struct Step {
  static constexpr int kUnits = kRows == 1 ? 3 : 1;  // as registers go
  uint4 codes[kUnits][kRows];
  uint16_t pairs[kUnits][kRows];
};

template <int kRows>
__global__ void __launch_bounds__(kThreads, 3)
    gemv(Matrix a, Matrix b, __half* __restrict__ c, int m, int all_units) {
  __shared__ Panel panel;
  const int lane = threadIdx.x % 32, matrix = blockIdx.y;
  const int first = (blockIdx.x * kWarps + threadIdx.x / 32) * kRows;
  const uint4* __restrict__ values[kRows];
  const uint16_t* __restrict__ scales[kRows];
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    const int row = min(first + r, m - 1);  // rows past the last are read, and not written
    values[r] = a.values + matrix * a.values_matrix + row * a.values_row;
    scales[r] = a.scales + matrix * a.scales_matrix + row * a.scales_row;
  }
  float sums[kRows] = {};
  constexpr int kUnits = Step<kRows>::kUnits;
  for (int start = 0; start < all_units; start += kPanel) {
    const int units = min(kPanel, all_units - start);
    const auto read = [&](Step<kRows>& step, int i) {
#pragma unroll
      for (int u = 0; u < kUnits; ++u)
#pragma unroll
        for (int r = 0; r < kRows; ++r)
          if (i + 32 * u < units) {
            step.codes[u][r] = __ldcs(values[r] + start + i + 32 * u);
            step.pairs[u][r] = __ldcs(scales[r] + start + i + 32 * u);
          }
    };
    Step<kRows> now, next;
    read(now, lane);  // before anyone waits for the vector
    if (start > 0) __syncthreads();
    fill(panel, b.values + matrix * b.values_matrix + start,
         b.scales + matrix * b.scales_matrix + start, units);
    __syncthreads();
    for (int i = lane; i < units; i += 32 * kUnits, now = next) {
      read(next, i + 32 * kUnits);
#pragma unroll
      for (int u = 0; u < kUnits; ++u) {
        const int at = i + 32 * u;
        if (at >= units) break;
        const uint4 even = panel.even[at], odd = panel.odd[at];
        const float2 scale = panel.scales[at];
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          const uint4 codes = now.codes[u][r];
          const float2 own = scales_of(now.pairs[u][r]);
          sums[r] += block_sum(codes.x, codes.y, even) * (own.x * scale.x);
          sums[r] += block_sum(codes.z, codes.w, odd) * (own.y * scale.y);
        }
      }
    }
  }
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) sums[r] += __shfl_xor_sync(~0u, sums[r], step);
    if (lane == 0 && first + r < m)
      c[(first + r) * int64_t{gridDim.y} + matrix] = __float2half(sums[r]);
  }
}

Matrix matrix_of(const ffi::TensorView& values, const ffi::TensorView& scales, const char* name) {
  if (values.device().device_type != kDLCUDA)
    TVM_FFI_THROW(ValueError) << name << " is not on a CUDA device";
  if (values.ndim() != 3 || values.stride(1) != 1 || scales.stride(1) != 1)
    TVM_FFI_THROW(ValueError) << name << " is not contiguous along k";
  if (values.size(1) % 32 || reinterpret_cast<uintptr_t>(values.data_ptr()) % 16)
    TVM_FFI_THROW(ValueError) << name << " needs a k of whole 64 numbers, and rows at 16 bytes";
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
  const auto grid = [&](int rows) {
    return dim3((m + kWarps * rows - 1) / (kWarps * rows), matrices);
  };
  // As many rows for each warp as leave enough blocks: the vector is decoded by each of them.
  const auto enough = [&](int rows) {
    return grid(rows).x * int64_t{matrices} >= int64_t{kBlocksEachSM} * processors;
  };
  if (enough(2))
    gemv<2><<<grid(2), kThreads, 0, stream>>>(left, right, to, m, units);
  else
    gemv<1><<<grid(1), kThreads, 0, stream>>>(left, right, to, m, units);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
