"""The fp64 referee: tapes replayed in double, in a clean process in which no kernel is replaced.

It runs as `python bootstrap.py PACKAGE CONFIG numdrift.harness.tape.referee_process`; CONFIG is JSON,
`{"tapes": [paths]}`. Beside each tape it writes the exact values of what the step is compared by.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import torch

from ..errors import JournalError, NumdriftError
from .ensemble import in_words
from .in_double import exact_values
from .tape import Tape
from .tape_file import exact_file, read_tape
from .tensor_file import write_tensors

SCHEMA = 1


def main(config: Path) -> int:
    """Judge the tapes that a file names; gives the exit code for the process, having printed what failed."""
    try:
        tapes = _tapes_in(config)
    except NumdriftError as error:
        print(f"numdrift: {error}", file=sys.stderr)
        return error.exit_code
    exit_code = 0
    for path in tapes:
        try:
            write_exact(read_tape(path), exact_file(path))
        except NumdriftError as error:
            print(f"numdrift: {error}", file=sys.stderr)
            exit_code = error.exit_code
        except OSError as error:
            print(f"numdrift: the exact values of {path} cannot be written: {error.strerror}", file=sys.stderr)
            exit_code = NumdriftError.exit_code
    return exit_code


def write_exact(tape: Tape, path: Path) -> None:
    """Replay a tape in double and write what it gives, or why it gives nothing."""
    facts: dict[str, Any] = {"schema": SCHEMA, "step": tape.step, "calls": len(tape.calls), "reason": None}
    values: dict[str, torch.Tensor] = {}
    not_exact: tuple[str, ...] = ()
    try:
        values, not_exact = exact_values(tape)
    except Exception as error:  # noqa: BLE001, an op may raise anything on values that are not the recorded ones
        facts["reason"] = f"the step does not replay in double: {in_words(error)}"
    write_tensors(path, values, facts | {"not_exact": list(not_exact)})


def _tapes_in(config: Path) -> list[Path]:
    try:
        named = json.loads(config.read_text(encoding="utf-8"))["tapes"]
        return [Path(one) for one in named]
    except OSError as error:
        raise JournalError(config, f"cannot be read: {error.strerror}") from error
    except (ValueError, TypeError, KeyError) as error:
        raise JournalError(config, "names no tapes") from error
