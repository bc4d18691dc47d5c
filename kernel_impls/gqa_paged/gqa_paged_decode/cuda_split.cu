// Paged decode: sequences are cut into chunks of tokens, a block for each chunk and KV head.
//
// implements: gqa_paged_decode_*_ps64
// entry: run_pages
// target: sm_80 sm_90 sm_100
// description: Chunks of sequences, read ahead by each warp for itself; a second kernel merges.
// implements: gqa_paged_decode_*_ps1
// entry: run
// target: sm_80 sm_90 sm_100
// description: Chunks of sequences, read ahead by each warp for itself; a second kernel merges.
//
// Lengths are on the device. So the grid has a slot for every chunk that there may be: those of
// sequence i begin with floor(tokens before it / chunk) + i, which leaves it enough.
#include <cuda_bf16.h>
#include <math_constants.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/error.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/function.h>

#include <algorithm>

namespace {

namespace ffi = tvm::ffi;

constexpr int kDim = 128, kPerLoad = 8;
constexpr int kWarps = 4, kThreads = 32 * kWarps, kBlocksEachSM = 3;
constexpr int kTile = 16;  // tokens that a warp reads at once, two in each load
constexpr int kStages = 2;
constexpr int kPieces = kDim / kPerLoad;  // of 16 bytes, that make one token
constexpr int kSteps = kDim / 16;         // of matrix products along a head's dimensions
constexpr int kColumns = 8;               // query heads in a matrix product; some may be none
static_assert(kThreads == kDim);
constexpr int kShortest = 64, kLongest = 768;  // tokens in a chunk

struct Batch {
  const int *indptr, *indices, *last_lengths;
  int sequences;
  int64_t chunk;
};

struct Sequence {
  int number, first_page;
  int64_t length, slot;  // of its first chunk
};

template <int kPage>
__device__ int64_t slot_of(const Batch& batch, int sequence) {
  return batch.indptr[sequence] * int64_t{kPage} / batch.chunk + sequence;
}

template <int kPage>
__device__ Sequence sequence_of(const Batch& batch, int number) {
  const int first = batch.indptr[number], pages = batch.indptr[number + 1] - first;
  int64_t length = pages;
  if (kPage > 1) length = pages > 0 ? (pages - 1) * int64_t{kPage} + batch.last_lengths[number] : 0;
  return {number, first, length, slot_of<kPage>(batch, number)};
}

/// The last sequence that begins at this slot or before it; all lanes search.
template <int kPage>
__device__ int sequence_at(const Batch& batch, int slot) {
  int low = 0, high = batch.sequences;
  while (high - low > 1) {
    const int step = (high - low + 31) / 32, at = low + static_cast<int>(threadIdx.x % 32) * step;
    const bool begins = at < high && slot_of<kPage>(batch, at) <= slot;
    low += (__popc(__ballot_sync(~0u, begins)) - 1) * step;
    high = min(high, low + step);
  }
  return low;
}

__device__ void copy_ahead(uint4* to, const uint4* from, bool there) {
  const auto shared = static_cast<uint32_t>(__cvta_generic_to_shared(to));
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(shared), "l"(from),
               "r"(there ? 16 : 0));
}

__device__ void end_of_stage() { asm volatile("cp.async.commit_group;"); }

__device__ void wait_for_stage() { asm volatile("cp.async.wait_group %0;" ::"n"(kStages - 1)); }

using Matrix = uint32_t[4];  // 16 x 16 numbers of bfloat16 in the lanes of a warp

/// Each lane names a row of 8 numbers: those of lanes 0 to 7 make the first quarter, and so on.
__device__ void read_matrix(Matrix& matrix, const uint4* row) {
  const auto shared = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(matrix[0]), "=r"(matrix[1]), "=r"(matrix[2]), "=r"(matrix[3])
               : "r"(shared)
               : "memory");
}

/// The same, with each quarter transposed.
__device__ void read_transposed(Matrix& matrix, const uint4* row) {
  const auto shared = static_cast<uint32_t>(__cvta_generic_to_shared(row));
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(matrix[0]), "=r"(matrix[1]), "=r"(matrix[2]), "=r"(matrix[3])
               : "r"(shared)
               : "memory");
}

