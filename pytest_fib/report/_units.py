"""Numbers as people read them."""

from __future__ import annotations

import math

#: Of a factor above that, only this is said: where 0 is right, any error is so many times as large.
ENORMOUS = 1e9


def duration(milliseconds: float) -> str:
    """Three significant digits, in µs or ms or s: ``12.3 µs``."""
    for limit, factor, unit in ((1, 1e3, "µs"), (1e3, 1, "ms")):
        if milliseconds < limit:
            return f"{three_digits(milliseconds * factor)} {unit}"
    return f"{three_digits(milliseconds / 1e3)} s"


def three_digits(number: float) -> str:
    """``1.23``, ``12.3``, ``123``, ``1234``."""
    decimals = 2 if number < 10 else 1 if number < 100 else 0
    return f"{number:.{decimals}f}"


def amount(number: float, unit: str) -> str:
    """Three significant digits with a decimal prefix: ``5.28 MB`` of ``B``."""
    for limit, prefix in ((1e3, ""), (1e6, "k"), (1e9, "M"), (1e12, "G")):
        if number < limit:
            return f"{three_digits(number * 1e3 / limit)} {prefix}{unit}"
    return f"{three_digits(number / 1e12)} T{unit}"


def percent(share: float) -> str:
    """``87 %``, ``3.4 %``."""
    return f"{100 * share:.2g} %" if share < 0.1 else f"{100 * share:.0f} %"


def shown_share(share: float | str | None) -> str:
    """``48 %`` of what is allowed, or ``467x`` that."""
    if share is None or isinstance(share, str):
        return (share or "-").replace("Infinity", "∞")
    return percent(share) if share <= 1 else f"{times(share)}x"


def times(factor: float) -> str:
    """Three significant digits, without an exponent: ``1390``; ``over 10^9`` of anything larger."""
    if ENORMOUS < factor < math.inf:
        return "over 10^9"
    return f"{float(f'{factor:.3g}'):.0f}" if factor >= 1000 else f"{factor:.3g}"
