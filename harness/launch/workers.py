"""Workers: processes that stay alive after their scripts have ended, to answer requests.

They keep everything that the script set up. Requests travel in the format of `tape/serving/wire.py`, without tensors,
since this process has no torch.
"""

from __future__ import annotations

import json
import socket
import struct
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .own_folders import throw_away
from .running_process import Running

LENGTH = struct.Struct(">Q")
ANSWER_SECONDS = 600.0

PATIENCE = 30.0
"""Seconds that a script's exit handlers have before its process is killed."""


class Workers:
    """Worker processes by the folders of their runs. `close` lets all of them end."""

    def __init__(self) -> None:
        # A socket's path may have 108 bytes at most, which a path beside the runs could exceed.
        self._folder = tempfile.TemporaryDirectory(prefix="numdrift-")
        self._count = 0
        self._held: dict[Path, tuple[Running, Path]] = {}

    def address(self) -> Path:
        """Return the address of a socket for one more process."""
        self._count += 1
        return Path(self._folder.name) / f"{self._count}.sock"

    def keep(self, run: Path, process: Running, address: Path) -> None:
        """Keep the process of a run as its worker, in place of an earlier one."""
        self._end(run)  # nothing is thrown away: the files that the run wrote belong to the new worker
        self._held[run.absolute()] = process, address

    def address_of(self, run: Path) -> Path | None:
        """Return the address of a run's worker, or None if the run has no worker that is alive."""
        process, address = self._held.get(run.absolute(), (None, Path()))
        return address if process is not None and process.poll() is None else None

    def ask(self, run: Path, request: Mapping[str, Any]) -> Mapping[str, Any] | None:
        """Return the answer of a run's worker, or None if there is no worker or it does not answer."""
        address = self.address_of(run)
        return None if address is None else _answer(address, request)

    def let_go(self, *runs: Path) -> None:
        """Let the workers of these runs end as they would have ended after their scripts, with all their output."""
        self._end(*runs)
        for run in runs:
            throw_away(run)

    def _end(self, *runs: Path) -> None:
        ending = [self._held.pop(run.absolute()) for run in runs if run.absolute() in self._held]
        for process, address in ending:
            if process.poll() is None:
                _answer(address, {"request": "quit"})
        for process, address in ending:
            process.end("exited", PATIENCE)
            address.unlink(missing_ok=True)

    def close_processes(self) -> None:
        """Let all workers end; new ones may be kept afterwards."""
        self.let_go(*self._held)

    def close(self) -> None:
        self.close_processes()
        self._folder.cleanup()


def _answer(address: Path, request: Mapping[str, Any]) -> Mapping[str, Any] | None:
    header = json.dumps({"fields": request, "segments": []}).encode()
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
            connection.settimeout(ANSWER_SECONDS)
            connection.connect(str(address))
            connection.sendall(LENGTH.pack(len(header)) + header)
            with connection.makefile("rb") as answer:
                (length,) = LENGTH.unpack(answer.read(LENGTH.size))
                fields: Mapping[str, Any] = json.loads(answer.read(length))["fields"]
    except (OSError, ValueError, KeyError, TypeError, struct.error):
        return None
    return None if "error" in fields else fields
