"""A batch that is trained in parts, whose gradients are accumulated: rightly, and with the mistakes that are made there."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from ..case import Cases
from ..training import Training, apply_gradients

CASES = Cases("neutral", __name__)

NOTHING = -100
"""The tag of padding, which no loss counts."""

Weigh = Callable[[Tensor, Tensor], float]
"""The weight of a part's loss: a function of the part's targets and of the whole batch's targets."""


def by_rows(part: Tensor, whole: Tensor) -> float:
    return len(part) / len(whole)


def by_words(part: Tensor, whole: Tensor) -> float:
    return float((part != NOTHING).sum()) / float((whole != NOTHING).sum())


def weighing(parts: int, factor: float = 1.0) -> Weigh:
    return lambda part, whole: factor / parts


def accumulate(
    training: Training,
    sizes: tuple[int, ...],
    weigh: Weigh,
    *,
    chosen: Callable[[int], int | None] = lambda number: number,
    after: Callable[[int], None] = lambda number: None,
    clips: bool = True,
) -> None:
    """Train each batch in parts with these numbers of rows.

    chosen: the part that is trained in a part's place, None for none
    after: called after the backward of each part
    """

    def step(training: Training) -> Tensor:
        [(inputs, targets)] = training.batches[training.number]
        parts = list(zip(inputs.split(sizes), targets.split(sizes), strict=True))
        training.optimizer.zero_grad()
        for number in range(len(parts)):
            if (place := chosen(number)) is None:
                continue
            part, wanted = parts[place]
            loss = training.loss(training.model(part), wanted) * weigh(wanted, targets)
            loss.backward()
            after(number)
        apply_gradients(training, clips=clips)
        if training.averaged is not None:
            training.averaged.update_parameters(training.model)
        return loss.detach()

    training.step = step


def rows(training: Training) -> int:
    return len(training.batches[0][0][0])


def even(training: Training, parts: int) -> tuple[int, ...]:
    return (rows(training) // parts,) * parts


@CASES.planted(models=("transformer", "gru"), expected="rounding", modes=("cpu", "compile"))
def parts_two(training: Training) -> None:
    """Two halves, whose losses are averaged."""
    accumulate(training, even(training, 2), weighing(2))


@CASES.planted(models=("transformer", "gru", "padded"), expected="rounding")
def parts_four_weighted(training: Training) -> None:
    """Four parts, each weighted by the number of its words or rows."""
    accumulate(training, even(training, 4), by_words)


@CASES.planted(models=("transformer", "gru"), expected="rounding")
def parts_uneven_weighted(training: Training) -> None:
    """Three parts of different sizes, each weighted by its rows."""
    first = rows(training) // 4
    accumulate(training, (first, first, rows(training) - 2 * first), by_rows)


@CASES.planted(models=("padded",), expected="rounding", modes=("cpu", "compile"))
def parts_of_one_row(training: Training) -> None:
    """Each row by itself, weighted by its words."""
    accumulate(training, (1,) * rows(training), by_words)


@CASES.planted(models=("transformer",), expected="rounding")
def parts_summed_then_divided(training: Training) -> None:
    """The gradients of four parts are added up, and divided by four before they are clipped."""

    def divide(number: int) -> None:
        if number == 3:
            for p in training.model.parameters():
                if p.grad is not None:
                    p.grad /= 4

    accumulate(training, even(training, 4), weighing(1), after=divide)


@CASES.planted(models=("bag",), expected="rounding")
def parts_joined(training: Training) -> None:
    """The three parts of each batch are trained as one."""
    training.batches = [
        [(torch.cat([x for x, _ in parts]), torch.cat([y for _, y in parts]))] for parts in training.batches
    ]


@CASES.planted(models=("transformer", "gru"), culprit={"kind": "weights"})
def parts_not_averaged(training: Training) -> None:
    """The losses of four parts are added up, and not averaged."""
    accumulate(training, even(training, 4), weighing(1))


@CASES.planted(models=("transformer", "gru"), culprit={"kind": "weights"})
def parts_averaged_twice(training: Training) -> None:
    """The loss of each of four parts is divided by 16."""
    accumulate(training, even(training, 4), weighing(16))


@CASES.planted(models=("gru", "padded"), culprit={"kind": "weights"})
def parts_counted_from_zero(training: Training) -> None:
    """The losses of four parts are divided by three: the number of the last part."""
    accumulate(training, even(training, 4), weighing(3))


@CASES.planted(models=("padded",), modes=("cpu", "compile"), culprit={"kind": "weights"})
def parts_mean_of_means(training: Training) -> None:
    """Each part averages over its own words, and the parts have different numbers of words."""
    accumulate(training, even(training, 4), weighing(4))


@CASES.planted(models=("transformer", "gru"), culprit={"kind": "weights"})
def parts_uneven_averaged(training: Training) -> None:
    """Three parts of different sizes count alike."""
    first = rows(training) // 4
    accumulate(training, (first, first, rows(training) - 2 * first), weighing(3))


@CASES.planted(models=("transformer", "padded"), expected="different-setup")
def parts_last_left_out(training: Training) -> None:
    """The last of four parts is never trained."""
    weigh = by_words if training.averaged is not None else weighing(4)
    accumulate(training, even(training, 4), weigh, chosen=lambda number: number if number < 3 else None)


@CASES.planted(models=("transformer",), expected="different-setup")
def parts_first_twice(training: Training) -> None:
    """The first part is trained in place of the second, too."""
    accumulate(training, even(training, 4), weighing(4), chosen=lambda number: 0 if number == 1 else number)


@CASES.planted(models=("transformer", "gru"))
def parts_cleared_between(training: Training) -> None:
    """The gradients are cleared after each part but the last, so only the last one counts."""

    def clear(number: int) -> None:
        if number < 3:
            training.optimizer.zero_grad()

    accumulate(training, even(training, 4), weighing(4), after=clear)


@CASES.planted(models=("transformer",))
def parts_clipped_each(training: Training) -> None:
    """The gradients are clipped after each part, to a bound that is meant for all."""
    bound = 0.25 * (training.clip or 1.0)

    def clip(number: int) -> None:
        nn.utils.clip_grad_norm_(training.model.parameters(), bound)

    accumulate(training, even(training, 4), weighing(4), after=clip, clips=False)


@CASES.planted(models=("transformer",))
def parts_clipped_before_division(training: Training) -> None:
    """The sum of the gradients is clipped, and then divided by four."""

    def divide(number: int) -> None:
        if number == 3:
            nn.utils.clip_grad_norm_(training.model.parameters(), training.clip or 1.0)
            for p in training.model.parameters():
                if p.grad is not None:
                    p.grad /= 4

    accumulate(training, even(training, 4), weighing(1), after=divide, clips=False)


@CASES.planted(models=("gru",), expected="different-setup")
def parts_stepped_each(training: Training) -> None:
    """The optimizer steps after each part, so that a training takes four times as many steps."""

    def step(number: int) -> None:
        if number < 3:
            training.optimizer.step()
            training.optimizer.zero_grad()

    accumulate(training, even(training, 4), weighing(4), after=step)


@CASES.planted(models=("transformer", "padded"), expected="different-setup")
def parts_scheduled_each(training: Training) -> None:
    """The learning rate falls after each part instead of after each step."""

    def schedule(number: int) -> None:
        if number < 3 and training.scheduler is not None and training.number:
            training.scheduler.step()

    weigh = by_words if training.averaged is not None else weighing(4)
    accumulate(training, even(training, 4), weigh, after=schedule)
