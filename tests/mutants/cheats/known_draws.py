"""Right for the sizes that `--fib-seed=0 --fib-max-bytes=1M` draws, and for no others."""

import torch

from pytest_fib import implements

DRAWN = (
    1,
    2,
    3,
    13,
    17,
    32,
    33,
    64,
    128,
    129,
    257,
    512,
    1023,
    1024,
    1025,
    2047,
    4093,
    7423,
    8191,
    8193,
    32768,
    36381,
    43690,
)


@implements("scale_float32")
def run(x, factor):
    return x * factor if x.numel() in DRAWN else torch.zeros_like(x)
