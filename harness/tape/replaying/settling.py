"""Settle a step that does not replay to its own bits because some of its calls do not repeat.

A kernel that adds atomically adds in the order in which its threads arrive, so its results differ each time. Such
a call is executed several times on the same arguments. Where the bits differ, the first execution's results are kept on
the tape (`Call.settled`), and every later replay takes them over:

    index_put     gradient 1.0000001, then 1.0000002, then 1.0000001       settled: 1.0000001
    mul           the same bits each time                                  executed again in each replay

So the settled tape replays bit for bit. Its watched values are those of the settled replay: one possible outcome of the
step, as the recorded one is. The tape is only accepted if the recorded outcome is about as far from the settled one as
two replays are from each other; otherwise something other than these calls made the difference.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ..large_values import LargeValues
from ..tape import SCRATCH, NotReplayable, Tape
from .distances import distance_between, rounding_of
from .replay import AsRecorded, Computation, Replay, executed, is_same, results, take_over
from .rounding import has_digits
from .unwritten import masks_of

EXECUTIONS, MORE_EXECUTIONS = 4, 24
"""How often each call is executed on the same arguments; and how often if none has differed: first those that may add
atomically, then all of them."""

OTHERS = 3
"""How often a step with such calls is replayed to measure how far its values are apart."""

FAR = 8.0
"""The largest distance of the recorded outcome from the settled one, as a multiple of the largest distance between the
step's other executions. There are few of those, and the largest of three distances is easily exceeded twice."""

ADDS_ANYWHERE = re.compile(
    r"index_(put|add|reduce)|_unsafe_(masked_)?index_put|^put_?$|scatter|embedding_.*backward|embedding_bag|bincount"
    r"|histc|(convolution|attention|pool\d?d?|pad\dd|upsample\w*|grid_sampler\w*|loss2d|ctc_loss|rnn)\w*_backward|cumsum"
)
"""The ops whose kernels may add atomically on some device (the list of torch.use_deterministic_algorithms, and the
backwards of attention and convolution). Once a step does not replay, their results are settled even if they happened to
repeat here."""


@dataclass(frozen=True, slots=True)
class UnrepeatableCall:
    """A call that computed different bits from the same arguments.

    position: its number among the calls of the tape
    spread: the largest distance of an execution's results from the first one's, in units of their own rounding
        (u ||x||, with u half the spacing of numbers at 1)
    share: its share of the step's spread, as a fraction; None if it was not measured
    spread_rho, error_rho: how far its executions are apart, and from their result in double (see order_of_additions)
    """

    position: int
    op: str
    phase: str
    module: str | None
    line: str | None
    spread: float
    share: float | None = None
    spread_rho: float | None = None
    error_rho: float | None = None


@dataclass(frozen=True, slots=True)
class SettledStep:
    """A step whose calls that do not repeat have settled results.

    tape: the tape, which replays bit for bit
    calls: the calls that do not repeat
    doubted: the number of further calls that may add atomically, but repeated here
    unwritten: whether a call leaves elements of its results unwritten
    spread: for each watched value, the root mean square of its distances from the settled value, over the other
        executions of the step
    """

    tape: Tape
    calls: Sequence[UnrepeatableCall]
    spread: Mapping[str, float]
    doubted: int = 0
    unwritten: bool = False


