"""The phases of a schedule, from the steps at which an optimizer's hyper-parameters change.

    step                       0    1    2    3    4    5    6    7    8
    learning rate              0.1  0.2  0.3  0.4  0.4  0.4  0.3  0.2  0.2
    phase                      rises ..........    0.4       falls     0.2

A single change begins a new value. Several changes in the same direction are one phase, from the first to the last.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any

Changes = Sequence[tuple[int, Sequence[Mapping[str, Any]]]]
"""Steps at which hyper-parameters change, each with those of all optimizers from that step on."""

MOST_VALUES = 4
"""The largest number of different values of a hyper-parameter that are phases of their own."""


def schedule_phases(changes: Changes, steps: Sequence[int]) -> dict[int, str]:
    """Return the phase of each step in words, such as `while lr rises`; the same for all steps if nothing changes."""
    values_of: dict[tuple[int, int, str], list[tuple[int, float]]] = {}
    for step, optimizers in changes:
        for key, value in _numbers(optimizers):
            values = values_of.setdefault(key, [])
            if not values or values[-1][1] != value:
                values.append((step, value))
    phases: dict[int, list[str]] = {step: [] for step in steps}
    for (_, _, name), values in values_of.items():
        if len(values) > 1:
            for step, phase in _phases(name, values, steps):
                if phase not in phases[step]:
                    phases[step].append(phase)
    return {step: "; ".join(found) for step, found in phases.items()}


def group_phases(changes: Changes, steps: Sequence[int]) -> dict[int, str]:
    """Return, for each step, the parameters that the optimizers update, in words."""
    texts: list[tuple[int, str]] = []
    numbers: dict[object, int] = {}
    for step, optimizers in changes:
        groups = [tuple(group.get("params", ())) for optimizer in optimizers for group in optimizer["groups"]]
        number = numbers.setdefault(tuple(groups), len(numbers) + 1)
        count = sum(map(len, groups))
        texts.append((step, f"with {count} parameters in {len(groups)} groups (set {number})"))
    return {step: next((text for since, text in reversed(texts) if since <= step), "") for step in steps}


def _numbers(optimizers: Sequence[Mapping[str, Any]]) -> Iterator[tuple[tuple[int, int, str], float]]:
    """Yield the numeric hyper-parameters by optimizer, group and name; the numbers of a list are named `betas.0`."""
    for place, optimizer in enumerate(optimizers):
        for number, group in enumerate(optimizer["groups"]):
            for name, value in group.items():
                parts = {f"{name}.{index}": part for index, part in enumerate(value)} if isinstance(value, list) else {}
                for part_name, part in (parts or {name: value}).items():
                    if isinstance(part, (int, float)) and not isinstance(part, bool):
                        yield (place, number, part_name), float(part)


def _phases(name: str, values: Sequence[tuple[int, float]], steps: Sequence[int]) -> Iterator[tuple[int, str]]:
    """Yield the phase of one hyper-parameter in each step; `values` are its changes, the first its initial value."""
    directions = [(step, value > before) for (_, before), (step, value) in pairwise(values)]
    ranges = []
    for rises, run in groupby(directions, key=lambda change: change[1]):
        changed = [step for step, _ in run]
        if len(changed) > 1:
            ranges.append((changed[0], changed[-1], f"while {name} {'rises' if rises else 'falls'}"))
    kept = {_value_at(values, step) for step in steps if not any(begin <= step <= end for begin, end, _ in ranges)}
    for step in steps:
        phase = next((text for begin, end, text in ranges if begin <= step <= end), None)
        constant = (
            f"at {name} {_value_at(values, step):.4g}" if len(kept) <= MOST_VALUES else f"while {name} is constant"
        )
        yield step, phase or constant


def _value_at(values: Sequence[tuple[int, float]], step: int) -> float:
    return next((value for since, value in reversed(values) if since <= step), values[0][1])
