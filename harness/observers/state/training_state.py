"""The state of a training run, by name: read from the run, kept in a file, and loaded into another run.

A state holds parameters, left-over gradients, buffers, the optimizers' state and hyper-parameters, the random
generators, and the tensors that the script itself carries from step to step (see `carried_tensors`).
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from ...records.modes.mode_registry import DEFERRED_DEVICES
from ...records.run.step_files import state_file
from ...records.run.step_selection import StepSelection
from ...script.named_tensors import TrainingTensors, gradients, put
from ...tape.files.tensor_file import write_tensors
from ...tape.replaying.replay import is_same
from ...tape.shards import local_tensor, own_part
from ...torch_private.dispatching import unseen, without_dispatch_modes, without_function_modes
from .optimizer_state import hyperparameters, load_optimizer_state, set_hyperparameters, state_values, take_apart
from .script_generators import generator_states, set_generators

SCHEMA = 1
GENERATOR = "generator "

UNITS = ((2**30, "GiB"), (2**20, "MiB"), (2**10, "KiB"), (1, "bytes"))

GROWN = 1.5
"""Factor by which a state's size must grow before the size is announced again."""


@dataclass(frozen=True, slots=True)
class TrainingState:
    """The state of a training run at the beginning of a step.

    tensors: the script's own tensors, not copies, by the keys `parameter NAME`, `gradient NAME`, `buffer NAME`,
        `state NAME.KEY` and `generator NAME`
    facts: everything else, as JSON
    """

    tensors: Mapping[str, torch.Tensor]
    facts: Mapping[str, Any]

    @property
    def size(self) -> int:
        """Size on disk in bytes, without the file's header."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.tensors.values())


def training_state(
    training: TrainingTensors, device: str, step: int, carried: Mapping[str, torch.Tensor] | None = None
) -> TrainingState:
    """Return the training's current state. `device` is the mode's device."""
    with unseen():
        named = training.named()
        tensors = {f"{entry.kind} {entry.name}": entry.tensor for entry in named} | gradients(named)
        owners, scalars = {}, {}
        for entry in state_values(training):
            owners[entry.key] = [entry.slot.optimizer, entry.slot.name, entry.field]
            tree = take_apart(entry.key, entry.value, tensors)
            if not isinstance(entry.value, torch.Tensor):
                scalars[entry.key] = tree
        # A parameter that is not materialised yet has a name but no values.
        readable = {key: tensor for key, tensor in tensors.items() if not is_lazy(tensor) and not tensor.is_meta}
        states, plain = generator_states(device)
        facts = {
            "schema": SCHEMA,
            "step": step,
            "generators": plain,
            "scalars": scalars,
            "owners": owners,
            "hyper": hyperparameters(training.optimizers(), {id(entry.tensor): entry.name for entry in named}),
            "sparse": {key: tensor.sparse_dim() for key, tensor in readable.items() if tensor.is_sparse},
        }
        generators = {GENERATOR + name: state for name, state in states.items()}
        return TrainingState(readable | dict(carried or {}) | generators, facts)


def load_state(
    state: TrainingState, training: TrainingTensors, device: str, carried: Mapping[str, torch.Tensor] | None = None
) -> list[str]:
    """Load a state, except for the generators. Return the names that exist on one side only.

    Values are copied into the script's own tensors, so that views, tied weights and compiled graphs stay valid. A
    carried tensor that already has the state's bits is left alone: it may be a part of the script's data.
    """
    tensors, facts = state.tensors, state.facts
    with unseen():
        named = training.named()
        missing = []
        for entry in named:
            parameter, gradient = entry.tensor, f"gradient {entry.name}"
            value = tensors.get(f"{entry.kind} {entry.name}")
            if value is None or not put(parameter, value):
                missing.append(f"{entry.kind} {entry.name}")
                continue
            if entry.kind != "parameter":
                continue
            value = tensors.get(gradient)
            if value is None:  # the state holds no left-over gradient
                parameter.grad = None
                continue
            value = own_part(parameter, value)
            if value.shape != local_tensor(parameter).shape:
                missing.append(gradient)
            elif gradient in facts["sparse"]:
                value = value.to_sparse(facts["sparse"][gradient])  # files hold dense tensors only
                parameter.grad = value.to(parameter.device, parameter.dtype)
            elif parameter.grad is None or not put(parameter.grad, value):
                new_gradient = torch.empty_like(parameter, requires_grad=False)
                local_tensor(new_gradient).copy_(value)
                parameter.grad = new_gradient
        for key, tensor in (carried or {}).items():
            value = tensors.get(key)
            if value is None or value.dtype != tensor.dtype:
                continue
            # Where ops are deferred, reading the tensor would execute them.
            if device in DEFERRED_DEVICES or not is_same(tensor.detach().cpu(), value):
                put(tensor, value)
        own_names = {f"{entry.kind} {entry.name}" for entry in named}
        missing += [key for key in tensors if key.startswith(("parameter ", "buffer ")) and key not in own_names]
        missing += load_optimizer_state(training, facts["owners"], facts["scalars"], tensors)
        return missing + set_hyperparameters(training.optimizers(), facts["hyper"])


def load_generators(state: TrainingState, device: str) -> list[str]:
    """Load the generators' states. Return the names of those without a counterpart.

    Call this last: loading the rest of a state may draw random numbers.
    """
    states = {key.removeprefix(GENERATOR): tensor for key, tensor in state.tensors.items() if key.startswith(GENERATOR)}
    with without_dispatch_modes(), without_function_modes():
        return set_generators(states, state.facts["generators"], device)


MOST_CHECKPOINTS = 64
"""The maximum number of steps from which another mode may start, because their states are kept. It is large enough to
reveal a fault that begins late."""


class Checkpoints:
    """Chooses which states of a run of unknown length to keep within a budget of bytes.

    The chosen steps are evenly spread pairs: a step from which another mode may start, and the next one, from which
    that mode continues.

        0 1 2 3 4 5 6 7 8 9     at first: every even step and its successor
        0 1     4 5     8 9     once the pairs are too many or too large: every second pair is dropped; and so on
    """

    def __init__(self, budget: int) -> None:
        self._budget = budget
        self._stride = 2
        self._sizes: dict[int, int] = {}

    def wants(self, step: int) -> bool:
        return step % self._stride < 2

    def kept(self, step: int, size: int) -> list[int]:
        """Count a kept state of `size` bytes. Return the steps whose states are to be removed."""
        self._sizes[step] = size
        removed: list[int] = []
        # The first pair always stays: it reveals a mode whose initial state differs from the reference's.
        while self._stride < 2 * max(self._sizes, default=0) and (
            sum(kept_step % self._stride == 0 for kept_step in self._sizes) > MOST_CHECKPOINTS
            or sum(self._sizes.values()) > self._budget
        ):
            self._stride *= 2
            dropped = [kept_step for kept_step in self._sizes if not self.wants(kept_step)]
            removed += dropped
            for dropped_step in dropped:
                del self._sizes[dropped_step]
        return removed


class StateFiles:
    """Writes states into a run's folder: one file for each chosen step, with the state at the beginning of that step.

    States chosen by `checkpoints` are kept without a request, for later questions; no notice mentions them.

    Writing continues while the disk has room for all states that are still to come. `notice` receives the states' size,
    and a message when writing stops.
    """

    def __init__(
        self,
        run: Path,
        steps: StepSelection | None,
        notice: Callable[[str], None],
        checkpoints: Checkpoints | None = None,
    ) -> None:
        self._run = run
        self._steps = steps
        self._checkpoints = checkpoints
        self._notice = notice
        self._checked_size = self._announced = -1

    @property
    def by_default(self) -> bool:
        return self._checkpoints is not None

    def wants(self, step: int) -> bool:
        wanted = self._steps is not None and step in self._steps
        return wanted or (self._checkpoints is not None and self._checkpoints.wants(step))

    def give_up(self) -> None:
        """Stop keeping states."""
        self._steps = self._checkpoints = None

    def write(self, step: int, state: TrainingState, values: Mapping[str, torch.Tensor]) -> None:
        """Write one state. `values` are its tensors in readable form.

        A full disk is reported in a notice, not raised.
        """
        path, size = state_file(self._run, step), state.size
        folder = path.parent
        try:
            folder.mkdir(parents=True, exist_ok=True)
            if self._checkpoints is not None:
                if size > shutil.disk_usage(folder).free // 4:
                    self.give_up()
                    return
                write_tensors(path, values, state.facts)
                for removed_step in self._checkpoints.kept(step, size):
                    state_file(self._run, removed_step).unlink(missing_ok=True)
                return
            # States grow in the first steps, where the optimizers' state appears: when one grows, the free space is
            # read again.
            if size > self._checked_size:
                self._checked_size = size
                count = states_from(self._steps or StepSelection(), step)
                free = shutil.disk_usage(folder).free
                if size * count > free:
                    self._steps = None
                    self._notice(
                        f"no states are kept from step {step} on: the remaining states ({count} of {in_units(size)} "
                        f"each) would take {in_units(size * count)} in {folder}, which has {in_units(free)} free; "
                        "choose fewer steps"
                    )
                    return
                if size >= GROWN * self._announced:
                    self._announced = size
                    later = " (later ones also hold gradients and the optimizers' state)" if step == 0 else ""
                    self._notice(f"each state takes {in_units(size)}{later}; {folder} has {in_units(free)} free")
            write_tensors(path, values, state.facts)
        except OSError as error:
            if self.by_default:
                path.unlink(missing_ok=True)
                self.give_up()
                return
            self._steps = None
            self._notice(f"the state of step {step} cannot be written: {error.strerror}; no further states are kept")


def states_from(steps: StepSelection, first: int) -> int:
    """Return the number of chosen steps from `first` on.

    An endless range is not counted; the result is then at least 1. A step that is also in a spaced range counts twice.
    """
    count, position, endless = 0, first, False
    for begin, end, distance in steps.spaced:
        if end is None:
            endless = True
        else:
            count += max(0, (end - begin) // distance + 1 - max(0, -((begin - first) // distance)))
    for begin, end in sorted(((0, None),) if steps.is_everything else steps.ranges, key=lambda pair: pair[0]):
        if end is None:
            endless = True
            break
        count += max(0, end + 1 - max(begin, position))  # ranges may overlap
        position = max(position, end + 1)
    return max(count, 1) if endless else count


def in_units(size: int) -> str:
    """Return a number of bytes as text, such as `1.5 MiB`."""
    unit, name = next(((unit, name) for unit, name in UNITS if size >= unit), UNITS[-1])
    return f"{size / unit:.1f} {name}" if unit > 1 else f"{size} {name}"
