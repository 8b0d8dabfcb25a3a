"""Following what a run writes while it runs: its journal, and what its script prints."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

if TYPE_CHECKING:
    from .running_process import ProcessEnd


@dataclass(frozen=True, slots=True)
class Understood:
    """What a run has made of its script, or (`kind` is "doubt") not; `source` is a file and line, or empty."""

    kind: str
    text: str
    source: str


@dataclass(frozen=True, slots=True)
class JournalProgress:
    """How far a run is: `steps` ended so far, the last loss (None where a step had none), seconds of training, and
    what was understood of the script so far."""

    steps: int
    loss: float | None
    seconds: float
    understood: tuple[Understood, ...] = ()


class Tail:
    """Reads the lines that came to an event log since the last look."""

    def __init__(self, events: Path) -> None:
        self._events = events
        self._offset = 0
        self.progress = JournalProgress(0, None, 0.0)

    def advance(self) -> bool:
        """Read on; says whether a step has ended since the last call."""
        try:
            with self._events.open("rb") as file:
                file.seek(self._offset)
                text = file.read()
        except FileNotFoundError:
            return False
        complete = text[: text.rfind(b"\n") + 1]
        self._offset += len(complete)
        lines = complete.splitlines()
        understood = self.progress.understood + tuple(_understood(lines))
        steps = [line for line in lines if line.startswith(b'{"event":"step"')]
        if not steps:
            self.progress = replace(self.progress, understood=understood)
            return False
        last: dict[str, Any] = json.loads(steps[-1])
        losses = last["losses"]
        loss = float(losses[0]) if losses else None
        self.progress = JournalProgress(last["step"] + 1, loss, last["seconds"], understood)
        return True


def _understood(lines: Sequence[bytes]) -> Iterator[Understood]:
    for line in lines:
        if line.startswith((b'{"event":"adoption"', b'{"event":"doubt"')):
            event: dict[str, Any] = json.loads(line)
            yield Understood(event.get("kind", "doubt"), event["text"], event["source"])


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

    def progressed(self, name: str, progress: JournalProgress) -> None:
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
