"""A script's streams given on as they come, byte for byte, besides being kept."""

from __future__ import annotations

import threading
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from .running_process import ProcessEnd
from .tail import Progress

POLL_SECONDS = 0.02


class PassThrough:
    """A reporter that says nothing itself: what comes into the files of a run is written out.

    `streams` are the files of standard output and standard error, each beside where it goes.
    """

    def __init__(self, streams: dict[Path, BinaryIO]) -> None:
        self._streams = streams
        self._offsets = dict.fromkeys(streams, 0)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._follow, name="numdrift pass-through", daemon=True)

    def started(self, name: str) -> None:
        self._thread.start()

    def progressed(self, name: str, progress: Progress) -> None:
        pass

    def ended(self, name: str, end: ProcessEnd) -> None:
        self._ended.set()
        self._thread.join()

    def _follow(self) -> None:
        while not self._ended.wait(POLL_SECONDS):
            self._copy()
        self._copy()

    def _copy(self) -> None:
        for path, output in self._streams.items():
            with suppress(FileNotFoundError), path.open("rb") as file:
                file.seek(self._offsets[path])
                data = file.read()
                self._offsets[path] += len(data)
                with suppress(BrokenPipeError):
                    output.write(data)
                    output.flush()
