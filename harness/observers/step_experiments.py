"""What a run does for the verdict's experiments: states kept and put in place, outcomes and tapes of chosen
steps.

A failure of any of them is told in a notice and ends them all, never the training. Without such options every
method returns at once.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence

import torch
from torch.nn.parameter import is_lazy

from ..errors import NotAvailable
from ..hooks.mode_protocol import Moment
from ..hooks.observer import Observer, RecordingSurroundings
from ..records.step_files import STATE
from ..records.step_selection import StepSelection
from ..script.training_tensors import gradients
from ..tape.shards import local_tensor
from ..torch_private.untraced import transformation_level
from .operations import WITHOUT_VALUES
from .optimizer_state import state_tensors
from .outcome_files import OutcomeFiles
from .resync import Resync
from .states import StateFiles
from .training_state import training_state

MOST_NAMED = 5
"""Names that a notice lists before it only counts."""


class Experiments(Observer):
    """Leads the borders and values of the chosen steps to those who want them.

    At the beginning of step 0 the parameters are those that are known then, by their modules or optimizers.
    Raises UsageError when there are no states to start from.
    """

    def __init__(self, around: RecordingSurroundings) -> None:
        config, mode = around.config, around.mode
        self._mode = mode
        self._training = around.training
        self._write = around.write
        self._notice = around.notice
        self._states = StateFiles(around.folder, config.states, around.notice)
        self._resync = Resync(config, mode.device, self._execute) if config.resync else None
        self._outcomes = None if config.outcomes is None else OutcomeFiles(around.folder, mode)
        self._watchers: list[tuple[StepSelection, Observer]] = []
        if config.outcomes is not None and self._outcomes is not None:
            self._watchers.append((config.outcomes, self._outcomes))
        if config.tapes is not None:
            recording = importlib.import_module("numdrift.harness.observers.tape_recording")
            self._watchers.append((config.tapes, recording.TapeRecording(config, mode, around.notice)))
        self._watching: list[Observer] = []
        self._step = -1
        self._losses = self._backwards = 0
        self._told: set[tuple[str, ...]] = set()

    def install(self) -> None:
        self.doing = "beginning to watch"
        for _, watcher in self._watchers:
            watcher.install()

    def begins(self, step: int) -> None:
        self._step, self._losses, self._backwards = step, 0, 0
        self.doing = "starting a step from another run's state"
        resynced = self._resync is not None and self._resync.wants(step)
        if resynced:
            self._load(step)
        if self._states.wants(step) and (resynced or step == 0):
            self._execute()
            self._keep_state(step)
        self.doing = "beginning to watch a step"
        self._watching = [watcher for steps, watcher in self._watchers if step in steps]
        for watcher in self._watching:
            watcher.begins(step)

    def backward_started(self, step: int, started: Sequence[torch.Tensor], losses: Sequence[torch.Tensor]) -> None:
        if self._watching:
            numbered = enumerate(losses, self._losses)
            self._show({f"loss {number}": loss for number, loss in numbered})
            self._losses += len(losses)

    def backward_ended(self, step: int) -> None:
        if self._watching:
            found = gradients(self._training.named()).items()
            self._show({f"gradient {self._backwards} {_name(key)}": one for key, one in found})
            self._backwards += 1

    def step_ended(self, step: int) -> None:
        self.doing = "watching the end of a step"
        if self._watching:
            named = {f"{one.kind} {one.name}": one.tensor for one in self._training.named()}
            self._show({**named, **state_tensors(self._training)})
        self.doing = "watching the end of a step"
        watching, self._watching = self._watching, []
        for watcher in watching:
            watcher.step_ended(step)
        if (watching or self._states.wants(step + 1)) and getattr(self._mode, "policy", "") == "off":
            self._execute()

    def settled(self, moment: Moment, step: int) -> None:
        if moment != "step":
            return
        self.doing = "writing an outcome"
        if self._outcomes is not None:
            self._outcomes.write()
        self.doing = "keeping a state"
        after = step + 1
        if not self._states.wants(after) or (self._resync is not None and self._resync.wants(after)):
            return
        if self._step > after:
            self._notice(f"the state of step {after} is not kept: it was executed together with later ones")
        else:
            self._keep_state(after)

    def script_ended(self, failure: str) -> None:
        self.close()

    def close(self) -> None:
        """Nothing is watched any more: a step that is under way is given up."""
        self.doing = "leaving a step"
        self._watching = []
        for _, watcher in self._watchers:
            watcher.close()

    def forget(self) -> None:
        self._watching = []

    def _load(self, step: int) -> None:
        assert self._resync is not None
        missing = self._resync.load(step, self._training)
        self._write("resynced", step=step, missing=missing)
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
        self.doing = "watching a step"
        for name, tensor in values.items():
            if not is_lazy(tensor) and not tensor.is_meta:
                for watcher in self._watching:
                    watcher.saw(name, local_tensor(tensor))

    def _execute(self) -> None:
        """Have the mode execute what is pending, where it holds something back."""
        execute = getattr(self._mode, "execute", None)
        if execute is not None:
            execute()


def _name(key: str) -> str:
    return key.partition(" ")[2]
