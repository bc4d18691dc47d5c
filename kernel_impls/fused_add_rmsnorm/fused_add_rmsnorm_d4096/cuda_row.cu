// Residual addition and RMSNorm in one pass, with one block for each row.
//
// implements: fused_add_rmsnorm_d4096
// description: One block per row, 16 bytes a load; the sum is kept in float32 registers.
#include <cuda_fp16.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

namespace {

namespace ffi = tvm::ffi;

constexpr int kHidden = 4096;
constexpr int kPerLoad = 8;  // half-precision numbers in 16 bytes
constexpr int kThreads = 256;
constexpr int kLoads = kHidden / kPerLoad / kThreads;
constexpr int kWarps = kThreads / 32;

/// Numbers of one load. As halves, a copy would be a load for each two: their class copies itself.
struct alignas(16) Vector {
  uint32_t pairs[kPerLoad / 2];
};

__device__ float2 wide_of(uint32_t pair) {
  return __half22float2(*reinterpret_cast<const __half2*>(&pair));
}

__device__ uint32_t narrow_of(float first, float second) {
  const __half2 pair = __floats2half2_rn(first, second);
  return *reinterpret_cast<const uint32_t*>(&pair);
}

__device__ float sum_over_block(float value) {
  __shared__ float of_warps[kWarps];
#pragma unroll
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(~0u, value, step);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
  __syncthreads();
  float total = 0;
#pragma unroll
  for (int i = 0; i < kWarps; ++i) total += of_warps[i];
  return total;
}

__global__ void __launch_bounds__(kThreads)
    fused_add_rmsnorm(const Vector* __restrict__ input, const Vector* __restrict__ residual,
                      const Vector* __restrict__ weight, float eps, Vector* __restrict__ out,
                      Vector* __restrict__ residual_out) {
  const int64_t row = blockIdx.x * int64_t{kHidden / kPerLoad};
  Vector left[kLoads], right[kLoads], gains[kLoads];
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {  // all loads are on their way before the first store
    const int at = i * kThreads + threadIdx.x;
    left[i] = input[row + at];
    right[i] = residual[row + at];
    gains[i] = weight[at];
  }
  float2 totals[kLoads][kPerLoad / 2];
  float squares = 0;
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    Vector rounded;
#pragma unroll
    for (int j = 0; j < kPerLoad / 2; ++j) {
      const float2 a = wide_of(left[i].pairs[j]), b = wide_of(right[i].pairs[j]);
      const float2 total = make_float2(a.x + b.x, a.y + b.y);
      totals[i][j] = total;
      squares += total.x * total.x + total.y * total.y;
      rounded.pairs[j] = narrow_of(total.x, total.y);
    }
    residual_out[row + i * kThreads + threadIdx.x] = rounded;
  }
  const float scale = rsqrtf(sum_over_block(squares) / kHidden + eps);
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    Vector result;
#pragma unroll
    for (int j = 0; j < kPerLoad / 2; ++j) {
      const float2 total = totals[i][j], gain = wide_of(gains[i].pairs[j]);
      result.pairs[j] = narrow_of(total.x * scale * gain.x, total.y * scale * gain.y);
    }
    out[row + i * kThreads + threadIdx.x] = result;
  }
}

Vector* rows(const ffi::TensorView& tensor, const char* name) {
  if (tensor.device().device_type != kDLCUDA)
    TVM_FFI_THROW(ValueError) << name << " is not on a CUDA device";
  if (!tensor.IsContiguous() || tensor.size(tensor.ndim() - 1) != kHidden)
    TVM_FFI_THROW(ValueError) << name << " is not made of contiguous rows of " << kHidden;
  return static_cast<Vector*>(tensor.data_ptr());
}

void run(ffi::TensorView input, ffi::TensorView residual, ffi::TensorView weight, double eps,
         ffi::TensorView out, ffi::TensorView residual_out) {
  const DLDevice device = input.device();
  const Vector *left = rows(input, "input"), *right = rows(residual, "residual");
  const Vector* gain = rows(weight, "weight");
  Vector *to = rows(out, "out"), *sum = rows(residual_out, "residual_out");
  auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(device.device_type, device.device_id));
  fused_add_rmsnorm<<<input.size(0), kThreads, 0, stream>>>(left, right, gain,
                                                            static_cast<float>(eps), to, sum);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
