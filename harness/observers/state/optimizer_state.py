"""Reads and loads the optimizers' values other than parameters.

These are their state under flat names, and their hyper-parameters as plain values.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim.optimizer import Optimizer

from ...script.named_tensors import StateSlot, TrainingTensors, gradients, put
from ...tape.shards import local_tensor, own_part

PLAIN = (bool, int, float, str, type(None))

IMPLEMENTATION = frozenset({"foreach", "fused", "capturable", "differentiable", "params"})
"""Keys of a group that choose an optimizer's implementation, not its results: a mode keeps its own values for them."""

ON_THE_CPU = ("step", "mu_product")
"""Counters that torch's optimizers keep on the CPU unless they are capturable or fused."""


@dataclass(frozen=True, slots=True)
class StateValue:
    """One value of an optimizer's state.

    key: name of the value, such as `state net.weight.exp_avg`
    field: key of the value in `slot.state`
    """

    key: str
    slot: StateSlot
    field: Any
    value: Any


def state_values(training: TrainingTensors) -> Iterator[StateValue]:
    """Yield the values that the optimizers keep.

    If two optimizers keep a value of the same name for one parameter, the later value's key ends in the number of its
    optimizer, such as `@1`.
    """
    keys: set[str] = set()
    for slot in training.slots():
        for field, value in (slot.state or {}).items():
            key = f"state {slot.name}.{field}"
            key = f"{key}@{slot.optimizer}" if key in keys else key
            keys.add(key)
            yield StateValue(key, slot, field, value)


def state_tensors(training: TrainingTensors) -> dict[str, torch.Tensor]:
    """Return the tensors of the optimizers' state, including those inside lists and dictionaries."""
    tensors: dict[str, torch.Tensor] = {}
    for entry in state_values(training):
        take_apart(entry.key, entry.value, tensors)
    return tensors


def bindings(training: TrainingTensors) -> dict[str, torch.Tensor]:
    """Return the script's tensors by the names of their roles.

    The names look like `parameter net.0.weight`, `gradient net.0.weight` and `state net.0.weight.momentum_buffer`.
    """
    named = training.named()
    tensors = {f"{entry.kind} {entry.name}": entry.tensor for entry in named}
    return tensors | gradients(named) | state_tensors(training)


def take_apart(key: str, value: Any, tensors: dict[str, torch.Tensor]) -> Any:
    """Return a value as JSON that refers to tensors by name, and add these tensors to `tensors`.

    Anything but a tensor, a plain value, or a container of these is replaced with `unknown` and its class.
    """
    if isinstance(value, torch.Tensor):
        tensors[key] = value
        return {"tensor": key}
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, (list, tuple)):
        parts = [take_apart(f"{key}.{place}", item, tensors) for place, item in enumerate(value)]
        return {type(value).__name__ if type(value) in (list, tuple) else "unknown": parts}
    if isinstance(value, dict):
        return {"dict": [[name, take_apart(f"{key}.{name}", item, tensors)] for name, item in value.items()]}
    return {"unknown": type(value).__name__}


def put_together(tree: Any, tensors: Mapping[str, torch.Tensor]) -> Any:
    """Return the value that `take_apart` took apart. Raise KeyError for a value that is `unknown`."""
    if not isinstance(tree, dict):
        return tree
    [(kind, parts)] = tree.items()
    if kind == "tensor":
        return tensors[parts]
    if kind in ("list", "tuple"):
        values = [put_together(part, tensors) for part in parts]
        return values if kind == "list" else tuple(values)
    if kind == "dict":
        return {name: put_together(part, tensors) for name, part in parts}
    raise KeyError(kind)


