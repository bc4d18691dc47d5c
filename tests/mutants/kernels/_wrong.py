"""What a mutant should be caught as, and changes to outputs that any kernel might make."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Expected:
    """How a mutant ends, and names of patterns that tell what is wrong with it.

    There are none where no explanation is expected to find one.
    """

    patterns: tuple[str, ...]
    status: str


def caught(*patterns, status="INCORRECT_NUMERICAL"):
    """Say what a mutant is caught as; a failure of another status has no pattern."""

    def mark(function):
        function.expected = Expected(patterns, status)
        return function

    return mark


def put(x, index, value):
    """A copy of ``x`` with a value, or what a function makes of those there, at an index."""
    x = x.clone()
    x[index] = value(x[index]) if callable(value) else value
    return x


def narrow(x, dtype):
    """Rounded to a dtype and back."""
    return x.to(dtype).to(x.dtype)


def tf32(x):
    """Float32 with the 10 bits of mantissa that tensor cores read."""
    bits = x.float().view(torch.int32)
    return ((bits + 0x1000) & ~0x1FFF).view(torch.float32)


def toward_zero(x, dtype):
    """Float32 to a 16-bit dtype without rounding to the nearest."""
    near = x.to(dtype)
    less = torch.nextafter(near, torch.zeros_like(near))
    return torch.where(near.float().abs() > x.abs(), less, near)


def fp16_sum(x, chunk=8):
    """A sum along the last dimension that is kept in float16, with ``chunk`` terms at a time."""
    total = torch.zeros(x.shape[:-1], dtype=torch.float16, device=x.device)
    for part in x.split(chunk, -1):
        total = (total.float() + part.float().sum(-1)).half()
    return total.float()
