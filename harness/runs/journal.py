"""The reader of a run's journal: the steps, digests and kept values. It also reads a journal that was cut off."""

from __future__ import annotations

import json
import math
import mmap
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from ..errors import JournalError
from ..records import frames
from ..records.values.digest_record import RECORD_BYTES, Digest, unpack
from ..records.values.sketch_record import Shard
from .numpy_values import NUMPY_TYPES, Array, as_numbers
from .step_digests import DigestColumns, StepDigests

Kind = TypeVar("Kind")

MALFORMED = (ValueError, TypeError, KeyError, OverflowError, RecursionError)
"""The exceptions that reading a line raises if the line does not have the form in which the recorder writes it."""

LIMITS = ("max_steps", "max_seconds")
"""The limits that may end a training run before its script ends. The journal's `end` event has the limit that was
reached.
"""

PER_STEP = ("step", "logged")
"""The events of which a long run has hundreds of thousands. They are kept as StepRecords alone."""

Batches = tuple[tuple[tuple[str, tuple[int, ...], str], ...], ...]
"""The tensor arguments of each call of a root module, each as dtype, shape and hash. The hash is empty if the argument
was computed from parameters, or if its value was gone before it could be read."""

Optimizers = list[dict[str, Any]]
"""The hyper-parameters of each optimizer: its `class`, and its parameter `groups`. The values of a group are plain;
`params` has the names of the group's parameters."""


@dataclass(frozen=True, slots=True)
class StepRecord:
    """One recorded step.

    losses: the losses in the order of their backwards
    seconds: the seconds since the training began
    generators: the digests of the random generators' states at the beginning of the step; empty if the journal has none
    logged: the values that the script logged, by name; logged losses are in `losses` instead
    optimizer: the number of the optimizer that ended the step, None if the script has only one optimizer
    """

    step: int
    losses: tuple[float, ...]
    seconds: float
    generators: Mapping[str, str] = field(default_factory=dict)
    batches: Batches = ()
    logged: Mapping[str, float] = field(default_factory=dict)
    optimizer: int | None = None

    @property
    def loss(self) -> float | None:
        """The step's loss: the loss of its first backward."""
        return self.losses[0] if self.losses else None


@dataclass(frozen=True, slots=True)
class TensorEntry:
    """A recorded tensor: `kind` is "parameter" or "buffer", and `dtype` is torch's name of its dtype.

    For a tensor that is sharded over ranks, `shape` is the shape of this rank's part, and `shard` is its position in
    the whole tensor.
    """

    name: str
    kind: str
    shape: tuple[int, ...]
    dtype: str
    shard: Shard | None = None


@dataclass(frozen=True, slots=True)
class InitialTensor:
    """A parameter or buffer before the first call of its module."""

    name: str
    kind: str
    shape: tuple[int, ...]
    dtype: str
    digest: Digest


