// The launcher: sizes of grid and block, on a stream.
#pragma once

#include <cuda_runtime.h>

#include "scale.cuh"

namespace scaling {

template <typename T>
cudaError_t scale(const void* x, float factor, void* out, int64_t n, cudaStream_t stream) {
  constexpr int kThreads = 256;
  const int64_t threads = n / Vector<T>::kSize + Vector<T>::kSize;
  const auto blocks = static_cast<unsigned>((threads + kThreads - 1) / kThreads);
  scale_kernel<T><<<blocks, kThreads, 0, stream>>>(static_cast<const T*>(x), factor,
                                                   static_cast<T*>(out), n);
  return cudaGetLastError();
}

}  // namespace scaling
