"""Recording changes no bit: plain `python` against `numdrift run`, every loss and every final parameter."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from numdrift import load_run

from ..conftest import ROOT, Numdrift
from ..processes.plain import PLAIN, save_plain

STEPS = {"sam_tanh": 40, "resnet_digits": 4, "char_gpt": 3}
CASES = [(reproducer, mode, "params") for reproducer in STEPS for mode in PLAIN]
CASES += [(reproducer, mode, "ops") for reproducer in STEPS for mode in ("cpu", "lazy")]
CASES += [("resnet_digits", "compile", "ops"), ("sam_tanh", "cpu", "losses")]
CASES += [(reproducer, mode, "graphs") for reproducer in STEPS for mode in PLAIN]
CASES += [("sam_tanh", "compile", "metrics"), ("char_gpt", "lazy", "metrics")]
EVERYDAY = [("resnet_digits", "compile", "ops"), ("resnet_digits", "compile", "params"), ("char_gpt", "cpu", "params")]
EVERYDAY += [case for case in CASES if case[0] == "sam_tanh"]
"""What is recorded in each mode, on the smallest training, and `params` of a larger one and of one with dropout."""

ALONE = {case for case in CASES if case not in EVERYDAY}
"""Recorded and run by plain Python in processes that are started. `tests/processes` shows that forked ones have their bits,
and those of plain Python."""


def marks(case: tuple[str, str, str]) -> list[pytest.MarkDecorator]:
    given = [] if case in EVERYDAY else [pytest.mark.exhaustive]
    return [*given, pytest.mark.own_processes] if case in ALONE else given


@pytest.fixture(scope="module")
def plain_run(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str, str, bool], Path]:
    """What plain `python` saves of a training in a mode, forked or `alone`, run once."""
    folder = tmp_path_factory.mktemp("plain")

    @functools.cache
    def run(reproducer: str, mode: str, alone: bool) -> Path:
        saved = folder / f"{reproducer}-{mode}-{alone}.npz"
        save_plain(saved, reproducer, mode, STEPS[reproducer], alone=alone)
        return saved

    return run


@pytest.mark.slow
@pytest.mark.parametrize(
    ("reproducer", "mode", "level"),
    [pytest.param(*case, marks=marks(case)) for case in CASES],
)
def test_recording_changes_no_bit(
    reproducer: str,
    mode: str,
    level: str,
    numdrift: Numdrift,
    plain_run: Callable[[str, str, bool], Path],
    tmp_path: Path,
) -> None:
    script, arguments = ROOT / f"reproducers/{reproducer}.py", ["--epochs", str(STEPS[reproducer])]
    how = [f"--{level}"] if level in ("graphs", "metrics") else ["--record", level]
    asked = ("run", script, "--modes", mode, *how, "--keep-files")
    done = numdrift(*asked, "--", *arguments, "--save", tmp_path / "recorded.npz")
    assert done.returncode == 0, done.stderr
    plain = np.load(plain_run(reproducer, mode, (reproducer, mode, level) in ALONE))
    # from its own working folder; where the system gives none it lies where the script put it
    kept = (tmp_path / "runs" / reproducer / mode / "files").rglob("recorded.npz")
    under_numdrift = np.load(next(kept, tmp_path / "recorded.npz"))
    assert set(plain) == set(under_numdrift)
    for name in plain:
        assert plain[name].tobytes() == under_numdrift[name].tobytes(), name

    run = load_run(tmp_path / "runs" / reproducer / mode)
    assert [step.loss for step in run.journal.steps] == plain["losses"].tolist()
    if level != "losses":
        last = run.journal.values(STEPS[reproducer] - 1)
        for name in plain:
            if name.startswith("param/"):
                assert plain[name].tobytes() == last[name.removeprefix("param/")].tobytes(), name
