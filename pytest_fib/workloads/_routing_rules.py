"""Rules of routing: which experts a token goes to."""

from __future__ import annotations

import re

from pytest_fib.data import FixedValue, InputRule, kinds
from pytest_fib.workloads._sizes import power_of_two
from pytest_fib.workloads._subject import Subject, sentinels_of

#: Functions that choose by values, of which equal ones leave a choice.
CHOICES = {"topk", "argmax", "argsort", "sort", "max", "kthvalue", "multinomial"}


def expert_ids(subject: Subject) -> InputRule | None:
    """The experts that each token goes to."""
    all_of_them = subject.axis("num_experts", "experts", "num_global_experts")
    experts = all_of_them or subject.axis("num_local_experts")
    if experts is None:
        return None
    sentinels = sentinels_of(subject)
    if len(subject.spec.shape or ()) == 1:  # one for each token
        return kinds.Indices(below=experts, unique=False, sentinels=sentinels)
    if subject.name in subject.uses.shifted:  # with their weights
        return kinds.Routing(experts=experts)
    return kinds.TopkIds(experts=experts, sentinels=sentinels)


def first_expert(subject: Subject) -> InputRule | None:
    """The first of the experts that are on this device."""
    experts = subject.const("num_experts", "num_global_experts", "experts")
    local = subject.const("num_local_experts", "local_experts")
    if experts is None and local is None:
        return None
    if experts is None or local is None:  # all of them are here
        return FixedValue(value=0)
    return kinds.Integers(min=0, max=experts - local)


def router_logits(subject: Subject) -> InputRule | None:
    """Logits that are chosen by, without ties that matter.

    Any values where the reference chooses nothing by them, or says which of equal ones. It does if
    all its choices are sorts that are said to be stable.
    """
    reference = subject.definition.reference
    choices = [word for word in re.findall(r"\.(\w+)", reference) if word in CHOICES]
    stable = re.findall(r"\bstable\s*=\s*True\b", reference)
    are_stable = {*choices} <= {"sort", "argsort"} and len(stable) >= len(choices)
    is_free = bool(subject.uses.calls) and are_stable  # of which no choice at all is one
    calls = subject.uses.calls
    is_far = "softmax" in calls and not calls & {"sigmoid", "logsigmoid", "exp"}
    tensors = [spec for spec in subject.definition.inputs.values() if spec.dtype.is_floating]
    only_routes = all(spec is subject.spec or len(spec.shape or ()) < 2 for spec in tensors)
    is_low = "sigmoid" in calls and not calls & {"softmax", "exp"}
    return None if is_free else kinds.RouterLogits(far=is_far, low=is_low, ties=only_routes)


def routing_bias(subject: Subject) -> InputRule | None:
    """Multiples of what lies between the scores of ``router_logits``, which stay apart so."""
    experts = subject.dim(subject.name, -1)
    if experts is None:
        return None
    n = subject.const(experts)
    if n is None:
        return kinds.Integers(min=f"-12 / {experts}", max=f"12 / {experts}", step=f"1 / {experts}")
    step = 1 / power_of_two(n)
    return kinds.Integers(min=-12 * step, max=12 * step, step=step)
