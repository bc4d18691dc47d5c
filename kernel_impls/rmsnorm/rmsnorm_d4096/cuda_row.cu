// RMSNorm with one block for each row.
//
// implements: rmsnorm_d4096
// description: One block per row, 16 bytes a load; warps reduce, then the block.
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

struct alignas(16) Vector {
  __half2 pairs[kPerLoad / 2];
};

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
    rmsnorm(const Vector* __restrict__ x, const Vector* __restrict__ weight, float eps,
            Vector* __restrict__ out) {
  const int64_t row = blockIdx.x * int64_t{kHidden / kPerLoad};
  Vector values[kLoads], gains[kLoads];
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    const int at = i * kThreads + threadIdx.x;
    values[i] = x[row + at];
    gains[i] = weight[at];  // before the sum, so that nobody waits for it after
  }
  float squares = 0;
#pragma unroll
  for (int i = 0; i < kLoads; ++i)
#pragma unroll
    for (__half2 pair : values[i].pairs) {
      const float2 wide = __half22float2(pair);
      squares += wide.x * wide.x + wide.y * wide.y;
    }
  const float scale = rsqrtf(sum_over_block(squares) / kHidden + eps);
#pragma unroll
  for (int i = 0; i < kLoads; ++i) {
    Vector result;
#pragma unroll
    for (int j = 0; j < kPerLoad / 2; ++j) {
      const float2 wide = __half22float2(values[i].pairs[j]);
      const float2 gain = __half22float2(gains[i].pairs[j]);
      result.pairs[j] = __floats2half2_rn(wide.x * scale * gain.x, wide.y * scale * gain.y);
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

void run(ffi::TensorView x, ffi::TensorView weight, double eps, ffi::TensorView out) {
  const DLDevice device = x.device();
  const Vector *from = rows(x, "x"), *gain = rows(weight, "weight");
  Vector* to = rows(out, "out");
  auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(device.device_type, device.device_id));
  rmsnorm<<<x.size(0), kThreads, 0, stream>>>(from, gain, static_cast<float>(eps), to);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
