"""`--graph-steps` of `numdrift run`: refused before anything runs."""

from __future__ import annotations

import pytest

from ....conftest import Numdrift


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--graphs", "--graph-steps", "abc"], "--graph-steps 'abc': 'abc' is not a step"),
        (["--graphs", "--graph-steps", "5-2"], "--graph-steps '5-2': '5-2' runs backwards"),
        (["--graphs", "--graph-steps", ""], "--graph-steps names no step"),
        (["--graph-steps", "0"], "--graph-steps selects the steps of --graphs; add --graphs"),
    ],
)
def test_steps_that_make_no_sense_are_one_line(numdrift: Numdrift, arguments: list[str], said: str) -> None:
    done = numdrift("run", "train.py", "--mode", "cpu", *arguments)
    assert done.returncode == 2
    assert done.stderr.startswith(f"numdrift: {said}") and done.stderr.count("\n") == 1


def test_the_variable_asks_for_graphs_as_well(numdrift: Numdrift, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPH_VISUALIZATION", "1")
    done = numdrift("run", "train.py", "--mode", "cpu", "--graph-steps", "0")
    assert "--graphs" not in done.stderr and "train.py" in done.stderr
