"""Every habit script, bare and under numdrift: losses, last parameters, stdout and exit code are the same, bit for bit."""

from __future__ import annotations

from pathlib import Path

import pytest

from .habit import MODES, SCRIPTS, Habit
from .habits import EVERYDAY, HABITS, MEETS_COMPILER, QUICK, QUICK_IN_XLA
from .table import PAGE, page, shown
from .trial import XLA_PYTHON, recorded_parameters, run_bare, try_habit

BY_NAME = {habit.name: habit for habit in HABITS}


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in BY_NAME]
)
def test_recorded_on_the_cpu_as_bare(name: str, tmp_path: Path) -> None:
    habit = BY_NAME[name]
    assert wrong_in(habit, ["cpu"] if "cpu" not in habit.not_in else [], tmp_path, forked=True) == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERYDAY)
def test_recorded_in_other_modes_as_bare(name: str, tmp_path: Path) -> None:
    assert wrong_in(BY_NAME[name], ["compile", "lazy"], tmp_path, forked=True) == {}


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("name", list(BY_NAME))
def test_recorded_in_every_mode_as_bare(name: str, tmp_path: Path) -> None:
    habit = BY_NAME[name]
    wanted = [mode for mode in MODES if mode != "xla" and (mode != "compile" or name in MEETS_COMPILER)]
    modes = [mode for mode in wanted if mode not in habit.not_in]

    assert wrong_in(habit, modes, tmp_path) == {}


@pytest.mark.slow
@pytest.mark.skipif(not XLA_PYTHON.exists(), reason="there is no .venv-xla here: bash scripts/xla")
@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in QUICK_IN_XLA else pytest.mark.exhaustive) for name in BY_NAME],
)
def test_recorded_in_xla_as_bare(name: str, tmp_path: Path) -> None:
    habit = BY_NAME[name]
    (outcome,) = try_habit(habit, ["xla"], tmp_path, forked=True)

    if "xla" in habit.not_in:
        assert any(habit.not_in["xla"] in text for text in [outcome.message, *outcome.doubts])
    else:
        assert outcome.wrong == ()


@pytest.mark.slow
@pytest.mark.parametrize("name", [habit.name for habit in HABITS if set(habit.not_in) - {"xla"}])
def test_what_cannot_work_says_why(name: str, tmp_path: Path) -> None:
    habit = BY_NAME[name]
    modes = [mode for mode in habit.not_in if mode != "xla"]

    forked = name != "warnings_as_errors"  # what it meets is an import, which a forked process has behind it
    for outcome in try_habit(habit, modes, tmp_path, bare=False, forked=forked):
        assert any(habit.not_in[outcome.mode] in text for text in [outcome.message, *outcome.doubts])


@pytest.mark.slow
def test_a_fault_of_one_bit_would_be_seen(tmp_path: Path) -> None:
    """The comparison itself: against the bare run of another learning rate everything differs."""
    habit = BY_NAME["trainer_class"]
    (outcome,) = try_habit(habit, ["cpu"], tmp_path, forked=True)
    other = tmp_path / "other"
    other.mkdir()
    text = habit.path.read_text(encoding="utf-8")
    (other / "trainer_class.py").write_text(text.replace("lr=0.1", "lr=0.100001"), encoding="utf-8")

    bare = run_bare(habit, "cpu", other, scripts=other, forked=True)

    assert outcome.wrong == ()
    assert not bare.parameters & recorded_parameters(outcome.run)
    assert bare.losses[1:] != tuple(outcome.run.journal.losses[1:])


def test_every_script_is_in_the_table() -> None:
    tools = {
        "package/__init__.py",
        "package/models/__init__.py",
        "package/models/net.py",
        "elsewhere/shapes.py",
    }
    there = {str(path.relative_to(SCRIPTS)) for path in SCRIPTS.rglob("*.py")} | {"train-tool"}

    assert there - tools == {habit.script for habit in HABITS}
    assert len(BY_NAME) == len(HABITS) >= 40


def test_scripts_know_nothing_of_numdrift() -> None:
    told = {"log_by_name", "declared_step"}

    assert {habit.name for habit in HABITS if "import numdrift" in habit.path.read_text()} == told


def test_what_is_chosen_are_scripts() -> None:
    assert set(QUICK) | MEETS_COMPILER | set(EVERYDAY) <= set(BY_NAME)
    assert set(EVERYDAY) <= MEETS_COMPILER and not any(BY_NAME[name].not_in for name in EVERYDAY)
    assert set(QUICK_IN_XLA) <= set(BY_NAME)


def test_columns_that_are_not_made_anew_stay_as_they_are() -> None:
    there = shown(PAGE.read_text(encoding="utf-8"))

    assert list(there) == list(BY_NAME)
    assert shown(page(there)) == there


def wrong_in(habit: Habit, modes: list[str], folder: Path, *, forked: bool = False) -> dict[str, tuple[str, ...]]:
    return {one.mode: one.wrong for one in try_habit(habit, modes, folder, forked=forked) if one.wrong}
