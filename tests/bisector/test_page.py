"""What is read from both sides' output, and what the page makes of it."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict
from pathlib import Path

import pytest

from .benchmark import bisector, measure, read, read_bisection, read_investigation
from .page import OURS, Measured, causes_in, goals, page, rows

NAMED = """Bisecting aot_eager_decomp_partition - decomposition (Range: [21, 22], Midpoint: 21)

Bisection complete: BisectionResult(backend='aot_eager_decomp_partition', subsystem='decomposition', bisect_number=22, \
debug_info="<OpOverload(op='aten.tanh_backward', overload='default')>")
"""


def measured(way: str, cache: str, seconds: float, runs: int = 6, turn: int = 0) -> Measured:
    return Measured(turn, way, cache, seconds, 2 * seconds, runs, 10 * runs, ("a",))


def test_the_bisectors_last_line_names_backend_part_and_op() -> None:
    op = "debug_info `<OpOverload(op='aten.tanh_backward', overload='default')>`"
    assert read_bisection(NAMED) == [f"backend `aot_eager_decomp_partition`, subsystem `decomposition`, {op}"]
    assert read_bisection("Bisection complete: no issue found\n") == ["no issue found"]
    assert read_bisection("Traceback\n") == []


def test_an_investigation_gives_its_runs_and_causes() -> None:
    cause = {"status": "culprit", "op": "aten.sum", "phase": "backward", "sites": 6, "share_of_drift": 0.884}
    suspect = cause | {"status": "suspect", "op": "aten.tanh", "share_of_drift": None}
    content = {"training_runs": 6, "steps_trained": 60, "pairs": [{"culprits": [cause, suspect]}]}
    runs, steps, named = read_investigation(json.dumps(content), Path())
    assert (runs, steps) == (6, 60)
    assert named == [
        "`aten.sum` (backward, 6 sites, 88 % of the drift)",
        "suspect `aten.tanh` (backward, 6 sites, 0 % of the drift)",
    ]


def test_a_way_that_fails_names_nothing_and_says_why(tmp_path: Path) -> None:
    script = "import sys; open(sys.argv[-1], 'w').write('inductor - bad 1.0 2\\n'); sys.exit('no bounds')"
    one = measure(bisector("it", [sys.executable, "-c", script], ("cold",), 10), 0, "cold", tmp_path / "cache")
    assert (one.runs, one.steps, one.named) == (1, 20, ("nothing: no bounds",))


def test_a_row_has_the_median_of_the_turns() -> None:
    (row,) = rows([measured(OURS, "cold", seconds, turn=turn) for turn, seconds in enumerate((30, 10, 20))])
    assert row == "| numdrift | cold | 3 | 20 (10 to 30) | 40 (20 to 60) | 6 | 60 | a |"


@pytest.mark.parametrize(("seconds", "word", "ratio"), [(10, "met", "0.50"), (11, "**missed**", "0.55")])
def test_half_the_time_meets_the_goal_turn_by_turn_in_the_same_cache(seconds: float, word: str, ratio: str) -> None:
    ours = [measured(OURS, "cold", seconds), measured(OURS, "warm", 1), measured(OURS, "cold", 90, turn=1)]
    times = goals([*ours, measured("bisector", "cold", 20)])[2:]
    assert times == [
        f"- time: {word}; with a cold cache, *numdrift* took {ratio} times the time and {ratio} times the processor time of *bisector*"
    ]


def test_suspects_and_longer_names_are_no_cause() -> None:
    assert causes_in(["`aten.tanh_backward` (backward)", "suspect `aten.sum` (backward)"]) == 1
    assert causes_in(read_bisection(NAMED)) == 1
    assert causes_in(["`aten.sum` ()", "`aten.tanh` ()", "`aten.tanh_backward` ()"]) == 3
    assert causes_in(["no issue found"]) == 0


def test_a_page_says_what_is_missed() -> None:
    text = page(
        [
            measured(OURS, "cold", 20, runs=9),
            measured("bisector", "cold", 20),
            measured("tolerance", "cold", 3),
        ],
        10,
        "measured today",
    )
    assert "- runs: **missed**, 9 where 8 are allowed; the bisector takes 6" in text
    assert "- causes: **missed**, 0 of 3" in text
    assert "1e-4, as in the bisector's own help): a; 6 runs, 3 seconds" in text


def test_what_was_measured_is_read_again(tmp_path: Path) -> None:
    path, one = tmp_path / "kept.jsonl", measured(OURS, "cold", 20)
    assert read(path) == []
    path.write_text(json.dumps(asdict(one)) + "\n")
    assert read(path) == [one]
