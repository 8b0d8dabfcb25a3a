"""Differences in the inputs of two runs during their steps: random numbers, batches, hyper-parameters."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ...runs.journal import StepRecord
from ...runs.recorded_run import RecordedRun
from ..recorded_drift import GENERATORS, common_steps, generator_differences
from ..setup_difference import SetupDifference
from .split_batch import SplitBatch

# The inputs of the steps of two runs: random numbers and batches. Only the first call of a root module in a step is
# compared, since later calls may get inputs that earlier calls computed. Even an argument of the first call may come
# from the model, for example a hidden state that is carried over to the next step. Such an argument differs in the
# steps after the first drift. An argument that is equal in one of these steps is data.

Argument = tuple[str, tuple[int, ...], str]
FLOATING = ("float16", "bfloat16", "float32", "float64")


def generator_setup(a: RecordedRun, b: RecordedRun) -> list[SetupDifference]:
    """Return the first difference of each random generator."""
    setup = []
    for difference in generator_differences(a, b):
        called = GENERATORS.get(difference.generator, (f"the generator of {difference.generator}", ""))[0]
        text = f"{called} is in a different state before step {difference.step}"
        if difference.drawn is not None:
            text = f"the modes draw different random numbers in step {difference.drawn} ({text})"
        harmless = "" if difference.used else "unused"
        setup.append(SetupDifference("generator", difference.step, difference.generator, text, harmless=harmless))
    return setup


def made_by_the_training(free: RecordedRun, forced: RecordedRun | None) -> set[int]:
    """Return the places of the models' arguments that the training script computes itself (such as a recurrent state
    or a prediction).

    A resynced run reveals these places: if a step begins in a different state, an argument from outside stays the same,
    and an argument that the script computes changes.
    """
    places = set[int]()
    if forced is None:
        return places
    records = {record.step: record for record in free.journal.steps}
    hashes = {
        (int(event["step"]), int(place)): str(hash_)
        for event in forced.journal.events("given")
        for place, hash_ in event["arguments"]
    }
    replaced = {step for step, _ in hashes}
    for record in forced.journal.steps:
        if record.step not in replaced and record.step in records:
            hashes |= {
                (record.step, place): argument[2] for place, argument in enumerate(next(iter(record.batches or ()), ()))
            }
    for (step, place), hash_ in hashes.items():
        own = next(iter(records[step].batches or ()), ()) if step in records else ()
        if place < len(own) and hash_ and own[place][2] and hash_ != own[place][2]:
            places.add(place)
    return places


ROUNDED = 64.0
"""The largest distance at which a batch that a mode computes itself still counts as equal to the reference's batch.

