"""Read the calls that a run recorded (`<run>/kernels/<op>/<number>.pt`), or those in any other such file or folder.

`torch.save` writes {"op": name, "args": [...], "kwargs": {...}} to such a file. The arguments are tensors, lists,
numbers, strings, dtypes or None. A file is read with `weights_only=True`, so reading runs no code from it.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path
from typing import Any

import torch

from numdrift.harness.errors import UsageError

from .arguments import Case, how_to_record
from .calls import LabCall
from .input_sets import CAPTURED

FOLDER = "kernels"

MOST = 64
"""The maximum number of calls read from one folder: the first, the last and evenly spaced ones in between."""


def captured(op: str, path: Path) -> Case:
    """Read the calls of `op` from a run's folder, a folder of files or a file.

    Raises UsageError, naming the file and the problem.
    """
    recorded = path / FOLDER
    if path.is_file():
        files = [path]
    elif path.is_dir():
        names = (op, op.partition(".")[0])
        folders = [recorded / name for name in names if (recorded / name).is_dir()]
        # in call order: 10.pt comes after 9.pt, and files with other names come last
        files = sorted(
            (folders[0] if folders else path).glob("*.pt"),
            key=lambda file: (int(file.stem), "") if file.stem.isdigit() else (1 << 62, file.stem),
        )
    else:
        raise UsageError(f"there is no run or file {path}; name a run's folder or a file that torch.save wrote")
    if not files:
        others = sorted(folder.name for folder in recorded.iterdir() if folder.is_dir()) if recorded.is_dir() else []
        hint = f"it has calls of {', '.join(others)}" if others else f"it has no {FOLDER}/{op}/*.pt"
        raise UsageError(f"{path} has no captured call of {op}: {hint}; {how_to_record(op)} (a lazy run keeps none)")
    chosen = files if len(files) <= MOST else [files[round(k * (len(files) - 1) / (MOST - 1))] for k in range(MOST)]
    variant = "" if len(chosen) == len(files) else f"{len(chosen)} of {len(files)} calls"
    return Case(CAPTURED, variant, tuple(read_call(op, file) for file in chosen))


def read_call(op: str, file: Path) -> LabCall:
    """Read one call of `op`. Raises UsageError."""
    try:
        content = torch.load(file, weights_only=True, map_location="cpu")
    except OSError as error:
        raise UsageError(f"{file} cannot be read: {error.strerror}") from None
    except Exception as error:  # the unpickler may raise anything for arbitrary bytes
        lines = str(error).strip().splitlines()
        why = lines[0][:200] if lines else type(error).__name__
        raise UsageError(
            f"{file} is not a captured call ({why}); write one with "
            "torch.save({'op': ..., 'args': [...], 'kwargs': {...}}) from plain tensors"
        ) from error
    if not isinstance(content, dict) or not {"op", "args"} <= set(content):
        raise UsageError(f"{file} is not a captured call: it has no 'op' and 'args'")
    if str(content["op"]).partition(".")[0] != op.partition(".")[0]:
        raise UsageError(f"{file} is a call of {content['op']}, not of {op}; check {content['op']} instead")
    args, kwargs = content["args"], content.get("kwargs") or {}
    if not isinstance(args, (list, tuple)) or not isinstance(kwargs, dict):
        raise UsageError(f"{file} is not a captured call: 'args' must be a list and 'kwargs' a dictionary")
    _check_values(file, [*args, *kwargs.values()])
    return LabCall(tuple(args), kwargs)


def _check_values(file: Path, values: list[Any]) -> None:
    for value in values:
        if isinstance(value, (list, tuple)):
            _check_values(file, list(value))
        elif value is not None and not isinstance(value, (torch.Tensor, torch.dtype, int, float, str)):
            raise UsageError(
                f"{file} contains a value of type {type(value).__name__}; the arguments of a call are tensors, lists, "
                "numbers or strings"
            )


# Keep the output of a user's kernel out of the lab's output.


@contextmanager
def stdout_to_stderr() -> Iterator[None]:
    """Send this process's standard output, including that of C code, to standard error."""
    sys.stdout.flush()
    kept = os.dup(1)
    os.dup2(2, 1)
    try:
        with redirect_stdout(sys.stderr):
            yield
    finally:
        flush_c()  # otherwise C's buffered output would appear on the restored descriptor
        os.dup2(kept, 1)
        os.close(kept)


def flush_c() -> None:
    """Flush the output of C code that the C library still buffers."""
    ctypes.CDLL(None).fflush(None)
