"""NVFP4 matrix-vector product: products are looked up, and summed before they are scaled."""

import torch

from pytest_fib import implements

BLOCK = 16
E2M1 = [sign * size for sign in (1, -1) for size in (0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0)]


@implements("nvfp4_gemv", description="A table of what each byte gives in each place of k.")
def run(a, b, sfa, sfb):
    left, right = (packed.view(torch.uint8).movedim(2, 0) for packed in (a, b))  # [l, rows, k / 2]
    value = torch.tensor(E2M1, device=a.device)
    pairs = torch.stack((value.repeat(16), value.repeat_interleave(16)), dim=-1)  # of each byte
    # Exact, as are sums of a block: multiples of 1/4, of which each product is at most 36.
    table = torch.matmul(pairs[right[:, 0].int()], pairs.T)  # [l, k / 2, 256]
    place = torch.arange(table[..., 0].numel(), dtype=torch.int32, device=a.device) * 256
    entry = left + place.view(len(left), 1, -1)
    products = (
        table.flatten().index_select(0, entry.flatten()).view(*left.shape[:2], -1, BLOCK // 2)
    )
    scaled = products.sum(dim=-1) * sfb.movedim(2, 0).float()
    return torch.linalg.vecdot(scaled, sfa.movedim(2, 0).float()).T[:, None].half()