The distance is relative L2, in units of half the dtype's epsilon. Such a batch is the result of a few ops, computed by
kernels that differ from the reference's.
"""


def rounded_arguments(forced: RecordedRun | None) -> set[int]:
    """Return the places of the models' arguments that differ from the reference's arguments by rounding only.

    A mode computes such arguments itself in a resynced step. An example is noise that is mixed into a batch on the
    device.
    """
    largest: dict[int, float] = {}
    for event in () if forced is None else forced.journal.events("own-batch"):
        for place, apart in event["arguments"]:
            largest[int(place)] = max(largest.get(int(place), 0.0), math.inf if apart is None else float(apart))
    return {place for place, apart in largest.items() if apart <= ROUNDED}


def batch_setup(
    a: RecordedRun,
    b: RecordedRun,
    drifting_from: int | None,
    from_the_model: Collection[int] = (),
    rounded: Collection[int] = (),
    split: SplitBatch | None = None,
) -> list[SetupDifference]:
    """Return the first batch that differs by more than rounding and does not come from the model.

    If a difference that comes from the model precedes that batch, the first such difference is returned before it. If
    there is no such batch, return the first difference that comes from the model and the first difference by rounding,
    which is marked as harmless.

    drifting_from: the first step whose results differ
    from_the_model: the places of arguments that the training script computes itself
    rounded: the places of arguments that differ by rounding only
    split: how one side splits the other side's batches, if it does; steps with the same data do not differ
    """
    same = split.steps if split is not None and split.is_same_data else frozenset()
    equal_after_drift: set[int] = set()
    follows = by_rounding = None
    for record_a, record_b in common_steps(a.journal, b.journal):
        # Once the runs have diverged, an argument that differs may come from the model; an argument that is equal in
        # such a step is data.
        if record_a.step in same:
            continue
        late = drifting_from is not None and record_a.step > drifting_from
        compared = list(compared_arguments(record_a, record_b))
        if any(place < 0 for place, *_ in compared):
            counts = f"{len(record_a.batches[0])} against {len(record_b.batches[0])} tensors"
            text = f"the batch of step {record_a.step} differs: {counts}"
            shapes = SetupDifference("batch", record_a.step, "arguments", text)
            return [*([follows] if follows else []), shapes]
        for place, left, equal in compared:
            if equal and late:
                equal_after_drift.add(place)
            elif not equal and place in rounded:
                by_rounding = by_rounding or replace(_differing(record_a.step, place, left), harmless="rounding")
            elif not equal and place not in from_the_model and (not late or place in equal_after_drift):
                differing = _differing(record_a.step, place, left)
                if split is not None and record_a.step in split.steps:
                    differing = replace(differing, text=f"{differing.text}; {_splits(split, a, b)}")
                elif (rows := _numbers_of_rows(record_a, record_b, place)) is not None:
                    labels = (a.manifest.label, b.manifest.label)
                    counts = ", and ".join(f"{label} {count:,}" for label, count in zip(labels, rows, strict=True))
                    differing = replace(differing, text=f"{differing.text}; rows in all calls of the step: {counts}")
                return [*([follows] if follows else []), differing]
            elif not equal and follows is None:
                follows = _differing(record_a.step, place, left, follows=True)
    return [difference for difference in (follows, by_rounding) if difference is not None]


def _splits(split: SplitBatch, a: RecordedRun, b: RecordedRun) -> str:
    """Say that one side may split the other side's batch, and what is known about the rows."""
    whole = (b if split.side == "a" else a).manifest.label
    words = split.in_words(a.manifest.label, b.manifest.label)
    if split.unlike is not None:
        return f"{words}, and in step {split.unlike} the rows are not those of the batch of {whole}"
    return f"{words}; `numdrift investigate` compares the rows with the batch of {whole}"


def _numbers_of_rows(a: StepRecord, b: StepRecord, place: int) -> tuple[int, int] | None:
    """Return the number of rows that all calls of a step have in an argument, on both sides.

    Return None if it is the same number, or if the rows of the calls have different shapes.
    """
    shapes = [[call[place][1] for call in record.batches if len(call) > place] for record in (a, b)]
    if (
        not all(shape for side in shapes for shape in side)
        or len({shape[1:] for side in shapes for shape in side}) != 1
    ):
        return None
    first, second = (sum(shape[0] for shape in side) for side in shapes)
    return None if first == second else (first, second)


def compared_arguments(a: StepRecord, b: StepRecord) -> Iterator[tuple[int, Argument, bool]]:
    """Yield the place of each argument of the first call, a's argument, and whether b's is equal.

    The place is -1 if the counts differ. Arguments that one side did not read are left out, and so are numbers that the
    modes keep in different precisions.
    """
    if not a.batches or not b.batches:
        return
    left, right = a.batches[0], b.batches[0]
    if len(left) != len(right):
        yield -1, ("", (), ""), False
        return
    for place, (x, y) in enumerate(zip(left, right, strict=True)):
        if x[1] == y[1] and (not (x[2] and y[2]) or (x[0] != y[0] and x[0] in FLOATING and y[0] in FLOATING)):
            continue
        yield place, x, x == y


def _differing(step: int, place: int, argument: Argument, follows: bool = False) -> SetupDifference:
    dtype, shape, _ = argument
    text = f"the batch of step {step} differs: argument {place}, {dtype} {list(shape)!s}"
    return SetupDifference("batch", step, f"argument {place}", text, follows=follows)


# The hyper-parameters that two runs passed to their optimizers.

SAME = 1e-6
"""The relative distance up to which two numbers count as equal: a mode may keep them as float32."""

DRIFTING = 1e-2
"""The relative distance below which a number that differs after the first drift is a consequence of the drift.

Such a number is computed from the training's values, like the step size of an adaptive method.
"""

IMPLEMENTATION = frozenset({"foreach", "fused", "capturable", "differentiable"})
"""Keys that select the implementation of an optimizer and not its result, and therefore belong to the mode."""

Optimizers = Sequence[Mapping[str, Any]]


