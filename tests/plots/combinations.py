"""The combinations of sizes in which plots are drawn."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from itertools import product

import pytest
from _pytest.mark import ParameterSet


def combinations_of(*sizes: Iterable[object], everyday: Collection[tuple[object, ...]]) -> list[ParameterSet]:
    """Return every combination as a row of a test. Rows that are not drawn every day are exhaustive."""
    rows = list(product(*sizes))
    if strangers := set(everyday) - set(rows):
        raise ValueError(f"no such combinations: {strangers}")
    return [pytest.param(*row, marks=[] if row in everyday else pytest.mark.exhaustive) for row in rows]