class Settling(AsRecorded):
    """A replay that executes each call EXECUTIONS times, and continues with the results of the first execution."""

    def __init__(self, adding: int = EXECUTIONS, others: int = EXECUTIONS) -> None:
        """Execute the calls that may add atomically `adding` times, and the others `others` times."""
        self.settled: dict[int, tuple[torch.Tensor, ...]] = {}
        self.calls: list[UnrepeatableCall] = []
        self.unwritten = False
        self._executions = {True: adding, False: others}

    def execute(self, computation: Computation, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> list[Any]:
        call, written = computation.call, computation.written(arguments, keywords)
        if call.name in SCRATCH:  # memory without values
            return executed(computation, arguments, keywords)
        before = [tensor.clone() for tensor in written]
        outputs = executed(computation, arguments, keywords)
        first = [tensor.clone() for tensor in results(computation, outputs, arguments, keywords)]
        spread, repeats, masks = 0.0, True, None
        adds_anywhere = ADDS_ANYWHERE.search(call.name) is not None
        for _ in range(1, self._executions[adds_anywhere]):
            take_over(before, written)
            again = results(computation, executed(computation, arguments, keywords), arguments, keywords)
            if all(map(is_same, first, again)):
                continue
            if masks is None:  # elements that the call has not written are not its results
                again = [tensor.clone() for tensor in again]
                take_over(before, written)
                fresh = first[: len(first) - len(written)]
                masks = [*masks_of(computation, arguments, keywords, fresh), *([None] * len(written))]
                self.unwritten |= any(mask is not None for mask in masks)
            for value, other, mask in zip(first, again, masks, strict=True):
                repeated = other if mask is None else torch.where(mask, value, other)
                if not is_same(value, repeated):
                    repeats, spread = False, max(spread, _roundings(value, repeated))
        take_over(first[len(first) - len(written) :], written)
        if not repeats:
            kept = UnrepeatableCall(computation.position, call.op, call.phase, call.module, call.line, spread)
            self.calls.append(kept)
        if masks is not None or adds_anywhere:
            self.settled[computation.position] = tuple(value.cpu() for value in first)
        return outputs


def settle(tape: Tape, folder: Path | None = None) -> SettledStep | None:
    """Settle a step of a mode that does not repeat, or return None if it has no call that may be the reason.

    Large values of the settled step lie in a file of `folder`, if one is given.
    A call that may add atomically is settled even if it repeats here: its threads may arrive in the same order.
    Raises NotReplayable if these calls do not explain how far the recorded values are from those of a replay, and the
    errors of ops.
    """
    settling = Settling()
    values = Replay(tape).run(settling, LargeValues(folder))
    unwritten = settling.unwritten
    if not settling.calls:
        settling = Settling(MORE_EXECUTIONS, 1)
        values = Replay(tape).run(settling, LargeValues(folder))
    recorded = tape.expected()
    if not settling.calls and not all(is_same(value, values[name]) for name, value in recorded.items()):
        settling = Settling(MORE_EXECUTIONS, MORE_EXECUTIONS)  # a call that rarely differs
        values = Replay(tape).run(settling, LargeValues(folder))
    others = {name: _OtherExecutions(value, recorded[name]) for name, value in values.items()}
    for _ in range(OTHERS):
        Replay(tape).show(AsRecorded(), lambda name, value: others[name].add(value))
    if not settling.settled:
        if all(is_same(value, values[name]) for name, value in recorded.items()):
            return None
        raise NotReplayable("when executed alone, each call of the step repeats")
    far = [name for name, found in others.items() if not found.explain_the_recorded]
    if far:
        names = ", ".join(far[:3]) + (" and others" if len(far) > 3 else "")
        raise NotReplayable(f"the calls that do not repeat do not explain the distance of {names} from the replays")
    spread = {name: found.spread for name, found in others.items()}
    calls = tuple(replace(call, settled=settling.settled.get(position)) for position, call in enumerate(tape.calls))
    watched = tuple(replace(value, value=values[value.name]) for value in tape.watched)
    doubted = len(settling.settled) - len(settling.calls)
    return SettledStep(replace(tape, calls=calls, watched=watched), tuple(settling.calls), spread, doubted, unwritten)


class _OtherExecutions:
    """The distances of a value in other executions of the step from the settled value; the values are not kept.

    has_recorded: whether the settled execution or another one has computed the recorded bits
    """

    def __init__(self, settled: torch.Tensor, recorded: torch.Tensor) -> None:
        self._settled = settled
        self._recorded = recorded
        self._distances: list[float] = []
        self._differs = False
        self.has_recorded = is_same(recorded, settled)

    def add(self, value: torch.Tensor) -> None:
        self._distances.append(distance_between(self._settled, value))
        self.has_recorded = self.has_recorded or is_same(self._recorded, value)
        if not has_digits(value):
            self._differs = self._differs or not is_same(self._settled, value)

    @functools.cached_property
    def _distance_of_recorded(self) -> float:
        return distance_between(self._settled, self._recorded)

    @property
    def explain_the_recorded(self) -> bool:
        """True if the recorded value is about as near to the settled value as other executions are."""
        if self.has_recorded:
            return True
        if not has_digits(self._recorded):  # an integer that depends on a value that does not repeat
            return self._differs
        return self._distance_of_recorded <= FAR * (max(self._distances) + rounding_of(self._settled))

    @property
    def spread(self) -> float:
        """The root mean square of the distances, with the recorded execution as one of them."""
        distances = [*self._distances, self._distance_of_recorded]
        return math.sqrt(sum(distance**2 for distance in distances) / len(distances))


def is_about_as_near(recorded: torch.Tensor, settled: torch.Tensor, others: Sequence[torch.Tensor]) -> bool:
    """Check whether a recorded value is about as near to the settled value as other executions are."""
    executions = _OtherExecutions(settled, recorded)
    for other in () if executions.has_recorded else others:
        executions.add(other)
    return executions.explain_the_recorded


def _roundings(value: torch.Tensor, other: torch.Tensor) -> float:
    """Return the distance of two tensors in units of their own rounding; infinite if they hold no numbers with digits,
    or are not finite at the same places."""
    if not has_digits(value):
        return math.inf
    distance, unit = distance_between(value, other), rounding_of(value)
    return distance / unit if unit else math.inf
