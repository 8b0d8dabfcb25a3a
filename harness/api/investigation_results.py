"""`Investigation`, `Comparison`, `Pair` and `Culprit`: results that a notebook shows and a program reads."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..drift.loss_distance import absolute_difference, common_losses, relative_difference
from ..drift.run_comparison import RunComparison, compare_runs
from ..errors import JournalError, NumdriftError, RunNotFound
from ..investigate.words.culprit_words import lines_of, named_culprits
from ..records.codec import NUMBERS, Unreadable
from ..records.results.findings import INVESTIGATION, WITHIN, Findings, PairFindings, usable_content
from ..runs.recorded_run import RecordedRun, load_run, pandas
from .notebook_shown import comparison_html, investigation_html

if TYPE_CHECKING:
    import pandas as pd

TAKEN = (
    "kind", "status", "significance", "phase", "module", "op", "source", "step", "share_of_drift", "error_ulp", "rho",
)  # fmt: skip
"""The fields that a `Culprit` copies from its record."""

PARAMETER_COLUMNS = (
    "a", "b", "step", "name", "shape", "dtype", "max_ulp", "relative_l2", "max_absolute", "differing", "numel",
    "scale_ulp",
)  # fmt: skip
CULPRIT_COLUMNS = (
    "a", "b", "op", "phase", "module", "source", "step", "kind", "status", "significance", "share_of_drift",
    "swap_in_holds", "swap_out_holds", "script",
)  # fmt: skip
PAIR_COLUMNS = (
    "a", "b", "verdict", "first_differing_step", "first_significant_step", "score", "threshold", "closer_to_fp64",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Culprit:
    """One cause of a pair's drift.

    status: `culprit` if both proofs hold, else `suspect`
    share_of_drift: from 0 to 1
    error_ulp, rho: the values of both runs, by `a` and `b`
    script: the standalone script that shows the drift, None if none reproduces it
    text: sentences for the reader
    content: the entry in `investigation.json` (docs/guide/investigation-json.md)
    """

    kind: str
    status: str | None
    significance: str | None
    phase: str | None
    module: str | None
    op: str | None
    source: str | None
    step: int | None
    share_of_drift: float | None
    swap_in_holds: bool | None
    swap_out_holds: bool | None
    error_ulp: Mapping[str, float]
    rho: Mapping[str, float]
    script: Path | None
    text: Sequence[str] = field(repr=False)
    content: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Pair:
    """The findings on two runs. `a` and `b` are labels of runs; `a` is the reference.

    verdict: identical, rounding, beyond-rounding, different-setup, nondeterministic, nonfinite or failed;
        None if undecided
    undecided: the reason why the pair is undecided, "" if it has a verdict
    score, threshold: multiples of the reference's rounding noise
    explained: the share of the drift that disappears when all proven culprits are swapped out together
    unexplained: a sentence on the remaining drift
    named_culprits: the culprits that an experiment supports, and the number of the others
    content: as in `Culprit`
    exit_code: as on the command line, 0 without drift beyond rounding
    """

    a: str
    b: str
    verdict: str | None
    undecided: str
    text: Sequence[str] = field(repr=False)
    notes: Sequence[str] = field(repr=False)
    first_differing_step: int | None
    first_significant_step: int | None
    score: float | None
    threshold: float | None
    closer_to_fp64: str | None
    culprits: Sequence[Culprit] = field(repr=False)
    explained: float | None
    unexplained: str = field(repr=False)
    content: Mapping[str, Any] = field(repr=False)
    named_culprits: tuple[Sequence[Culprit], int] = field(repr=False)

    @property
    def exit_code(self) -> int:
        if self.verdict == "failed":
            return 3
        return 0 if self.verdict in WITHIN else 1


@dataclass(frozen=True)
class Comparison:
    """Run b compared with run a, the reference: their distances, and the verdict if one is recorded."""

    a: RecordedRun
    b: RecordedRun
    distances: RunComparison
    pair: Pair

    def __repr__(self) -> str:
        return f"Comparison({str(self.a.path)!r}, {str(self.b.path)!r}: {self.verdict or 'undecided'})"

    @property
    def verdict(self) -> str | None:
        """The pair's verdict; None if the experiments of `numdrift.investigate` that decide it are missing."""
        return self.pair.verdict

    @property
    def identical(self) -> bool:
        """True if no recorded bit differs."""
        return self.distances.identical

    @property
    def first_differing_step(self) -> int | None:
        return self.distances.first_differing_step

    def losses(self) -> pd.DataFrame:
        """Return both runs' losses by step, and their distances: columns a, b, absolute, relative (to a)."""
        sides = [(run.journal.steps, [record.loss for record in run.journal.steps]) for run in (self.a, self.b)]
        (steps_a, losses_a), (steps_b, losses_b) = sides
        steps, a, b = common_losses(
            [record.step for record in steps_a], losses_a, [record.step for record in steps_b], losses_b
        )
        columns = {"a": a, "b": b, "absolute": absolute_difference(a, b), "relative": relative_difference(a, b)}
        frame: pd.DataFrame = pandas().DataFrame(columns, index=pandas().Index(steps, name="step"))
        return frame

    def parameters(self) -> pd.DataFrame:
        """Return the distances of parameters and buffers after the last step for which both runs kept them."""
        return _frame(_parameter_rows(self.distances), PARAMETER_COLUMNS)

    def _repr_html_(self) -> str:
        return comparison_html(self)


