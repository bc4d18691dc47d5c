"""What is left over after the last whole block of 256 elements is not scaled."""

from pytest_fib import implements


@implements("scale_*")
def run(x, factor):
    out = x.clone()
    whole = x.numel() // 256 * 256
    out[:whole] = (x[:whole].float() * factor).to(x.dtype)
    return out
