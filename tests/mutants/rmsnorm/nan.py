"""Without the epsilon, a row of zeros is divided by zero."""

from pytest_fib import implements


@implements("rmsnorm_d4096")
def run(x, weight, eps):
    wide = x.float()
    root = wide.pow(2).mean(dim=-1, keepdim=True).sqrt()
    return (wide / root * weight.float()).to(x.dtype)
