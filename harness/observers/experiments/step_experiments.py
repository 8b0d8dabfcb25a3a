"""The experiments that a verdict needs, carried out within a training run.

They keep and load states, and keep the outcomes and tapes of chosen steps. A failure of an experiment is reported in a
notice and ends all experiments, never the training. If the run requests no experiment, every method returns at once.
"""

from __future__ import annotations

import weakref
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from ...errors import NotAvailable
from ...hooks.mode_protocol import CuttingMode, Mode, Moment
from ...hooks.observer import Observer, RecordingSurroundings
from ...records.modes.mode_registry import DEFERRED_DEVICES
from ...records.run.step_files import EVALUATION, STATE, STATES, inputs_file, outcome_file
from ...records.run.step_selection import StepSelection
from ...script.named_tensors import gradients
from ...tape.files.earlier_values import files_of_step
from ...tape.files.tensor_file import write_tensors
from ...tape.shards import local_tensor
from ...torch_private.dispatching import unseen
from ...torch_private.untraced import transformation_level
from ..state.batches import has_value, input_tensors, tensors_in
from ..state.carried_tensors import CarriedTensors, is_kept
from ..state.optimizer_state import state_tensors
from ..state.training_state import Checkpoints, StateFiles, training_state
from .forced_steps import ForcedSteps
from .step_watcher import StepWatcher
from .tape_recording import TapeRecording

MOST_EVALUATIONS = 8
"""The number of a model's calls outside of the training whose outputs are compared in one step."""

LARGEST_OUTPUT = 2**23
"""The largest size in bytes of an output of an evaluation that is kept with a state."""

SCHEMA = 1
"""Schema version of the outcome files."""


class OutcomeFiles(StepWatcher):
    """Copies the values of each step as they arrive. `write` writes the copies of completed steps, one file per step.

    `earlier` are folders of runs whose values are not written again.

    On devices that defer ops, a copy is part of the graph that is executed anyway, and is read afterwards.
    """

    def __init__(self, run: Path, mode: Mode, earlier: Sequence[str]) -> None:
        self._run = run
        self._mode = mode
        self._earlier = earlier
        self._values: dict[str, torch.Tensor] = {}
        self._ended: list[tuple[int, dict[str, torch.Tensor]]] = []

    def begins(self, step: int) -> None:
        self._values = {}

    def saw(self, name: str, tensor: torch.Tensor) -> None:
        with unseen():
            if tensor.device.type in DEFERRED_DEVICES:
                self._values[name] = tensor.clone()
            else:
                self._values[name] = tensor.detach().to("cpu", copy=True)

    def step_ended(self, step: int) -> None:
        self._ended.append((step, self._values))
        self._values = {}

    def write(self) -> None:
        """Write the completed steps, whose values are now readable. Raises OSError (disk full)."""
        ended, self._ended = self._ended, []
        for step, values in ended:
            path = outcome_file(self._run, step)
            path.parent.mkdir(parents=True, exist_ok=True)
            read = dict(zip(values, self._mode.read(list(values.values())), strict=True))
            write_tensors(path, read, {"schema": SCHEMA, "step": step}, files_of_step(self._earlier, step))


