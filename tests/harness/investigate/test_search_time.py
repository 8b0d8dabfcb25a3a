"""The time that an investigation takes after its first runs."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from numdrift.harness.investigate.experiments.search_time import expected_seconds


def run(seconds: float, ends: Sequence[float]) -> Any:
    steps = [SimpleNamespace(seconds=end) for end in ends]
    return SimpleNamespace(manifest=SimpleNamespace(seconds=seconds), journal=SimpleNamespace(steps=steps))


def expected(*runs: Any, differs: bool = True, causes: bool = True, confirm: bool = False) -> float:
    return expected_seconds(runs, differs=differs, causes=causes, confirm=confirm)


def test_a_slower_step_and_a_longer_start_take_longer() -> None:
    quick = run(5, [3.0, 3.1, 3.2, 3.3])
    assert expected(quick) < expected(run(9, [3.0, 4.0, 5.0, 6.0]))
    assert expected(quick) < expected(run(10, [8.0, 8.1, 8.2, 8.3]))
    assert expected(quick, run(30, [2.0, 11.0, 20.0, 29.0])) == expected(run(30, [2.0, 11.0, 20.0, 29.0]))


def test_equal_runs_are_only_repeated() -> None:
    same = run(5, [3.0, 3.1, 3.2, 3.3])
    assert expected(same, differs=False) < 5 < expected(same, confirm=True)
    assert expected(same, causes=False) < expected(same)


# seconds of the longest first run, steps, seconds of a step, and the seconds of all that came after, as measured on two
# cores (docs/reference/performance.md)
MEASURED = {
    "sam_tanh": (6.5, 10, 0.01, 9.2),
    "char_gpt": (11.1, 30, 0.12, 43.0),
    "resnet_digits": (8.2, 30, 0.07, 29.7),
    "mnist": (7.2, 10, 0.15, 26.0),
    "long training": (59.6, 10_000, 0.005, 74.0),
    "resnet18": (14.5, 10, 0.25, 80.0),
}


@pytest.mark.parametrize("name", MEASURED)
def test_the_estimate_is_within_a_factor_of_two_of_what_was_measured(name: str) -> None:
    longest, steps, step, rest = MEASURED[name]
    first = longest - (steps - 1) * step
    seconds = expected(run(longest, [first + number * step for number in range(steps)]))
    assert rest / 2 <= seconds <= rest * 2
