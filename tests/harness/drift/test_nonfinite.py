from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from numdrift.harness.drift.nonfinite import Nonfinite, NonfiniteValue, nonfinite

from .recordings import Step, record

STEPS = [Step() for _ in range(4)]


def found(folder: Path, a: dict[int, dict[str, Any]], b: dict[int, dict[str, Any]]) -> Nonfinite | None:
    """Look at two runs whose steps have these other fields."""
    runs = [
        record(folder / name, [replace(step, **changes.get(n, {})) for n, step in enumerate(STEPS)])
        for name, changes in (("cpu", a), ("lazy", b))
    ]
    return nonfinite(*runs)


def test_finite_runs(tmp_path: Path) -> None:
    assert found(tmp_path, {}, {1: {"losses": (3.0,)}}) is None


@pytest.mark.parametrize(
    ("fields", "what", "name", "holds"),
    [
        ({"losses": (1.0, math.nan)}, "loss", "loss 1", "NaN"),
        ({"gradients": {"w": [math.inf, math.nan]}, "values": {"w": [math.nan, 0.0]}}, "gradient", "w", "NaN and infinity"),
        ({"values": {"w": [math.inf, 0.0]}}, "value", "w", "infinity"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("in_b", [False, True])
def test_the_first_value_in_the_order_of_execution(
    tmp_path: Path, fields: dict[str, Any], what: str, name: str, holds: str, in_b: bool
) -> None:
    # given one run that goes wrong in step 2, its partner having as many losses
    good = {2: {"losses": (1.0, 1.0)}} if what == "loss" else {}
    bad = {2: fields, 3: {"losses": (math.nan,)}}
    # when
    result = found(tmp_path, good, bad) if in_b else found(tmp_path, bad, good)
    # then
    assert result is not None
    expected = NonfiniteValue(2, what, name, holds)
    assert (result.only, result.in_b, result.equal) == (expected, in_b, False)
    assert (result.b if in_b else result.a) == expected
    assert (result.a if in_b else result.b) is None
    assert result.text.endswith(f"contains {holds} only in {'lazy' if in_b else 'cpu'}")


def test_what_both_hold_alike_is_said(tmp_path: Path) -> None:
    # given an overflow on both sides that ends elsewhere, as rounding makes it
    a = {n: {"values": {"mask": [math.inf, 1.0]}} for n in range(4)}
    b = {n: {"values": {"mask": [math.inf, math.nan]}} for n in range(4)}
    # when
    result = found(tmp_path, a, b)
    # then
    assert result is not None
    assert result.equal
    assert result.text == "step 0: the value of `mask` contains infinity in both runs"


def test_a_later_value_of_one_run_alone_is_found_behind_those_of_both(tmp_path: Path) -> None:
    mask = {n: {"values": {"mask": [math.inf, 1.0]}} for n in range(4)}
    result = found(tmp_path, mask, {**mask, 3: {**mask[3], "losses": (math.nan,)}})
    assert result is not None
    assert result.only == NonfiniteValue(3, "loss", "loss 0", "NaN")
    assert result.a == result.b == NonfiniteValue(0, "value", "mask", "infinity")
