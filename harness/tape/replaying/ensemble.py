"""The noise of one step: how far random rounding moves each of its values, from replays of its tape."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path

import torch

from ...records.run.step_files import write_noise_record
from ..files.tape_file import noise_file
from ..step_settings import settings_of_step
from ..tape import Call, Tape, in_words
from .distances import sum_of_squares
from .left_to_script import LEFT, with_results_left
from .order_of_additions import with_causes
from .replay import AsRecorded, Replay, is_same
from .rounding import RandomRounding, has_digits
from .settling import ADDS_ANYWHERE, UnrepeatableCall, settle
from .unwritten import UnwrittenRead, described, unwritten_reads

SCHEMA = 1

SEEDS_OF_A_STEP = 1000
"""The difference between the seeds of consecutive steps, so that their ensembles have no member in common."""


EDGE_STRENGTH = 16.0
"""The strength of the perturbation that looks for discrete choices, in multiples of rounding.

The rounding error of another kernel may be several times as large as that of random rounding (16 times would be a
fault). It may change the outcome of a ReLU or a maximum that random rounding changes once in a hundred replays. A
perturbation 4 times as strong as rounding did not find a maximum that oneDNN's convolution had changed."""


REPLAY_SECONDS, EDGE_SECONDS, LEAST_REPLAYS = 30.0, 10.0, 4
"""The time in seconds after which no further replay begins, with rounding and with stronger rounding, and the number of
replays that are made in any case. A step of a ResNet-18 on two cores is replayed once a second."""


@dataclass(frozen=True, slots=True)
class ReplayNoise:
    """The noise of one value x over its replays x_i.

    rms: sqrt(mean ||x_i - x||^2), over the elements that are finite in both
    flips: the number of replays in which an integer or boolean tensor differed
    norm: ||x||
    reach: the largest ||x_i - x|| of the replays with stronger rounding, 0 without such replays
    spread: like rms, but over executions without random rounding; 0 for a step that repeats bit for bit
    """

    rms: float
    flips: int
    norm: float
    reach: float = 0.0
    spread: float = 0.0


@dataclass(frozen=True, slots=True)
class StepNoise:
    """The noise of one step, measured by replays of its tape.

    equal: whether the unchanged replay reproduced every bit, or executes a compiled step op by op
    reason: the reason why the step does not replay
    differs: the names of the values that the unchanged replay did not reproduce
    seconds: the duration of one replay
    dropped: the number of replays that raised an error, for instance because rounding changed the size of a selection
    failure: the first of these errors
    unmoved: the names of the parameters that have a gradient, but that no rounding moved
    unrepeatable: the calls that compute different bits from the same arguments
    settled: whether such calls were looked for
    doubted: the number of further calls that may add atomically, but repeated here
    unwritten: reads of memory that no op has written, None if they were not looked for
    adding: the calls of a compiled step that may add atomically; the step's replay cannot show which of them repeat
    left: the largest rms of an element among the results that the step's ops leave to the script
    """

    step: int
    calls: int = 0
    replays: int = 0
    equal: bool = False
    reason: str | None = None
    differs: Sequence[str] = ()
    tensors: Mapping[str, ReplayNoise] = field(default_factory=dict)
    seconds: Mapping[str, float] = field(default_factory=dict)
    dropped: int = 0
    failure: str | None = None
    unmoved: Sequence[str] = ()
    edge_replays: int = 0
    unrepeatable: Sequence[UnrepeatableCall] = ()
    settled: bool = False
    doubted: int = 0
    unwritten: Sequence[UnwrittenRead] | None = None
    adding: Sequence[Call] = ()
    left: float = 0.0

    def to_json(self) -> dict[str, object]:
        tensors = {
            name: {
                "rms": noise.rms,
                "flips": noise.flips,
                "norm": noise.norm,
                "reach": noise.reach,
                "spread": noise.spread,
            }
            for name, noise in self.tensors.items()
        }
        return {
            "schema": SCHEMA,
            "step": self.step,
            "calls": self.calls,
            "replays": self.replays,
            "seconds": dict(self.seconds),
            "equal": self.equal,
            "differs": list(self.differs),
            "reason": self.reason,
            "tensors": tensors,
            "dropped": self.dropped,
            "failure": self.failure,
            "unmoved": list(self.unmoved),
            "left": self.left,
            "edge": {"replays": self.edge_replays, "strength": EDGE_STRENGTH},
            "unrepeatable": [asdict(call) for call in self.unrepeatable],
            "settled": self.settled,
            "doubted": self.doubted,
            "adding": [described(call) for call in self.adding],
            "unwritten": None if self.unwritten is None else [read.to_json() for read in self.unwritten],
        }