/// Of 8 x 8 numbers, two in each lane.
__device__ uint32_t transpose(uint32_t pair) {
  uint32_t result;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(pair));
  return result;
}

/// Adds a product of 16 x 16 and 16 x 8 numbers: lane i has rows i / 4 and 8 more of the sums,
/// each in columns i % 4 * 2 and 1 more.
__device__ void add_product(float (&sums)[4], const Matrix& left, const uint32_t (&right)[2]) {
  asm volatile(
      "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sums[0]), "+f"(sums[1]), "+f"(sums[2]), "+f"(sums[3])
      : "r"(left[0]), "r"(left[1]), "r"(left[2]), "r"(left[3]), "r"(right[0]), "r"(right[1]));
}

__device__ float max_over_warp(float value, int shortest) {
#pragma unroll
  for (int step = 16; step >= shortest; step /= 2)
    value = fmaxf(value, __shfl_xor_sync(~0u, value, step));
  return value;
}

struct Tensors {
  const __nv_bfloat16 *q, *k_cache, *v_cache;
  float scale;  // of logits, in units of log 2
  __nv_bfloat16* output;
  float *lse, *parts, *parts_lse;
};

/// Tokens as they lie in the cache, but for the order of their pieces.
using Tile = uint4[kTile][kPieces];

struct Shared {
  Tile keys[kWarps][kStages], values[kWarps][kStages];
};

/// Where a piece of a token is: those of 8 tokens that are read together lie in different banks.
__device__ int place_of(int token, int piece) { return piece ^ (token % 8); }

/// What a lane knows of its warp's tokens, for the heads of its two columns: the largest logit,
/// its own sum of weights, and weighted sums of values in rows lane / 4, + 8, + 16, ...
struct State {
  float top[2], total[2], sums[kSteps][4];
};

/// Adds a tile, whose tokens from ``count`` on are none.
__device__ void attend_to_tile(const Tile& keys, const Tile& values,
                               const uint32_t (&queries)[kSteps][2], float scale, int count,
                               State& state) {
  const int lane = threadIdx.x % 32, quarter = lane / 8;
  float logits[4] = {};
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    Matrix part;
    const int token = lane % 8 + quarter % 2 * 8;
    read_matrix(part, &keys[token][place_of(token, 2 * step + quarter / 2)]);
    add_product(logits, part, queries[step]);
  }
  float factors[2];
#pragma unroll
  for (int column = 0; column < 2; ++column) {
    float& first = logits[column];
    float& second = logits[column + 2];
    first = lane / 4 < count ? first * scale : -CUDART_INF_F;
    second = lane / 4 + 8 < count ? second * scale : -CUDART_INF_F;
    const float top = fmaxf(state.top[column], max_over_warp(fmaxf(first, second), 4));
    const float origin = top == -CUDART_INF_F ? 0 : top;
    first = exp2f(first - origin);
    second = exp2f(second - origin);
    factors[column] = exp2f(state.top[column] - origin);
    state.total[column] = state.total[column] * factors[column] + first + second;
    state.top[column] = top;
  }
  uint32_t weights[2];  // the transposed matrix: of tokens for each head
#pragma unroll
  for (int half = 0; half < 2; ++half) {
    const __nv_bfloat162 pair =
        __floats2bfloat162_rn(logits[2 * half], logits[2 * half + 1]);
    weights[half] = transpose(*reinterpret_cast<const uint32_t*>(&pair));
  }
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    Matrix part;
    const int token = lane % 8 + quarter / 2 * 8;
    read_transposed(part, &values[token][place_of(token, 2 * step + quarter % 2)]);
#pragma unroll
    for (int i = 0; i < 4; ++i) state.sums[step][i] *= factors[i % 2];
    add_product(state.sums[step], part, weights);
  }
}

