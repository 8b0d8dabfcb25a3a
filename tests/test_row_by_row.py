"""A table tries every row, and one that fails hides none of the others."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest

from .row_by_row import table


def test_every_row_is_tried_and_all_that_fail_are_told() -> None:
    tried = []

    @table("letter", ["x", "y"])
    @table(("number", "right"), [(1, True), (2, False), (3, False)])
    def rows(letter: str, number: int, right: bool, tmp_path: Path) -> None:
        tried.append(f"{letter}{number}")
        assert right, f"{number} is wrong"

    assert list(inspect.signature(rows).parameters) == ["tmp_path"]
    with pytest.raises(AssertionError) as failed:
        rows(tmp_path=Path())
    assert tried == ["x1", "x2", "x3", "y1", "y2", "y3"]
    said = str(failed.value)
    assert "letter='x'" in said and "letter='y'" in said and "2 of 3 rows" in said
    assert "number=2" in said and "3 is wrong" in said and "number=1" not in said


@table("number", [1, 2])
def test_a_table_is_one_test_with_fixtures(number: int, tmp_path: Path) -> None:
    (tmp_path / str(number)).touch()
    assert len(list(tmp_path.iterdir())) == number


def test_an_empty_table_is_refused() -> None:
    with pytest.raises(ValueError, match="no row"):
        table("number", [])
