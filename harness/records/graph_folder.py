"""The graphs of a run on disk: `graphs/graphs.jsonl`, one line an event, and one JSON file a graph.

    {"event": "graph", "name": "0-backward-pre", "stage": "pre", "phase": "backward", "step": 0, "nodes": 31, ...}
    {"event": "executed", "step": 0, "graph": "0-backward-pre", "hash": "...", "cut": {...}}
    {"event": "counters", "step": 0, "compiled": 4, "cached": 0, ...}
    {"event": "unavailable", "stage": "post", "reason": "..."}

The process of the script appends; what was written survives a kill.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from .event_lines import append_event
from .graph_record import Cut, Graph

FOLDER = "graphs"
INDEX = "graphs.jsonl"
LAZY_DUMP = "lazy-graphs.txt"
"""What the lazy core itself writes, while it runs; see `lazy_dump`."""


def lazy_dump(run: Path) -> dict[str, str]:
    """The variables by which the lazy core writes each graph that it executes; it reads them once, at its first."""
    return {"LTC_SAVE_TENSORS_FILE": str(run / FOLDER / LAZY_DUMP), "LTC_SAVE_TENSORS_FMT": "text"}


class GraphFolder:
    """The writing side. `mode` is the name of the run's mode; `step` is set by whoever follows the training."""

    def __init__(self, folder: Path, mode: str) -> None:
        self.path = folder
        self.mode = mode
        self.step = 0
        self._names: Counter[str] = Counter()
        self._closed = False
        folder.mkdir(parents=True, exist_ok=True)

    def reserve(self, phase: str) -> str:
        """A name for a graph of this step, without its stage: `0-backward`, then `0-backward-2` and so on.

        The stages of one graph share it: `0-backward-pre`, `0-backward-post`.
        """
        base = f"{self.step}-{phase or 'other'}"
        self._names[base] += 1
        return base if self._names[base] == 1 else f"{base}-{self._names[base]}"

    def write(self, graph: Graph) -> None:
        """Write a graph, whose name ends in its stage, and its line in the index. Raises OSError (disk full)."""
        if self._closed:
            return
        graph = replace(graph, mode=self.mode)  # a capture does not know what the user calls the mode
        path = self.path / f"{graph.name}.json"
        written = path.with_name(f".{path.name}.{os.getpid()}")
        written.write_text(json.dumps(graph.to_json(), separators=(",", ":")), encoding="utf-8")
        written.replace(path)  # in one piece, and before its line: whoever knows its name finds all of it
        facts = {name: getattr(graph, name) for name in ("name", "stage", "phase", "step", "hash", "pre", "seconds")}
        self._event("graph", **facts, nodes=len(graph.nodes), notes=list(graph.notes))

    def executed(self, graph: str, hash_: str = "", cut: Cut | None = None) -> None:
        """Note that a graph was executed in this step. `graph` is its reserved name, without a stage."""
        facts = None if cut is None else {"reason": cut.reason, "op": cut.op, "source": cut.source}
        self._event("executed", step=self.step, graph=graph, hash=hash_, cut=facts)

    def counters(self, values: Mapping[str, int]) -> None:
        """Note what the mode's compiler counted in this step: `compiled`, `cached`, and its own names."""
        self._event("counters", step=self.step, **values)

    def unavailable(self, stage: str, reason: str) -> None:
        """Note that graphs of a stage cannot be had, and why."""
        self._event("unavailable", stage=stage, reason=reason)

    def close(self) -> None:
        """Write nothing any more (also in a fork of the process)."""
        self._closed = True

    def _event(self, event: str, **fields: Any) -> None:
        if not self._closed:
            append_event(self.path / INDEX, event, **fields)