/// Merges what the warps have, and stores it: thread d has dimension d.
template <int kGroup>
__device__ void store(Shared& shared, State& state, const Tensors& tensors, int64_t row,
                      int64_t part_row, bool whole) {
  struct Results {
    float sums[kWarps][kColumns][kDim + 4], top[kWarps][kColumns], total[kWarps][kColumns];
  };
  static_assert(sizeof(Results) <= sizeof(Shared));
  auto& results = *reinterpret_cast<Results*>(&shared);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  __syncthreads();
#pragma unroll
  for (int step = 0; step < kSteps; ++step)
#pragma unroll
    for (int i = 0; i < 4; ++i)
      results.sums[warp][lane % 4 * 2 + i % 2][step * 16 + lane / 4 + i / 2 * 8] =
          state.sums[step][i];
#pragma unroll
  for (int column = 0; column < 2; ++column) {
    float total = state.total[column];
#pragma unroll
    for (int step = 16; step >= 4; step /= 2) total += __shfl_xor_sync(~0u, total, step);
    if (lane < 4) {
      results.top[warp][lane * 2 + column] = state.top[column];
      results.total[warp][lane * 2 + column] = total;
    }
  }
  __syncthreads();
  const int d = threadIdx.x;
  for (int head = 0; head < kGroup; ++head) {
    float top = -CUDART_INF_F, total = 0, sum = 0;
    for (int w = 0; w < kWarps; ++w) top = fmaxf(top, results.top[w][head]);
    for (int w = 0; w < kWarps; ++w) {
      // Warps without tokens have no largest logit, nor has a sequence without any.
      const float share = results.total[w][head] == 0 ? 0 : exp2f(results.top[w][head] - top);
      total += share * results.total[w][head];
      sum += share * results.sums[w][head][d];
    }
    const float result = total == 0 ? 0 : sum / total;
    const float lse = total == 0 ? -CUDART_INF_F : top + log2f(total);
    if (whole) {
      tensors.output[(row + head) * kDim + d] = __float2bfloat16(result);
      if (d == 0) tensors.lse[row + head] = lse;
    } else {
      tensors.parts[(part_row + head) * kDim + d] = result;
      if (d == 0) tensors.parts_lse[part_row + head] = lse;
    }
  }
}

/// Lets the kernel after this one start once all blocks have; it waits for their results.
__device__ void let_next_start() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.launch_dependents;");
#endif
}

__device__ void wait_for_kernel_before() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

template <int kGroup, int kPage>
__global__ void __launch_bounds__(kThreads, kBlocksEachSM)
    attend(Tensors tensors, Batch batch, int kv_heads) {
  extern __shared__ __align__(16) unsigned char memory[];
  auto& shared = *reinterpret_cast<Shared*>(memory);
  let_next_start();
  // KV heads of the same tokens lie beside each other, and are read at about the same time.
  const int slot = blockIdx.x / kv_heads, kv_head = blockIdx.x % kv_heads;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, piece = lane % kPieces;
  const Sequence sequence = sequence_of<kPage>(batch, sequence_at<kPage>(batch, slot));
  const int64_t begin = (slot - sequence.slot) * batch.chunk;
  const int64_t end = min(begin + batch.chunk, sequence.length);
  if (begin >= end && begin > 0) return;  // a slot that is not needed

  const auto page_of = [&](int64_t start) {  // of token start + lane % 16
    const int64_t token = min(start + lane % kTile, end - 1);
    return start < end ? batch.indices[sequence.first_page + token / kPage] : 0;
  };
  const auto read_ahead = [&](int64_t start, int stage, int page) {
#pragma unroll
    for (int i = 0; i < kTile; i += 2) {
      const int which = i + lane / kPieces, place = place_of(which, piece);
      const int64_t own = __shfl_sync(~0u, page, which), token = start + which;
      const int64_t at =
          ((own * kPage + token % kPage) * kv_heads + kv_head) * kPieces + piece;
      const bool there = token < end;  // others are zeros, since weights of 0 don't mend a NaN
      copy_ahead(&shared.keys[warp][stage][which][place],
                 reinterpret_cast<const uint4*>(tensors.k_cache) + (there ? at : 0), there);
      copy_ahead(&shared.values[warp][stage][which][place],
                 reinterpret_cast<const uint4*>(tensors.v_cache) + (there ? at : 0), there);
    }
    end_of_stage();
  };

  constexpr int kStep = kWarps * kTile;
  int64_t start = begin + warp * kTile;
  read_ahead(start, 0, page_of(start));
  int page = page_of(start + kStep);  // read before it is needed
  const int64_t row = (int64_t{sequence.number} * kv_heads + kv_head) * kGroup;
  uint32_t queries[kSteps][2] = {};
  if (lane / 4 < kGroup) {
    const auto* query = reinterpret_cast<const uint32_t*>(tensors.q + (row + lane / 4) * kDim);
#pragma unroll
    for (int i = 0; i < 2 * kSteps; ++i) queries[i / 2][i % 2] = query[i * 4 + lane % 4];
  }
  State state = {{-CUDART_INF_F, -CUDART_INF_F}, {}, {}};
  for (int stage = 0; start < end; start += kStep, stage ^= 1) {
    read_ahead(start + kStep, stage ^ 1, page);
    page = page_of(start + 2 * kStep);
    wait_for_stage();
    __syncwarp();
    attend_to_tile(shared.keys[warp][stage], shared.values[warp][stage], queries, tensors.scale,
                   static_cast<int>(min(end - start, int64_t{kTile})), state);
    __syncwarp();
  }
  asm volatile("cp.async.wait_all;");
  const int64_t part_row = (int64_t{slot} * kv_heads + kv_head) * kGroup;
  store<kGroup>(shared, state, tensors, row, part_row, sequence.length <= batch.chunk);
}

