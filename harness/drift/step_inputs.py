"""What the steps of two runs were given: random numbers and batches.

Only the first call of a root module in a step brings data from outside: a later one may be fed with what an earlier one
computed. And an argument of the first call may come from the model as well, as a hidden state that is carried on
does. Such a value comes apart in the step after the training has; one that was still equal in a later step is data.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from ..runs.journal import StepRecord
from ..runs.recorded_run import RecordedRun
from .random_draws import GeneratorDifference, generator_differences
from .recorded_drift import common_steps
from .repetition import GENERATORS
from .setup_difference import SetupDifference

Argument = tuple[str, tuple[int, ...], str]
FLOATING = ("float16", "bfloat16", "float32", "float64")


def generator_setup(a: RecordedRun, b: RecordedRun) -> list[SetupDifference]:
    """The first difference of each random generator."""
    return [
        SetupDifference(
            "generator",
            one.step,
            one.generator,
            _generator_text(one),
            harmless="" if one.used else "unused",
        )
        for one in generator_differences(a, b)
    ]


def batch_setup(a: RecordedRun, b: RecordedRun, drifting_from: int | None) -> list[SetupDifference]:
    """The first batch that differs, and the first that differs though it does not come from the model.

    `drifting_from` is the first step that computed something else.
    """
    equal_after_drift: set[int] = set()
    follows = None
    for ours, theirs in common_steps(a.journal, b.journal):
        late = drifting_from is not None and ours.step > drifting_from
        compared = list(_compared(ours, theirs))
        if any(place < 0 for place, *_ in compared):
            return [*([follows] if follows else []), _shapes(ours, theirs)]
        for place, left, equal in compared:
            if equal and late:
                equal_after_drift.add(place)
            elif not equal and (not late or place in equal_after_drift):
                return [*([follows] if follows else []), _differing(ours.step, place, left)]
            elif not equal and follows is None:
                follows = _differing(ours.step, place, left, follows=True)
    return [follows] if follows else []


def _generator_text(one: GeneratorDifference) -> str:
    called = GENERATORS.get(one.generator, (f"the generator of {one.generator}", ""))[0]
    if one.drawn is None:
        return f"{called} is at another state before step {one.step}"
    return (
        f"the modes draw different random numbers in step {one.drawn} ({called} is at another state before step "
        f"{one.step})"
    )


def _compared(a: StepRecord, b: StepRecord) -> Iterator[tuple[int, Argument, bool]]:
    """Each argument of the first call by its place, and whether both sides' are equal; place -1 for other counts.

    What was not read on one side is left out, and numbers that the modes keep in different precisions.
    """
    if not a.batches or not b.batches:
        return
    left, right = a.batches[0], b.batches[0]
    if len(left) != len(right):
        yield -1, ("", (), ""), False
        return
    for place, (x, y) in enumerate(zip(left, right, strict=True)):
        if x[1] == y[1] and (not (x[2] and y[2]) or _cast(x, y)):
            continue
        yield place, x, x == y


def _cast(a: Argument, b: Argument) -> bool:
    return a[0] != b[0] and a[0] in FLOATING and b[0] in FLOATING


def _differing(step: int, place: int, argument: Argument, follows: bool = False) -> SetupDifference:
    dtype, shape, _ = argument
    text = f"the batch of step {step} differs: argument {place}, {dtype} {_shape(shape)}"
    return SetupDifference("batch", step, f"argument {place}", text, follows=follows)


def _shapes(a: StepRecord, b: StepRecord) -> SetupDifference:
    text = f"the batch of step {a.step} differs: {len(a.batches[0])} against {len(b.batches[0])} tensors"
    return SetupDifference("batch", a.step, "arguments", text)


def _shape(shape: Sequence[int]) -> str:
    return str(list(shape))
