"""The rows of a report. This module derives everything on the page from an investigation's records.

rows = report_of(Path("runs/train"))
rows.pairs[0].answer.sentence      "compile computes tanh_backward less exactly in layers.1 ...; nothing to do"
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ..errors import JournalError, UsageError
from ..investigate.words.culprit_words import frames_of, from_here, lines_of, named_culprits
from ..records.codec import Unreadable
from ..records.results.culprit import Culprit
from ..records.results.culprit_detail import SUFFIX
from ..records.results.findings import INVESTIGATION, Findings, PairFindings, StepFindings
from ..runs.recorded_run import RecordedRun, runs_in
from ..runs.run_layout import EVIDENCE
from .answer import PairAnswer, answers_of
from .culprit_rows import CulpritRows, culprit_rows
from .curves import DrawnCurves, curves_of
from .not_checked import not_checked
from .pair_graphs import PairGraphs, pair_graphs
from .run_kernels import RunKernels
from .where import HeatMap, ModuleRow, heat_map, module_rows

TONES = {"identical": "good", "rounding": "good", "beyond-rounding": "bad", "failed": "bad", "nonfinite": "bad"}
"""The tone of a verdict. A verdict that is not listed is neither good nor bad: a person has to look at the pair."""

LONGEST_SCRIPT = 60_000
"""The largest number of characters of a standalone script that the page shows."""


@dataclass(frozen=True, slots=True)
class ProofRow:
    """One experiment of a proof.

    did: what was done and what it should cause, in words
    before, after: the score z without and with the change
    holds: whether the result is as expected
    """

    did: str
    before: float | None
    after: float | None
    holds: bool


@dataclass(frozen=True, slots=True)
class CulpritCard:
    """One cause: its title, the sentences about it, and the errors of both sides, compared with double, in ULP.

    script, path, output: the text of the cause's standalone script, the script's path, and the script's last line of
        output
    detail: the rows from the file beside the script
    """

    title: str
    op: str
    module: str
    proven: bool
    fault: bool
    share: float | None
    lines: Sequence[str]
    errors: Sequence[tuple[str, float]]
    proof: Sequence[ProofRow]
    frames: str
    ops: Sequence[tuple[str, str]]
    script: str
    path: str
    output: str
    command: str
    detail: CulpritRows


@dataclass(frozen=True, slots=True)
class PairRows:
    """The rows of one pair.

    counted: the number of causes that have no card
    share: the pair's score as a multiple of the threshold, at most 1.5
    """

    findings: PairFindings
    answer: PairAnswer
    tone: str
    cards: Sequence[CulpritCard]
    counted: int
    modules: Sequence[ModuleRow]
    heat: HeatMap
    steps: Sequence[StepFindings]
    graphs: PairGraphs
    unchecked: Sequence[str]

    @property
    def share(self) -> float:
        score, threshold = self.findings.score, self.findings.threshold
        return min(1.5, score / threshold) if score is not None and threshold else 0.0


@dataclass(frozen=True, slots=True)
class EnvironmentRow:
    """One fact about the machine or the process, with its value in each run. `differs` is true if the values differ."""

    name: str
    values: Sequence[str]
    differs: bool


@dataclass(frozen=True, slots=True)
class Report:
    """The report of an investigation.

    `runs` contains, for each run, the mode, the mode as the user wrote it, the status, the number of steps, the seconds
    and the message.
    """

    name: str
    script: str
    arguments: str
    found: Findings
    pairs: Sequence[PairRows]
    runs: Sequence[tuple[str, str, str, int, float, str]]
    modes: Sequence[str]
    environment: Sequence[EnvironmentRow]
    curves: DrawnCurves
    command: str


def report_of(investigation: Path) -> Report:
    """Read the report of an investigation.

    Raises UsageError if nothing was investigated, JournalError for a damaged record.
    """
    path = investigation / INVESTIGATION
    try:
        findings = Findings.from_json(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise UsageError(f"{investigation} has no findings: run `numdrift investigate {investigation}` first") from None
    except (OSError, ValueError, Unreadable, RecursionError) as error:
        raise JournalError(path, f"cannot be read: {error}") from error
    recorded = {run.manifest.mode: run for run in reversed(runs_in(investigation))}
    return report_from(findings, [recorded[mode] for mode in findings.runs if mode in recorded], investigation)


def report_from(findings: Findings, shown: Sequence[RecordedRun], investigation: Path) -> Report:
    """Build the report from findings that are in memory. `shown` are the runs that the findings are about, and
    `investigation` is the folder with the evidence."""
    modes = [run.manifest.mode for run in shown]
    first = shown[0].manifest if shown else None
    kernels = {run.manifest.label: RunKernels(run) for run in shown}
    specs = [f"--mode {json.dumps(ending.spec or mode)}" for mode, ending in findings.runs.items()]
    arguments = " ".join(first.arguments) if first else ""
    return Report(
        name=investigation.resolve().name,
        script=findings.reproducer,
        arguments=arguments,
        found=findings,
        pairs=[_pair(investigation, pair, answer, shown, kernels) for pair, answer in answers_of(findings)],
        runs=[
            (mode, ending.spec or mode, ending.status, ending.steps, ending.seconds, ending.message)
            for mode, ending in findings.runs.items()
        ],
        modes=modes,
        environment=environment_rows(shown),
        curves=curves_of(shown, findings),
        command=" ".join(
            ["numdrift investigate", findings.reproducer, *specs, *(["--", arguments] if arguments else [])]
        ),
    )


def _pair(
    investigation: Path,
    pair: PairFindings,
    answer: PairAnswer,
    runs: Sequence[RecordedRun],
    kernels: Mapping[str, RunKernels],
) -> PairRows:
    graphs = pair_graphs(pair, runs)
    named, counted = named_culprits(pair.verdict, pair.culprits, suspects=pair.verdict == "beyond-rounding")
    return PairRows(
        findings=pair,
        answer=answer,
        tone="look" if pair.inspect else TONES.get(pair.verdict or "", "person"),
        cards=[_card(investigation, culprit, pair, kernels) for culprit in named],
        counted=counted,
        modules=module_rows(pair),
        heat=heat_map(pair),
        steps=sorted(pair.steps, key=lambda step: step.step),
        graphs=graphs,
        unchecked=[*not_checked(pair, runs), *([graphs.why] if graphs.why else [])],
    )


def _card(investigation: Path, culprit: Culprit, pair: PairFindings, kernels: Mapping[str, RunKernels]) -> CulpritCard:
    title, *lines = lines_of(culprit, pair.a, pair.b)
    proof = []
    if culprit.proof is not None:
        into, out = culprit.proof.swap_in, culprit.proof.swap_out
        proof = [
            ProofRow(f"swapped into {pair.a}: the drift appears", into.score_before, into.score_after, into.holds),
            ProofRow(f"swapped out of {pair.b}: the drift disappears", out.score_before, out.score_after, out.holds),
        ]
        if out.score_without_all is not None:
            gone = out.score_without_all < (out.score_before or 0.0)
            proof.append(
                ProofRow(
                    "all causes swapped out together: the rest of the drift disappears",
                    out.score_before,
                    out.score_without_all,
                    gone,
                )
            )
    script, path, beside = "", None, None
    if culprit.script is not None and culprit.script.path:
        path = _of_evidence(investigation, culprit.script.path)
        beside = _of_evidence(investigation, str(Path(culprit.script.path).with_suffix(SUFFIX)))
        with suppress(OSError):  # the evidence may have been removed
            script = "" if path is None else path.read_text(encoding="utf-8", errors="replace")[:LONGEST_SCRIPT]
    return CulpritCard(
        title=title,
        op=culprit.op or "",
        module=culprit.module or "",
        proven=culprit.is_proven,
        fault=culprit.significance == "beyond-rounding",
        share=culprit.share_of_drift,
        lines=[line for line in lines if "shows it without numdrift" not in line],
        errors=[
            (name, culprit.error_ulp[side])
            for side, name in (("a", pair.a), ("b", pair.b))
            if side in culprit.error_ulp
        ],
        proof=proof,
        frames=frames_of(culprit),
        ops=[
            (name, ", ".join(culprit.ops.get(side, ())) or "nothing") for side, name in (("a", pair.a), ("b", pair.b))
        ],
        script=script,
        path=from_here(str(path)) if path is not None and script else "",
        output=(culprit.script.output or "") if culprit.script else "",
        command=culprit.command or "",
        detail=culprit_rows(beside, culprit, {"a": pair.a, "b": pair.b}, kernels),
    )


def _of_evidence(investigation: Path, path: str) -> Path | None:
    """Return the path of a file of the evidence, even if the investigation's folder was moved. Return None for a file
    outside of the evidence: findings from somebody else may name any file."""
    parts = Path(path).parts
    if EVIDENCE not in parts:
        return None
    place = investigation.joinpath(*parts[len(parts) - 1 - parts[::-1].index(EVIDENCE) :])
    return place if place.resolve().is_relative_to((investigation / EVIDENCE).resolve()) else None


def environment_rows(runs: Sequence[RecordedRun]) -> list[EnvironmentRow]:
    """Return the facts about the runs' machines and processes. Facts that differ between the runs come first."""
    facts_of_runs: list[Mapping[str, str]] = []
    for run in runs:
        facts = dict(run.manifest.environment)
        variables = facts.pop("environment", {})
        plain = {name: _shown(value) for name, value in facts.items() if name not in ("event", "seeded")}
        facts_of_runs.append({**plain, **{f"${name}": str(value) for name, value in dict(variables or {}).items()}})
    rows = []
    for name in dict.fromkeys(name for of_run in facts_of_runs for name in of_run):
        values = [of_run.get(name, "not set") for of_run in facts_of_runs]
        rows.append(EnvironmentRow(name.replace("_", " ") if name[0] != "$" else name, values, len(set(values)) > 1))
    return sorted(rows, key=lambda row: not row.differs)


def _shown(value: object) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)