/// One sequence and query head; each warp adds up some of its parts.
template <int kPage>
__global__ void __launch_bounds__(kThreads) merge(Tensors tensors, Batch batch, int heads) {
  __shared__ float tops[kWarps], totals[kWarps];
  __shared__ float4 results[kWarps][32];
  const int head = blockIdx.x % heads, warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const Sequence sequence = sequence_of<kPage>(batch, blockIdx.x / heads);
  wait_for_kernel_before();
  if (sequence.length <= batch.chunk) return;  // it was one chunk
  const int parts = static_cast<int>((sequence.length + batch.chunk - 1) / batch.chunk);
  const float* lse = tensors.parts_lse + sequence.slot * heads + head;
  float top = -CUDART_INF_F;
  for (int i = threadIdx.x; i < parts; i += kThreads) top = fmaxf(top, lse[int64_t{i} * heads]);
  top = max_over_warp(top, 1);
  if (lane == 0) tops[warp] = top;
  __syncthreads();
#pragma unroll
  for (int w = 0; w < kWarps; ++w) top = fmaxf(top, tops[w]);

  const auto* sums = reinterpret_cast<const float4*>(tensors.parts);
  float4 sum = make_float4(0, 0, 0, 0);
  float total = 0;
#pragma unroll 8
  for (int i = warp; i < parts; i += kWarps) {
    const float share = exp2f(lse[int64_t{i} * heads] - top);
    const float4 own = sums[((sequence.slot + i) * heads + head) * 32 + lane];
    total += share;
    sum.x += share * own.x;
    sum.y += share * own.y;
    sum.z += share * own.z;
    sum.w += share * own.w;
  }
  results[warp][lane] = sum;
  if (lane == 0) totals[warp] = total;
  __syncthreads();
  const int d = threadIdx.x;
  float result = 0;
  total = 0;
#pragma unroll
  for (int w = 0; w < kWarps; ++w) {
    result += reinterpret_cast<const float*>(&results[w])[d];
    total += totals[w];
  }
  const int64_t row = blockIdx.x;
  tensors.output[row * kDim + d] = __float2bfloat16(result / total);
  if (d == 0) tensors.lse[row] = top + log2f(total);
}

/// Starts before the kernel before it has ended, where a device has that.
template <int kPage>
void launch_merge(const Tensors& tensors, const Batch& batch, int heads, DLDevice device,
                  cudaStream_t stream) {
  int major = 0;
  cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device.device_id);
  cudaLaunchAttribute early{};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = batch.sequences * heads;
  config.blockDim = kThreads;
  config.stream = stream;
  config.attrs = &early;
  config.numAttrs = major >= 9 ? 1 : 0;
  cudaLaunchKernelEx(&config, &merge<kPage>, tensors, batch, heads);
}