class Experiments(Observer):
    """Passes the beginnings, ends and values of the chosen steps to their observers.

    At the beginning of step 0, only the parameters of the modules and optimizers that exist by then are known. Raises
    UsageError if there are no states to start from.
    """

    def __init__(self, around: RecordingSurroundings) -> None:
        config, mode = around.config, around.mode
        self._mode = mode
        self._training = around.training
        self._notice = around.notice
        self._folder = around.folder
        # With `mark_step=off`, a lazy mode has no state between two steps: keeping one would split its graph.
        checkpoints = Checkpoints(config.checkpoints) if config.checkpoints and not self._holds_back() else None
        self._states = StateFiles(around.folder, config.states, around.notice, checkpoints)
        self._carried = CarriedTensors(config.script, around.training)
        self._forced = None
        if config.resync:
            self._forced = ForcedSteps(
                config, mode, self._execute, around.write, around.notice, around.digester, self._carried
            )
        self._keeps_inputs = config.keep_inputs
        self._roots: weakref.WeakSet[torch.nn.Module] = weakref.WeakSet()
        self._outcomes: OutcomeFiles | None = None
        self._watchers: list[tuple[StepSelection, StepWatcher]] = []
        if config.outcomes is not None:
            self._outcomes = OutcomeFiles(around.folder, mode, config.earlier)
            self._watchers.append((config.outcomes, self._outcomes))
        if config.tapes is not None:
            tapes = TapeRecording(config, config.tapes, mode, around.notice, around.write, around.kernels)
            self._watchers.append((config.tapes, tapes))
        self._watching: list[StepWatcher] = []
        self._step = -1
        self._called = True
        self._losses = self._backwards = self._evaluations = 0
        self._evaluated: dict[str, torch.Tensor] = {}

    def install(self) -> None:
        self.doing = "beginning to watch"
        for _, watcher in self._watchers:
            watcher.install()

    def taken_over(self, module: torch.nn.Module, step: int) -> None:
        self._roots.add(module)

    def begins(self, step: int) -> None:
        self._step, self._losses, self._backwards, self._called = step, 0, 0, False
        self._evaluations, self._evaluated = 0, {}
        self.doing = "starting a step from another run's state"
        is_resynced = False
        if self._forced is not None:
            is_resynced = self._forced.begins(step, self._training) or self._forced.wants(step)
        # The states of all other steps are kept once the previous step has settled.
        if self._states.wants(step) and (is_resynced or step == 0):
            self._execute()
            self._keep_state(step)
        self.doing = "beginning to watch a step"
        self._watching = [watcher for steps, watcher in self._watchers if step in steps]
        if self._watching or self._states.wants(step + 1):
            with unseen():
                self._carried.begins()
        for watcher in self._watching:
            watcher.begins(step)
        if self._watching:
            values = self._values()
            for watcher in self._watching:
                watcher.starts_from(values)

    def watches_calls(self, step: int) -> bool:
        has_inputs = self._forced is not None and self._forced.has_inputs
        return self._keeps_inputs or has_inputs or bool(self._watchers) or self._states.wants(step + 1)

    def called_with(self, module: torch.nn.Module, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        if module not in self._roots or self._called:
            return
        self._called = True
        self.doing = "looking at the arguments of a model"
        for watcher in self._watching:
            watcher.called_with(module, args, kwargs)
        if self._forced is not None:
            for tensor in self._forced.replace_inputs(args, kwargs):
                for watcher in self._watching:
                    watcher.argument_overwritten(tensor)
        if self._keeps_inputs and self._states.wants(self._step):
            with unseen():
                tensors = input_tensors(args, kwargs).items()
                inputs = {f"input {place}": tensor for place, tensor in tensors if has_value(tensor)}
                values = dict(zip(inputs, self._mode.read(list(inputs.values())), strict=True))
            path = inputs_file(self._folder / STATES, self._step)
            path.parent.mkdir(parents=True, exist_ok=True)
            write_tensors(path, values, {"schema": SCHEMA, "step": self._step})

    def returned(self, module: torch.nn.Module, outputs: Any) -> None:
        """Show what a model returned outside of the training, such as in an evaluation between two steps.

        What it returns within the training leads to the loss, and to the gradients.
        """
        is_kept_later = self._states.wants(self._step + 1)
        is_training = module.training and torch.is_grad_enabled()
        if is_training or module not in self._roots or not (self._watching or is_kept_later):
            return
        self.doing = "looking at the outputs of a model"
        number, self._evaluations = self._evaluations, self._evaluations + 1
        if number >= MOST_EVALUATIONS:
            return
        outputs = list(outputs.values()) if isinstance(outputs, Mapping) else [outputs]
        floats = [tensor for tensor in tensors_in(outputs) if tensor.is_floating_point() and is_kept(tensor)]
        named = {f"{EVALUATION}{number} output {place}": tensor for place, tensor in enumerate(floats)}
        self._show(named)
        if is_kept_later:  # copied, as the script may write to them
            small = {name: tensor for name, tensor in named.items() if tensor.nbytes <= LARGEST_OUTPUT}
            with unseen():
                self._evaluated |= {name: tensor.detach().clone() for name, tensor in small.items()}

    def backward_started(self, step: int, started: Sequence[torch.Tensor], losses: Sequence[torch.Tensor]) -> None:
        if self._watching:
            self._show({f"loss {number}": loss for number, loss in enumerate(losses, self._losses)})
            self._losses += len(losses)

    def backward_ended(self, step: int) -> None:
        if self._watching:
            items = gradients(self._training.named()).items()
            number = self._backwards
            self._show({f"gradient {number} {key.partition(' ')[2]}": gradient for key, gradient in items})
            self._backwards += 1

    def step_ended(self, step: int) -> None:
        self.doing = "looking at the script's own tensors"
        with unseen():
            self._carried.ended()
        self.doing = "watching the end of a step"
        if self._watching:
            self._show(self._values())
        if self._forced is not None:
            self._forced.step_ended()
        self.doing = "watching the end of a step"
        watching, self._watching = self._watching, []
        for watcher in watching:
            watcher.step_ended(step)
        # With `mark_step=off`, the mode would otherwise execute this step together with later ones.
        if (watching or self._states.wants(step + 1)) and self._holds_back():
            self._execute()

    def settled(self, moment: Moment, step: int) -> None:
        if moment != "step":
            return
        self.doing = "writing an outcome"
        if self._outcomes is not None:
            self._outcomes.write()
        if self._forced is not None:
            self._forced.settled()
        self.doing = "writing a tape"
        for _, watcher in self._watchers:
            watcher.settled(moment, step)
        self.doing = "keeping a state"
        after = step + 1
        if not self._states.wants(after) or (self._forced is not None and self._forced.wants(after)):
            return
        if self._step > after:
            if not self._states.by_default:
                self._notice(f"the state of step {after} is not kept: the mode executed several steps together")
        else:
            self._keep_state(after)

    def script_ended(self, failure: str) -> None:
        self.close()

    def close(self) -> None:
        """Stop watching; the current step is abandoned."""
        self.doing = "leaving a step"
        self._watching = []
        for _, watcher in self._watchers:
            watcher.close()

    def forget(self) -> None:
        self._watching = []

    def _keep_state(self, step: int) -> None:
        if transformation_level():
            if self._states.by_default:  # nobody requested it: stop without a notice
                self._states.give_up()
                return
            raise NotAvailable(
                STATE, "its step begins within a transformation of torch.func, where tensors have no values"
            )
        with unseen():
            carried = self._carried.named() | self._evaluated
        state = training_state(self._training, self._mode.device, step, carried)
        values = {name: local_tensor(tensor) for name, tensor in state.tensors.items()}
        if self._mode.device in DEFERRED_DEVICES:
            values = dict(zip(values, self._mode.read(list(values.values())), strict=True))
        self._states.write(step, state, values)

    def _values(self) -> dict[str, torch.Tensor]:
        """Return the current values that steps start from and leave behind, by name."""
        named = {f"{entry.kind} {entry.name}": entry.tensor for entry in self._training.named()}
        with unseen():
            carried = self._carried.named()
        # Whole numbers come from choices, such as a prediction, which rounding may turn without any harm.
        floats = {key: tensor for key, tensor in carried.items() if tensor.is_floating_point() or tensor.is_complex()}
        return {**named, **state_tensors(self._training), **floats}

    def _show(self, values: Mapping[str, torch.Tensor]) -> None:
        self.doing = "watching a step"
        for name, tensor in values.items():
            if not is_lazy(tensor) and not tensor.is_meta:
                for watcher in self._watching:
                    watcher.saw(name, local_tensor(tensor))

    def _holds_back(self) -> bool:
        """Check whether the mode executes a step together with later ones."""
        return isinstance(self._mode, CuttingMode) and self._mode.policy == "off"

    def _execute(self) -> None:
        """Execute the ops that are pending, in a mode that defers them."""
        self._mode.execute()
