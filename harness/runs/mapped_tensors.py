"""Read a run's tensor files, as read-only NumPy arrays that are not loaded into memory, and its sketches."""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import JournalError
from ..records import frames
from ..records.values.sketch_record import SKETCH_BYTES, Sketch, unpack_sketches
from ..records.values.tensor_layout import TORCH_NAMES, read_places
from .numpy_values import NUMPY_TYPES, Array, as_numbers
from .recorded_run import RecordedRun
from .run_layout import JOURNAL


@dataclass(frozen=True, slots=True)
class TensorFile:
    """The contents of a tensor file. `dtypes` has torch's name of each dtype, `facts` the other values in the header.

    bfloat16 values are widened to float32. The writer has widened types that the format lacks; for these, `dtypes` has
    the original type.
    """

    tensors: Mapping[str, Array]
    dtypes: Mapping[str, str]
    facts: Mapping[str, Any]


def read_tensor_file(path: Path) -> TensorFile:
    """Open a tensor file. The tensors' values are read from disk when they are used. Raises JournalError."""
    places, facts = read_places(path)
    tensors, dtypes = {}, {}
    for file_path, places_there in places.items():
        try:
            with file_path.open("rb") as file:
                content = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise JournalError(file_path, f"cannot be read: {error}") from error
        if len(content) < max((place.end for place in places_there), default=0):
            raise JournalError(file_path, "was cut off while it was being read")
        for place in places_there:
            dtypes[place.name] = TORCH_NAMES[place.dtype]
            dtype = np.dtype(NUMPY_TYPES[dtypes[place.name]])
            try:
                array = np.frombuffer(content, dtype, math.prod(place.shape), place.start).reshape(place.shape)
            except (ValueError, OverflowError) as error:
                raise JournalError(file_path, f"{place.name!r} cannot be read: {error}") from error
            if place.dtype == "BF16":  # which NumPy lacks; the copy is read-only, like all the other arrays
                array = np.asarray(as_numbers(array, TORCH_NAMES[place.dtype]))
                array.flags.writeable = False
            tensors[place.name] = array
    # The writer has widened types that the format lacks. The names of the original types are among the facts.
    true = facts.get("dtypes")
    true = true if isinstance(true, dict) else {}
    return TensorFile(tensors, {name: str(true.get(name, dtype)) for name, dtype in dtypes.items()}, facts)


@dataclass(frozen=True, slots=True)
class StepSketches:
    """The sketches of one step, by the tensor's name. Each covers this rank's part of the tensor; it is None if there
    is no sketch."""

    values: Mapping[str, Sketch | None]
    gradients: Mapping[str, Sketch | None]


def has_sketches(run: RecordedRun) -> bool:
    return (run.path / JOURNAL / frames.SKETCHES).exists()


def sketches_of(run: RecordedRun) -> Iterator[tuple[int, StepSketches]]:
    """Yield the sketches of each recorded step that has them, in order.

    Raises JournalError if a step does not have as many sketches as its table requires.
    """
    path, journal = run.path / JOURNAL / frames.SKETCHES, run.journal
    recorded = {record.step for record in journal.steps}
    for frame in frames.scan_frames(path):
        if frame.step not in recorded or frame.table not in journal.tables:
            continue
        entries = journal.tables[frame.table]
        parameters = [entry.name for entry in entries if entry.kind == "parameter"]
        with path.open("rb") as file:
            file.seek(frame.offset)
            data = file.read(frame.length)
        if len(data) != (len(entries) + len(parameters)) * SKETCH_BYTES:
            raise JournalError(
                path, f"step {frame.step} has {len(data)} bytes, but its table requires a different number"
            )
        sketches, names = list(unpack_sketches(data)), [entry.name for entry in entries]
        # A frame has the sketch of every tensor's value, then of every parameter's gradient, in the table's order.
        values = dict(zip(names, sketches[: len(names)], strict=True))
        yield frame.step, StepSketches(values, dict(zip(parameters, sketches[len(names) :], strict=True)))
