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

from ..errors import JournalError, NotAvailable, UsageError
from ..hooks.mode_protocol import Mode, Moment
from ..hooks.observer import Observer, RecordingSurroundings
from ..records.run_config import RunConfig
from ..records.step_files import STATE, outcome_file, state_file, steps_in
from ..records.step_selection import StepSelection
from ..script.named_tensors import TrainingTensors, gradients
from ..tape.shards import local_tensor
from ..tape.tensor_file import read_tensors, write_tensors
from ..torch_private.dispatching import without_dispatch_modes, without_function_modes
from ..torch_private.untraced import transformation_level
from .operations import WITHOUT_VALUES
from .optimizer_state import state_tensors
from .training_state import StateFiles, TrainingState, load_generators, load_state, training_state
from .variation import perturb_

SCHEMA = 1
"""Of the files of outcomes."""

MOST_NAMED = 5
"""Names that a notice lists before it only counts."""


class Resync:
    """Starts steps from another run's states, so that what they give can be compared step by step.

    It puts the recorded state of each step that has one in place; `execute` carries out what is pending. Raises
    UsageError when the folder has no states.
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
            # In the order of their names, so that each rank and mode draws the same for each of them.
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


class OutcomeFiles(Observer):
    """Copies what it is shown of a step; `write` puts the copies of ended steps into files, one a step.

    On devices without values a copy is a part of the graph that is executed anyway, and is read after it.
    """

    def __init__(self, run: Path, mode: Mode) -> None:
        self._run = run
        self._mode = mode
        self._values: dict[str, torch.Tensor] = {}
        self._ended: list[tuple[int, dict[str, torch.Tensor]]] = []

    def begins(self, step: int) -> None:
        self._values = {}

    def saw(self, name: str, tensor: torch.Tensor) -> None:
        with torch.no_grad(), without_dispatch_modes(), without_function_modes():
            if tensor.device.type in WITHOUT_VALUES:
                self._values[name] = tensor.clone()
            else:
                self._values[name] = tensor.detach().to("cpu", copy=True)

    def step_ended(self, step: int) -> None:
        self._ended.append((step, self._values))
        self._values = {}

    def write(self) -> None:
        """Write the steps that have ended: their values can be read now. Raises OSError (disk full)."""
        ended, self._ended = self._ended, []
        for step, values in ended:
            path = outcome_file(self._run, step)
            path.parent.mkdir(parents=True, exist_ok=True)
            read = dict(zip(values, self._mode.read(list(values.values())), strict=True))
            write_tensors(path, read, {"schema": SCHEMA, "step": step})


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
        self._outcomes: OutcomeFiles | None = None
        self._watchers: list[tuple[StepSelection, Observer]] = []
        if config.outcomes is not None:
            self._outcomes = OutcomeFiles(around.folder, mode)
            self._watchers.append((config.outcomes, self._outcomes))
        if config.tapes is not None:
            # Tapes need the compiled mode's room, which takes a while to import.
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
        if self._resync is not None and resynced:
            missing = self._resync.load(step, self._training)
            self._write("resynced", step=step, missing=missing)
            if missing and tuple(missing) not in self._told:
                self._told.add(tuple(missing))
                more = f" and {len(missing) - MOST_NAMED} more" if len(missing) > MOST_NAMED else ""
                self._notice(
                    f"step {step} starts from another run's state except for {', '.join(missing[:MOST_NAMED])}{more}: "
                    "these are in one of the two runs only, or differ in shape"
                )
        # The states of all other steps are kept when the step before them has settled.
        if self._states.wants(step) and (resynced or step == 0):
            self._execute()
            self._keep_state(step)
        self.doing = "beginning to watch a step"
        self._watching = [watcher for steps, watcher in self._watchers if step in steps]
        for watcher in self._watching:
            watcher.begins(step)

    def backward_started(self, step: int, started: Sequence[torch.Tensor], losses: Sequence[torch.Tensor]) -> None:
        if self._watching:
            self._show({f"loss {number}": loss for number, loss in enumerate(losses, self._losses)})
            self._losses += len(losses)

    def backward_ended(self, step: int) -> None:
        if self._watching:
            found = gradients(self._training.named()).items()
            number = self._backwards
            self._show({f"gradient {number} {key.partition(' ')[2]}": one for key, one in found})
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
        # A lazy mode that marks no step would execute this one together with later ones.
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

    def _keep_state(self, step: int) -> None:
        if transformation_level():
            raise NotAvailable(STATE, "it begins within a transformation of torch.func, where tensors have no values")
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
