"""Steps that start from another run's states, so that what they give can be compared step by step."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from ..errors import JournalError, UsageError
from ..records.run_config import RunConfig
from ..records.step_files import state_file, steps_in
from ..script.training_tensors import TrainingTensors
from ..tape.tensor_file import read_tensors
from .training_state import TrainingState, load_generators, load_state
from .variation import perturb_


class Resync:
    """Puts the recorded state of each step that has one in place; `execute` carries out what is pending.

    Raises UsageError when the folder has no states.
    """

    def __init__(self, config: RunConfig, device: str, execute: Callable[[], None]) -> None:
        self._folder = Path(config.resync)
        self._device = device
        self._execute = execute
        self._perturb = config.perturb
        chosen = config.steps if config.outcomes is None else config.outcomes
        recorded = steps_in(self._folder)
        if not recorded:
            raise UsageError(f"{self._folder} holds no states to start from: run the reference with --states first")
        self._steps = frozenset(step for step in recorded if step in chosen)

    def wants(self, step: int) -> bool:
        return step in self._steps

    def load(self, step: int, training: TrainingTensors) -> list[str]:
        """Put the state of a step in place; gives the names of what has no counterpart on either side.

        Raises JournalError when its file is damaged.
        """
        path = state_file(self._folder.parent, step)
        tensors, facts = read_tensors(path)
        if self._perturb is not None:
            parameters = [key for key in sorted(tensors) if key.startswith("parameter ")]
            perturb_([tensors[key] for key in parameters], self._perturb)
        state = TrainingState(tensors, facts)
        self._execute()
        try:
            missing = load_state(state, training)
            # What was put in place must not be a part of the step's first graph.
            self._execute()
            return missing + load_generators(state, self._device)
        except (KeyError, TypeError, ValueError) as error:
            raise JournalError(path, f"holds no state ({type(error).__name__}: {error})") from error
