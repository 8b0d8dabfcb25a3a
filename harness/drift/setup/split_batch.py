"""A batch that one run passes to its model at once, and the other run in several parts, as with accumulated gradients.

a   model(ids)                       [16, 12]
b   model(ids[:4]), model(ids[4:8]), model(ids[8:12]), model(ids[12:])      4 calls with [4, 12]

The data are the same if the rows of the parts, one part after the other, have the bits of the whole batch. A journal
has only the hash of each call's arguments, so the rows of the whole batch are hashed part by part, in every step whose
whole batch is kept. Gradients then differ only by the order of their sums, unless the losses of the parts are weighted
differently from the loss of the whole.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from ...runs.content_hash import content_hash
from ...runs.journal import StepRecord
from ...runs.mapped_tensors import TensorFile
from ...runs.numpy_values import Array
from ...runs.recorded_run import RecordedRun
from ..loss_distance import LossDrift, loss_drift
from ..recorded_drift import common_steps

Side = Literal["a", "b"]
Argument = tuple[str, tuple[int, ...], str]

KeptInputs = Callable[[Side], Mapping[int, TensorFile]]
"""A function that returns the inputs which a side's runs kept, by step."""


@dataclass(frozen=True, slots=True)
class SplitBatch:
    """The steps in which one side splits its batch.

    side: the side that calls the model several times
    calls: the largest number of calls in a step
    parts: the shapes of the first divided argument in the calls of the first such step
    steps: the steps in which the shapes add up to those of the whole batch
    checked: those steps in which the rows were compared, because the whole batch is kept
    unlike: the first step whose rows are not those of the whole batch; None if there is none
    """

    side: Side
    calls: int
    parts: tuple[tuple[int, ...], ...]
    steps: frozenset[int]
    checked: tuple[int, ...]
    unlike: int | None

    @property
    def is_same_data(self) -> bool:
        """Check whether the parts were seen to be the whole batch."""
        return bool(self.checked) and self.unlike is None

    def in_words(self, a: str, b: str) -> str:
        """Return `b calls the model 4 times in a step, each time with [4, 12]`."""
        label, shapes = (a if self.side == "a" else b), dict.fromkeys(map(str, map(list, self.parts)))
        sizes = f"each time with {next(iter(shapes))}" if len(shapes) == 1 else f"with {', '.join(shapes)}"
        return f"{label} calls the model {self.calls} times in a step, {sizes}"


def split_batch(a: RecordedRun, b: RecordedRun, kept: KeptInputs) -> SplitBatch | None:
    """Return how one side splits the other side's batches; None unless the shapes of some step add up."""
    parts_by_step: dict[int, tuple[Side, StepRecord, StepRecord, list[int]]] = {}
    for record_a, record_b in common_steps(a.journal, b.journal):
        if min(len(record_a.batches), len(record_b.batches)) != 1 or len(record_a.batches) == len(record_b.batches):
            continue
        is_b = len(record_b.batches) > 1
        whole, parts = (record_a, record_b) if is_b else (record_b, record_a)
        divided = _divided(whole.batches[0], parts.batches)
        if divided:
            parts_by_step[record_a.step] = ("b" if is_b else "a", whole, parts, divided)
    if not parts_by_step:
        return None
    side, _, parts, divided = next(iter(parts_by_step.values()))
    inputs = kept("a" if side == "b" else "b")
    checked, unlike = list[int](), None
    for step, (splitting, whole, of_step, places) in parts_by_step.items():
        if splitting != side or step not in inputs:
            continue
        is_same = _is_same(whole, of_step, places, inputs[step])
        if is_same is not None:
            checked.append(step)
            unlike = step if unlike is None and not is_same else unlike
    return SplitBatch(
        side,
        max(len(of_step.batches) for splitting, _, of_step, _ in parts_by_step.values() if splitting == side),
        tuple(call[divided[0]][1] for call in parts.batches),
        frozenset(step for step, (splitting, *_) in parts_by_step.items() if splitting == side),
        tuple(checked),
        unlike,
    )


def _divided(whole: Sequence[Argument], parts: Sequence[Sequence[Argument]]) -> list[int]:
    """Return the places of the arguments that are divided along their first dimension; an empty list if the calls do
    not add up to the whole."""
    divided = []
    if any(len(call) != len(whole) for call in parts):
        return []
    for place, (dtype, shape, hash_) in enumerate(whole):
        calls = [call[place] for call in parts]
        if any(call[0] != dtype for call in calls):
            return []
        if all(call[1] == shape and (call[2] == hash_ or not (call[2] and hash_)) for call in calls):
            continue  # such as a mask, which every call gets whole
        if not shape or any(call[1][1:] != shape[1:] or not call[1] for call in calls):
            return []
        if sum(call[1][0] for call in calls) != shape[0]:
            return []
        divided.append(place)
    return divided


def _is_same(whole: StepRecord, parts: StepRecord, places: Sequence[int], inputs: TensorFile) -> bool | None:
    """Compare the rows of the whole batch with the parts; None if a hash or the values of an argument are missing."""
    compared = 0
    for place in places:
        value, recorded = inputs.tensors.get(f"input {place}"), [call[place][2] for call in parts.batches]
        if not whole.batches[0][place][2]:
            continue  # computed from parameters: it differs by rounding
        if value is None or not all(recorded):
            return None
        value = _as_recorded(value, inputs.dtypes.get(f"input {place}", ""))
        if value is None or content_hash(value) != whole.batches[0][place][2]:
            return None  # the kept batch is not that of this run's step
        ends = np.cumsum([call[place][1][0] for call in parts.batches])[:-1]
        if [content_hash(rows) for rows in np.split(value, ends)] != recorded:
            return False
        compared += 1
    return True if compared else None


def _as_recorded(value: Array, dtype: str) -> Array | None:
    """Return a value in the dtype in which it was hashed; None for a dtype that NumPy lacks."""
    if dtype == "bfloat16":
        return np.asarray((value.view(np.uint32) >> np.uint32(16)).astype(np.uint16))
    return value if dtype == str(value.dtype) else None


def total_losses(a: RecordedRun, b: RecordedRun) -> LossDrift:
    """Compare the sums of the losses of each step: the gradients of several backwards add up to that of the sum."""
    steps_a, steps_b = ([step.step for step in run.journal.steps] for run in (a, b))
    losses_a, losses_b = ([sum(step.losses) if step.losses else None for step in run.journal.steps] for run in (a, b))
    return loss_drift(steps_a, losses_a, steps_b, losses_b)
