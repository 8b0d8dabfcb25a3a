"""What a report shows, as plain rows: all that stands on the page is decided here, from an investigation's records.

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
from ..investigate.culprit_words import frames_of, from_here, lines_of, told_of
from ..records.codec import Unreadable
from ..records.culprit import Culprit
from ..records.culprit_detail import SUFFIX
from ..records.findings import INVESTIGATION, Findings, PairFindings, StepFindings
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
"""How a verdict looks: what is in no line needs a person, and is neither."""

LONGEST_SCRIPT = 60_000
"""Characters of a standalone script that stand on the page."""


@dataclass(frozen=True, slots=True)
class ProofRow:
    """One experiment: what was done, its z before and after, and whether it says what it should."""

    did: str
    before: float | None
    after: float | None
    holds: bool


@dataclass(frozen=True, slots=True)
class CulpritCard:
    """One cause: its title and what is said of it, a sentence each; the errors of both sides, in ULP from double;
    `script` is the text of its standalone script, `path` where that lies, `output` its last line; `detail` is what
    lies beside it."""

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
    """Everything that is shown of one pair; `share` is its score in parts of the threshold, at most 1.5."""

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
    """One thing that is known of the machine or the process of each run; `differs` where not all have the same."""

    name: str
    values: Sequence[str]
    differs: bool


@dataclass(frozen=True, slots=True)
class Report:
    """An investigation. `runs` are (mode, how it was given, how it ended, steps, seconds, message)."""

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
    """Read it all. Raises UsageError where nothing was investigated there, JournalError for a damaged record."""
    path = investigation / INVESTIGATION
    try:
        found = Findings.from_json(json.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        raise UsageError(
            f"{investigation} has no findings: `numdrift investigate {investigation}` makes them"
        ) from None
    except (OSError, ValueError, Unreadable, RecursionError) as error:
        raise JournalError(path, f"cannot be read: {error}") from error
    recorded = {run.manifest.mode: run for run in reversed(runs_in(investigation))}
    return report_from(found, [recorded[mode] for mode in found.runs if mode in recorded], investigation)


def report_from(found: Findings, shown: Sequence[RecordedRun], investigation: Path) -> Report:
    """The same of findings that are at hand, of these runs; evidence lies in the folder of the `investigation`."""
    modes = [run.manifest.mode for run in shown]
    first = shown[0].manifest if shown else None
    kernels = {run.manifest.label: RunKernels(run) for run in shown}
    specs = [f"--mode {json.dumps(one.spec or mode)}" for mode, one in found.runs.items()]
    arguments = " ".join(first.arguments) if first else ""
    return Report(
        name=investigation.resolve().name,
        script=found.reproducer,
        arguments=arguments,
        found=found,
        pairs=[_pair(investigation, pair, answer, shown, kernels) for pair, answer in answers_of(found)],
        runs=[
            (mode, one.spec or mode, one.status, one.steps, one.seconds, one.message)
            for mode, one in found.runs.items()
        ],
        modes=modes,
        environment=environment_rows(shown),
        curves=curves_of(shown, found),
        command=" ".join(["numdrift investigate", found.reproducer, *specs, *(["--", arguments] if arguments else [])]),
    )


def _pair(
    investigation: Path,
    pair: PairFindings,
    answer: PairAnswer,
    runs: Sequence[RecordedRun],
    kernels: Mapping[str, RunKernels],
) -> PairRows:
    graphs = pair_graphs(pair, runs)
    named, counted = told_of(pair.verdict, pair.culprits, suspects=pair.verdict == "beyond-rounding")
    return PairRows(
        findings=pair,
        answer=answer,
        tone="look" if pair.inspect else TONES.get(pair.verdict or "", "person"),
        cards=[_card(investigation, one, pair, kernels) for one in named],
        counted=counted,
        modules=module_rows(pair),
        heat=heat_map(pair),
        steps=sorted(pair.steps, key=lambda one: one.step),
        graphs=graphs,
        unchecked=[*not_checked(pair, runs), *([graphs.why] if graphs.why else [])],
    )


def _card(investigation: Path, one: Culprit, pair: PairFindings, kernels: Mapping[str, RunKernels]) -> CulpritCard:
    title, *lines = lines_of(one, pair.a, pair.b)
    proof = []
    if one.proof is not None:
        came, went = one.proof.swap_in, one.proof.swap_out
        proof = [
            ProofRow(f"forced into {pair.a}: the drift appears", came.score_before, came.score_after, came.holds),
            ProofRow(f"removed from {pair.b}: the drift goes", went.score_before, went.score_after, went.holds),
        ]
        if went.score_without_all is not None:
            gone = went.score_without_all < (went.score_before or 0.0)
            proof.append(
                ProofRow(
                    "all causes taken out together: the rest goes", went.score_before, went.score_without_all, gone
                )
            )
    script, path, beside = "", None, None
    if one.script is not None and one.script.path:
        path = _of_evidence(investigation, one.script.path)
        beside = _of_evidence(investigation, str(Path(one.script.path).with_suffix(SUFFIX)))
        with suppress(OSError):  # the evidence was removed since
            script = "" if path is None else path.read_text(encoding="utf-8", errors="replace")[:LONGEST_SCRIPT]
    return CulpritCard(
        title=title,
        op=one.op or "",
        module=one.module or "",
        proven=one.is_proven,
        fault=one.significance == "beyond-rounding",
        share=one.share_of_drift,
        lines=[line for line in lines if "shows it without numdrift" not in line],
        errors=[(name, one.error_ulp[side]) for side, name in (("a", pair.a), ("b", pair.b)) if side in one.error_ulp],
        proof=proof,
        frames=frames_of(one),
        ops=[(name, ", ".join(one.ops.get(side, ())) or "nothing") for side, name in (("a", pair.a), ("b", pair.b))],
        script=script,
        path=from_here(str(path)) if path is not None and script else "",
        output=(one.script.output or "") if one.script else "",
        command=one.command or "",
        detail=culprit_rows(beside, one, {"a": pair.a, "b": pair.b}, kernels),
    )


def _of_evidence(investigation: Path, path: str) -> Path | None:
    """A file of the evidence, wherever the investigation lies now; None for one outside of it, as the findings of a
    stranger may name."""
    parts = Path(path).parts
    if EVIDENCE not in parts:
        return None
    place = investigation.joinpath(*parts[len(parts) - 1 - parts[::-1].index(EVIDENCE) :])
    return place if place.resolve().is_relative_to((investigation / EVIDENCE).resolve()) else None


def environment_rows(runs: Sequence[RecordedRun]) -> list[EnvironmentRow]:
    """What every run says of its machine and process, and first what is not the same in all."""
    known: list[Mapping[str, str]] = []
    for run in runs:
        said = dict(run.manifest.environment)
        variables = said.pop("environment", {})
        plain = {name: _shown(value) for name, value in said.items() if name not in ("event", "seeded")}
        known.append({**plain, **{f"${name}": str(value) for name, value in dict(variables or {}).items()}})
    rows = []
    for name in dict.fromkeys(name for one in known for name in one):
        values = [one.get(name, "not set") for one in known]
        rows.append(EnvironmentRow(name.replace("_", " ") if name[0] != "$" else name, values, len(set(values)) > 1))
    return sorted(rows, key=lambda row: not row.differs)


def _shown(value: object) -> str:
    return ("yes" if value else "no") if isinstance(value, bool) else str(value)
