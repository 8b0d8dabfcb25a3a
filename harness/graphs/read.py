"""Reading the graphs of a run; nothing here writes."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from ..errors import GraphsNotFound, JournalError, nearest
from ..runs.find import RecordedRun
from .folder import FOLDER, INDEX
from .record import Graph


@dataclass(frozen=True, slots=True)
class GraphEntry:
    """One line of the index: a graph that was captured. `nodes` counts them."""

    name: str
    stage: str
    phase: str
    step: int
    nodes: int
    hash: str = ""
    pre: str = ""
    seconds: float | None = None
    notes: Sequence[str] = ()

    @property
    def base(self) -> str:
        """The name without the stage, which all stages of one graph share."""
        return self.name.removesuffix(f"-{self.stage}")


@dataclass(frozen=True, slots=True)
class Execution:
    """One execution of a graph: `graph` is its name without a stage, `cut` says why a lazy graph ended there."""

    step: int
    graph: str
    hash: str = ""
    cut: Mapping[str, str] | None = None


@dataclass(frozen=True)
class RunGraphs:
    """The graphs of one run."""

    run: RecordedRun

    @property
    def path(self) -> Path:
        return self.run.path / FOLDER

    @cached_property
    def entries(self) -> tuple[GraphEntry, ...]:
        return tuple(GraphEntry(**_without_event(one)) for one in self._events if one["event"] == "graph")

    @cached_property
    def executions(self) -> tuple[Execution, ...]:
        return tuple(Execution(**_without_event(one)) for one in self._events if one["event"] == "executed")

    @cached_property
    def counters(self) -> Mapping[int, Mapping[str, int]]:
        """What the compiler counted, by step."""
        found = [_without_event(one) for one in self._events if one["event"] == "counters"]
        return {one.pop("step"): one for one in found}

    @cached_property
    def unavailable(self) -> Sequence[tuple[str, str]]:
        """The stages that could not be captured, with the reason of each."""
        return [(one["stage"], one["reason"]) for one in self._events if one["event"] == "unavailable"]

    def graph(self, name: str) -> Graph:
        """Read one graph. Raises JournalError when its file cannot be read."""
        path = self.path / f"{name}.json"
        if path.parent != self.path:
            raise JournalError(path, "is no graph of this run")
        try:
            return Graph.from_json(json.loads(path.read_text(encoding="utf-8")))
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
            raise JournalError(path, f"cannot be read: {error}") from error

    def select(
        self, *, step: int | None = None, phase: str | None = None, stage: str | None = None
    ) -> list[GraphEntry]:
        """The graphs of this step, phase and stage, in the order of their capture. Raises GraphsNotFound, saying
        what there is."""
        found = self.entries
        for what, value, values_of in (
            ("step", step, lambda entry: (entry.step,)),
            ("phase", phase, lambda entry: entry.phase.split("+")),
            ("stage", stage, lambda entry: (entry.stage,)),
        ):
            known = dict.fromkeys(str(one) for entry in found for one in values_of(entry) if one != "")
            found = tuple(entry for entry in found if value is None or value in values_of(entry))
            if not found:
                reason = next((why for name, why in self.unavailable if name == value), "")
                hint = reason or nearest(str(value), known)
                raise GraphsNotFound(f"{self.run.path} has no graph of {what} {value}: {hint}")
        return list(found)

    @cached_property
    def _events(self) -> Sequence[dict[str, Any]]:
        return list(_lines(self.path / INDEX))


def graphs_of(run: RecordedRun) -> RunGraphs:
    """The graphs of a run. Raises GraphsNotFound, with the remedy, when it has none."""
    graphs = RunGraphs(run)
    if not graphs.entries:
        why = "".join(f" ({stage}: {reason})" for stage, reason in graphs.unavailable)
        raise GraphsNotFound(
            f"{run.path} recorded no graphs{why}; record them with "
            f"`numdrift run {run.manifest.reproducer} --mode {run.manifest.spec} --graphs`"
        )
    return graphs


def _lines(path: Path) -> Iterator[dict[str, Any]]:
    """The events of the index; a last line that a kill has torn is left out."""
    if not path.exists():
        return
    for number, line in enumerate(
        path.read_text(encoding="utf-8", errors="replace").splitlines(keepends=True), 1
    ):
        if not line.endswith("\n"):
            return
        try:
            event = json.loads(line)
        except ValueError as error:
            raise JournalError(path, f"line {number} is no event: {error}") from error
        if isinstance(event, dict) and "event" in event:
            yield event


def _without_event(event: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in event.items() if name != "event"}
