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
constexpr int kTile = 16;              // tokens that a warp reads at once, two in each load
constexpr int kPairs = kTile / 2, kStages = 2;
constexpr int kLanes = kDim / kPerLoad;  // that hold one token
static_assert(kThreads == kDim);
constexpr int kShortest = 64, kLongest = 384;  // tokens in a chunk

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

__device__ void unpack(const uint4& eight, float (&values)[kPerLoad]) {
  const uint32_t words[4] = {eight.x, eight.y, eight.z, eight.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    values[2 * i] = __uint_as_float(words[i] << 16);
    values[2 * i + 1] = __uint_as_float(words[i] & 0xFFFF0000u);
  }
}

/// Sums of 4 values over the 16 lanes of a token: lanes get that of number lane / 4 % 4.
__device__ float sum_over_token(const float (&values)[4]) {
  const bool upper = threadIdx.x & 8, odd = threadIdx.x & 4;
  float left = upper ? values[2] : values[0], right = upper ? values[3] : values[1];
  left += __shfl_xor_sync(~0u, upper ? values[0] : values[2], 8);
  right += __shfl_xor_sync(~0u, upper ? values[1] : values[3], 8);
  float sum = odd ? right : left;
  sum += __shfl_xor_sync(~0u, odd ? left : right, 4);
  sum += __shfl_xor_sync(~0u, sum, 2);
  return sum + __shfl_xor_sync(~0u, sum, 1);
}

__device__ float max_over_token(float value) {
#pragma unroll
  for (int step = 8; step > 0; step /= 2)
    value = fmaxf(value, __shfl_xor_sync(~0u, value, step));
  return value;
}

struct Tensors {
  const __nv_bfloat16 *q, *k_cache, *v_cache;
  float scale;  // of logits, in units of log 2
  __nv_bfloat16* output;
  float *lse, *parts, *parts_lse;
};

/// A number for each query head, read as a whole.
template <int kGroup>
struct alignas(16) Heads {
  float of[kGroup];
};

template <int kGroup>
struct Shared {
  uint4 keys[kWarps][kStages][kPairs][32], values[kWarps][kStages][kPairs][32];
  float4 queries[kGroup][2][kLanes];  // halves apart, so that neighbours read neighbouring banks
  Heads<kGroup> weights[kWarps][kTile];  // logits first
  Heads<kGroup> factors[kWarps];
};

/// What a warp knows of its tokens: largest logits, sums of weights, weighted sums of values.
template <int kGroup>
struct State {
  float top[kGroup / 2], total[kGroup / 2];  // of heads lane / 16, + 2, + 4, ...
  float sums[kGroup][kPerLoad];
};

/// Adds a tile, whose tokens from ``count`` on are none.
template <int kGroup>
__device__ void attend_to_tile(Shared<kGroup>& shared, State<kGroup>& state, int stage, int count) {
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
  const int token_of_pair = lane / kLanes, part = lane % kLanes;
#pragma unroll
  for (int start = 0; start < kPairs; start += 4) {
    float keys[4][kPerLoad];
#pragma unroll
    for (int i = 0; i < 4; ++i) unpack(shared.keys[warp][stage][start + i][lane], keys[i]);
#pragma unroll
    for (int head = 0; head < kGroup; ++head) {
      const float4 low = shared.queries[head][0][part], high = shared.queries[head][1][part];
      const float query[kPerLoad] = {low.x, low.y, low.z, low.w, high.x, high.y, high.z, high.w};
      float logits[4] = {};
#pragma unroll
      for (int i = 0; i < 4; ++i)
#pragma unroll
        for (int d = 0; d < kPerLoad; ++d) logits[i] += query[d] * keys[i][d];
      const float logit = sum_over_token(logits);
      if (part % 4 == 0)
        shared.weights[warp][2 * (start + part / 4) + token_of_pair].of[head] = logit;
    }
  }
  __syncwarp();
#pragma unroll
  for (int i = 0; i < kGroup / 2; ++i) {
    const int head = 2 * i + token_of_pair;
    const float logit = part < count ? shared.weights[warp][part].of[head] : -CUDART_INF_F;
    const float top = fmaxf(state.top[i], max_over_token(logit));
    const float weight = exp2f(logit - top), factor = exp2f(state.top[i] - top);
    state.total[i] = state.total[i] * factor + weight;
    state.top[i] = top;
    shared.weights[warp][part].of[head] = weight;
    if (part == 0) shared.factors[warp].of[head] = factor;
  }
  __syncwarp();
  const Heads<kGroup> factors = shared.factors[warp];
#pragma unroll
  for (int head = 0; head < kGroup; ++head)
#pragma unroll
    for (int d = 0; d < kPerLoad; ++d) state.sums[head][d] *= factors.of[head];
#pragma unroll
  for (int i = 0; i < kPairs; ++i) {
    float values[kPerLoad];
    unpack(shared.values[warp][stage][i][lane], values);
    const Heads<kGroup> weights = shared.weights[warp][2 * i + token_of_pair];
#pragma unroll
    for (int head = 0; head < kGroup; ++head)
#pragma unroll
      for (int d = 0; d < kPerLoad; ++d) state.sums[head][d] += weights.of[head] * values[d];
  }
  __syncwarp();
}