def measure_noise(
    tape: Tape, replays: int, edge_replays: int = 0, *, compiled: bool = False, threads: int | None = None
) -> StepNoise:
    """Replay a tape unchanged, `replays` times with random rounding, and `edge_replays` times with stronger rounding.

    A step that takes long is replayed less often (see LEAST_REPLAYS). If `threads` is a number, the replays with
    rounding run in that many threads: their bits are random anyway.

    If the step's graphs were `compiled`, the replay executes their ops one by one, and by design computes different
    bits. The noise is then how far random rounding moves this replay. A failure becomes the `reason` of the result.
    """
    calls = len(tape.calls)
    try:
        replay, expected = Replay(with_results_left(tape)), tape.expected()
        began = time.perf_counter()
        unchanged = _UnchangedReplay(expected, replaces=compiled)
        replay.show(AsRecorded(), unchanged.compare)
        seconds = {"replay": time.perf_counter() - began, "rounded": 0.0}
    except Exception as error:  # noqa: BLE001, the training goes on whatever fails here
        return StepNoise(tape.step, calls, reason=f"the unchanged replay fails: {in_words(error)}")
    left, differs = unchanged.left, [name for name in expected if name in unchanged.differing]
    if compiled:
        expected |= unchanged.differing
    elif differs:
        shown = ", ".join(differs[:3])
        some = shown if len(differs) <= 3 else f"{shown} and {len(differs) - 3} more"
        reason = f"the unchanged replay computes different bits for {some}"
        return StepNoise(tape.step, calls, seconds=seconds, differs=differs, reason=reason)
    began = time.perf_counter()
    settings = {} if threads is None else {"threads": threads}
    with settings_of_step(settings):
        spread = _spread(replay, expected | left, tape.step, replays, 1.0, REPLAY_SECONDS)
    seconds["rounded"] = (time.perf_counter() - began) / max(1, spread.count)
    noise = _without_left(spread.result(tape.step, calls, seconds), left)
    if compiled:
        noise = replace(noise, adding=[call for call in tape.calls if ADDS_ANYWHERE.search(call.name)])
    if not edge_replays or not noise.equal:
        return noise
    with settings_of_step(settings):
        edge = _spread(replay, expected | left, tape.step, edge_replays, EDGE_STRENGTH, EDGE_SECONDS)
    tensors = {name: replace(tensor_noise, reach=edge.reach[name]) for name, tensor_noise in noise.tensors.items()}
    return replace(noise, tensors=tensors, edge_replays=edge.count)


class _UnchangedReplay:
    """The values of an unchanged replay, compared with the expected ones as they appear. Only few are kept.

    left: the results that the ops leave to the script
    differing: the values with other bits than expected, by name; with `replaces`, they are kept to replace those
    """

    def __init__(self, expected: Mapping[str, torch.Tensor], *, replaces: bool) -> None:
        self.left: dict[str, torch.Tensor] = {}
        self.differing: dict[str, torch.Tensor] = {}
        self._expected = expected
        self._replaces = replaces

    def compare(self, name: str, value: torch.Tensor) -> None:
        if name.startswith(LEFT):
            self.left[name] = value.to("cpu", copy=True)
        elif not is_same(value, self._expected[name]):
            self.differing[name] = value.to("cpu", copy=True) if self._replaces else torch.empty(0)


def _without_left(noise: StepNoise, left: Mapping[str, torch.Tensor]) -> StepNoise:
    """Return the noise with the results that the ops leave to the script reduced to the noise of one element."""
    each = [noise.tensors[name].rms / math.sqrt(value.numel()) for name, value in left.items() if name in noise.tensors]
    tensors = {name: tensor_noise for name, tensor_noise in noise.tensors.items() if name not in left}
    return replace(noise, tensors=tensors, left=max(each, default=0.0))


def measure_settled(
    tape: Tape,
    replays: int,
    edge_replays: int = 0,
    *,
    threads: int | None = None,
    always: bool = False,
    folder: Path | None = None,
) -> tuple[StepNoise, Tape]:
    """Measure the noise of a step that was executed op by op, and return the tape that replays bit for bit.

    If calls of the step do not repeat, it is the settled tape (see `settling`), and the noise has their spread.
    Large values of the settled tape lie in a file of `folder`, if one is given.
    `always` looks for such calls even if the unchanged replay has repeated the step, perhaps by chance. If the step
    does not replay for another reason, this looks for reads of memory that no op has written.
    """
    noise = None if always else measure_noise(tape, replays, edge_replays, threads=threads)
    if noise is not None and not noise.differs:
        return noise, tape
    why = ""
    try:
        settled = settle(tape, folder)
        if settled is not None:
            with suppress(Exception):  # an op may raise anything on doubles
                settled = with_causes(settled)
    except Exception as error:  # noqa: BLE001, the training goes on whatever fails here
        settled, why = None, in_words(error)
    if settled is None:
        noise = noise or measure_noise(tape, replays, edge_replays, threads=threads)
        reason = f"{noise.reason}; {why}" if noise.reason and why else noise.reason
        return replace(noise, reason=reason, settled=not why, unwritten=reads_in(tape) if why else None), tape
    noise = measure_noise(settled.tape, replays, edge_replays, threads=threads)
    spread = settled.spread
    tensors = {name: replace(value, spread=spread.get(name, 0.0)) for name, value in noise.tensors.items()}
    unwritten = reads_in(settled.tape) if settled.unwritten else None
    noise = replace(noise, tensors=tensors, unrepeatable=settled.calls, settled=True, doubted=settled.doubted)
    return replace(noise, unwritten=unwritten), settled.tape


