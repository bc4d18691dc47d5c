"""Bits and linear algebra: definitions of which most say nothing of workloads."""

import torch
import torch.nn.functional as F

from pytest_fib import implements


def bits_set(x):
    x = x.long() & 0xFFFFFFFF
    x = x - ((x >> 1) & 0x55555555)
    x = (x & 0x33333333) + ((x >> 2) & 0x33333333)
    x = (x + (x >> 4)) & 0x0F0F0F0F
    return ((x * 0x01010101) & 0xFFFFFFFF) >> 24


@implements("hamming_codes")
def honest_hamming_swar(codes, query):
    return bits_set(codes ^ query).sum(1).int()


@implements("hamming_codes")
def honest_hamming_bytes(codes, query):
    table = torch.tensor([number.bit_count() for number in range(256)])
    different = (codes ^ query).contiguous().view(torch.uint8)
    return table[different.long()].sum(1).int()


@implements("hamming_codes")
def wrong_sign_hamming(codes, query):
    # the sign's bit is left out
    return bits_set((codes ^ query) & 0x7FFFFFFF).sum(1).int()


@implements("hamming_codes")
def wrong_overflow_hamming(codes, query):
    # counted in bytes
    return bits_set(codes ^ query).sum(1).to(torch.uint8).int()


@implements("hamming_codes")
def wrong_formula_hamming_and(codes, query):
    # bits of the code alone
    return bits_set(codes & ~query).sum(1).int()


@implements("hamming_codes")
def wrong_threshold_hamming(codes, query):
    # 64 words at most
    return bits_set(codes ^ query)[:, :64].sum(1).int()


def digits_of(value):
    powers = 10 ** torch.arange(9, -1, -1)
    return (value[:, None] // powers % 10).to(torch.uint8)


@implements("decimal_digits")
def honest_digits_abs(value):
    return digits_of(value.long().abs()), value < 0


@implements("decimal_digits")
def honest_digits_negated(value):
    wide = value.long()
    return digits_of(torch.where(wide < 0, -wide, wide)), value.lt(0)


@implements("decimal_digits")
def wrong_overflow_digits(value):
    # the least number has no absolute value of 32 bits
    return digits_of(value.abs().long()), value < 0


@implements("decimal_digits")
def wrong_boundary_digits_of_zero(value):
    # zero has no sign
    return digits_of(value.long().abs()), value <= 0


@implements("decimal_digits")
def wrong_sign_digits(value):
    # quotients of negative numbers are rounded down
    return digits_of(value.long()), value < 0


@implements("decimal_digits")
def wrong_rounding_digits(value):
    # float32 has 24 bits
    return digits_of(value.float().abs().long()), value < 0


def differences(encoded):
    wide = encoded.long() & 0xFFFFFFFF
    return torch.where(wide & 1 == 1, -(wide >> 1) - 1, wide >> 1)


@implements("zigzag_delta_decode")
def honest_zigzag_where(encoded, base):
    return base + differences(encoded).cumsum(0)


@implements("zigzag_delta_decode")
def honest_zigzag_blocks(encoded, base):
    parts = []
    for part in differences(encoded).split(777):
        parts.append(part.cumsum(0) + base)
        base = parts[-1][-1]
    return torch.cat(parts)


@implements("zigzag_delta_decode")
def wrong_sign_zigzag(encoded, base):
    # an arithmetic shift
    return base + ((encoded >> 1) ^ -(encoded & 1)).long().cumsum(0)


@implements("zigzag_delta_decode")
def wrong_overflow_zigzag(encoded, base):
    # sums of 32 bits
    return base + differences(encoded).cumsum(0, dtype=torch.int32).long()


@implements("zigzag_delta_decode")
def wrong_offbyone_zigzag(encoded, base):
    # the sum before each
    delta = differences(encoded)
    return base + delta.cumsum(0) - delta


@implements("zigzag_delta_decode")
def wrong_rounding_zigzag(encoded, base):
    # sums as float32
    return base + differences(encoded).cumsum(0).float().long()


@implements("kronecker")
def honest_kronecker_torch(a, b):
    return torch.kron(a, b)


@implements("kronecker")
def honest_kronecker_rows(a, b):
    return torch.cat([torch.kron(row[None].float(), b.float()).bfloat16() for row in a])


@implements("kronecker")
def wrong_order_kronecker(a, b):
    # the other product
    return torch.kron(b, a)


@implements("kronecker")
def wrong_axis_kronecker(a, b):
    # columns of b before those of a
    blocks = (a[:, None, :, None] * b[None, :, None, :]).transpose(2, 3)
    return blocks.reshape(a.shape[0] * b.shape[0], -1)


@implements("kronecker")
def wrong_rounding_kronecker(a, b):
    # cut off, not rounded
    wide = torch.kron(a.float(), b.float())
    return (wide.view(torch.int32) & -65536).view(torch.float32).bfloat16()


@implements("kronecker")
def wrong_overflow_kronecker(a, b):
    # float16 in between
    return torch.kron(a.half(), b.half()).bfloat16()


@implements("householder_apply")
def honest_householder_unit(v, a):
    unit = v / (v * v).sum().clamp_min(1e-12).sqrt()
    return a - 2 * torch.outer(unit, unit @ a)


@implements("householder_apply")
def honest_householder_tau(v, a):
    tau = 2 / torch.dot(v, v).clamp_min(1e-12)
    return a - torch.outer(tau * v, (v[:, None] * a).sum(0))


@implements("householder_apply")
def wrong_special_householder(v, a):
    # nothing keeps the norm from being 0
    return a - torch.outer(2 / torch.dot(v, v) * v, v @ a)


@implements("householder_apply")
def wrong_eps_householder(v, a):
    # an epsilon that is added
    return a - torch.outer(2 / (torch.dot(v, v) + 1e-5) * v, v @ a)


@implements("householder_apply")
def wrong_threshold_householder(v, a):
    # 128 columns at most
    out = honest_householder_tau(v, a)
    out[:, 128:] = a[:, 128:]
    return out


@implements("householder_apply")
def wrong_accumulation_householder(v, a):
    # products kept in float16
    tau = 2 / torch.dot(v, v).clamp_min(1e-12)
    return a - torch.outer(tau * v, (v @ a).half().float())


@implements("banded_matvec5")
def honest_banded_padded(bands, x):
    padded, n = F.pad(x, (2, 2)), len(x)
    return sum(bands[d] * padded[d : d + n] for d in range(5))


@implements("banded_matvec5")
def honest_banded_unfolded(bands, x):
    return (F.pad(x, (2, 2)).unfold(0, 5, 1) * bands.T).sum(1)


@implements("banded_matvec5")
def wrong_boundary_banded_wraps(bands, x):
    # what is before the first is the last
    return sum(bands[d] * x.roll(2 - d) for d in range(5))


@implements("banded_matvec5")
def wrong_boundary_banded_clamps(bands, x):
    # what is before the first is the first
    at = torch.arange(len(x))
    return sum(bands[d] * x[(at + d - 2).clamp(0, len(x) - 1)] for d in range(5))


@implements("banded_matvec5")
def wrong_order_banded(bands, x):
    # diagonals from the other side
    return honest_banded_padded(bands.flip(0), x)


@implements("banded_matvec5")
def wrong_offbyone_banded_tiles(bands, x):
    # tiles of 128 that don't see two elements before them
    y, at = honest_banded_padded(bands, x), torch.arange(0, len(x), 128)[1:]
    y[at] -= bands[0, at] * x[at - 2]
    return y
