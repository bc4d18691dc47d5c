"""Layer normalisation through torch's own operator, in float32."""

import torch

from pytest_fib import implements


@implements("layernorm_*", description="torch.nn.functional.layer_norm on float32.")
def run(x, weight, bias, eps):
    shape = (x.shape[-1],)
    wide = torch.nn.functional.layer_norm(x.float(), shape, weight.float(), bias.float(), eps)
    return wide.to(x.dtype)
