// The kernel: header-only, of plain pointers.
#pragma once

#include <cstdint>
#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace scaling {

inline __device__ float widened(float value) { return value; }
inline __device__ float widened(__half value) { return __half2float(value); }
inline __device__ float widened(__nv_bfloat16 value) { return __bfloat162float(value); }

template <typename T>
__device__ T narrowed(float value);
template <>
inline __device__ float narrowed(float value) {
  return value;
}
template <>
inline __device__ __half narrowed(float value) {
  return __float2half_rn(value);
}
template <>
inline __device__ __nv_bfloat16 narrowed(float value) {
  return __float2bfloat16_rn(value);
}

// As many elements as one load of 16 bytes brings.
template <typename T>
struct alignas(16) Vector {
  static constexpr int kSize = 16 / sizeof(T);
  T elements[kSize];
};

// Each thread takes one vector; the first ones also the elements that fill none.
template <typename T>
__global__ void scale_kernel(const T* x, float factor, T* out, int64_t n) {
  constexpr int kSize = Vector<T>::kSize;
  const int64_t thread = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  const int64_t vectors = n / kSize;
  if (thread < vectors) {
    Vector<T> values = reinterpret_cast<const Vector<T>*>(x)[thread];
#pragma unroll
    for (T& value : values.elements) value = narrowed<T>(widened(value) * factor);
    reinterpret_cast<Vector<T>*>(out)[thread] = values;
  }
  const int64_t rest = vectors * kSize + thread;
  if (rest < n) out[rest] = narrowed<T>(widened(x[rest]) * factor);
}

}  // namespace scaling
