"""What became of each row, and the file that keeps it."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

SCHEMA = 1

SAME = ("device", "gpu", "torch", "python")
"""Facts of a machine in which runs have to agree whose rows are shown together."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """A row's result: what was expected and found, and in words what is `wrong` ("" where nothing is) or why it was
    `skipped`. `bare` are keys of the plain trainings that its seconds are compared with, `within` how many times as many
    and how many more they may be. `details` are numbers for the page."""

    name: str
    group: str
    what: str
    modes: Sequence[str]
    expected: str = ""
    found: str = ""
    expected_cause: str = ""
    cause: str = ""
    seconds: float = 0.0
    bare: Sequence[str] = field(default_factory=list)
    within: Sequence[float] = field(default_factory=list)
    wrong: str = ""
    skipped: str = ""
    details: Mapping[str, Any] = field(default_factory=dict)

    def late(self, bare: Mapping[str, float]) -> str:
        """Say that it took longer than it may; "" where it did not, or where that is not known."""
        if not self.within or self.skipped or not set(self.bare) <= bare.keys():
            return ""
        times, more = self.within
        allowed = times * sum(bare[key] for key in self.bare) + more
        return f"took {self.seconds:.0f} s, at most {allowed:.0f} s are allowed" if self.seconds > allowed else ""

    def problem(self, bare: Mapping[str, float]) -> str:
        return "; ".join(filter(None, [self.wrong, self.late(bare)]))


@dataclass(frozen=True, slots=True)
class Results:
    """Everything that the list has found in one run, or in several `runs` of which each went on with what the ones before it
    lacked. `machine` are facts by name, `bare` seconds of plain trainings."""

    machine: Mapping[str, str]
    rows: Sequence[Outcome] = ()
    bare: Mapping[str, float] = field(default_factory=dict)
    seconds: float = 0.0
    runs: int = 1
    schema: int = SCHEMA

    @property
    def is_as_expected(self) -> bool:
        return not any(row.problem(self.bare) for row in self.rows)

    def counts(self) -> tuple[int, int, int]:
        """Count the rows that are as expected, those that are not, and those that were skipped."""
        skipped = sum(bool(row.skipped) for row in self.rows)
        wrong = sum(bool(row.problem(self.bare)) for row in self.rows)
        return len(self.rows) - skipped - wrong, wrong, skipped

    def count(self) -> str:
        """Say how many rows there are of each kind."""
        right, wrong, skipped = self.counts()
        return f"{right} rows as expected, {wrong} not, {skipped} skipped, {self.seconds:.0f} s"

    def to_go_on_with(self, machine: Mapping[str, str]) -> Results:
        """Return what another run on the machine has no more to do.

        Raises SystemExit where these are the results of another machine, or of another torch.
        """
        differing = [name for name in SAME if self.machine.get(name) != machine.get(name)]
        if differing:
            there, here = (" ".join(str(facts.get(name)) for name in differing) for facts in (self.machine, machine))
            raise SystemExit(f"scripts/gpu: the results are of {there}, this is {here}: choose another --out")
        done = [row for row in self.rows if not row.skipped and not row.problem(self.bare)]
        return replace(self, machine=machine, rows=done, runs=self.runs + 1)

    def save(self, path: Path) -> None:
        """Write all of it at once, so that no reader ever sees a half of it."""
        part = path.with_suffix(".part")
        part.write_text(json.dumps(asdict(self), indent=1) + "\n", encoding="utf-8")
        part.replace(path)


def read_results(path: Path) -> Results:
    """Raises SystemExit for a file that is none of ours."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        if content["schema"] != SCHEMA:
            raise ValueError(f"schema {content['schema']}")
        return Results(**{**content, "rows": [Outcome(**row) for row in content["rows"]]})
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise SystemExit(f"scripts/gpu: {path} holds no results of this list: {error}") from None


class ResultsFile:
    """Results that grow: each row is in the file as soon as it is done."""

    def __init__(self, path: Path, results: Results) -> None:
        self._path = path
        self._lock = threading.Lock()
        self._results = results
        self._before = results.seconds
        self._results.save(path)

    @property
    def results(self) -> Results:
        with self._lock:
            return self._results

    def add(self, row: Outcome, seconds: float) -> None:
        with self._lock:
            self._put(seconds, rows=[*self._results.rows, row])

    def add_bare(self, key: str, took: float, seconds: float) -> None:
        with self._lock:
            self._put(seconds, bare={**self._results.bare, key: took})

    def order(self, names: Sequence[str], seconds: float) -> None:
        """Put the rows into the order of the list."""
        with self._lock:
            self._put(seconds, rows=sorted(self._results.rows, key=lambda row: names.index(row.name)))

    def _put(self, seconds: float, **changes: Any) -> None:
        self._results = replace(self._results, seconds=round(self._before + seconds, 1), **changes)
        self._results.save(self._path)
