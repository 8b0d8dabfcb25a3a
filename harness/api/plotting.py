"""Draws the figures of `numdrift plot`: losses, envelopes, drifts and times of an investigation.

Paths have no file extension, since each figure is written in all `FORMATS`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from matplotlib.figure import Figure

from numdrift.plots.appearance import save
from numdrift.plots.curve import Curve
from numdrift.plots.drift_heatmap import ScoredStep, drift_heatmap
from numdrift.plots.envelope import envelope
from numdrift.plots.loss_curve import loss_curve
from numdrift.plots.loss_drift import loss_drift
from numdrift.plots.step_timeline import TimelineStep, step_timeline

from ..drift.curve_envelope import Envelope
from ..errors import CollisionError, JournalError, UsageError
from ..records.results.findings import INVESTIGATION, SCHEMA
from ..records.tools.backend_work import WORKED
from ..runs.recorded_run import RecordedRun, find_investigation, runs_with_suffixes
from ..runs.run_layout import InvestigationFolder
from .chosen_runs import metrics_of_runs

FORMATS = ("png", "svg")
SUBJECTS = ("loss", "envelope", "drift", "timeline")

Figures = dict[Path, Figure]


def drawn(
    investigation: str | None, out: Path, subject: str, suffixes: Sequence[str], output: Path | None
) -> tuple[Figures, list[str]]:
    """Draw the figures of a subject; return them, and notes on pairs without a figure. Raises UsageError and
    RunNotFound."""
    if subject in ("envelope", "drift") and suffixes:
        raise UsageError(f"--what {subject} draws pairs of modes, not batches: leave out --suffix")
    folder = find_investigation(out, investigation, suffixes=suffixes)
    if subject in ("envelope", "drift"):
        return _pair_figures(folder, subject, output)
    runs = runs_with_suffixes(folder, suffixes)
    draw = {"loss": _loss_figures, "timeline": _timeline_figures}[subject]
    return draw(folder, runs, tuple(dict.fromkeys(run.manifest.suffix for run in runs)), output), []


def write_figures(figures: Figures, *, force: bool) -> Iterator[Path]:
    """Write each figure in all formats, or none if a file exists; yield each path once it is written.

    Raises CollisionError and UsageError.
    """
    for stem in figures:
        for kind in FORMATS:
            path = stem.with_name(f"{stem.name}.{kind}")
            if path.exists() and not force:
                raise CollisionError(path, "choose another --output, or replace it with --force")
    for stem, figure in figures.items():
        try:
            written = save(figure, stem, FORMATS)
        except OSError as error:
            raise UsageError(f"{stem} cannot be written: {error.strerror}") from None
        yield from written


def _loss_figures(folder: Path, runs: Sequence[RecordedRun], suffixes: tuple[str, ...], output: Path | None) -> Figures:
    """Draw the loss curves of batches, and their drift if any run is compared with another.

    Each run of a batch is compared with the batch's first run. If every batch has a single run, each run is compared
    with the run of the first batch.
    """
    if not any(run.journal.steps for run in runs):
        raise UsageError(f"no run in {folder} has a recorded step: there is nothing to draw")
    firsts: dict[str, str] = {}
    for run in runs:
        firsts.setdefault(run.manifest.suffix, run.manifest.label)
    several = len(firsts) > 1
    curves = []
    for run in runs:
        label = run.manifest.label if several else run.manifest.mode
        reference_label = runs[0].manifest.label if len(runs) == len(firsts) else firsts[run.manifest.suffix]
        # within a single batch, curves and references are named only by their mode
        reference = reference_label if several else reference_label.removeprefix(f"{run.manifest.suffix}: ")
        for name, series in run.journal.series().items():
            suffix = f", {name}" if name else ""
            curves.append(
                Curve(
                    label=f"{label}{suffix}",
                    steps=[step.step for step in series],
                    losses=[step.loss for step in series],
                    status=run.manifest.status,
                    reference=None if label == reference else f"{reference}{suffix}",
                )
            )
    drawn_labels = {curve.label for curve in curves}  # a run that ended early may lack the steps of an optimizer
    curves = [curve if curve.reference in drawn_labels else replace(curve, reference=None) for curve in curves]
    plain = output or InvestigationFolder(folder).plot(suffixes, "loss_curve")
    figures = {plain: loss_curve(curves, title=_title_of(runs))}
    if any(curve.reference is not None for curve in curves):
        name = plain.name
        drift = name.replace("loss_curve", "loss_drift") if "loss_curve" in name else f"{name}_drift"
        figures[plain.with_name(drift)] = loss_drift(curves, title=_title_of(runs))
    return figures


def _timeline_figures(
    folder: Path, runs: Sequence[RecordedRun], suffixes: tuple[str, ...], output: Path | None
) -> Figures:
    """Draw the times of the parts of every step, for the runs that recorded metrics."""
    modes = []
    for metrics in metrics_of_runs(runs):
        # [parts, steps], parts in the order of the plot's `PARTS`: the kinds of work, then the remaining time
        seconds = [[step.seconds_of(kind) for step in metrics.steps] for kind in WORKED]
        seconds += [[step.recording for step in metrics.steps], [step.other for step in metrics.steps]]
        label = metrics.run.manifest.label if len(suffixes) > 1 else metrics.run.manifest.mode
        modes.append(TimelineStep(label, [part.step for part in metrics.steps if part.step is not None], seconds))
    plain = output or InvestigationFolder(folder).plot(suffixes, "timeline")
    return {plain: step_timeline(modes, title=_title_of(runs))}


def _title_of(runs: Sequence[RecordedRun]) -> str:
    """Return the title of a figure: the reproducer, suffixes and torch versions."""
    scripts = dict.fromkeys(Path(run.manifest.reproducer).name for run in runs)
    suffixes = [suffix for suffix in dict.fromkeys(run.manifest.suffix for run in runs) if suffix]
    versions = dict.fromkeys(str(run.manifest.environment.get("torch", "unknown")) for run in runs)
    parts = [", ".join(scripts), " against ".join(suffixes), f"torch {' and '.join(versions)}"]
    return " · ".join(part for part in parts if part)


def _pair_figures(folder: Path, subject: str, output: Path | None) -> tuple[Figures, list[str]]:
    """Draw a figure of each pair that has data for it. Return a note on each pair without data."""
    pairs = drawn_pairs(folder)
    drawable = [pair for pair in pairs if (pair.steps if subject == "drift" else pair.envelope)]
    if not drawable:
        lacks = (
            "has a step that was compared: the verdicts say why"
            if subject == "drift"
            else f"has an envelope: run `numdrift investigate {folder} --envelope 8` first"
        )
        raise UsageError(f"no pair of {folder} {lacks}")
    figures = {}
    for pair in drawable:
        if output is None:
            path = InvestigationFolder(folder).plot(pair.names, subject)
        else:  # several figures need several names: the pair is appended
            path = output if len(drawable) == 1 else output.with_name(f"{output.name}_{'_vs_'.join(pair.names)}")
        if subject == "envelope" and pair.envelope is not None:
            figures[path] = envelope(pair.envelope, reference=pair.a, run=pair.b, title=pair.title)
        else:
            figures[path] = drift_heatmap(pair.steps, title=pair.title)
    return figures, [f"{pair.b} against {pair.a} has no {subject} to draw" for pair in pairs if pair not in drawable]


@dataclass(frozen=True, slots=True)
class DrawnPair:
    """A pair of modes with the scores of its steps, and its envelope if there is one. `a` is the reference."""

    a: str
    b: str
    title: str
    steps: tuple[ScoredStep, ...]
    envelope: Envelope | None

    @property
    def names(self) -> tuple[str, str]:
        """Return both modes in a form that is valid in a file name."""
        a, b = (re.sub(r"[^A-Za-z0-9._-]", "_", name) for name in (self.a, self.b))
        return a, b


def drawn_pairs(investigation: Path) -> list[DrawnPair]:
    """Return the pairs that the investigation judged.

    Raises UsageError if it has judged no pair yet, JournalError if its file cannot be read.
    """
    path = investigation / INVESTIGATION
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(f"{investigation} has no findings: run `numdrift investigate {investigation}` first") from None
    except (OSError, ValueError, RecursionError) as error:
        raise JournalError(path, f"cannot be read: {error}") from error
    try:
        if data["schema"] != SCHEMA:
            raise JournalError(path, f"schema {data['schema']!r} is not known (known: {SCHEMA})")
        script = Path(data["reproducer"]).name
        pairs = []
        for pair in data["pairs"]:
            a, b = str(pair["a"]), str(pair["b"])
            title = f"{script} · {b} against {a} · {pair.get('verdict') or 'undecided'}"
            curve = pair.get("curve")
            steps = _steps(pair.get("steps") or ())
            pairs.append(DrawnPair(a, b, title, steps, Envelope.from_json(curve) if curve else None))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        why = f"lacks {error}" if isinstance(error, KeyError) else f"is not as expected: {error}"
        raise JournalError(path, why) from error
    return pairs


def _steps(data: Sequence[Mapping[str, Any]]) -> tuple[ScoredStep, ...]:
    """Return the scores of all steps. A tensor that a step does not list has score 0: both sides were identical."""
    steps = []
    for step_content in data:
        scores = {str(tensor["name"]): float(tensor["score"]) for tensor in step_content["tensors"]}
        if any(not score >= 0 for score in scores.values()):  # also refuses NaN
            raise ValueError(f"step {step_content['step']} has a score that is not a number >= 0")
        steps.append(ScoredStep(int(step_content["step"]), scores, bool(step_content["taped"])))
    names = dict.fromkeys(name for step in steps for name in step.scores)
    return tuple(replace(step, scores={name: step.scores.get(name, 0.0) for name in names}) for step in steps)