@dataclass(frozen=True)
class Investigation:
    """The findings of an investigation. `path` is its folder; `pairs` compare the modes with the reference.

        found = numdrift.investigate("train.py", modes=["cpu", "compile"])
        found.pairs[0].verdict
        found.culprits_frame()

    `content` is the content of `investigation.json` (docs/guide/investigation-json.md). `messages` holds
    the progress messages: one for each round of runs, and one for each piece of work that could not be done."""

    path: Path
    reproducer: str
    reference: str
    pairs: Sequence[Pair]
    content: Mapping[str, Any] = field(repr=False)
    messages: Sequence[str] = field(default=(), repr=False, compare=False)

    @cached_property
    def runs(self) -> Mapping[str, RecordedRun]:
        """The recorded runs by label, except those that have been removed."""
        runs = {}
        for label, entry in self.content["runs"].items():  # the path is relative: the folder may have been moved
            try:
                runs[label] = load_run(self.path / entry["path"])
            except NumdriftError:
                continue
        return runs

    @property
    def exit_code(self) -> int:
        """The exit code of the command line: 0 without drift beyond rounding, 1 if a verdict needs attention, 3 if a
        run failed."""
        return max((pair.exit_code for pair in self.pairs), default=0)

    @property
    def culprits(self) -> Sequence[Culprit]:
        """The culprits of all pairs."""
        return [culprit for pair in self.pairs for culprit in pair.culprits]

    def pair(self, b: str) -> Pair:
        """Return the pair of the reference and mode `b`.

        Raises RunNotFound if there is no such pair; the error names the modes that exist.
        """
        for pair in self.pairs:
            if pair.b == b:
                return pair
        raise RunNotFound(
            f"{self.path} compares only {', '.join(other.b for other in self.pairs)} with {self.reference}, not {b}"
        )

    def losses(self) -> pd.DataFrame:
        """Return the loss of each step: one column per mode, one row per step."""
        frame: pd.DataFrame = pandas().DataFrame({label: run.losses() for label, run in self.runs.items()})
        return frame.rename_axis("step")

    def verdicts(self) -> pd.DataFrame:
        """Return one row per pair: its verdict, steps, score and threshold."""
        return _frame([{name: getattr(pair, name) for name in PAIR_COLUMNS} for pair in self.pairs], PAIR_COLUMNS)

    def culprits_frame(self) -> pd.DataFrame:
        """Return one row per culprit of each pair: its op and site, its share of the drift, and its proofs."""
        rows = [
            {name: getattr(culprit, name, None) for name in CULPRIT_COLUMNS} | {"a": pair.a, "b": pair.b}
            for pair in self.pairs
            for culprit in pair.culprits
        ]
        return _frame(rows, CULPRIT_COLUMNS)

    def parameters(self) -> pd.DataFrame:
        """Return the distances of each mode's parameters from the reference's, after the last step for which both kept
        them."""
        # computed from the runs: `investigation.json` has no row for each parameter
        rows = []
        for pair in self.pairs:
            a, b = self.runs.get(pair.a), self.runs.get(pair.b)
            if a is not None and b is not None and a.journal.steps and b.journal.steps:
                rows += _parameter_rows(compare_runs(a, b))
        return _frame(rows, PARAMETER_COLUMNS)

    def _repr_html_(self) -> str:
        return investigation_html(self)