def reads_in(tape: Tape) -> list[UnwrittenRead] | None:
    """Return the reads of memory that no op has written; None if the step cannot be replayed to find them."""
    try:
        return unwritten_reads(tape)
    except Exception:  # noqa: BLE001, an op may raise anything on values that are not the recorded ones
        return None


def write_noise(folder: Path, noise: StepNoise) -> None:
    """Write the noise of a step beside its tape, either the whole file or nothing. Raises OSError."""
    folder.mkdir(parents=True, exist_ok=True)
    write_noise_record(noise_file(folder, noise.step), noise.to_json())


def _spread(
    replay: Replay, expected: Mapping[str, torch.Tensor], step: int, replays: int, strength: float, seconds: float
) -> Spread:
    spread, began = Spread(expected), time.perf_counter()
    for number in range(replays):
        if number >= LEAST_REPLAYS and time.perf_counter() - began > seconds:
            break
        try:
            spread.add(replay, RandomRounding(step * SEEDS_OF_A_STEP + number, strength))
        except Exception as error:  # noqa: BLE001, an op may raise anything on values that are not the recorded ones
            spread.drop(error)
    return spread


class Spread:
    """The sums of the distances between the ensemble's members and the recorded values."""

    def __init__(self, expected: Mapping[str, torch.Tensor]) -> None:
        self.dropped = 0
        self.failure: str | None = None
        self.reach = dict.fromkeys(expected, 0.0)
        self._expected = expected
        self._members = 0
        self._squares = dict.fromkeys(expected, 0.0)
        self._flips = dict.fromkeys(expected, 0)

    @property
    def count(self) -> int:
        """The number of members that were executed, whether or not they count."""
        return self._members + self.dropped

    def add(self, replay: Replay, member: RandomRounding) -> None:
        """Execute one member and count it. Raises the errors of its ops, and then does not count the member."""
        squares: dict[str, float] = {}
        flips: list[str] = []

        def compare(name: str, value: torch.Tensor) -> None:
            # A copy is freed right after the comparison: an accelerator has little memory.
            recorded = self._expected[name]
            if has_digits(recorded):
                squares[name] = sum_of_squares(value, recorded)
            elif not is_same(value, recorded):
                flips.append(name)

        replay.show(member, compare)
        self._members += 1
        for name, square in squares.items():
            self._squares[name] += square
            self.reach[name] = max(self.reach[name], math.sqrt(square))
        for name in flips:
            self._flips[name] += 1

    def drop(self, error: Exception) -> None:
        """Count a member that could not be executed."""
        self.dropped += 1
        self.failure = self.failure or in_words(error)

    def result(self, step: int, calls: int, seconds: Mapping[str, float]) -> StepNoise:
        if self.dropped and not self._members:
            why = self.failure or "a discrete choice depends on the last bit"
            reason = f"every replay with random rounding fails: {why}"
            return StepNoise(step, calls, seconds=seconds, reason=reason, dropped=self.dropped, failure=self.failure)
        tensors: dict[str, ReplayNoise] = {}
        for name, value in self._expected.items():
            norm = math.sqrt(sum_of_squares(value))
            rms = math.sqrt(self._squares[name] / max(1, self._members))
            tensors[name] = ReplayNoise(rms, self._flips[name], norm)
        # Rounding moves every parameter that has a gradient, unless the tape lacks the calls that connect the two.
        # The two values are named, for example, `parameter net.weight` and `gradient 0 net.weight`.
        learning = {name.split(" ", 2)[2] for name in tensors if name.startswith("gradient ")}
        parameters = [name for name in tensors if name.startswith("parameter ") and name.partition(" ")[2] in learning]
        unmoved = [name for name in parameters if has_digits(self._expected[name]) and not tensors[name].rms]
        # The results of a called function are parameters without a gradient, beside those of its module.
        moved = any(tensors[name].rms for name in tensors if name.startswith("parameter "))
        if self._members and parameters and len(unmoved) == len(parameters) and not moved:
            reason = "random rounding moves no parameter: the tape lacks calls between gradients and parameters"
            return StepNoise(step, calls, seconds=seconds, reason=reason, unmoved=unmoved)
        return StepNoise(
            step,
            calls,
            self._members,
            equal=True,
            tensors=tensors,
            seconds=seconds,
            dropped=self.dropped,
            failure=self.failure,
            unmoved=unmoved,
        )
