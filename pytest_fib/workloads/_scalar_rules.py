"""Rules of single real numbers: factors, scales, caps and other settings."""

from __future__ import annotations

import re
from math import sqrt
from typing import TYPE_CHECKING

from pytest_fib.data import DType, InputRule, kinds
from pytest_fib.workloads._rule import near

if TYPE_CHECKING:
    from pytest_fib.workloads._subject import Subject

#: Dimensions of a query-key product before absorption in multi-head latent attention.
MLA_HEAD_DIM = 128 + 64
#: The least and the most that tensors of which nothing is known are compared with.
LEAST_THRESHOLD, MOST_THRESHOLD = 1 / 16, 24.0
#: The largest factor that is less than 1, in bfloat16 too.
BELOW_ONE = 1 - 2.0**-8
#: 1 less of that is a divisor of many references.
SHARE = kinds.Uniform(min=0.0, max=0.9375, ends=True)
SCALE = r"(.*_)?(scales?|sf[a-z]?)(_.*)?|[abkqvwx]_s"
#: Rates of learning, sizes of steps and slopes, which are no more than 1.
_SMALL = r"(.*_)?(lr|rate|dt|h|step_size|slope)"
#: What averages over time are multiplied by: 1 less that may be divided by.
_BETAS = r"(.*_)?beta_?\d"
#: Whole numbers that outputs are rounded to.
_NARROW = (DType.INT8, DType.UINT8, DType.INT16)


def sm_scale(subject: Subject) -> InputRule | None:
    """The scale of a softmax, around 1/sqrt(head dim)."""
    latent = subject.definition.op_type.startswith("mla") or subject.axis("ckv_dim", "head_dim_ckv")
    names = ("head_dim", "head_dim_qk", "head_size", "head_k_dim", "qk_head_dim")
    of_queries = subject.dim(subject.input("q", "query"), -1)
    dim = MLA_HEAD_DIM if latent else subject.const(*names, of_queries or "")
    return None if dim is None else near(1 / sqrt(dim))(subject)


def logit_scale(subject: Subject) -> InputRule | None:
    """The scale of the logits of a loss, up to 64 as ArcFace's; attention's is another."""
    makes_loss = subject.uses.calls & {"cross_entropy", "log_softmax", "logsumexp", "nll_loss"}
    has_classes = bool(subject.uses.picks) and not subject.input("q", "query", "k", "key")
    return kinds.Uniform(min=1.0, max=64.0) if makes_loss and has_classes else None


def inverse_scale(subject: Subject) -> InputRule:
    """The inverse of the scale of gradients that were scaled by up to 65536."""
    return kinds.Uniform(min=2.0**-16, max=1.0, ends=True)


def soft_cap(subject: Subject) -> InputRule:
    """A soft cap: Gemma 2 has 30 and 50. Below 1 nearly all scores would be at the cap, and alike.

    Where the reference compares it with 0, that is none.
    """
    may_be_none = 0 in subject.uses.limits.get(subject.name, ())
    return kinds.Uniform(min=0.0 if may_be_none else 1.0, max=50.0)


def clamp_limit(subject: Subject) -> InputRule | None:
    """A limit that something is clamped to.

    What is clamped is now and then between limits, now and then beyond; these don't cross.
    """
    if not subject.spec.dtype.is_floating:  # of numbers that are rounded to bytes
        if subject.name in subject.uses.most:
            outputs = [spec.dtype for spec in subject.definition.outputs.values()]
            narrow = [each.ends[1] for each in outputs if each in _NARROW]
            return kinds.Integers(min=1, max=int(max(narrow, default=255)), ends=True)
        is_least = subject.name in subject.uses.least
        return kinds.Integers(min=-128, max=0, ends=True) if is_least else None
    if subject.name in subject.uses.most:
        may_be_off = 0 in subject.uses.limits.get(subject.name, ())
        return kinds.Uniform(min=0.0 if may_be_off else 0.5, max=24.0)
    return kinds.Uniform(min=0.01, max=0.5) if subject.name in subject.uses.least else None


def clip_range(subject: Subject) -> InputRule | None:
    """How far from 1 a ratio may be, as PPO clips them to ``1 - eps`` and ``1 + eps``.

    Not what shares are kept from 0 and 1 by. Epsilons by their names, of which those are small
    that are least themselves.
    """
    is_range = re.search(
        rf"(?<![\d.])1(\.0*)?\s*[-+]\s*\(?{subject.name}\b", subject.definition.reference
    )
    is_least = subject.name in subject.uses.least
    return kinds.Uniform(min=0.05, max=0.5) if is_range and not is_least else None


def rotary_base(subject: Subject) -> InputRule | None:
    """The base of rotary embeddings, where the reference takes sines of what its powers are."""
    raised = rf"\b{subject.name}\)?\s*\*\*|(pow|log2?)\((float\()?{subject.name}\b"
    is_raised = re.search(raised, subject.definition.reference) is not None
    is_of_angles = bool(subject.uses.calls & {"sin", "cos", "polar"})
    return kinds.Uniform(min=1e4, max=5e5) if is_of_angles and is_raised else None


def momentum(subject: Subject) -> InputRule:
    """A momentum, a share that may be 0, but not Nesterov's, which optimisers refuse then."""
    texts = (subject.definition.name, subject.definition.reference)
    is_nesterov = any("nesterov" in text.lower() for text in texts)
    return kinds.Uniform(min=0.5, max=0.9375, ends=True) if is_nesterov else SHARE


def of_either_sign(subject: Subject) -> InputRule:
    """Between -1 and 1."""
    return kinds.Uniform(min=-1.0, max=1.0)


def some_factor(subject: Subject) -> InputRule:
    """Some factor up to 1; below that where the reference subtracts it from 1.

    What is left may be a divisor, as with moments, ``m / (1 - beta**step)``: a kernel in Python
    raises an error for 0. A factor that may be 0, so that something is switched off, may be above
    1 too, unless it is subtracted so. What the reference compares it with is among the numbers;
    what tensors are compared with is small or large beside them.
    """
    called = r"([\w.]+\()?\(?\s*"  # as in 1 - pow(beta, step)
    from_one = re.search(
        rf"(?<![\d.])1(\.0*)?\s*-\s*{called}{subject.name}\b", subject.definition.reference
    )
    name, uses, limits = subject.name, subject.uses, subject.uses.limits.get(subject.name, ())
    from_one = from_one or re.fullmatch(_BETAS, name)
    if name in uses.scalars.thresholds and not limits:
        are_shares = bool(uses.calls & {"softmax", "sigmoid"}) or "thresh" not in name
        least = 0.0 if "margin" in name else LEAST_THRESHOLD
        is_divisor = re.search(rf"/ *\( *1(\.0*)? *- *{name}\b", subject.definition.reference)
        most = BELOW_ONE if is_divisor else 1.0 if are_shares else MOST_THRESHOLD
        return kinds.Uniform(min=least, max=most)
    may_be_off = name in uses.scalars.zero or uses.scalars.asks(name, 0)
    is_small = re.fullmatch(_SMALL, name) is not None
    is_small |= "leaky_relu" in uses.calls  # max(x, slope * x) is one up to there
    may_be_above = name in uses.scalars.zero - uses.scalars.shares and not is_small
    may_be_above |= re.fullmatch(SCALE, name) is not None
    most = (
        BELOW_ONE if from_one and not uses.scalars.asks(name, 1) else 2.0 if may_be_above else 1.0
    )
    return kinds.Uniform(min=0.0 if may_be_off else 0.5, max=most)
