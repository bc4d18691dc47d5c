"""Rules of sampling: how the next token is chosen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_fib.data import InputRule, kinds

if TYPE_CHECKING:
    from pytest_fib.workloads._subject import Subject

#: What temperatures that are compared with less may be 0.
LEAST_TEMPERATURE = 0.1


def top_k(subject: Subject) -> InputRule | None:
    """How many of the most likely tokens are kept, up to the vocabulary."""
    vocabulary = subject.axis("vocab_size", "vocabulary", "vocab", "num_classes")
    uses, name = subject.uses, subject.name
    least = uses.pads.get(name, 0 if 0 in uses.limits.get(name, ()) else 1)  # switched off
    if vocabulary is None:
        return None
    is_kept_within = uses.beyond.get(name) == vocabulary
    most = f"{vocabulary} + 1" if is_kept_within else vocabulary
    return kinds.Integers(min=least, max=most, ends=True)


def temperature(subject: Subject) -> kinds.Uniform:
    """Around 1; where the reference compares it with 0 or so, that is a greedy choice."""
    limits, checked = subject.uses.limits.get(subject.name, ()), subject.uses.scalars.checked
    is_greedy = any(limit < LEAST_TEMPERATURE for limit in limits) and subject.name not in checked
    return kinds.Uniform(min=0.0 if is_greedy else 0.5, max=2.0)


def temperatures(subject: Subject) -> InputRule:
    """A temperature for each row."""
    return temperature(subject).model_copy(update={"ends": True})


def uniform_numbers(subject: Subject) -> InputRule:
    """Random numbers between 0 and 1; below 1, unless the reference says what to do with 1."""
    return kinds.Uniform(ends=subject.name in subject.uses.clamped)


def probabilities(subject: Subject) -> InputRule | None:
    """Rows that sum to 1; by a longer name, each element of a vector may be of something else."""
    is_distribution = subject.name.startswith("prob") or len(subject.spec.shape or ()) > 1
    return kinds.Probabilities() if is_distribution else None
