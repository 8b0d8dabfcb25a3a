"""The optimizers' state under flat names: read for a file, and put in place from one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from ..script.named_tensors import put
from ..script.training_tensors import StateSlot, TrainingTensors, gradients
from ..tape.shards import local_tensor, own_part
from .hyperparameters import PLAIN

ON_THE_CPU = ("step", "mu_product")
"""Counters that torch's optimizers keep on the CPU unless they are capturable or fused."""


@dataclass(frozen=True, slots=True)
class StateValue:
    """One value of an optimizer's state: `key` as `state net.weight.exp_avg`, `field` its key in
    `slot.state`."""

    key: str
    slot: StateSlot
    field: Any
    value: Any


def state_values(training: TrainingTensors) -> Iterator[StateValue]:
    """What the optimizers keep. Where two keep the same about one parameter, the later one's key ends in its
    number, as `@1`."""
    taken: set[str] = set()
    for slot in training.slots():
        for field, value in (slot.state or {}).items():
            key = f"state {slot.name}.{field}"
            key = f"{key}@{slot.optimizer}" if key in taken else key
            taken.add(key)
            yield StateValue(key, slot, field, value)


def state_tensors(training: TrainingTensors) -> dict[str, torch.Tensor]:
    """The tensors of the optimizers' state, those inside of lists and dictionaries included."""
    tensors: dict[str, torch.Tensor] = {}
    for one in state_values(training):
        take_apart(one.key, one.value, tensors)
    return tensors


def bindings(training: TrainingTensors) -> dict[str, torch.Tensor]:
    """What the script's tensors are to it, by names as `parameter net.0.weight`, `gradient net.0.weight` and
    `state net.0.weight.momentum_buffer`."""
    named = training.named()
    found = {f"{one.kind} {one.name}": one.tensor for one in named}
    return found | gradients(named) | state_tensors(training)


def take_apart(key: str, value: Any, tensors: dict[str, torch.Tensor]) -> Any:
    """Give a value as JSON in which tensors are named; they go into `tensors`.

    What is neither a tensor, a plain value nor made of such is named `unknown`, by its class.
    """
    if isinstance(value, torch.Tensor):
        tensors[key] = value
        return {"tensor": key}
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, (list, tuple)):
        parts = [take_apart(f"{key}.{place}", one, tensors) for place, one in enumerate(value)]
        return {type(value).__name__ if type(value) in (list, tuple) else "unknown": parts}
    if isinstance(value, dict):
        return {"dict": [[name, take_apart(f"{key}.{name}", one, tensors)] for name, one in value.items()]}
    return {"unknown": type(value).__name__}


def put_together(tree: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    """The inverse of `take_apart`. Raises KeyError for what it could not take apart."""
    if not isinstance(tree, dict):
        return tree
    [(kind, parts)] = tree.items()
    if kind == "tensor":
        return tensors[parts]
    if kind in ("list", "tuple"):
        values = [put_together(one, tensors) for one in parts]
        return values if kind == "list" else tuple(values)
    if kind == "dict":
        return {name: put_together(one, tensors) for name, one in parts}
    raise KeyError(kind)


def load_optimizer_state(
    training: TrainingTensors,
    owners: Mapping[str, Any],
    scalars: Mapping[str, Any],
    tensors: Mapping[str, Any],
) -> list[str]:
    """Put recorded state in place; gives what could not be, by key.

    `owners` says of each key whose it is, as optimizer, parameter and field. A parameter without recorded
    state has none afterwards.
    """
    recorded: dict[tuple[int, str], dict[Any, tuple[str, Any]]] = {}
    for key, (optimizer, name, field) in owners.items():
        tree = scalars.get(key, {"tensor": key})
        recorded.setdefault((optimizer, name), {})[field] = (key, tree)
    missing: list[str] = []
    for slot in training.slots():
        wanted = recorded.pop((slot.optimizer, slot.name), None)
        if wanted is not None:
            missing += _load_slot(slot, wanted, tensors)
        elif slot.state is not None:
            slot.holder.pop(slot.parameter)
    return missing + [key for fields in recorded.values() for key, _ in fields.values()]


def _load_slot(
    slot: StateSlot, wanted: Mapping[Any, tuple[str, Any]], tensors: Mapping[str, torch.Tensor]
) -> list[str]:
    if slot.state is None:
        slot.holder[slot.parameter] = {}
    state, missing = slot.state, []
    for field in [field for field in state if field not in wanted]:
        del state[field]
    for field, (key, tree) in wanted.items():
        there = state.get(field)
        try:
            value = put_together(tree, tensors)
        except KeyError:
            missing.append(key)
            continue
        if isinstance(value, torch.Tensor):
            if isinstance(there, torch.Tensor) and put(there, value):
                continue
            value = _at_home(value, slot, field, tensors.get(f"parameter {slot.name}"))
        state[field] = value
    return missing


def _at_home(value: torch.Tensor, slot: StateSlot, field: Any, recorded_parameter: torch.Tensor | None) -> torch.Tensor:
    """A recorded tensor as the optimizer itself would have made it: laid out like its parameter, and there."""
    parameter = slot.parameter
    if field in ON_THE_CPU and not (slot.group.get("capturable") or slot.group.get("fused")):
        return value.clone()
    follows = recorded_parameter is not None and value.dtype == recorded_parameter.dtype
    dtype = parameter.dtype if follows else value.dtype
    value = own_part(parameter, value)
    if value.shape != local_tensor(parameter).shape:
        return value.to(parameter.device, dtype, copy=True)
    made = torch.empty_like(parameter, dtype=dtype, requires_grad=False)
    local_tensor(made).copy_(value)
    return made
