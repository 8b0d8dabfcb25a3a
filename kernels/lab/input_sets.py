"""The input sets by name. This module does not import torch, because a command's help lists the sets."""

from __future__ import annotations

from numdrift.harness.errors import UsageError, nearest

INPUT_SETS = {
    "random": "N(0, 1)",
    "saturated": "N(0, 4^2), and activations as close as one ULP to their limit",
    "offset": "N(100, 0.1^2): a mean that dwarfs the deviation",
    "range": "magnitudes log-uniform from 1e-30 to 1e30",
    "subnormal": "subnormal numbers among N(0, 1)",
    "zero": "0.0 and -0.0 among N(0, 1)",
    "special": "NaN, infinities and extremes among N(0, 1)",
    "ties": "numbers whose squares and sums lie halfway between two representable numbers",
}
"""Name and description of each set."""

CAPTURED = "captured"
"""The name of the set of calls that a run recorded."""


def parse_inputs(text: str) -> tuple[str, ...]:
    """Read a list of set names, as in `random,saturated`. Raises UsageError for an unknown name."""
    names = tuple(dict.fromkeys(name.strip() for name in text.split(",")))
    all_sets = [*INPUT_SETS, CAPTURED]
    for name in names:
        if name not in all_sets:
            raise UsageError(f"there is no input set {name!r}; {nearest(name, all_sets)}")
    return names
