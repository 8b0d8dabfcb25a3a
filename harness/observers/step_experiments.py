"""What a run does for the verdict's experiments: states kept and put in place, outcomes and tapes of chosen steps.

A failure of any of them is told in a notice and ends them all, never the training. Without such options every
method returns at once.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch
from torch.nn.parameter import is_lazy

from ..errors import NotAvailable
from ..hooks.guard import Guard
from ..hooks.mode_protocol import Mode
from ..hooks.step_watcher import StepWatcher
from ..records.run_config import RunConfig
from ..records.step_files import STATE
from ..records.step_selection import StepSelection
from ..script.training_tensors import TrainingTensors, gradients
from ..tape.journal_writing import EventLog
from ..tape.shards import local_tensor
from ..torch_private import transformation_level
from .operations import WITHOUT_VALUES
from .optimizer_state import state_tensors
from .outcome_files import OutcomeFiles
from .resync import Resync
from .states import StateFiles
from .training_state import training_state

MOST_NAMED = 5
"""Names that a notice lists before it only counts."""


class Experiments:
    """Leads the borders and values of the steps to those who want them.

    Step 0 begins when the first root module is about to be called, or with the first backward; it holds the
    parameters that are known then, by their modules or optimizers. Each other step begins when the one before it
    has ended. Raises UsageError when there are no states to start from.
    """

    def __init__(
        self,
        config: RunConfig,
        mode: Mode,
        training: TrainingTensors,
        log: EventLog,
        notice: Callable[[str], None],
    ) -> None:
        run = Path(config.journal).parent
        self._mode = mode
        self._training = training
        self._log = log
        self._notice = notice
        self._states = StateFiles(run, config.states, notice)
        self._resync = Resync(config, mode.device, self._execute) if config.resync else None
        self._outcomes = None if config.outcomes is None else OutcomeFiles(run, mode)
        self._watchers: list[tuple[StepSelection, StepWatcher]] = []
        if config.outcomes is not None and self._outcomes is not None:
            self._watchers.append((config.outcomes, self._outcomes))
        if config.tapes is not None:
            recording = importlib.import_module("numdrift.harness.observers.tape_recording")
            self._watchers.append((config.tapes, recording.TapeRecording(config, mode, notice)))
        self.active = bool(self._watchers or config.resync or config.states is not None)
        self._watching: list[StepWatcher] = []
        self._step = -1
        self._losses = self._backwards = 0
        self._told: set[tuple[str, ...]] = set()

    def begin(self, step: int) -> None:
        """A step begins, unless it has begun already."""
        if not self.active or step == self._step:
            return
        self._step, self._losses, self._backwards = step, 0, 0
        with self._guard("starting a step from another run's state"):
            resynced = self._resync is not None and self._resync.wants(step)
            if resynced:
                self._load(step)
            if self._states.wants(step) and (resynced or step == 0):
                self._execute()
                self._keep_state(step)
        self._watching = [watcher for steps, watcher in self._watchers if self.active and step in steps]
        with self._guard("beginning to watch a step"):
            for watcher in self._watching:
                watcher.begin(step)

    def backward_started(self, step: int, losses: Sequence[torch.Tensor]) -> None:
        """A backward from these tensors is about to run."""
        if not self.active:
            return
        self.begin(step)
        if self._watching:
            numbered = enumerate(losses, self._losses)
            self._show({f"loss {number}": loss for number, loss in numbered})
            self._losses += len(losses)

    def backward_ended(self) -> None:
        """The backward has run, and nothing has acted on its gradients."""
        if self._watching:
            found = gradients(self._training.named()).items()
            self._show({f"gradient {self._backwards} {_name(key)}": one for key, one in found})
            self._backwards += 1

    def step_ended(self, step: int) -> None:
        """The step is over; its values may not be readable yet."""
        if not self.active:
            return
        with self._guard("watching the end of a step"):
            if self._watching:
                named = {f"{one.kind} {one.name}": one.tensor for one in self._training.named()}
                self._show({**named, **state_tensors(self._training)})
            watching, self._watching = self._watching, []
            for watcher in watching:
                watcher.end(step)
            if (watching or self._states.wants(step + 1)) and getattr(self._mode, "policy", "") == "off":
                self._execute()

    def settled(self, step: int) -> None:
        """The values of an ended step, and of what the next one begins with, can be read."""
        if not self.active:
            return
        with self._guard("writing an outcome"):
            if self._outcomes is not None:
                self._outcomes.write()
        with self._guard("keeping a state"):
            after = step + 1
            if not self._states.wants(after) or (self._resync is not None and self._resync.wants(after)):
                return
            if self._step > after:
                self._notice(
                    f"the state of step {after} is not kept: it was executed together with later ones"
                )
            else:
                self._keep_state(after)

    def leave(self) -> None:
        """The script has ended, perhaps within a step, or nothing is watched any more."""
        self._watching = []
        for _, watcher in self._watchers:
            abandon = getattr(watcher, "abandon", None)
            if abandon is not None:
                with self._guard("leaving a step"):
                    abandon()

    def forget(self) -> None:
        """Do nothing any more: this is a fork of the process."""
        self.active = False
        self._watching = []

    def _load(self, step: int) -> None:
        assert self._resync is not None
        missing = self._resync.load(step, self._training)
        self._log.write("resynced", step=step, missing=missing)
        if missing and tuple(missing) not in self._told:
            self._told.add(tuple(missing))
            more = f" and {len(missing) - MOST_NAMED} more" if len(missing) > MOST_NAMED else ""
            self._notice(
                f"step {step} starts from another run's state except for {', '.join(missing[:MOST_NAMED])}{more}: "
                "these are in one of the two runs only, or differ in shape"
            )

    def _keep_state(self, step: int) -> None:
        if transformation_level():
            raise NotAvailable(
                STATE,
                "it begins within a transformation of torch.func, where tensors have no values",
            )
        state = training_state(self._training, self._mode.device, step)
        values = {name: local_tensor(one) for name, one in state.tensors.items()}
        if self._mode.device in WITHOUT_VALUES:
            values = dict(zip(values, self._mode.read(list(values.values())), strict=True))
        self._states.write(step, state, values)

    def _show(self, values: Mapping[str, torch.Tensor]) -> None:
        with self._guard("watching a step"):
            for name, tensor in values.items():
                if not is_lazy(tensor) and not tensor.is_meta:
                    for watcher in self._watching:
                        watcher.saw(name, local_tensor(tensor))

    def _execute(self) -> None:
        """Have the mode execute what is pending, where it holds something back."""
        execute = getattr(self._mode, "execute", None)
        if execute is not None:
            execute()

    def _guard(self, doing: str) -> Guard:
        return Guard(self._failed, doing)

    def _failed(self, doing: str, error: Exception) -> None:
        if not self.active:
            return
        self.active = False
        self._notice(
            f"{doing} failed, no states, outcomes and tapes are kept from here on: {type(error).__name__}: {error}"
        )
        self.leave()


def _name(key: str) -> str:
    return key.partition(" ")[2]
