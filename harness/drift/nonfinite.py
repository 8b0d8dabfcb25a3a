"""The first NaNs and infinities of two runs."""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass

from ..records.values.digest_record import Digest
from ..runs.recorded_run import RecordedRun
from .recorded_drift import common_records

Holding = dict[tuple[str, str], str]
"""The content of each value of a step, by its kind and name: "NaN", "infinity", both, or "" for finite numbers only."""


@dataclass(frozen=True, slots=True)
class NonfiniteValue:
    """A value that is not finite. `what` is loss, gradient or value; `holds` is NaN, infinity or both."""

    step: int
    what: str
    name: str
    holds: str


@dataclass(frozen=True, slots=True)
class Nonfinite:
    """The first value of each run that is not finite; None for a run without one.

    only: the first value that is not finite in only one of the runs; None if the runs agree, for example because both
        use a mask of infinities
    in_b: whether b is the run in which `only` is not finite
    loss: the first loss that is not finite in both runs; later values mean nothing

    The number of non-finite elements is not compared: if a loss scale overflows, rounding decides how many there are.
    """

    a: NonfiniteValue | None
    b: NonfiniteValue | None
    only: NonfiniteValue | None
    in_b: bool
    text: str
    loss: NonfiniteValue | None = None

    @property
    def first(self) -> NonfiniteValue | None:
        """The first value after which nothing is comparable: one that is not finite in only one run, or a loss that is
        not finite in both. A mask of infinities that both runs have is harmless."""
        return self.only or self.loss

    @property
    def equal(self) -> bool:
        return self.only is None


def nonfinite(a: RecordedRun, b: RecordedRun) -> Nonfinite | None:
    """Examine the losses and digests of the steps that both runs have.

    Return None if everything is finite in both runs.
    """
    first_a = first_b = only = loss = None
    in_b = False
    for step, held_in_a, held_in_b in _steps(a, b):
        sides = [
            [NonfiniteValue(step, *key, holds) for key, holds in held.items() if holds]
            for held in (held_in_a, held_in_b)
        ]
        first_a = first_a or next(iter(sides[0]), None)
        first_b = first_b or next(iter(sides[1]), None)
        if loss is None:
            loss = next((value for value in sides[0] if value.what == "loss" and held_in_b["loss", value.name]), None)
        if only is None and (
            key := next(
                (candidate for candidate in held_in_a if bool(held_in_a[candidate]) != bool(held_in_b[candidate])), None
            )
        ):
            in_b = bool(held_in_b[key])
            only = NonfiniteValue(step, *key, holds=held_in_b[key] or held_in_a[key])
    reported = only or loss or first_a or first_b
    if reported is None:
        return None
    name = reported.name if reported.what == "loss" else f"the {reported.what} of `{reported.name}`"
    where = f"only in {(b if in_b else a).manifest.label}" if only else "in both runs"
    text = f"step {reported.step}: {name} contains {reported.holds} {where}"
    return Nonfinite(first_a, first_b, only, in_b, text, loss)


def _steps(a: RecordedRun, b: RecordedRun) -> Iterator[tuple[int, Holding, Holding]]:
    """Yield, for each step, the contents of the values that both runs recorded, in the order of execution."""
    for record_a, record_b, digests in common_records(a.journal, b.journal):
        holdings: list[Holding] = []
        for place, record in enumerate((record_a, record_b)):
            holding: Holding = {("loss", f"loss {n}"): _of_number(x) for n, x in enumerate(record.losses)}
            if digests is not None:
                holding |= {("gradient", name): _of_digest(of) for name, of in digests[place].gradients.items()}
                holding |= {("value", name): _of_digest(of) for name, of in digests[place].values.items()}
            holdings.append(holding)
        # A value that one side did not record is not evidence.
        both = [key for key in holdings[0] if key in holdings[1]]
        yield record_a.step, {key: holdings[0][key] for key in both}, {key: holdings[1][key] for key in both}


def _of_number(value: float) -> str:
    return "NaN" if math.isnan(value) else "infinity" if math.isinf(value) else ""


def _of_digest(digest: Digest | None) -> str:
    if digest is None:
        return ""
    return " and ".join([*(["NaN"] if digest.nan else []), *(["infinity"] if digest.inf else [])])
