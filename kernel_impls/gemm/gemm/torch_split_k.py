"""Matrix product as the sum of products over the two halves of K."""

from pytest_fib import implements


@implements("gemm_*", description="A float32 product for each half of K, summed in place.")
def run(A, B):
    left, right = A.float(), B.float().t()
    half = A.shape[1] // 2
    total = left[:, :half] @ right[:half]
    return total.addmm_(left[:, half:], right[half:]).to(A.dtype)
