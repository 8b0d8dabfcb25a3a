"""`verify_<mode>_<suffix>.pkl`: losses and parameters, in the format of the scripts that preceded numdrift.

    {"schema": 1, "mode": str, "losses": [float, ...], "state_dict_steps": [int, ...],
     "state_dicts": [{name: ndarray}, ...]}

`losses` has one entry per recorded step (nan for a step without a loss). `state_dicts` has one entry per step whose
parameters were kept; `state_dict_steps` has the numbers of these steps.
"""

from __future__ import annotations

import math
import os
import pickle
import pickletools
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np

from ..errors import JournalError
from .journal import Journal
from .numpy_values import Array

SCHEMA = 1
PROTOCOL = 4
NUMBERS = re.compile(r"[<>=|](b1|[iu][1248]|f[248]|c8|c16)")
"""NumPy's codes of the dtypes that may be loaded."""


def write_pickle(path: Path, mode: str, journal: Journal) -> None:
    """Write the pickle of one run atomically. The content comes from the run's journal."""
    kept_steps = journal.value_steps
    content = {
        "schema": SCHEMA,
        "mode": mode,
        "losses": [math.nan if record.loss is None else record.loss for record in journal.steps],
        "state_dict_steps": kept_steps,
        "state_dicts": [journal.values(step) for step in kept_steps],
    }
    # Write to a file with this process's id first, since two processes may write the pickle of the same run.
    written = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with written.open("wb") as file:
            pickle.dump(content, file, protocol=PROTOCOL)
        written.replace(path)
    finally:
        written.unlink(missing_ok=True)  # a part, if the disk is full


def read_pickle(path: Path | str) -> dict[str, Any]:
    """Read a pickle from an untrusted source: only numbers, names and read-only arrays of numbers are loaded.

    Raises JournalError for anything else.
    """
    path = Path(path)
    try:
        with path.open("rb") as file:
            # Refuse a memo number larger than the file's `size`: the unpickler would allocate a memo up to that number.
            size = path.stat().st_size
            for opcode, argument, _ in pickletools.genops(file):
                if opcode.name in ("PUT", "BINPUT", "LONG_BINPUT") and int(argument or 0) > size:
                    raise pickle.UnpicklingError(
                        f"uses the memo number {argument}, which exceeds the file's size: not loaded"
                    )
            file.seek(0)
            content = _PlainUnpickler(file).load()
        if isinstance(content, dict) and content.get("schema") in range(1, SCHEMA + 1):
            return {
                "schema": int(content["schema"]),
                "mode": _all_of(str, [content["mode"]])[0],
                "losses": _all_of(float, content["losses"]),
                "state_dict_steps": _all_of(int, content["state_dict_steps"]),
                "state_dicts": [
                    dict(
                        zip(_all_of(str, state), (part.array for part in _all_of(_Array, state.values())), strict=True)
                    )
                    for state in _all_of(dict, content["state_dicts"])
                ],
            }
    except pickle.UnpicklingError as error:
        raise JournalError(path, str(error)) from error
    except UNREADABLE as error:
        raise JournalError(path, f"cannot be read: {error}") from error
    raise JournalError(path, f"is not a pickle of losses and parameters of schema 1 to {SCHEMA}")


UNREADABLE = (
    OSError, ValueError, EOFError, AttributeError, ImportError, LookupError, TypeError, ArithmeticError,
    MemoryError, RecursionError,
)  # fmt: skip
"""The exceptions that unpickling damaged data raises, in addition to UnpicklingError."""


def _all_of(kind: type[Any], values: Iterable[Any]) -> list[Any]:
    listed = list(values)
    for value in listed:
        if not isinstance(value, kind):
            raise TypeError(f"it has a value of type {type(value).__name__} in place of {kind.__name__}")
    return listed


class _Dtype:
    """A replacement for numpy.dtype. The original's `__setstate__` trusts its input, and crashes on invalid data."""

    def __init__(self, code: str, *_: object) -> None:
        self.code, self.order = code, "="

    def __setstate__(self, state: tuple[Any, ...]) -> None:
        self.order = state[1]

    def dtype(self) -> np.dtype[Any]:
        if not NUMBERS.fullmatch(text := f"{self.order}{self.code}"):
            raise TypeError(f"arrays of dtype {text[:20]!r} are not loaded")
        return np.dtype(text)


class _Array:
    """A replacement for numpy.ndarray and the function that reconstructs it. It builds `array` from checked parts."""

    array: Array

    def __init__(self, *_: object) -> None:
        pass

    def __setstate__(self, state: tuple[int, tuple[int, ...], _Dtype, bool, bytes]) -> None:
        _, shape, dtype, by_columns, data = state
        if not (isinstance(dtype, _Dtype) and isinstance(data, bytes)):
            raise TypeError("only arrays of numbers are loaded")
        self.array = np.ndarray(shape, dtype.dtype(), data, order="F" if by_columns else "C")
        if self.array.shape != shape or self.array.nbytes != len(data):
            raise ValueError(f"an array of shape {shape} does not have {len(data)} bytes")


ADMITTED = {
    ("numpy", "ndarray"): _Array,
    ("numpy", "dtype"): _Dtype,
    ("numpy.core.multiarray", "_reconstruct"): _Array,
    ("numpy._core.multiarray", "_reconstruct"): _Array,
}
"""The classes and functions to which numdrift's pickles refer, each with the replacement that is loaded."""


class _PlainUnpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if (module, name) not in ADMITTED:
            raise pickle.UnpicklingError(f"refers to {module}.{name}, which is not an array: not loaded")
        return ADMITTED[module, name]
