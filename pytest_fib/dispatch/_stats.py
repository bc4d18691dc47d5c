"""What became of the calls of each definition."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class DefinitionStats:
    """Calls of one definition.

    ``hits`` went to an implementation (``solutions`` says to which), ``misses`` to the fallback
    since nothing was measured near their shape. ``fallbacks`` are the others that went there, by
    reason: ``unlike`` has inputs that the definition doesn't have, ``capturing`` came first while a
    CUDA graph was captured, ``gradient`` needs one, ``building`` came while another thread built,
    ``no choice`` is what the policy raised at, ``raised`` what an implementation raised at,
    ``quarantined`` found nothing but what has failed. ``errors`` are the implementations that were
    quarantined, and why.
    Threads may lose a count where they count at the same time.
    """

    hits: int = 0
    solutions: dict[str, int] = field(default_factory=dict)
    misses: int = 0
    fallbacks: dict[str, int] = field(default_factory=dict)
    errors: dict[str, str] = field(default_factory=dict)
    shadowed: int = 0
    mismatches: int = 0

    def count_hits(self, solution: str, number: int) -> None:
        if not number:
            return
        self.hits += number
        self.solutions[solution] = self.solutions.get(solution, 0) + number

    def count_fallbacks(self, reason: str, number: int) -> None:
        if reason == "miss":
            self.misses += number
        elif number:
            self.fallbacks[reason] = self.fallbacks.get(reason, 0) + number
