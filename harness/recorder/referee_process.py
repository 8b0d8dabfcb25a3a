"""The process of the fp64 referee: `python bootstrap.py PACKAGE CONFIG numdrift.harness.recorder.referee_process`.

CONFIG is JSON, `{"tapes": [paths]}`. The process executes each tape in double precision, and writes the watched
values to a file beside the tape. It replaces no kernel, so no suspect judges itself. It uses the devices of the tapes
and the environment of their mode. The CPU replaces a device that lacks double precision or runs out of memory.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Collection
from pathlib import Path

import torch

from ..backends.opened_device import open_devices
from ..errors import JournalError, NumdriftError
from ..tape.files.tape_file import exact_file, read_tape
from ..tape.replaying.in_double import OUT_OF_MEMORY, write_exact
from ..torch_private.first_calls import settle_first_calls


def main(config: Path) -> int:
    """Execute the tapes that the file `config` names, and print failures. Return the exit code for the process."""
    exit_code = 0
    settle_first_calls()
    try:
        tapes = [Path(path) for path in json.loads(config.read_text(encoding="utf-8"))["tapes"]]
    except (OSError, ValueError, TypeError, KeyError) as error:
        problem = f"cannot be read: {error.strerror}" if isinstance(error, OSError) else "names no tapes"
        failure = JournalError(config, problem)
        print(f"numdrift: {failure}", file=sys.stderr)
        return failure.exit_code
    for path in tapes:
        try:
            if write_exact(read_tape(path, have_double), exact_file(path)) == OUT_OF_MEMORY:
                write_exact(read_tape(path, lambda devices: False), exact_file(path))
        except NumdriftError as failed:
            print(f"numdrift: {failed}", file=sys.stderr)
            exit_code = failed.exit_code
        except OSError as error:
            print(f"numdrift: the exact values of {path} cannot be written: {error.strerror}", file=sys.stderr)
            exit_code = NumdriftError.exit_code
    return exit_code


def have_double(devices: Collection[str]) -> bool:
    """Open these devices in this process. Return whether all of them have double precision."""
    try:
        open_devices(devices)
        for device in devices:
            torch.ones(1, dtype=torch.float64, device=device).sum()
    except (NumdriftError, RuntimeError, TypeError, NotImplementedError):
        return False
    return True
