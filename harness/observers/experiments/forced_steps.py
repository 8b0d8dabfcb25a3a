"""Resynced steps, which start from another run's states, and steps after them that return to the training's own states.

    step            0    1    2    3    4    5
    starts from     own  own  a's  own  a's  own       a's: the state of the reference, in `resync`
    resynced        yes       yes       yes            at step 0 both states are equal: nothing is loaded

Before step 3, the training's own state of that step is loaded from `rejoin`, where an earlier run of the same mode has
left it. So steps 0, 1, 3 and 5 start from the training's own states and can be compared with that earlier run bit for
bit.
"""

from __future__ import annotations

import json
import math
import weakref
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from ...errors import JournalError, UsageError
from ...hooks.mode_protocol import Mode
from ...records.modes.mode_registry import DEFERRED_DEVICES
from ...records.run.run_config import RunConfig
from ...records.run.step_files import OF_SCRIPT, inputs_file, state_file, steps_in
from ...script.named_tensors import TrainingTensors
from ...tape.files.tensor_file import read_tensors
from ...tape.replaying.replay import is_same
from ...torch_private.dispatching import unseen
from ..state.batches import has_value, tensors_in
from ..state.carried_tensors import CarriedTensors
from ..state.training_state import GENERATOR, TrainingState, load_generators, load_state, training_state
from ..state.variation import perturb_
from ..values.digest import Digester, hash_text

MOST_NAMED = 5
"""The number of names that a notice lists; it only counts the others."""