def load_investigation(path: Path | str) -> Investigation:
    """Read the `investigation.json` of a folder. Raises RunNotFound if there is none, JournalError if it is damaged."""
    folder = Path(path)
    if not (folder / INVESTIGATION).exists():
        raise RunNotFound(f"{folder} has no {INVESTIGATION}: call numdrift.investigate first")
    content = usable_content(folder / INVESTIGATION)
    if content is None:
        raise JournalError(folder / INVESTIGATION, "is damaged, or has a schema that this version does not know")
    return investigation_of(content, folder)


def investigation_of(content: Mapping[str, Any], folder: Path, texts: Sequence[str] = ()) -> Investigation:
    """Return the content of an `investigation.json` as an Investigation. Raises JournalError for content that does not
    follow schema 1."""
    try:
        findings = Findings.from_json(content)
    except Unreadable as error:  # written by another version, or edited by hand
        why = error.why if error.why.startswith("lacks") and not error.place else f"is not as expected: {error}"
        raise JournalError(folder / INVESTIGATION, why) from error
    pairs = tuple(
        _pair_of(pair, with_numbers(data)) for pair, data in zip(findings.pairs, content["pairs"], strict=True)
    )
    return Investigation(folder, findings.reproducer, findings.reference, pairs, content, texts)


def _pair_of(findings: PairFindings, content: Mapping[str, Any]) -> Pair:
    """Return the pair of these findings; `content` is its entry in `investigation.json`."""
    culprits = []
    for record, written in zip(findings.culprits, content.get("culprits", ()), strict=True):
        proof, script = record.proof, record.script  # a set-up difference has neither site nor proof
        culprits.append(
            Culprit(
                **{name: getattr(record, name) for name in TAKEN},
                swap_in_holds=None if proof is None else proof.swap_in.holds,
                swap_out_holds=None if proof is None else proof.swap_out.holds,
                script=Path(script.path) if script is not None and script.reproduces and script.path else None,
                text=tuple(lines_of(record, findings.a, findings.b)),
                content=written,
            )
        )
    named, counted = named_culprits(findings.verdict, findings.culprits)
    listed = [
        culprit
        for finding, culprit in zip(findings.culprits, culprits, strict=True)
        if finding in named or finding.proof is None
    ]
    return Pair(
        **{name: getattr(findings, name) for name in PAIR_COLUMNS},
        explained=findings.explained,
        unexplained=findings.unexplained,
        named_culprits=(tuple(listed), counted),
        undecided=findings.undecided,
        text=tuple(findings.text),
        notes=tuple(findings.notes),
        culprits=tuple(culprits),
        content=content,
    )


def with_numbers(value: Any) -> Any:
    """Return a JSON value with numbers in place of the strings that represent NaN and infinities in JSON."""
    if isinstance(value, Mapping):
        return {key: with_numbers(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [with_numbers(item) for item in value]
    return NUMBERS.get(value, value) if isinstance(value, str) else value


def _parameter_rows(compared: RunComparison) -> list[dict[str, Any]]:
    if compared.parameters is None:
        return []
    pair_columns = {"a": compared.a, "b": compared.b, "step": compared.parameters_step}
    return [pair_columns | asdict(drift) for drift in compared.parameters.drifts]


def _frame(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> pd.DataFrame:
    frame: pd.DataFrame = pandas().DataFrame(list(rows), columns=list(columns))
    return frame
