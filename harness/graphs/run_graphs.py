"""Read the graphs of a run. This module writes nothing."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from functools import cached_property
from pathlib import Path
from typing import Any, TypeVar

from ..errors import GraphsNotFound, JournalError, nearest
from ..records.tools.graph_record import FOLDER, INDEX, SCHEMA, Cut, Graph, Node
from ..runs.recorded_run import RecordedRun

CONFIG = "config.json"
"""The file beside a run's manifest that contains the run's settings."""

INDEX_TYPES: dict[str, type] = {
    **dict.fromkeys(("name", "stage", "phase", "graph", "hash", "pre", "reason"), str),
    **dict.fromkeys(("step", "nodes"), int),
}

Read = TypeVar("Read")


@dataclass(frozen=True, slots=True)
class GraphEntry:
    """One line of the index: a captured graph. `nodes` is the number of its nodes."""

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
        """The name without the stage. All stages of one graph share this name."""
        return self.name.removesuffix(f"-{self.stage}")


@dataclass(frozen=True, slots=True)
class GraphExecution:
    """One execution of a graph.

    graph: the graph's name without the stage.
    cut: the reason why a lazy graph was cut, and the place of the cut.
    """

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
        return tuple(self._read("graph", lambda facts: GraphEntry(**facts)))

    @cached_property
    def executions(self) -> tuple[GraphExecution, ...]:
        return tuple(self._read("executed", lambda facts: GraphExecution(**facts)))

    @cached_property
    def counters(self) -> Mapping[int, Mapping[str, int]]:
        """The compiler's counters, by step."""
        return dict(self._read("counters", lambda facts: (facts.pop("step"), facts)))

    @cached_property
    def unavailable(self) -> Sequence[tuple[str, str]]:
        """The stages that could not be captured, each with its reason."""
        return self._read("unavailable", lambda facts: (facts["stage"], facts["reason"]))

    def graph(self, name: str) -> Graph:
        """Read one graph. Raises JournalError if its file cannot be read."""
        path = self.path / f"{name}.json"
        if path.parent != self.path:
            raise JournalError(path, "is not a graph of this run")
        data: Any = None
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            return Graph.from_json(data)
        except OSError as error:
            raise JournalError(path, f"cannot be read: {error.strerror}") from None
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
            raise JournalError(path, f"is not a graph record of schema {SCHEMA} ({_flaw(data)})") from None

    def select(
        self, *, step: int | None = None, phase: str | None = None, stage: str | None = None
    ) -> list[GraphEntry]:
        """Return the graphs of this step, phase and stage, in the order of their capture.

        Raises GraphsNotFound, which names the steps, phases or stages that exist.
        """
        entries = self.entries
        for what, value, values_of in (
            ("step", step, lambda entry: (entry.step,)),
            ("phase", phase, lambda entry: entry.phase.split("+")),
            ("stage", stage, lambda entry: (entry.stage,)),
        ):
            # The hint names only values of the remaining entries: with a step, the phases of that step.
            existing = dict.fromkeys(str(item) for entry in entries for item in values_of(entry) if item != "")
            entries = tuple(entry for entry in entries if value is None or value in values_of(entry))
            if not entries:
                reason = next((why for name, why in self.unavailable if name == value), "")
                hint = reason or nearest(str(value), existing)
                raise GraphsNotFound(f"{self.run.path} has no graph of {what} {value}: {hint}")
        return list(entries)

    def _read(self, event: str, make: Callable[[dict[str, Any]], Read]) -> list[Read]:
        """Read the lines of the index with this event. Raises JournalError if one lacks the event's fields."""
        records = []
        for number, line in self._events:
            if line["event"] != event:
                continue
            facts = {name: value for name, value in line.items() if name != "event"}
            try:
                if not all(isinstance(facts[name], kind) for name, kind in INDEX_TYPES.items() if name in facts):
                    raise TypeError
                records.append(make(facts))
            except (TypeError, KeyError):
                path = self.path / INDEX
                raise JournalError(path, f"line {number} lacks the fields of the event {event!r}") from None
        return records

    @cached_property
    def _events(self) -> Sequence[tuple[int, dict[str, Any]]]:
        """The events of the index with their line numbers."""
        path = self.path / INDEX
        if not path.exists():
            return ()
        try:
            text = path.read_text(encoding="utf-8", errors="replace")
        except OSError as error:
            raise JournalError(path, f"cannot be read: {error.strerror}") from None
        events = []
        for number, line in enumerate(text.splitlines(keepends=True), 1):
            if not line.endswith("\n"):
                break  # a kill cut off the last line
            try:
                event = json.loads(line)
            except ValueError as error:
                raise JournalError(path, f"line {number} is not an event: it is not JSON") from error
            if isinstance(event, dict) and "event" in event:
                events.append((number, event))
        return events


def graphs_of(run: RecordedRun) -> RunGraphs:
    """Return the graphs of a run. Raises GraphsNotFound, with the remedy, if the run has none."""
    graphs = RunGraphs(run)
    if graphs.entries:
        return graphs
    why = "".join(f" ({stage}: {reason})" for stage, reason in graphs.unavailable)
    # A run with `--graphs` but without graphs did not reach the requested steps.
    try:
        config = json.loads((run.path / CONFIG).read_text(encoding="utf-8"))
        requested = str(config.get("graph_steps", "")) if config.get("graphs") is True else ""
    except (OSError, ValueError, AttributeError):
        requested = ""
    if requested:
        steps = run.manifest.steps
        raise GraphsNotFound(
            f"{run.path} recorded no graphs{why}: --graphs requested step{'' if requested.isdigit() else 's'} "
            f"{requested}, but the run has {steps:,} step{'' if steps == 1 else 's'}"
        )
    raise GraphsNotFound(
        f"{run.path} recorded no graphs{why}; record them with "
        f"`numdrift run {run.manifest.reproducer} --mode {run.manifest.spec} --graphs`"
    )


def _flaw(data: Any) -> str:
    """Return the reason why parsed JSON (None if it was not JSON) is not a graph record."""
    if not isinstance(data, dict):
        return "it is not JSON" if data is None else "it is not a JSON object"
    if data.get("schema") != SCHEMA:
        return f"its schema is {data.get('schema', 'missing')}"
    # Report the outermost flaw: check the graph first, then its nodes, then its cut.
    nodes = data.get("nodes")
    for what, record, contents in (
        ("the graph", Graph, [data]),
        ("a node", Node, nodes if isinstance(nodes, list) else []),
        ("its cut", Cut, [data["cut"]] if data.get("cut") else []),
    ):
        required = {
            field.name: field.default is MISSING and field.default_factory is MISSING for field in fields(record)
        }
        for value in contents:
            if not isinstance(value, dict):
                return f"{what} is not a JSON object"
            if unknown := [name for name in value if name not in required]:
                return f"{what} has an unknown field {unknown[0]!r}"
            if missing := [name for name, needed in required.items() if needed and name not in value]:
                return f"{what} lacks the field {missing[0]!r}"
    return "a field has the wrong type"
