"""Rotary embedding as a product of complex numbers."""

import torch

from pytest_fib import implements


@implements("rope_*", description="A head's halves are the parts of complex numbers.")
def run(q, k, cos_sin_cache, positions):
    half = cos_sin_cache.shape[-1] // 2
    rows = cos_sin_cache.index_select(0, positions)[:, None]
    turn = torch.complex(rows[..., :half], rows[..., half:])
    return _turned(q, turn), _turned(k, turn)


def _turned(x, turn):
    half = turn.shape[-1]
    real, imaginary = x[..., :half].float(), x[..., half : 2 * half].float()
    product = torch.complex(real, imaginary) * turn
    out = torch.empty(x.shape, dtype=x.dtype, device=x.device)
    out[..., :half] = product.real
    out[..., half : 2 * half] = product.imag
    out[..., 2 * half :] = x[..., 2 * half :]
    return out
