from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numdrift.harness.drift.calibration import (
    Provenance,
    backend_of,
    calibrated,
    packaged_table,
    read_table,
    threshold_for,
    threshold_of_pair,
)
from numdrift.harness.errors import JournalError, UsageError
from numdrift.harness.records.modes.mode_spec import parse_mode

HERE = Provenance("six rewrites of three models", "2.13.0+cpu", "scripts/bench calibrate", "2026-01-01")
scores = st.dictionaries(
    st.text(min_size=1), st.lists(st.floats(0, 32), min_size=1, max_size=5), min_size=3, max_size=6
)


@pytest.mark.parametrize(
    ("mode", "backend"),
    [
        ("cpu", "cpu"),
        ("other=cpu,threads=1", "cpu"),
        ("compile", "compile:inductor"),
        ("compile,backend=aot_eager", "compile:aot_eager"),
        ("lazy", "lazy"),
    ],
)
def test_the_row_of_a_mode(mode: str, backend: str) -> None:
    assert backend_of(parse_mode(mode)) == backend


def test_a_backend_without_a_row_gets_the_default() -> None:
    # when
    found = threshold_for(parse_mode("compile"), _without_rows())
    # then it says where the number is from
    assert (found.fault, found.inspect, found.calibrated) == (16.0, 4.0, False)
    assert found.provenance.startswith("not calibrated for compile:inductor; ")
    assert "Inductor on CPU, 74 faults, 58 benign pairs" in found.provenance


def _without_rows() -> Any:
    table = packaged_table()
    return type(table)(table.default)


def test_the_packaged_table_stands_between_benign_and_fault() -> None:
    table = packaged_table()
    for row in (table.default, *table.backends.values()):
        assert row.largest_benign is not None
        assert row.largest_benign < row.fault
        assert row.smallest_fault is None or row.fault < row.smallest_fault
        assert row.variants >= 3


@given(scores)
def test_calibrating_keeps_every_benign_variant_at_half_of_the_threshold(
    benign: dict[str, list[float]],
) -> None:
    # when
    table = calibrated(_without_rows(), "lazy", benign, HERE)
    found = threshold_for(parse_mode("lazy"), table)
    # then
    assert all(2 * one <= found.fault for listed in benign.values() for one in listed)
    assert found.fault == max(16.0, 2 * max(max(listed) for listed in benign.values()))
    assert found.inspect == found.fault / 4
    assert found.calibrated
    assert found.provenance == "six rewrites of three models, torch 2.13.0+cpu, 2026-01-01"
    assert not threshold_for(parse_mode("compile"), table).calibrated


def test_two_variants_calibrate_nothing() -> None:
    with pytest.raises(UsageError, match="a calibration of lazy needs at least 3 benign variants, but 2 were measured"):
        calibrated(packaged_table(), "lazy", {"a": [1.0], "b": [2.0], "c": []}, HERE)


@pytest.mark.parametrize("score", [math.inf, math.nan])
def test_a_variant_that_is_infinitely_far_away_is_no_benign_one(score: float) -> None:
    with pytest.raises(UsageError, match="the variant b is not benign"):
        calibrated(packaged_table(), "lazy", {"a": [1e9], "b": [score], "c": [2.0]}, HERE)


def test_a_table_survives_its_file(tmp_path: Path) -> None:
    # given
    table = calibrated(packaged_table(), "lazy", {"a": [1.0], "b": [2.0], "c": [30.0]}, HERE, smallest_fault=300.0)
    # when
    (tmp_path / "table.json").write_text(json.dumps(table.to_json()))
    # then
    assert read_table(tmp_path / "table.json") == table


@pytest.mark.parametrize(
    "change",
    [{"schema": 2}, {"default": {}}, {"backends": []}, {"schema": None}],
)
def test_damaged_tables_are_refused(tmp_path: Path, change: dict[str, Any]) -> None:
    path = tmp_path / "table.json"
    path.write_text(json.dumps({**packaged_table().to_json(), **change}))
    with pytest.raises(JournalError, match=r"table\.json"):
        read_table(path)


@pytest.mark.parametrize(
    ("modes", "as_of"),
    [(("cpu", "compile"), "compile"), (("cpu", "cpu,threads=1"), "cpu"), (("lazy", "compile"), "compile")],
)
def test_a_pair_has_one_threshold_whichever_is_the_reference(modes: tuple[str, str], as_of: str) -> None:
    a, b = (parse_mode(f"m{place}={mode}") for place, mode in enumerate(modes))
    assert threshold_of_pair(a, b) == threshold_of_pair(b, a) == threshold_for(parse_mode(as_of))
