"""The comparison of a resumed training with the training that was never interrupted.

whole     0 1 2 3 4 5 6 7      step 5 begins in a state that the run has kept
first     0 1 2 3 4 5          ended; its last checkpoint is that of step 4
resumed             0 1 2      begins with step 5 of the others
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ..records.results.resumption import KINDS, NotRestored
from ..records.run.step_files import OF_SCRIPT
from ..runs.mapped_tensors import TensorFile
from ..runs.recorded_run import RecordedRun
from ..runs.step_outcomes import read_state
from .norms import as_float, difference, is_floating
from .recorded_drift import bits

MOST_NAMED = 3

TENSORS = {"parameters": ("parameter ",), "buffers": ("buffer ",), "optimizer": ("state ",), "script": OF_SCRIPT}
"""The prefixes of the names of a state's tensors, by their kind."""

WHAT = {
    "parameters": "parameters",
    "buffers": "buffers",
    "optimizer": "tensors of the optimizer's state",
    "script": "tensors that the script keeps itself",
}


def step_of(first: RecordedRun, resumed: RecordedRun) -> int | None:
    """Return the step of the first start that begins with the parameters of the resumed one; None if none does."""
    begin = {tensor.name: bits(tensor.digest) for tensor in resumed.journal.initial().values() if _is_parameter(tensor)}
    own = {tensor.name: bits(tensor.digest) for tensor in first.journal.initial().values() if _is_parameter(tensor)}
    found = [0] if begin == own else []
    found += [
        step + 1
        for step, digests in first.journal.digests()
        if all(name in digests.values and bits(digests.values[name]) == digest for name, digest in begin.items())
    ]
    # A step that changes no parameter leaves several candidates: the latest of them is the checkpoint's.
    return found[-1] if found else None


def _is_parameter(tensor: Any) -> bool:
    return bool(tensor.kind == "parameter")


def not_restored(whole: RecordedRun, resumed: RecordedRun, step: int) -> list[NotRestored]:
    """Compare the beginning of the resumed training with `step` of the uninterrupted one.

    Raises JournalError if a state was not kept.
    """
    state, begin = read_state(whole.path, step), read_state(resumed.path, 0)
    found = [item for kind in TENSORS if (item := _tensors(kind, state, begin)) is not None]
    found += _hyper(whole, resumed, step)
    found += _generators(state, begin)
    found += _data(whole, resumed, step)
    steps = [len(run.journal.steps) for run in (whole, resumed)]
    if steps[1] != steps[0] - step:
        text = f"the resumed training makes {steps[1]} steps, where {steps[0] - step} of {steps[0]} were left"
        found.append(NotRestored("steps", (), text))
    return sorted(found, key=lambda item: KINDS.index(item.kind))


def first_difference(whole: RecordedRun, resumed: RecordedRun, step: int) -> tuple[int | None, int]:
    """Return the first step, numbered as in the uninterrupted training, whose losses, gradients or values have other
    bits in the resumed one, and the number of compared steps."""
    others, compared = dict(resumed.journal.digests()), 0
    losses = [{record.step: record.losses for record in run.journal.steps} for run in (whole, resumed)]
    for number, digests in whole.journal.digests():
        if number < step or number - step not in others:
            continue
        compared += 1
        other = others[number - step]
        values = any(
            name in other.values and bits(digest) != bits(other.values[name]) for name, digest in digests.values.items()
        )
        if values or _apart(losses[0].get(number), losses[1].get(number - step)):
            return number, compared
    return None, compared


def _apart(a: Sequence[float] | None, b: Sequence[float] | None) -> bool:
    return a is not None and b is not None and not np.array_equal(np.array(a), np.array(b), equal_nan=True)


