// The binding: checks tensors, finds the stream, tells dtypes apart.
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

#include "launcher.cuh"

namespace {

namespace ffi = tvm::ffi;

void check(const ffi::TensorView& tensor, const char* name) {
  if (tensor.device().device_type != kDLCUDA)
    TVM_FFI_THROW(ValueError) << name << " is not on a CUDA device";
  if (!tensor.IsContiguous()) TVM_FFI_THROW(ValueError) << name << " is not contiguous";
  if (reinterpret_cast<uintptr_t>(tensor.data_ptr()) % 16 != 0)
    TVM_FFI_THROW(ValueError) << name << " does not start at a multiple of 16 bytes";
}

void run(ffi::TensorView x, double factor, ffi::TensorView out) {
  check(x, "x");
  check(out, "out");
  if (out.dtype() != x.dtype() || out.numel() != x.numel())
    TVM_FFI_THROW(ValueError) << "out differs from x in dtype or size";
  const DLDevice device = x.device();
  auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(device.device_type, device.device_id));
  auto* scale = scaling::scale<float>;
  const DLDataType dtype = x.dtype();
  if (dtype.code == kDLFloat && dtype.bits == 16) {
    scale = scaling::scale<__half>;
  } else if (dtype.code == kDLBfloat && dtype.bits == 16) {
    scale = scaling::scale<__nv_bfloat16>;
  } else if (dtype.code != kDLFloat || dtype.bits != 32) {
    TVM_FFI_THROW(TypeError) << "x is neither float16, bfloat16 nor float32";
  }
  const cudaError_t error =
      scale(x.data_ptr(), static_cast<float>(factor), out.data_ptr(), x.numel(), stream);
  if (error != cudaSuccess) TVM_FFI_THROW(RuntimeError) << cudaGetErrorString(error);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
