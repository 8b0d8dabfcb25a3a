"""Every habit, bare and under numdrift: losses, last parameters, stdout and exit code are the same, bit for bit."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from numdrift import load_run

from .habit import MODES, SCRIPTS
from .habits import EVERYDAY, HABITS, MEETS_COMPILER, MEETS_IMPORT, QUICK, QUICK_IN_XLA, SECTIONS
from .table import GUIDE, PAGE, guide, page, shown
from .trial import XLA_PYTHON, differences, run_bare, run_recorded, try_habit


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK else pytest.mark.slow) for name in HABITS]
)
def test_recorded_on_the_cpu_as_bare(name: str, tmp_path: Path) -> None:
    """In the modes in which the habit cannot work, the run says why."""
    refusing = [mode for mode in HABITS[name].not_in if mode != "xla" and name not in MEETS_IMPORT]
    assert wrong_in(name, ["cpu", *refusing], tmp_path, forked=True) == {}


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERYDAY)
def test_recorded_in_other_modes_as_bare(name: str, tmp_path: Path) -> None:
    assert wrong_in(name, ["compile", "lazy"], tmp_path, forked=True) == {}


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("name", list(HABITS))
def test_recorded_in_every_mode_as_bare(name: str, tmp_path: Path) -> None:
    compiled = name in MEETS_COMPILER or "compile" in HABITS[name].not_in
    modes = [mode for mode in MODES if mode != "xla" and (mode != "compile" or compiled)]
    assert wrong_in(name, modes, tmp_path) == {}


@pytest.mark.slow
@pytest.mark.skipif(not XLA_PYTHON.exists(), reason="there is no .venv-xla here: bash scripts/xla")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in QUICK_IN_XLA else pytest.mark.exhaustive) for name in HABITS]
)
def test_recorded_in_xla_as_bare(name: str, tmp_path: Path) -> None:
    assert wrong_in(name, ["xla"], tmp_path, forked=True) == {}


@pytest.mark.slow
def test_a_fault_of_one_bit_would_be_seen(tmp_path: Path) -> None:
    """The comparison itself: everything differs from the bare run of another learning rate."""
    habit = HABITS["trainer_class"]
    run_recorded(habit, ["cpu"], tmp_path, forked=True)
    other = tmp_path / "other"
    other.mkdir()
    text = habit.path.read_text(encoding="utf-8")
    (other / "trainer_class.py").write_text(text.replace("lr=0.1", "lr=0.100001"), encoding="utf-8")

    bare = run_bare(habit, "cpu", other, scripts=other, forked=True)
    stdout, losses, parameters = differences(habit, bare, load_run(tmp_path / "habit/cpu"))

    assert stdout.startswith("stdout is") and losses.startswith("losses (")
    assert parameters.startswith("4 of 4 parameters differ")


def test_every_script_is_in_the_table() -> None:
    tools = {
        "package/__init__.py",
        "package/models/__init__.py",
        "package/models/net.py",
        "elsewhere/shapes.py",
    }
    scripts = {str(path.relative_to(SCRIPTS)) for path in SCRIPTS.rglob("*.py")} | {"train-tool"}

    assert scripts - tools == {habit.script for habit in HABITS.values()}
    assert len(HABITS) == sum(map(len, SECTIONS.values())) >= 40


def test_scripts_know_nothing_of_numdrift() -> None:
    declaring = {"log_by_name", "declared_step"}

    assert {name for name, habit in HABITS.items() if "import numdrift" in habit.path.read_text()} == declaring


def test_chosen_names_are_of_habits() -> None:
    assert set(QUICK) | MEETS_COMPILER | MEETS_IMPORT | set(EVERYDAY) | set(QUICK_IN_XLA) <= set(HABITS)
    assert set(EVERYDAY) <= MEETS_COMPILER and not any(HABITS[name].not_in for name in EVERYDAY)


def test_pages_are_of_this_table() -> None:
    """The adoption page is also read and written back, as for a column that is not made anew."""
    text, guide_text = PAGE.read_text(encoding="utf-8"), GUIDE.read_text(encoding="utf-8")
    written = page(shown(text))

    assert rows_of(written) == rows_of(text), "write them: python -m tests.habits.table --modes="
    assert guide(guide_text) == guide_text, "write it: python -m tests.habits.table --modes="


def rows_of(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("|")]


def wrong_in(name: str, modes: Sequence[str], folder: Path, *, forked: bool = False) -> dict[str, tuple[str, ...]]:
    outcomes = try_habit(HABITS[name], modes, folder, forked=forked)
    return {outcome.mode: outcome.wrong for outcome in outcomes if outcome.wrong}
