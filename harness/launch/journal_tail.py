"""The progress of a run that has not ended, read from its event log while the log grows."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Understood:
    """A fact that a run found in its script, or failed to find (`kind` is "doubt").

    `source` is a file and line, or empty.
    """

    kind: str
    text: str
    source: str


@dataclass(frozen=True, slots=True)
class Compilations:
    """The graphs that a run has compiled.

    graphs: number of compiled graphs; includes the graph that is `under_way`
    line: the script's line that called the graph under way
    since: time at which the compilation under way was first seen, as `time.monotonic()`
    again: number of the graph that is being compiled again to look inside it; it is not counted twice
    """

    graphs: int = 0
    under_way: bool = False
    backward: bool = False
    line: str = ""
    since: float = 0.0
    again: int = 0


@dataclass(frozen=True, slots=True)
class JournalProgress:
    """The progress of a run.

    steps: number of ended steps
    loss: the last loss; None if that step had none
    seconds: seconds of training
    understood: facts found in the script so far
    compilations: the graphs that the run has compiled
    """

    steps: int
    loss: float | None
    seconds: float
    understood: tuple[Understood, ...] = ()
    compilations: Compilations = Compilations()
    silent_since: float | None = None
    """Beginning of the current step, as `time.monotonic()`, if the run has written nothing for a while."""


SILENT_SECONDS = 30.0
"""Seconds without an ended step or a compilation after which a run is reported as still alive."""


class Tail:
    """Reads the lines that were added to an event log since the last look."""

    def __init__(self, events: Path) -> None:
        self._events = events
        self._offset = 0
        self._began = self._heard = time.monotonic()  # start of the step, last sign of progress
        self._ended = False
        self.ended_well = False
        self.progress = JournalProgress(0, None, 0.0)

    def advance(self) -> bool:
        """Read the new lines. Return whether there is something to report.

        There is something to report if a step has ended since the last call, if a graph is being compiled, or if
        neither has happened for SILENT_SECONDS. In the last case, every call returns True until something happens.
        """
        try:
            with self._events.open("rb") as file:
                file.seek(self._offset)
                text = file.read()
        except FileNotFoundError:  # the process is still starting
            text = b""
        complete = text[: text.rfind(b"\n") + 1]  # the process may still be writing the last line
        self._offset += len(complete)
        lines = complete.splitlines()
        understood = list(self.progress.understood)
        compilations, now = self.progress.compilations, time.monotonic()
        for line in lines:
            if line.startswith((b'{"event":"adoption"', b'{"event":"doubt"')):
                event: dict[str, Any] = json.loads(line)
                understood.append(Understood(event.get("kind", "doubt"), event["text"], event["source"]))
            elif line.startswith(b'{"event":"compiling"'):
                event = json.loads(line)
                again = event.get("again", 0)
                graphs = compilations.graphs + (not again)
                compilations = Compilations(graphs, True, event["backward"], event["line"], now, again)
            elif line.startswith(b'{"event":"compiled"'):
                compilations, self._heard = Compilations(compilations.graphs), now
        if lines and lines[-1].startswith(b'{"event":"end"'):
            self._ended = True
            self.ended_well = json.loads(lines[-1]).get("exit_code") == 0
        # Steps are recognized by their first bytes and only the last one is parsed: a fast script writes thousands
        # between two looks.
        steps = [line for line in lines if line.startswith(b'{"event":"step"')]
        if not steps:
            silent = now - self._heard >= SILENT_SECONDS and not (compilations.under_way or self._ended)
            since = self._began if silent else None
            facts = tuple(understood)
            self.progress = replace(self.progress, understood=facts, compilations=compilations, silent_since=since)
            return compilations.under_way or silent
        self._began = self._heard = now
        last: dict[str, Any] = json.loads(steps[-1])
        losses = last["losses"]
        loss = float(losses[0]) if losses else None
        self.progress = JournalProgress(last["step"] + 1, loss, last["seconds"], tuple(understood), compilations)
        return True
