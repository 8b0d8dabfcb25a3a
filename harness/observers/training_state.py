"""The state of a training by names: read as it is, and put in place of another run's.

A state holds parameters, left-over gradients, buffers, the optimizers' state and hyper-parameters, and the
random generators. What a script keeps for itself (a carried hidden state, a generator of its own) is not in
it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.nn.parameter import is_lazy

from ..script.named_tensors import NamedTensor, put
from ..script.training_tensors import TrainingTensors, gradients
from ..tape.shards import local_tensor, own_part
from ..torch_private.dispatching import without_dispatch_modes, without_function_modes
from . import script_generators as generators
from .hyperparameters import hyperparameters, set_hyperparameters
from .optimizer_state import load_optimizer_state, state_values, take_apart

SCHEMA = 1
GENERATOR = "generator "


@dataclass(frozen=True, slots=True)
class TrainingState:
    """`tensors` are the script's own, not copies; `facts` are JSON and hold everything else.

    Keys are `parameter NAME`, `gradient NAME`, `buffer NAME`, `state NAME.KEY` and `generator NAME`.
    """

    tensors: Mapping[str, torch.Tensor]
    facts: Mapping[str, Any]

    @property
    def size(self) -> int:
        """Bytes that it takes on disk, but for the file's header."""
        return sum(tensor.numel() * tensor.element_size() for tensor in self.tensors.values())


def training_state(training: TrainingTensors, device: str, step: int) -> TrainingState:
    """The state as it is now; `device` is the mode's."""
    with torch.no_grad(), without_dispatch_modes(), without_function_modes():
        named = training.named()
        tensors = {f"{one.kind} {one.name}": one.tensor for one in named} | gradients(named)
        owners, scalars = {}, {}
        for one in state_values(training):
            owners[one.key] = [one.slot.optimizer, one.slot.name, one.field]
            tree = take_apart(one.key, one.value, tensors)
            if not isinstance(one.value, torch.Tensor):
                scalars[one.key] = tree
        kept = {key: tensor for key, tensor in tensors.items() if not is_lazy(tensor) and not tensor.is_meta}
        states = generators.tensor_states(device)
        facts = {
            "schema": SCHEMA,
            "step": step,
            "generators": generators.plain_states(),
            "scalars": scalars,
            "owners": owners,
            "hyper": hyperparameters(training.optimizers(), {id(one.tensor): one.name for one in named}),
            "sparse": {key: tensor.sparse_dim() for key, tensor in kept.items() if tensor.is_sparse},
        }
        return TrainingState(kept | {GENERATOR + name: state for name, state in states.items()}, facts)


def load_state(state: TrainingState, training: TrainingTensors) -> list[str]:
    """Put a state in place, but for the generators; gives the names of what has no counterpart on either
    side.

    Values are copied into the script's own tensors, so that views, tied weights and compiled graphs stay
    valid.
    """
    tensors, facts = state.tensors, state.facts
    with torch.no_grad(), without_dispatch_modes(), without_function_modes():
        named = training.named()
        missing = []
        for one in named:
            value = tensors.get(f"{one.kind} {one.name}")
            if value is None or not put(one.tensor, value):
                missing.append(f"{one.kind} {one.name}")
            elif one.kind == "parameter" and not _set_gradient(one, state):
                missing.append(f"gradient {one.name}")
        here = {f"{one.kind} {one.name}" for one in named}
        missing += [key for key in tensors if key.startswith(("parameter ", "buffer ")) and key not in here]
        missing += load_optimizer_state(training, facts["owners"], facts["scalars"], tensors)
        return missing + set_hyperparameters(training.optimizers(), facts["hyper"])


def load_generators(state: TrainingState, device: str) -> list[str]:
    """Put the generators' states in place, last of all; gives those without a counterpart."""
    states = {key.removeprefix(GENERATOR): one for key, one in state.tensors.items() if key.startswith(GENERATOR)}
    with without_dispatch_modes(), without_function_modes():
        return generators.set_states(states, state.facts["generators"], device)


def _set_gradient(one: NamedTensor, state: TrainingState) -> bool:
    """Whether the parameter has the recorded gradient now, or none as recorded."""
    key, parameter = f"gradient {one.name}", one.tensor
    value = state.tensors.get(key)
    if value is None:
        parameter.grad = None
        return True
    value = own_part(parameter, value)
    if value.shape != local_tensor(parameter).shape:
        return False
    if key in state.facts["sparse"]:
        value = value.to_sparse(state.facts["sparse"][key])
        parameter.grad = value.to(parameter.device, parameter.dtype)
        return True
    if parameter.grad is None or not put(parameter.grad, value):
        made = torch.empty_like(parameter, requires_grad=False)
        local_tensor(made).copy_(value)
        parameter.grad = made
    return True