class Journal:
    """The journal of one run: its recorded steps.

    If the run was killed while it wrote the last line, that line is left out. If the journal is damaged, `damage` says
    at which line reading had to stop.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.damage: str | None = None
        self.steps: list[StepRecord] = []
        self.tables: dict[int, tuple[TensorEntry, ...]] = {}
        self._initial: dict[str, InitialTensor] = {}
        self._hyper: list[tuple[int, Optimizers]] = []
        self._events: list[dict[str, Any]] = []
        self._compiled_steps: list[int] = []
        self._compiles = False
        path = folder / frames.EVENTS
        if not path.exists():
            return
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    event = json.loads(line.decode())  # of bytes, it would guess the encoding
                    self._take(event)
                except MALFORMED:
                    # The last line may be cut off, because the process was killed while it wrote the line. That is not
                    # damage, so only a complete line is reported.
                    if line.endswith(b"\n"):
                        self.damage = f"{path}: line {number} is damaged; it and all later lines are ignored"
                    return
                if event["event"] not in PER_STEP:
                    self._events.append(event)

    def _take(self, event: dict[str, Any]) -> None:
        """Read one event into the journal. If this raises one of MALFORMED, nothing of the event is kept."""
        kind = event["event"]
        if kind == "step":
            generators = _checked(dict, event.get("generators", {}))
            self.steps.append(
                StepRecord(
                    _checked(int, event["step"]),
                    tuple(float(loss) for loss in event["losses"]),
                    float(event["seconds"]),
                    {_checked(str, name): _checked(str, digest) for name, digest in generators.items()},
                    tuple(
                        tuple(map(_argument, _checked(list, call))) for call in _checked(list, event.get("batches", []))
                    ),
                    _numbers(event.get("logged", {})),
                    None if event.get("optimizer") is None else _checked(int, event["optimizer"]),
                )
            )
            if self._compiles:
                self._compiled_steps.append(event["step"])
                self._compiles = False
        elif kind == "compiling":
            self._compiles = self._compiles or "again" not in event
        elif kind == "logged":
            # The script may log values of a step after the step has ended. The search goes backwards, since this is
            # usually one of the last steps.
            number, logged = _checked(int, event["step"]), _numbers(event.get("logged", {}))
            losses = tuple(float(loss) for loss in _checked(list, event.get("losses", [])))
            for index, record in reversed(list(enumerate(self.steps))):
                if record.step == number:
                    self.steps[index] = replace(
                        record, losses=losses or record.losses, logged={**record.logged, **logged}
                    )
                    return
        elif kind == "tensors":
            self.tables[_checked(int, event["table"])] = tuple(map(_tensor_entry, event["tensors"]))
        elif kind == "initial":
            # Read all tensors before any of them is kept: a line is used as a whole or not at all.
            self._initial |= {tensor.name: tensor for tensor in map(_initial_tensor, event["tensors"])}
        elif kind == "hyper":
            for optimizer in _checked(list, event["optimizers"]):
                _checked(str, optimizer["class"])
                for group in _checked(list, optimizer["groups"]):
                    _checked(dict, group)
            self._hyper.append((_checked(int, event["step"]), list(event["optimizers"])))
        elif kind == "notice":
            _checked(str, event["text"])
        elif kind == "spike":
            _checked(str, event["reason"]), _checked(str, event.get("tensor", ""))
            for key in ("step", "first", "last"):
                _checked(int, event[key])
        elif kind == "end":
            _checked(str, event["status"])
            _numbers({limit: event[limit] for limit in LIMITS if limit in event})

    def events(self, kind: str) -> list[dict[str, Any]]:
        """Return the events of a kind. The lines of steps and of logged values are in `steps` instead."""
        return [event for event in self._events if event["event"] == kind]

    def initial(self) -> dict[str, InitialTensor]:
        """Return the initial parameters and buffers, by name; an empty dictionary if the journal lacks them."""
        return dict(self._initial)

    def hyper(self) -> list[tuple[int, Optimizers]]:
        """Return the steps at which the optimizers' hyper-parameters change, each with the new hyper-parameters."""
        return list(self._hyper)

    def compiled_steps(self) -> list[int]:
        """Return the steps in which the mode compiled a graph, in order: those that ended next after a compilation.

        A compilation that looks inside a graph once more does not count.
        """
        return list(self._compiled_steps)

    @property
    def losses(self) -> list[float]:
        """The losses of the steps that have one, in order."""
        return [record.loss for record in self.steps if record.loss is not None]

    def series(self) -> dict[str, list[StepRecord]]:
        """Return the steps of each series of losses, by the name of the series.

        If several optimizers take turns and each has steps with a loss, as in a GAN, the names are `optimizer 1`,
        `optimizer 2` and so on. Otherwise there is one series with the name "".
        """
        steps_by_turn: dict[int, list[StepRecord]] = {}
        # The steps of the first optimizer have no number until there is a second optimizer.
        for record in self.steps:
            steps_by_turn.setdefault(record.optimizer or 0, []).append(record)
        turns = sorted(turn for turn, steps in steps_by_turn.items() if any(record.losses for record in steps))
        return {f"optimizer {turn + 1}": steps_by_turn[turn] for turn in turns} if len(turns) > 1 else {"": self.steps}

    @property
    def limits(self) -> Mapping[str, float]:
        """A mapping from the name of the limit that ended the training to its value; empty if no limit ended it."""
        end = self.end or {}
        return {limit: float(end[limit]) for limit in LIMITS if limit in end}

    @property
    def end(self) -> dict[str, Any] | None:
        """The `end` event that the script's process recorded; None if it recorded none."""
        ends = self.events("end")
        return ends[-1] if ends else None

    def digests(self) -> Iterator[tuple[int, StepDigests]]:
        """Yield the digests of each step that has them, in order.

        Raises JournalError if the number of a step's digests does not match the journal's table of tensors for that
        step.
        """
        path = self._folder / frames.DIGESTS
        columns = self._columns
        if not path.exists():
            return
        with path.open("rb", buffering=0) as file:
            for frame in self._digest_frames():
                records = os.pread(file.fileno(), frame.length, frame.offset)
                if len(records) < frame.length:
                    raise JournalError(path, f"was cut off at step {frame.step} while it was being read")
                yield frame.step, columns[frame.table].step(records)

    def digest_steps(self) -> list[int]:
        """Return the steps that have digests, in order, without reading the digests. Raises what `digests` raises."""
        return [frame.step for frame in self._digest_frames()]

    def _digest_frames(self) -> Iterator[frames.FrameAt]:
        path = self._folder / frames.DIGESTS
        # Steps before a spike of the loss are written after it, and so after later steps of a schedule.
        for frame in sorted(self._frames(path), key=lambda frame: frame.step):
            records = frame.length // RECORD_BYTES
            if records != self._columns[frame.table].count:
                count = "1 digest" if records == 1 else f"{records} digests"
                raise JournalError(path, f"step {frame.step} has {count}, but its table requires a different number")
            yield frame

    @cached_property
    def _columns(self) -> Mapping[int, DigestColumns]:
        return {
            number: DigestColumns(
                [entry.name for entry in entries], [entry.name for entry in entries if entry.kind == "parameter"]
            )
            for number, entries in self.tables.items()
        }

    @cached_property
    def _value_frames(self) -> Mapping[int, tuple[Path, frames.FrameAt]]:
        frames_by_step = {}
        for path in sorted(self._folder.glob("values-*.bin")):
            for frame in self._frames(path):
                frames_by_step[frame.step] = (path, frame)
        return dict(sorted(frames_by_step.items()))

    @property
    def value_steps(self) -> list[int]:
        """The steps for which the parameter values are kept."""
        return list(self._value_frames)

    def values(self, step: int) -> dict[str, Array]:
        """Return the values of one kept step by name, as read-only views of the file. Numbers whose dtype NumPy lacks
        are converted to wider ones.

        Raises KeyError if the step was not kept, and JournalError if the step's values cannot be read or do not match
        the journal's table of tensors for that step.
        """
        path, frame = self._value_frames[step]
        arrays, offset, end = {}, frame.offset, frame.offset + frame.length
        try:
            with path.open("rb") as file:
                # Map the file instead of reading it: a run may have kept more values than fit into memory. The map
                # stays valid when the file is closed.
                content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise JournalError(path, f"can no longer be read: {error}") from error
        if len(content) < end:
            raise JournalError(path, f"was cut off at step {frame.step} while it was being read")
        for entry in self.tables[frame.table]:
            if entry.dtype not in NUMPY_TYPES:
                raise JournalError(path, f"{entry.name} has the dtype {entry.dtype}, which NumPy lacks")
            dtype, count = np.dtype(NUMPY_TYPES[entry.dtype]), math.prod(entry.shape)
            if offset + count * dtype.itemsize > end:
                raise JournalError(path, f"{entry.name} needs more bytes than its frame has")
            array = np.frombuffer(content, dtype, count, offset).reshape(entry.shape)
            offset += array.nbytes
            arrays[entry.name] = as_numbers(array, entry.dtype)
        if offset != end:
            raise JournalError(path, f"step {step} has {frame.length} bytes, but its table requires a different number")
        return arrays

    def dtypes(self) -> dict[str, str]:
        """Return torch's dtype of every recorded tensor, by name."""
        return {entry.name: entry.dtype for table in self.tables.values() for entry in table}

    def _frames(self, path: Path) -> Iterator[frames.FrameAt]:
        """Yield the frames of recorded steps. A step is recorded if its line is in the journal, since the line is
        written after the step's frames."""
        recorded = {record.step for record in self.steps}
        for frame in frames.scan_frames(path):
            if frame.step in recorded and frame.table in self.tables:
                yield frame