class ForcedSteps:
    """Loads states at the beginnings of steps.

    `execute` executes the ops that are pending. Raises UsageError when the reference's folder has no states.
    """

    def __init__(
        self,
        config: RunConfig,
        mode: Mode,
        execute: Callable[[], None],
        write: Callable[..., None],
        notice: Callable[[str], None],
        digester: Digester,
        carried: CarriedTensors,
    ) -> None:
        self._folder = Path(config.resync)
        self._own = Path(config.rejoin) if config.rejoin else None
        self._mode = mode
        self._execute = execute
        self._write = write
        self._notice = notice
        self._digester = digester
        self._carried = carried
        self._step = -1
        self._perturb = config.perturb
        chosen = config.steps if config.outcomes is None else config.outcomes
        recorded = steps_in(self._folder)
        if not recorded:
            raise UsageError(f"{self._folder} holds no states to start from: run the reference with --states first")
        self._steps = frozenset(step for step in recorded if step in chosen)
        self.has_inputs = any(self._folder.glob("inputs-*.safetensors"))
        self._inputs: Mapping[str, torch.Tensor] = {}
        self._replaced: list[tuple[torch.Tensor, torch.Tensor]] = []
        self._waiting: list[tuple[int, int, weakref.ref[torch.Tensor], torch.Tensor]] = []
        self._away = False
        self._reported: set[tuple[str, ...]] = set()

    def wants(self, step: int) -> bool:
        return step in self._steps

    def begins(self, step: int, training: TrainingTensors) -> bool:
        """Load the state from which the step starts. Return whether the training's state was changed.

        Raises JournalError when a file is damaged.
        """
        self._inputs, self._step = {}, step
        if step in self._steps:
            path = state_file(self._folder.parent, step)
            tensors, facts = read_tensors(path)
            if self._perturb is not None:
                # In the order of the names, so that every rank and mode draws the same numbers for each parameter.
                parameters = [key for key in sorted(tensors) if key.startswith("parameter ")]
                perturb_([tensors[key] for key in parameters], self._perturb)
            elif self._own is not None and not self._away and self._is_current_state(tensors, facts, training, step):
                self._write("resynced", step=step, missing=[], equal=True)
                return False
            inputs_path = inputs_file(path.parent, step)
            self._inputs = read_tensors(inputs_path)[0] if inputs_path.exists() else {}
            missing = self._load(path, TrainingState(tensors, facts), training)
            self._away = self._own is not None
            self._write("resynced", step=step, missing=missing)
            if missing and tuple(missing) not in self._reported:
                self._reported.add(tuple(missing))
                more = f" and {len(missing) - MOST_NAMED} more" if len(missing) > MOST_NAMED else ""
                self._notice(
                    f"step {step} starts from another run's state except for {', '.join(missing[:MOST_NAMED])}{more}: "
                    "these exist in only one of the two runs, or differ in shape"
                )
            return True
        if self._away and self._own is not None:
            path = state_file(self._own.parent, step)
            if path.exists():
                self._load(path, TrainingState(*read_tensors(path)), training)
                self._away = False
                self._write("rejoined", step=step)
                return True
        return False

    def replace_inputs(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[torch.Tensor]:
        """Copy the reference's inputs into the arguments of a root module's first call in the step.

        An argument is replaced if the reference's input is recorded and has the argument's shape, and if the argument
        was not computed within the step. Return the tensors whose values changed.
        """
        inputs, self._inputs = self._inputs, {}
        if not inputs:
            return []
        before = len(self._replaced)
        replaced: list[tuple[int, str]] = []
        with unseen():
            for place, tensor in enumerate(tensors_in((*args, *kwargs.values()))):
                wanted = inputs.get(f"input {place}")
                fits = wanted is not None and wanted.shape == tensor.shape and tensor.layout == torch.strided
                if wanted is None or not fits or tensor.grad_fn is not None:
                    continue
                if not has_value(tensor):  # a value still to be computed is left alone and compared later
                    self._waiting.append((self._step, place, weakref.ref(tensor), wanted))
                    continue
                own = tensor.detach().clone()
                read = self._mode.read([own])
                if not is_same(read[0], wanted):
                    replaced.append((place, hash_text(self._digester.digest(read))))
                    # Bypasses autograd and its version counter, as loading parameters does.
                    tensor.data.copy_(wanted)
                    self._replaced.append((tensor, own))
        if replaced:  # the event lists the hashes of the values that the script itself passed
            self._write("given", step=self._step, arguments=replaced)
        return [tensor for tensor, _ in self._replaced[before:]]

    def settled(self) -> None:
        """Record how far the batches so far, which now have values, are from the reference's."""
        waiting, self._waiting = self._waiting, []
        with unseen():
            for step, place, tensor, wanted in waiting:
                own = tensor()
                if own is not None and has_value(own):
                    apart = roundings_apart(self._mode.read([own])[0], wanted)
                    self._write("own-batch", step=step, arguments=[(place, apart)])

    def step_ended(self) -> None:
        """Restore the script's tensors that were overwritten: they may be part of its data."""
        replaced, self._replaced = self._replaced, []
        with unseen():
            for tensor, original in replaced:
                tensor.data.copy_(original)

    def _load(self, path: Path, state: TrainingState, training: TrainingTensors) -> list[str]:
        """Load a state and the generators. Return the names that exist on one side only. Raises JournalError."""
        self._execute()
        try:
            missing = load_state(state, training, self._mode.device, self._carried.all_named())
            # The copies must not become part of the step's first graph.
            self._execute()
            if self._mode.device in DEFERRED_DEVICES:
                # Otherwise, a later read of lazy tensors that were written to below autograd is one step behind.
                self._mode.read([named.tensor for named in training.named()])
            return missing + load_generators(state, self._mode.device)
        except (KeyError, TypeError, ValueError) as error:
            raise JournalError(path, f"holds no state ({type(error).__name__}: {error})") from error

    def _is_current_state(
        self, tensors: Mapping[str, torch.Tensor], facts: Mapping[str, Any], training: TrainingTensors, step: int
    ) -> bool:
        """Check that the training is already in exactly this state, bit for bit."""
        self._execute()
        carried = {key: value for key, value in self._carried.all_named().items() if key in tensors}
        state = training_state(training, self._mode.device, step, carried)
        own = {key: value for key, value in state.tensors.items() if not is_lazy(value)}
        # A generator that one of the two runs has not drawn from yet may exist on one side only.
        if any(not key.startswith((GENERATOR, *OF_SCRIPT)) for key in own.keys() ^ tensors.keys()):
            return False
        if json.loads(json.dumps(state.facts)) != json.loads(json.dumps(facts)):
            return False
        names = sorted(own.keys() & tensors.keys())
        # files hold dense tensors only
        values = [value if value.layout == torch.strided else value.to_dense() for value in map(own.__getitem__, names)]
        if self._mode.device in DEFERRED_DEVICES:
            values = self._mode.read(values)
        with unseen():
            return all(is_same(value.cpu(), tensors[name]) for name, value in zip(names, values, strict=True))


def roundings_apart(value: torch.Tensor, reference: torch.Tensor) -> float | None:
    """Return the relative distance between two floating-point tensors, in units of half the dtype's epsilon.

    The distance is ||value - reference|| / ||reference||. Return None if a dtype is not floating-point, if the dtypes
    differ, or if the distance is not finite.
    """
    if value.dtype != reference.dtype or not value.dtype.is_floating_point:
        return None
    wide, wide_reference = value.double(), reference.double()
    apart = float((wide - wide_reference).norm()) / max(float(wide_reference.norm()), torch.finfo(torch.double).tiny)
    return 2 * apart / torch.finfo(value.dtype).eps if math.isfinite(apart) else None