/// Merges what the warps have, and stores it: thread d has dimension d.
template <int kGroup>
__device__ void store(Shared<kGroup>& shared, State<kGroup>& state, const Tensors& tensors,
                      int64_t row, int64_t part_row, bool whole) {
  struct Results {
    float sums[kWarps][kGroup][kDim], top[kWarps][kGroup], total[kWarps][kGroup];
  };
  static_assert(sizeof(Results) <= sizeof(shared.keys));
  auto& results = *reinterpret_cast<Results*>(&shared.keys);
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, part = lane % kLanes;
  __syncthreads();
#pragma unroll
  for (int head = 0; head < kGroup; ++head)
#pragma unroll
    for (int d = 0; d < kPerLoad; ++d) {
      const float sum = state.sums[head][d] + __shfl_xor_sync(~0u, state.sums[head][d], kLanes);
      if (lane < kLanes) results.sums[warp][head][part * kPerLoad + d] = sum;
    }
#pragma unroll
  for (int i = 0; i < kGroup / 2; ++i) {
    float total = state.total[i];
#pragma unroll
    for (int step = 8; step > 0; step /= 2) total += __shfl_xor_sync(~0u, total, step);
    if (part == 0) {
      results.top[warp][2 * i + lane / kLanes] = state.top[i];
      results.total[warp][2 * i + lane / kLanes] = total;
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

template <int kGroup, int kPage>
__global__ void __launch_bounds__(kThreads, kBlocksEachSM) attend(Tensors tensors, Batch batch) {
  extern __shared__ __align__(16) unsigned char memory[];
  auto& shared = *reinterpret_cast<Shared<kGroup>*>(memory);
  const int slot = blockIdx.x, kv_head = blockIdx.y, kv_heads = gridDim.y;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, part = lane % kLanes;
  const Sequence sequence = sequence_of<kPage>(batch, sequence_at<kPage>(batch, slot));
  const int64_t begin = (slot - sequence.slot) * batch.chunk;
  const int64_t end = min(begin + batch.chunk, sequence.length);
  if (begin >= end && begin > 0) return;  // a slot that is not needed

  const int64_t row = (int64_t{sequence.number} * kv_heads + kv_head) * kGroup;
  const auto page_of = [&](int64_t start) {  // of token start + part
    const int64_t token = min(start + part, end - 1);
    return start < end ? batch.indices[sequence.first_page + token / kPage] : 0;
  };
  const auto read_ahead = [&](int64_t start, int stage, int page) {
#pragma unroll
    for (int i = 0; i < kPairs; ++i) {
      const int which = 2 * i + lane / kLanes;
      const int64_t own = __shfl_sync(~0u, page, which), token = start + which;
      const int64_t at =
          ((own * kPage + token % kPage) * kv_heads + kv_head) * kLanes + part;
      const bool there = token < end;
      copy_ahead(&shared.keys[warp][stage][i][lane],
                 reinterpret_cast<const uint4*>(tensors.k_cache) + (there ? at : 0), there);
      copy_ahead(&shared.values[warp][stage][i][lane],
                 reinterpret_cast<const uint4*>(tensors.v_cache) + (there ? at : 0), there);
    }
    end_of_stage();
  };

  State<kGroup> state;
#pragma unroll
  for (int i = 0; i < kGroup / 2; ++i) state.top[i] = -CUDART_INF_F, state.total[i] = 0;
#pragma unroll
  for (int head = 0; head < kGroup; ++head)
#pragma unroll
    for (int d = 0; d < kPerLoad; ++d) state.sums[head][d] = 0;
  constexpr int kStep = kWarps * kTile;
  int64_t start = begin + warp * kTile;
  read_ahead(start, 0, page_of(start));
  int page = page_of(start + kStep);  // read before it is needed
  for (int i = threadIdx.x; i < kGroup * kDim; i += kThreads) {
    const int at = i % kDim / 4;  // of 4 numbers; a lane has two of these
    auto* four = reinterpret_cast<float*>(&shared.queries[i / kDim][at % 2][at / 2]);
    four[i % 4] = __bfloat162float(tensors.q[row * kDim + i]) * tensors.scale;
  }
  __syncthreads();
  for (int stage = 0; start < end; start += kStep, stage ^= 1) {
    read_ahead(start + kStep, stage ^ 1, page);
    page = page_of(start + 2 * kStep);
    wait_for_stage();
    attend_to_tile<kGroup>(shared, state, stage, static_cast<int>(min(end - start, int64_t{kTile})));
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
  if (sequence.length <= batch.chunk) return;  // it was one chunk
  const int parts = static_cast<int>((sequence.length + batch.chunk - 1) / batch.chunk);
  const float* lse = tensors.parts_lse + sequence.slot * heads + head;
  float top = -CUDART_INF_F;
  for (int i = threadIdx.x; i < parts; i += kThreads) top = fmaxf(top, lse[int64_t{i} * heads]);
  top = fmaxf(max_over_token(top), __shfl_xor_sync(~0u, max_over_token(top), 16));
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

template <int kGroup, int kPage>
void launch(const Tensors& tensors, const Batch& batch, int slots, int kv_heads,
            cudaStream_t stream) {
  constexpr int kBytes = sizeof(Shared<kGroup>);
  auto* kernel = &attend<kGroup, kPage>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, kBytes);
  kernel<<<dim3(slots, kv_heads), kThreads, kBytes, stream>>>(tensors, batch);
  const int heads = kGroup * kv_heads;
  if (slots > batch.sequences)
    merge<kPage><<<batch.sequences * heads, kThreads, 0, stream>>>(tensors, batch, heads);
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
  auto stream = static_cast<cudaStream_t>(TVMFFIEnvGetStream(device.device_type, device.device_id));
  if (heads == 4 * kv_heads)
    launch<4, kPage>(tensors, batch, slots, kv_heads, stream);
  else if (heads == 8 * kv_heads)
    launch<8, kPage>(tensors, batch, slots, kv_heads, stream);
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
