"""The optimizers' hyper-parameters as plain values, read and put in place."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.optim.optimizer import Optimizer

PLAIN = (bool, int, float, str, type(None))

IMPLEMENTATION = frozenset({"foreach", "fused", "capturable", "differentiable", "params"})
"""Keys of a group that say how, not what, an optimizer computes: a mode keeps its own."""


def hyperparameters(optimizers: Sequence[Optimizer], names: Mapping[int, str]) -> list[dict[str, Any]]:
    """Describe each optimizer: its class, and its groups with their parameters by name.

    `names` are those of the parameters by `id`. A tensor of one element is given as a number, what is no
    plain value as the name of its class.
    """
    return [
        {"class": type(one).__name__, "groups": [_group(group, names) for group in one.param_groups]}
        for one in optimizers
    ]


def set_hyperparameters(optimizers: Sequence[Optimizer], recorded: Sequence[Mapping[str, Any]]) -> list[str]:
    """Put recorded hyper-parameters in place; gives what could not be, by name."""
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


def _group(group: Mapping[str, Any], names: Mapping[int, str]) -> dict[str, Any]:
    described = {key: _plain(value) for key, value in group.items() if key != "params"}
    return {**described, "params": [names.get(id(one), "unnamed") for one in group["params"]]}


def _plain(value: Any) -> Any:
    if isinstance(value, PLAIN):
        return value
    if isinstance(value, torch.Tensor) and value.numel() == 1:
        return float(value)
    if isinstance(value, (list, tuple)):
        return [_plain(one) for one in value]
    return type(value).__name__


def _set(group: dict[str, Any], key: str, value: Any) -> bool:
    """Whether the value is there now."""
    there = group[key]
    if isinstance(there, torch.Tensor):
        if not isinstance(value, (int, float)) or there.numel() != 1:
            return False
        with torch.no_grad():
            there.fill_(value)
    elif isinstance(there, (list, tuple)):
        parts = dict(enumerate(there))
        if not isinstance(value, list) or len(value) != len(parts):
            return False
        if not all(_set(parts, place, one) for place, one in enumerate(value)):  # type: ignore[arg-type]
            return False
        group[key] = type(there)(parts.values())
    elif isinstance(there, PLAIN):
        group[key] = value
    return True
