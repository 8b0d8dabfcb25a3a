"""The clean processes that measure the reference's tapes beside the training."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from numdrift.harness.investigate.experiments import tapes_beside
from numdrift.harness.investigate.experiments.chosen_steps import ChosenSteps
from numdrift.harness.investigate.experiments.laboratory import Laboratory
from numdrift.harness.launch.guest_process import Guest
from numdrift.harness.records.modes.mode_spec import parse_mode
from numdrift.harness.records.results.experiment import Experiment
from numdrift.harness.runs.recorded_run import RecordedRun


class Started:
    """A process that was started with these steps."""

    def __init__(self, steps: Sequence[int]) -> None:
        self.steps = steps
        self.waited: float | None = None
        self.was_killed = False

    def wait(self, timeout: float | None = None) -> int:
        self.waited = timeout if timeout is not None else self.waited
        return 0

    def kill(self) -> None:
        self.was_killed = True


def beside(
    folder: Path, monkeypatch: pytest.MonkeyPatch, steps: Sequence[int], cores: int
) -> tuple[list[Started], AbstractContextManager[None]]:
    """Return the processes that are started for these steps on so many cores, and the context that starts them."""
    started: list[Started] = []

    def start(guest: Guest, *streams: int) -> Started:
        started.append(Started(json.loads(guest.config.read_text())["steps"]))
        return started[-1]

    monkeypatch.setattr(tapes_beside, "cores", lambda: cores)
    monkeypatch.setattr(tapes_beside, "is_measured_beside", lambda reference: True)
    monkeypatch.setattr(tapes_beside, "spec_of", lambda reference: parse_mode("cpu"))
    reference: Any = SimpleNamespace(path=folder / "cpu", manifest=SimpleNamespace(label="cpu"))
    laboratory: Any = SimpleNamespace(processes=SimpleNamespace(start=start))
    chosen = ChosenSteps(tuple(steps), tuple(steps), tuple(steps), ())
    again = cast(Experiment, SimpleNamespace(name="cpu-again"))
    context = tapes_beside.noise_beside(cast(RecordedRun, reference), again, chosen, cast(Laboratory, laboratory))
    return started, context


@pytest.mark.parametrize(
    ("cores", "dealt"),
    [(1, [[0, 7, 19]]), (2, [[0, 19], [7]]), (8, [[0], [7], [19]])],
)
def test_the_steps_are_dealt_to_the_cores(
    cores: int, dealt: list[list[int]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    started, context = beside(tmp_path, monkeypatch, (0, 7, 19), cores)
    with context:
        assert [process.steps for process in started] == dealt
        assert not any(process.waited or process.was_killed for process in started)
    # All of them are waited for before any is killed, so each step with a tape is measured.
    assert all(process.waited and process.was_killed for process in started)


def test_a_failed_training_ends_every_process_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started, context = beside(tmp_path, monkeypatch, (0, 7), 2)
    with pytest.raises(KeyboardInterrupt), context:
        raise KeyboardInterrupt
    assert len(started) == 2 and all(process.was_killed for process in started)
    assert [process.waited for process in started] == [None, None]