def hyper_differences(a: RecordedRun, b: RecordedRun, drifting_from: int | None) -> list[SetupDifference]:
    """Return the first difference of each hyper-parameter.

    `drifting_from` is the first step whose results differ.
    """
    left, right = a.journal.hyper(), b.journal.hyper()
    if not left or not right:
        return []
    first_by_name: dict[str, SetupDifference] = {}
    # Changes of a schedule after the end of one of the runs do not count as a difference.
    reached = min(max((record.step for record in run.journal.steps), default=0) for run in (a, b))
    for step in sorted({step for step, _ in (*left, *right) if step <= reached}):
        optimizers_a, optimizers_b = _at(left, step), _at(right, step)
        if optimizers_a is None or optimizers_b is None:
            continue
        late = drifting_from is not None and step > drifting_from
        for difference in _differences(step, optimizers_a, optimizers_b, late):
            first_by_name.setdefault(difference.name, difference)
    return list(first_by_name.values())


def _at(changes: Sequence[tuple[int, Any]], step: int) -> Optimizers | None:
    """Return the optimizers' settings in force in a step; None before the first optimizer stepped."""
    in_force: list[Optimizers] = [optimizers for since, optimizers in changes if since <= step]
    return in_force[-1] if in_force else None


def _differences(step: int, a: Optimizers, b: Optimizers, late: bool) -> Iterator[SetupDifference]:
    if len(a) != len(b):
        yield _hyper_difference(step, "optimizers", f"{len(a)} against {len(b)} optimizers (from step {step})")
    for left, right in zip(a, b, strict=False):
        if left["class"] != right["class"]:
            text = f"optimizer {left['class']} against {right['class']} (from step {step})"
            yield _hyper_difference(step, "optimizer", text)
            continue
        if len(left["groups"]) != len(right["groups"]):
            counts = f"{len(left['groups'])} against {len(right['groups'])} parameter groups"
            yield _hyper_difference(step, "groups", f"{counts} ({left['class']}, from step {step})")
        for number, (group_a, group_b) in enumerate(zip(left["groups"], right["groups"], strict=False)):
            place = f"({left['class']}, group {number}, from step {step})"
            # A key that one side lacks is ignored: versions of torch have different keys.
            for key in group_a:
                if key in IMPLEMENTATION or key not in group_b or _same(group_a[key], group_b[key]):
                    continue
                if key == "params":
                    yield _hyper_difference(
                        step, key, f"different parameters: {_other_parameters(group_a[key], group_b[key])} {place}"
                    )
                    continue
                size = _relative(group_a[key], group_b[key])
                text = f"{key} {_shown(group_a[key])} against {_shown(group_b[key])} {place}"
                follows = late and size is not None and size < DRIFTING
                yield SetupDifference("hyper-parameter", step, key, text, size, follows=follows)


def _other_parameters(a: Sequence[str], b: Sequence[str]) -> str:
    """Describe the difference between two lists of names.

    Name the counts or, if these are equal, the first names that only one side has.
    """
    if len(a) != len(b):
        return f"{len(a)} against {len(b)}"
    only = [[name for name in side if name not in opposite] for side, opposite in ((a, b), (b, a))]
    if not (only[0] and only[1]):
        return f"the same {len(a)} in a different order"
    shown = [", ".join(f"`{name}`" for name in names[:2]) + (", ..." if len(names) > 2 else "") for names in only]
    return " against ".join(shown)


def _hyper_difference(step: int, name: str, text: str) -> SetupDifference:
    return SetupDifference("hyper-parameter", step, name, text)


def _same(a: Any, b: Any) -> bool:
    if isinstance(a, (list, tuple)) and isinstance(b, (list, tuple)):
        return len(a) == len(b) and all(_same(x, y) for x, y in zip(a, b, strict=True))
    size = _relative(a, b)
    return bool(a == b) if size is None else size <= SAME


def _relative(a: Any, b: Any) -> float | None:
    """Return |a - b| / max(|a|, |b|); None for values that are not numbers."""
    if any(isinstance(value, bool) or not isinstance(value, (int, float)) for value in (a, b)):
        return None
    x, y = float(a), float(b)
    if x == y or (math.isnan(x) and math.isnan(y)):
        return 0.0
    return abs(x - y) / max(abs(x), abs(y))


def _shown(value: Any) -> str:
    return f"{value:.6g}" if isinstance(value, float) else str(value)