def load_optimizer_state(
    training: TrainingTensors,
    owners: Mapping[str, Any],
    scalars: Mapping[str, Any],
    tensors: Mapping[str, Any],
) -> list[str]:
    """Load recorded state. Return the keys of the values that could not be loaded.

    `owners` maps each key to its owner: optimizer, parameter and field. A parameter without recorded state loses its
    state.
    """
    recorded: dict[tuple[int, str], dict[Any, tuple[str, Any]]] = {}
    for key, (optimizer, name, field) in owners.items():
        tree = scalars.get(key, {"tensor": key})
        recorded.setdefault((optimizer, name), {})[field] = (key, tree)
    missing: list[str] = []
    for slot in training.slots():
        wanted = recorded.pop((slot.optimizer, slot.name), None)
        if wanted is None:
            if slot.state is not None:
                slot.holder.pop(slot.parameter)
            continue
        if slot.state is None:
            slot.holder[slot.parameter] = {}
        state = slot.state
        for field in [field for field in state if field not in wanted]:
            del state[field]
        for field, (key, tree) in wanted.items():
            own_value = state.get(field)
            try:
                value = put_together(tree, tensors)
            except KeyError:
                missing.append(key)
                continue
            if isinstance(value, torch.Tensor):
                # Copied into the optimizer's existing tensor, if any: compiled graphs and views refer to that tensor.
                if isinstance(own_value, torch.Tensor) and put(own_value, value):
                    continue
                value = _at_home(value, slot, field, tensors.get(f"parameter {slot.name}"))
            state[field] = value
    return missing + [key for fields in recorded.values() for key, _ in fields.values()]


def _at_home(value: torch.Tensor, slot: StateSlot, field: Any, recorded_parameter: torch.Tensor | None) -> torch.Tensor:
    """Return a recorded tensor as the optimizer would have created it: with its parameter's layout and device."""
    parameter = slot.parameter
    if field in ON_THE_CPU and not (slot.group.get("capturable") or slot.group.get("fused")):
        return value.clone()
    # State with the dtype of the recorded parameter gets the dtype of this training's parameter. The two may differ
    # because of a mode's `dtype=`.
    follows = recorded_parameter is not None and value.dtype == recorded_parameter.dtype
    dtype = parameter.dtype if follows else value.dtype
    value = own_part(parameter, value)
    if value.shape != local_tensor(parameter).shape:
        return value.to(parameter.device, dtype, copy=True)
    result = torch.empty_like(parameter, dtype=dtype, requires_grad=False)
    local_tensor(result).copy_(value)
    return result


def hyperparameters(optimizers: Sequence[Optimizer], names: Mapping[int, str]) -> list[dict[str, Any]]:
    """Describe each optimizer: its class, and its groups with their parameters by name.

    `names` maps the `id` of each parameter to its name. A tensor of one element becomes a number; a value that is not
    plain becomes the name of its class.
    """
    descriptions = []
    for optimizer in optimizers:
        groups = []
        for group in optimizer.param_groups:
            described = {key: _plain(value) for key, value in group.items() if key != "params"}
            groups.append(
                {**described, "params": [names.get(id(parameter), "unnamed") for parameter in group["params"]]}
            )
        descriptions.append({"class": type(optimizer).__name__, "groups": groups})
    return descriptions


def set_hyperparameters(optimizers: Sequence[Optimizer], recorded: Sequence[Mapping[str, Any]]) -> list[str]:
    """Load recorded hyper-parameters. Return the names of those that could not be loaded."""
    missing = [f"optimizer {number}" for number in range(len(optimizers), len(recorded))]
    for number, optimizer in enumerate(optimizers):
        groups = recorded[number]["groups"] if number < len(recorded) else []
        if len(groups) != len(optimizer.param_groups):
            missing.append(f"the groups of optimizer {number}")
            continue
        for place, (group, values) in enumerate(zip(optimizer.param_groups, groups, strict=True)):
            for key, value in values.items():
                if key in group and key not in IMPLEMENTATION and not _set(group, key, value):
                    missing.append(f"{key} of group {place} of optimizer {number}")
    return missing


def _plain(value: Any) -> Any:
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        return float(value)
    if isinstance(value, (list, tuple)):
        return [_plain(item) for item in value]
    return type(value).__name__


def _set(group: dict[str, Any], key: str, value: Any) -> bool:
    """Set a value of a group; return whether it could be set."""
    current = group[key]
    if isinstance(current, torch.Tensor):
        if not isinstance(value, (int, float)) or current.numel() != 1:
            return False
        with torch.no_grad():
            current.fill_(value)  # in place: a capturable optimizer's graph reads this very tensor
    elif isinstance(current, (list, tuple)):
        parts = dict(enumerate(current))
        if not isinstance(value, list) or len(value) != len(parts):
            return False
        if not all(_set(parts, place, item) for place, item in enumerate(value)):  # type: ignore[arg-type]
            return False
        group[key] = type(current)(parts.values())
    elif isinstance(current, PLAIN):
        group[key] = value
    return True
