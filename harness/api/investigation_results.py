"""`Investigation` and `Comparison`: results that a notebook shows and a program reads."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..drift.loss_distance import absolute_difference, common_losses, relative_difference
from ..drift.run_comparison import RunComparison, compare_runs
from ..errors import JournalError, NumdriftError, RunNotFound
from ..records.codec import Unreadable
from ..records.findings import INVESTIGATION, Findings, known_content
from ..runs.recorded_run import RecordedRun, load_run
from .notebook_shown import comparison_html, investigation_html
from .pair_results import Culprit, Pair, pair_of

if TYPE_CHECKING:
    import pandas as pd

PARAMETER_COLUMNS = (
    "a",
    "b",
    "step",
    "name",
    "shape",
    "dtype",
    "max_ulp",
    "relative_l2",
    "max_absolute",
    "differing",
    "numel",
)
CULPRIT_COLUMNS = (
    "a", "b", "op", "phase", "module", "source", "step", "kind", "status", "significance", "share_of_drift",
    "swap_in_holds", "swap_out_holds", "script",
)  # fmt: skip
PAIR_COLUMNS = (
    "a", "b", "verdict", "first_differing_step", "first_significant_step", "score", "threshold", "closer_to_fp64",
)  # fmt: skip


@dataclass(frozen=True)
class Comparison:
    """Run b held against run a, the reference: their distances, and the verdict as far as it is recorded."""

    a: RecordedRun
    b: RecordedRun
    distances: RunComparison
    pair: Pair

    def __repr__(self) -> str:
        return f"Comparison({str(self.a.path)!r}, {str(self.b.path)!r}: {self.verdict or 'undecided'})"

    @property
    def verdict(self) -> str | None:
        """The pair's verdict; None while the experiments that decide are missing (`numdrift.investigate`
        makes them)."""
        return self.pair.verdict

    @property
    def identical(self) -> bool:
        """Whether no recorded bit differs."""
        return self.distances.identical

    @property
    def first_differing_step(self) -> int | None:
        return self.distances.first_differing_step

    def losses(self) -> pd.DataFrame:
        """The losses of both by step, and their distances: columns a, b, absolute, relative (to a)."""
        sides = [(one.journal.steps, [step.loss for step in one.journal.steps]) for one in (self.a, self.b)]
        (steps_a, losses_a), (steps_b, losses_b) = sides
        steps, a, b = common_losses([one.step for one in steps_a], losses_a, [one.step for one in steps_b], losses_b)
        columns = {
            "a": a,
            "b": b,
            "absolute": absolute_difference(a, b),
            "relative": relative_difference(a, b),
        }
        frame: pd.DataFrame = _pandas().DataFrame(columns, index=_pandas().Index(steps, name="step"))
        return frame

    def parameters(self) -> pd.DataFrame:
        """How far each parameter and buffer is apart after the last step of which both runs kept them."""
        return _frame(_parameter_rows(self.distances), PARAMETER_COLUMNS)

    def _repr_html_(self) -> str:
        return comparison_html(self)


@dataclass(frozen=True)
class Investigation:
    """What an investigation has found. `path` is its folder, `pairs` hold the reference against each other mode.

        found = numdrift.investigate("train.py", modes=["cpu", "compile"])
        found.pairs[0].verdict
        found.culprits_frame()

    `content` is what `investigation.json` says (docs/guide/investigation-json.md), `said` what was told while
    it was made: the rounds of runs, and what could not be done."""

    path: Path
    reproducer: str
    reference: str
    pairs: Sequence[Pair]
    content: Mapping[str, Any] = field(repr=False)
    said: Sequence[str] = field(default=(), repr=False, compare=False)

    @cached_property
    def runs(self) -> Mapping[str, RecordedRun]:
        """The recorded runs by their labels; one that has been removed is left out."""
        found = {}
        for label, told in self.content["runs"].items():
            try:
                found[label] = load_run(self.path / told["path"])
            except NumdriftError:
                continue
        return found

    @property
    def exit_code(self) -> int:
        """That of the command line: 0 without drift beyond rounding, 1 where a person is needed, 3 where a
        run failed."""
        return max((pair.exit_code for pair in self.pairs), default=0)

    @property
    def culprits(self) -> Sequence[Culprit]:
        """Those of all pairs."""
        return [culprit for pair in self.pairs for culprit in pair.culprits]

    def pair(self, b: str) -> Pair:
        """The pair of the reference and this mode. Raises RunNotFound, naming the modes that there are."""
        for pair in self.pairs:
            if pair.b == b:
                return pair
        raise RunNotFound(
            f"{self.path} holds {self.reference} against {', '.join(one.b for one in self.pairs)}, not {b}"
        )

    def losses(self) -> pd.DataFrame:
        """The loss of each step: a column a mode, a row a step."""
        frame: pd.DataFrame = _pandas().DataFrame({label: run.losses() for label, run in self.runs.items()})
        return frame.rename_axis("step")

    def verdicts(self) -> pd.DataFrame:
        """A row a pair: its verdict, steps, score and threshold."""
        return _frame([{name: getattr(pair, name) for name in PAIR_COLUMNS} for pair in self.pairs], PAIR_COLUMNS)

    def culprits_frame(self) -> pd.DataFrame:
        """A row a culprit of each pair: what and where it is, its share of the drift, and its proofs."""
        rows = [
            {name: getattr(culprit, name, None) for name in CULPRIT_COLUMNS} | {"a": pair.a, "b": pair.b}
            for pair in self.pairs
            for culprit in pair.culprits
        ]
        return _frame(rows, CULPRIT_COLUMNS)

    def parameters(self) -> pd.DataFrame:
        """How far each mode's parameters are from the reference's after the last step of which both were kept."""
        rows = []
        for pair in self.pairs:
            a, b = self.runs.get(pair.a), self.runs.get(pair.b)
            if a is not None and b is not None and a.journal.steps and b.journal.steps:
                rows += _parameter_rows(compare_runs(a, b))
        return _frame(rows, PARAMETER_COLUMNS)

    def _repr_html_(self) -> str:
        return investigation_html(self)


def load_investigation(path: Path | str) -> Investigation:
    """Read the `investigation.json` of a folder. Raises RunNotFound where there is none, JournalError for damage."""
    folder = Path(path)
    if not (folder / INVESTIGATION).exists():
        raise RunNotFound(f"{folder} has no {INVESTIGATION}: numdrift.investigate makes one")
    content = known_content(folder / INVESTIGATION)
    if content is None:
        raise JournalError(folder / INVESTIGATION, "is damaged, or of a schema that this version does not know")
    return investigation_of(content, folder)


def investigation_of(content: Mapping[str, Any], folder: Path, said: Sequence[str] = ()) -> Investigation:
    """What the content of an `investigation.json` says. Raises JournalError where it lacks what schema 1 has."""
    try:
        found = Findings.from_json(content)
    except Unreadable as error:
        why = error.why if error.why.startswith("lacks") and not error.place else f"is not as expected: {error}"
        raise JournalError(folder / INVESTIGATION, why) from error
    pairs = tuple(pair_of(*one) for one in zip(found.pairs, content["pairs"], strict=True))
    return Investigation(folder, found.reproducer, found.reference, pairs, content, said)


def _parameter_rows(compared: RunComparison) -> list[dict[str, Any]]:
    if compared.parameters is None:
        return []
    told = {"a": compared.a, "b": compared.b, "step": compared.parameters_step}
    return [told | asdict(drift) for drift in compared.parameters.drifts]


def _frame(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> pd.DataFrame:
    frame: pd.DataFrame = _pandas().DataFrame(list(rows), columns=list(columns))
    return frame


def _pandas() -> Any:
    return importlib.import_module("pandas")
