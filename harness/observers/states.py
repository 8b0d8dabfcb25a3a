"""The states that a run keeps: one file a chosen step, as it is when the step begins."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import torch

from ..records.step_files import state_file
from ..records.step_selection import StepSelection
from ..tape.tensor_file import write_tensors
from .training_state import TrainingState

UNITS = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "bytes"))

GROWN = 1.5
"""A state that takes so many times what was announced is announced anew."""


class StateFiles:
    """Writes states into a run's folder, as long as the disk has room for all that are still to come.

    `notice` is told how much they take, and when they are given up.
    """

    def __init__(self, run: Path, steps: StepSelection | None, notice: Callable[[str], None]) -> None:
        self._run = run
        self._steps = steps
        self._notice = notice
        self._asked_for = self._announced = -1

    def wants(self, step: int) -> bool:
        return self._steps is not None and step in self._steps

    def write(self, step: int, state: TrainingState, values: Mapping[str, torch.Tensor]) -> None:
        """Write one state; `values` are its tensors, readable. A full disk is told, not raised."""
        path = state_file(self._run, step)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            if self._have_room(step, state.size, path.parent):
                write_tensors(path, values, state.facts)
        except OSError as error:
            self._give_up(f"the state of step {step} cannot be written: {error.strerror}; no more are kept")

    def _have_room(self, step: int, size: int, folder: Path) -> bool:
        """Whether this state and those to come fit; asked anew when states grow, as in the first steps."""
        if size <= self._asked_for:
            return True
        self._asked_for = size
        count = states_from(self._steps or StepSelection(), step)
        free = shutil.disk_usage(folder).free
        if size * count > free:
            self._give_up(
                f"no states are kept from step {step} on: {count} of {in_units(size)} each need "
                f"{in_units(size * count)} in {folder}, where {in_units(free)} are free; choose fewer steps"
            )
            return False
        if size < GROWN * self._announced:
            return True
        self._announced = size
        later = " (later ones also hold gradients and what the optimizers keep)" if step == 0 else ""
        self._notice(f"each state takes {in_units(size)}{later}; {in_units(free)} are free in {folder}")
        return True

    def _give_up(self, text: str) -> None:
        self._steps = None
        self._notice(text)


def states_from(steps: StepSelection, first: int) -> int:
    """How many chosen steps there are from `first` on; 1 when the selection has no end."""
    count, position = 0, first
    for begin, end in sorted(steps.ranges or ((0, None),), key=lambda one: one[0]):
        if end is None:
            return max(count, 1)
        count += max(0, end + 1 - max(begin, position))
        position = max(position, end + 1)
    return count


def in_units(size: int) -> str:
    """Bytes as `1.5 MiB`."""
    unit, name = next(((unit, name) for unit, name in UNITS if size >= unit), UNITS[-1])
    return f"{size / unit:.1f} {name}" if unit > 1 else f"{size} {name}"
