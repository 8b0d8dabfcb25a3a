"""Recorded runs as pandas series and frames. Imported where one is asked for: nothing else needs pandas."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pandas as pd

from .journal import Journal

DIGEST_COLUMNS = ("min", "max", "mean", "l2", "nan", "inf", "numel", "hash")


def losses(journal: Journal, name: str) -> pd.Series[float]:
    """The loss of each step that has one, by step."""
    found = {one.step: one.loss for one in journal.steps if one.loss is not None}
    return pd.Series(found, name=name, dtype="float64").rename_axis("step")


def logged(journal: Journal) -> pd.DataFrame:
    """A column for each value that the script gave by name, a row a step; NaN where it gave none."""
    rows = {one.step: dict(one.logged) for one in journal.steps}
    return pd.DataFrame.from_dict(rows, orient="index", dtype="float64").rename_axis("step")


def digests(journal: Journal) -> pd.DataFrame:
    """min, max, mean, L2, counts and hash of every value and gradient, by tensor, what it is and step.

    min, max and mean are of the finite elements. A gradient that there is none of has no row.
    """
    keys: list[tuple[str, str, int]] = []
    rows: list[tuple[Any, ...]] = []
    for step, found in journal.digests():
        for what, of in (("value", found.values), ("gradient", found.gradients)):
            for name, digest in of.items():
                if digest is not None:
                    keys.append((name, what, step))
                    statistics = (digest.minimum, digest.maximum, digest.mean, digest.l2)
                    row = (*statistics, digest.nan, digest.inf, digest.numel, f"{digest.hash:016x}")
                    rows.append(row)
    index = (
        pd.MultiIndex.from_tuples(keys, names=["tensor", "what", "step"])
        if keys
        else pd.MultiIndex.from_arrays([[], [], []], names=["tensor", "what", "step"])
    )
    return pd.DataFrame(rows, index=index, columns=pd.Index(DIGEST_COLUMNS)).sort_index()


def rows(records: Sequence[dict[str, Any]], columns: Sequence[str]) -> pd.DataFrame:
    """Records as a frame that has these columns, whether there are records or not."""
    return pd.DataFrame(list(records), columns=pd.Index(columns))