def _tensors(kind: str, state: TensorFile, begin: TensorFile) -> NotRestored | None:
    """Compare the tensors of one kind."""
    names = [name for name in state.tensors if name.startswith(TENSORS[kind])]
    lacking = [name for name in names if name not in begin.tensors]
    if kind == "script":  # a variable of the loop, for example, has no value before the first step
        lacking = []
    others, largest = list[str](), 0.0
    for name in names:
        if name in begin.tensors and (apart := _distance(state.tensors[name], begin.tensors[name])) is not None:
            others.append(name)
            largest = max(largest, apart)
    texts = []
    if lacking:
        texts.append(f"{len(lacking)} of {len(names)} {WHAT[kind]} are missing ({_named(lacking)})")
    if others:
        by = f", by up to {largest:.2g} of their size" if math.isfinite(largest) else ""
        texts.append(f"{len(others)} of {len(names)} {WHAT[kind]} differ{by} ({_named(others)})")
    return NotRestored(kind, (*lacking, *others), "; ".join(texts)) if texts else None


def _named(names: Sequence[str]) -> str:
    shown = [f"`{name.partition(' ')[2]}`" for name in names[:MOST_NAMED]]
    return ", ".join(shown) + (f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else "")


def _distance(a: Any, b: Any) -> float | None:
    """Return the relative distance of two tensors; None if their bits are equal, infinity if their shapes differ."""
    if a.shape != b.shape or a.dtype != b.dtype:
        return math.inf
    if a.tobytes() == b.tobytes():
        return None
    if not is_floating(a):
        return math.inf
    apart = difference(a, b)
    return as_float(apart.distance.exact / apart.norm.exact) if apart.norm.mantissa else math.inf


def _hyper(whole: RecordedRun, resumed: RecordedRun, begin: int) -> list[NotRestored]:
    """Compare the hyper-parameters with which the optimizers made each step; a scheduler changes them. Return the first
    difference."""
    for step in range(begin, min(len(whole.journal.steps), begin + len(resumed.journal.steps))):
        texts, names = list[str](), list[str]()
        for optimizer, other in zip(_hyper_of(whole, step), _hyper_of(resumed, step - begin), strict=False):
            for group, other_group in zip(optimizer["groups"], other["groups"], strict=False):
                for name in (key for key in group if key != "params" and group[key] != other_group.get(key)):
                    texts.append(f"{name} of {optimizer['class']} is {other_group.get(name)} instead of {group[name]}")
                    names.append(name)
        if texts:
            scheduler = "; the scheduler or its number of steps is not restored" if "lr" in names else ""
            text = f"in step {step}, {'; '.join(dict.fromkeys(texts))}{scheduler}"
            return [NotRestored("hyper-parameters", tuple(dict.fromkeys(names)), text)]
    return []


def _hyper_of(run: RecordedRun, step: int) -> Sequence[Mapping[str, Any]]:
    """Return the hyper-parameters that were in force in a step."""
    return next((optimizers for begin, optimizers in reversed(run.journal.hyper()) if begin <= step), ())


def _generators(state: TensorFile, begin: TensorFile) -> list[NotRestored]:
    of_torch = [name.removeprefix("generator ") for name in state.tensors if name.startswith("generator ")]
    others = [
        name
        for name in of_torch
        if f"generator {name}" not in begin.tensors
        or state.tensors[f"generator {name}"].tobytes() != begin.tensors[f"generator {name}"].tobytes()
    ]
    kept, now = state.facts.get("generators") or {}, begin.facts.get("generators") or {}
    others += [name for name in kept if kept[name] != now.get(name)]
    if not others:
        return []
    be = "generators are" if len(others) > 1 else "generator is"
    return [NotRestored("generators", tuple(others), f"{' and '.join(others)}: the {be} in a different state")]


def _data(whole: RecordedRun, resumed: RecordedRun, step: int) -> list[NotRestored]:
    """Compare the batches of the common steps."""
    own = {record.step: record.batches for record in whole.journal.steps}
    for record in itertools.islice(resumed.journal.steps, len(own)):
        expected = own.get(record.step + step)
        if expected is None or expected == record.batches:
            continue
        elsewhere = next((number for number, batches in own.items() if batches == record.batches), None)
        anew = ", so the data begin anew" if elsewhere == 0 else ""
        text = f"step {record.step + step} gets another batch"
        text += f", that of step {elsewhere}{anew}" if elsewhere is not None else ""
        return [NotRestored("data", (), text)]
    return []