template <int kGroup, int kPage>
void launch(const Tensors& tensors, const Batch& batch, int slots, int kv_heads, DLDevice device) {
  auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(device.device_type, device.device_id));
  constexpr int kBytes = sizeof(Shared);
  auto* kernel = &attend<kGroup, kPage>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  kernel<<<slots * kv_heads, kThreads, kBytes, stream>>>(tensors, batch, kv_heads);
  if (slots > batch.sequences)
    launch_merge<kPage>(tensors, batch, kGroup * kv_heads, device, stream);
}

template <int kPage>
void decode(ffi::TensorView q, ffi::TensorView k_cache, ffi::TensorView v_cache,
            ffi::TensorView indptr, ffi::TensorView indices, const int* last_lengths, double scale,
            ffi::TensorView output, ffi::TensorView lse) {
  const DLDevice device = q.device();
  if (device.device_type != kDLCUDA) TVM_FFI_THROW(ValueError) << "q is not on a CUDA device";
  if (q.size(2) != kDim || k_cache.size(1) != kPage)
    TVM_FFI_THROW(ValueError) << "heads have " << q.size(2) << " dimensions and pages "
                              << k_cache.size(1) << " tokens, not " << kDim << " and " << kPage;
  if (!q.IsContiguous() || !k_cache.IsContiguous() || !v_cache.IsContiguous())
    TVM_FFI_THROW(ValueError) << "q, k_cache and v_cache should be contiguous";
  const int sequences = q.size(0), heads = q.size(1), kv_heads = k_cache.size(2);
  int processors = 1;
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device.device_id);
  // Sequences count as long as they are together: so many blocks run at once.
  const int64_t tokens = indices.size(0) * kPage, blocks = processors * kBlocksEachSM;
  const int64_t even = (tokens * kv_heads / blocks + kShortest - 1) / kShortest * kShortest;
  const int64_t chunk = std::clamp<int64_t>(even, kShortest, kLongest);
  const int slots = static_cast<int>(tokens / chunk) + sequences;
  const auto allocate = [&](ffi::Shape shape) {
    return ffi::Tensor::FromEnvAlloc(TVMFFIEnvTensorAlloc, shape, DLDataType{kDLFloat, 32, 1},
                                     device);
  };
  const ffi::Tensor parts = allocate({slots, heads, kDim}), parts_lse = allocate({slots, heads});
  const Batch batch{static_cast<const int*>(indptr.data_ptr()),
                    static_cast<const int*>(indices.data_ptr()), last_lengths, sequences, chunk};
  const Tensors tensors{static_cast<const __nv_bfloat16*>(q.data_ptr()),
                        static_cast<const __nv_bfloat16*>(k_cache.data_ptr()),
                        static_cast<const __nv_bfloat16*>(v_cache.data_ptr()),
                        static_cast<float>(scale / std::log(2.0)),
                        static_cast<__nv_bfloat16*>(output.data_ptr()),
                        static_cast<float*>(lse.data_ptr()),
                        static_cast<float*>(parts.data_ptr()),
                        static_cast<float*>(parts_lse.data_ptr())};
  if (heads == 4 * kv_heads)
    launch<4, kPage>(tensors, batch, slots, kv_heads, device);
  else if (heads == 8 * kv_heads)
    launch<8, kPage>(tensors, batch, slots, kv_heads, device);
  else
    TVM_FFI_THROW(ValueError) << heads << " heads for " << kv_heads << " KV heads: 4 or 8 for each";
}

void run(ffi::TensorView q, ffi::TensorView k_cache, ffi::TensorView v_cache,
         ffi::TensorView indptr, ffi::TensorView indices, double scale, ffi::TensorView output,
         ffi::TensorView lse) {
  decode<1>(q, k_cache, v_cache, indptr, indices, nullptr, scale, output, lse);
}

void run_pages(ffi::TensorView q, ffi::TensorView k_cache, ffi::TensorView v_cache,
               ffi::TensorView indptr, ffi::TensorView indices, ffi::TensorView last_lengths,
               double scale, ffi::TensorView output, ffi::TensorView lse) {
  decode<64>(q, k_cache, v_cache, indptr, indices,
             static_cast<const int*>(last_lengths.data_ptr()), scale, output, lse);
}

}  // namespace

TVM_FFI_DLL_EXPORT_TYPED_FUNC(run, run);
TVM_FFI_DLL_EXPORT_TYPED_FUNC(run_pages, run_pages);
