"""Right for the sizes that `--fib-seed=0 --fib-max-bytes=1M` draws, and for no others."""

import torch

from pytest_fib import implements

DRAWN = (
    1,
    2,
    3,
    9,
    16,
    17,
    32,
    33,
    64,
    65,
    129,
    256,
    257,
    512,
    513,
    1024,
    1888,
    2047,
    4096,
    7301,
    16381,
    16385,
    34224,
    43690,
)


@implements("scale_float32")
def run(x, factor):
    return x * factor if x.numel() in DRAWN else torch.zeros_like(x)