def _checked(kind: type[Kind], value: object) -> Kind:
    """Return the value unchanged. Raises TypeError if it is not of this kind."""
    if not isinstance(value, kind):
        raise TypeError(f"{value!r} is not of type {kind.__name__}")
    return value


def _numbers(values: object) -> dict[str, float]:
    return {_checked(str, name): float(value) for name, value in _checked(dict, values).items()}


def _argument(argument: object) -> tuple[str, tuple[int, ...], str]:
    dtype, shape, digest = _checked(list, argument)
    return _checked(str, dtype), _shape(shape), _checked(str, digest)


def _shape(shape: object) -> tuple[int, ...]:
    return _checked_shape(tuple(_checked(list, shape)))


@cache
def _checked_shape(shape: tuple[object, ...]) -> tuple[int, ...]:
    """Check a shape. The batches of most steps have the same shapes, which are therefore checked and stored once."""
    sizes = tuple(_checked(int, size) for size in shape)
    if any(size < 0 for size in sizes):
        raise ValueError(f"{sizes} is not a shape")
    return sizes


def _tensor_entry(entry: Mapping[str, Any]) -> TensorEntry:
    shape = _shape(entry["shape"])
    shard: Shard | None = None
    if "shard" in entry:
        part = entry["shard"]
        offset = None if part["offset"] is None else _shape(part["offset"])
        placements = tuple(_checked(str, word) for word in _checked(list, part["placements"]))
        shard = Shard(_shape(part["whole"]), offset, placements, _shape(part["mesh"]), _shape(part["at"]))
    return TensorEntry(
        _checked(str, entry["name"]), _checked(str, entry["kind"]), shape, _checked(str, entry["dtype"]), shard
    )


def _initial_tensor(entry: Mapping[str, Any]) -> InitialTensor:
    record = bytes.fromhex(entry["digest"])
    if len(record) != RECORD_BYTES:
        raise ValueError(f"{len(record)} bytes are not a digest")
    tensor = _tensor_entry(entry)
    return InitialTensor(tensor.name, tensor.kind, tensor.shape, tensor.dtype, unpack(record))
