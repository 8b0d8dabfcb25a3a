"""`numdrift plot`: loss curves and their drift, the envelope of rounding, the drift of every tensor, steps' times."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
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
from ..records.backend_work import FILE as METRICS
from ..records.backend_work import WORKED, StepMetrics
from ..records.findings import INVESTIGATION, SCHEMA
from ..runs.recorded_run import RecordedRun, find_investigation, runs_with_suffixes
from ..runs.run_layout import InvestigationFolder
from ..tools.metrics.run_metrics import metrics_of
from .command_options import force_option, out_option
from .output import console

FORMATS = ("png", "svg")
SUBJECTS = ("loss", "envelope", "drift", "timeline")

EXAMPLES = """\b
Examples:
  numdrift plot runs/sam_tanh --suffix main
  numdrift plot --suffix before --suffix after
  numdrift plot sam_tanh --what drift
  numdrift plot sam_tanh --what envelope
  numdrift plot sam_tanh --what timeline

\b
loss      loss curves of the batches, and their drift
envelope  a mode's loss within what a one-ULP change of the initial parameters does: needs the findings of
          `numdrift investigate --envelope 8`
drift     the score of every tensor at every step that `numdrift investigate` compared
timeline  what each step of each mode spends on compiling, executing and transferring: needs `numdrift run --metrics`
envelope and drift draw a picture for each pair of modes.
"""


@click.command(epilog=EXAMPLES, help="Draw what is known of an investigation (default: the newest).")
@click.argument("investigation", required=False)
@click.option("--what", type=click.Choice(SUBJECTS), default=SUBJECTS[0], show_default=True, help="What to draw.")
@click.option(
    "--suffix",
    "suffixes",
    multiple=True,
    metavar="TAG",
    help="A batch whose losses to draw; may be repeated.",
)
@click.option(
    "--output", type=click.Path(path_type=Path), metavar="PATH",
    help="Where to write, without a file type (default: <SUFFIX>_loss_curve, or <A>_vs_<B>_envelope and "
    "<A>_vs_<B>_drift, in the investigation).",
)  # fmt: skip
@out_option
@force_option
def command(
    investigation: str | None,
    what: str,
    suffixes: tuple[str, ...],
    output: Path | None,
    out: Path,
    force: bool,
) -> int:
    if what in ("envelope", "drift") and suffixes:
        raise UsageError(f"--suffix is of batches of losses: leave it out, --what {what} draws pairs of modes")
    folder = find_investigation(out, investigation, suffixes=suffixes)
    if what == "loss":
        figures = loss_figures(folder, suffixes, output)
    elif what == "timeline":
        figures = timeline_figures(folder, suffixes, output)
    else:
        figures = pair_figures(folder, what, output)
    _write(figures, force=force)
    return 0


def loss_figures(folder: Path, suffixes: tuple[str, ...], output: Path | None) -> dict[Path, Figure]:
    """The loss curves of batches, and their drift if any is held against another; by path without file type."""
    runs = runs_with_suffixes(folder, suffixes)
    drawn = tuple(dict.fromkeys(run.manifest.suffix for run in runs))
    curves = curves_of(runs)
    if not any(run.journal.steps for run in runs):
        raise UsageError(f"no run in {folder} has a recorded step: there is nothing to draw")
    plain = output or InvestigationFolder(folder).plot(drawn, "loss_curve")
    figures = {plain: loss_curve(curves, title=title_of(runs))}
    if any(curve.reference is not None for curve in curves):
        figures[plain.with_name(_drift_name(plain.name))] = loss_drift(curves, title=title_of(runs))
    return figures


def timeline_figures(folder: Path, suffixes: tuple[str, ...], output: Path | None) -> dict[Path, Figure]:
    """The parts of every step of the runs that took metrics, by path without file type."""
    runs = runs_with_suffixes(folder, suffixes)
    measured = [metrics_of(run) for run in runs if (run.path / METRICS).exists()]
    if not measured:
        metrics_of(runs[0])
    several = len({run.manifest.suffix for run in runs}) > 1
    modes = [
        TimelineStep(
            one.run.manifest.label if several else one.run.manifest.mode,
            [part.step for part in one.steps if part.step is not None],
            times_of(one.steps),
        )
        for one in measured
    ]
    drawn = tuple(dict.fromkeys(run.manifest.suffix for run in runs))
    plain = output or InvestigationFolder(folder).plot(drawn, "timeline")
    return {plain: step_timeline(modes, title=title_of(runs))}


def times_of(steps: Sequence[StepMetrics]) -> list[list[float]]:
    """The seconds of each part, in the order of `PARTS`, of each step."""
    worked = [[step.seconds_of(kind) for step in steps] for kind in WORKED]
    return [*worked, [step.recording for step in steps], [step.other for step in steps]]


def pair_figures(folder: Path, what: str, output: Path | None) -> dict[Path, Figure]:
    """A figure of each pair that has what to draw, by path without file type."""
    pairs = drawn_pairs(folder)
    able = [pair for pair in pairs if (pair.steps if what == "drift" else pair.envelope)]
    if not able:
        lacks = (
            "has a step that was compared: its verdicts say why"
            if what == "drift"
            else f"has an envelope: `numdrift investigate {folder} --envelope 8` makes it"
        )
        raise UsageError(f"no pair of {folder} {lacks}")
    for pair in pairs:
        if pair not in able:
            console(stderr=True).print(f"{pair.b} against {pair.a} has no {what} to draw", soft_wrap=True)
    return {_pair_path(folder, pair, what, output, len(able)): _pair_figure(pair, what) for pair in able}


def _pair_path(folder: Path, pair: DrawnPair, what: str, output: Path | None, count: int) -> Path:
    if output is None:
        return InvestigationFolder(folder).plot(pair.names, what)
    return output if count == 1 else output.with_name(f"{output.name}_{'_vs_'.join(pair.names)}")


def _pair_figure(pair: DrawnPair, what: str) -> Figure:
    if what == "envelope" and pair.envelope is not None:
        return envelope(pair.envelope, reference=pair.a, run=pair.b, title=pair.title)
    return drift_heatmap(pair.steps, title=pair.title)


def _write(figures: Mapping[Path, Figure], *, force: bool) -> None:
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
        for path in written:
            console().print(f"Wrote {path}", soft_wrap=True)


def _drift_name(name: str) -> str:
    return name.replace("loss_curve", "loss_drift") if "loss_curve" in name else f"{name}_drift"


def curves_of(runs: list[RecordedRun]) -> list[Curve]:
    """A curve a run; each but the first of a batch is held against that first one.

    Batches that have a single run each are held against the first batch's.
    """
    firsts: dict[str, str] = {}
    for run in runs:
        firsts.setdefault(run.manifest.suffix, run.manifest.label)
    alone = len(runs) == len(firsts)
    overall = runs[0].manifest.label
    several = len(firsts) > 1
    curves = []
    for run in runs:
        label = run.manifest.label if several else run.manifest.mode
        first = overall if alone else firsts[run.manifest.suffix]
        reference = first if several else first.removeprefix(f"{run.manifest.suffix}: ")
        curves.append(
            Curve(
                label=label,
                steps=[step.step for step in run.journal.steps],
                losses=[step.loss for step in run.journal.steps],
                status=run.manifest.status,
                reference=None if label == reference else reference,
            )
        )
    return curves


def title_of(runs: list[RecordedRun]) -> str:
    """Reproducer, suffixes and torch versions."""
    scripts = dict.fromkeys(Path(run.manifest.reproducer).name for run in runs)
    suffixes = [suffix for suffix in dict.fromkeys(run.manifest.suffix for run in runs) if suffix]
    versions = dict.fromkeys(str(run.manifest.environment.get("torch", "unknown")) for run in runs)
    parts = [", ".join(scripts), " against ".join(suffixes), f"torch {' and '.join(versions)}"]
    return " · ".join(part for part in parts if part)


@dataclass(frozen=True, slots=True)
class DrawnPair:
    """A pair of modes, `a` being the reference: the scores of its steps, and its envelope if there is one."""

    a: str
    b: str
    title: str
    steps: tuple[ScoredStep, ...]
    envelope: Envelope | None

    @property
    def names(self) -> tuple[str, str]:
        """Both modes as they can stand in the name of a file."""
        a, b = (re.sub(r"[^A-Za-z0-9._-]", "_", name) for name in (self.a, self.b))
        return a, b


def drawn_pairs(investigation: Path) -> list[DrawnPair]:
    """The pairs that the investigation decided on.

    Raises UsageError when it has not decided yet, JournalError when its file cannot be read.
    """
    path = investigation / INVESTIGATION
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(
            f"{investigation} has no findings: `numdrift investigate {investigation}` makes them"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise JournalError(path, f"cannot be read: {error}") from error
    try:
        if data["schema"] != SCHEMA:
            raise JournalError(path, f"schema {data['schema']!r} is not known (known: {SCHEMA})")
        script = Path(data["reproducer"]).name
        return [_drawn_pair(pair, script) for pair in data["pairs"]]
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        why = f"lacks {error}" if isinstance(error, KeyError) else f"is not as expected: {error}"
        raise JournalError(path, why) from error


def _drawn_pair(data: Mapping[str, Any], script: str) -> DrawnPair:
    a, b = str(data["a"]), str(data["b"])
    curve = data.get("curve")
    return DrawnPair(
        a=a,
        b=b,
        title=f"{script} · {b} against {a} · {data.get('verdict') or 'undecided'}",
        steps=_steps(data.get("steps") or ()),
        envelope=Envelope.from_json(curve) if curve else None,
    )


def _steps(data: Sequence[Mapping[str, Any]]) -> tuple[ScoredStep, ...]:
    """The scores of all steps: a value that a step does not list was the same on both sides there."""
    steps = [_step(step) for step in data]
    names = dict.fromkeys(name for step in steps for name in step.scores)
    return tuple(replace(step, scores={name: step.scores.get(name, 0.0) for name in names}) for step in steps)


def _step(data: Mapping[str, Any]) -> ScoredStep:
    scores = {str(one["name"]): float(one["score"]) for one in data["tensors"]}
    if any(not score >= 0 for score in scores.values()):
        raise ValueError(f"step {data['step']} has a score that is no number from 0 on")
    return ScoredStep(int(data["step"]), scores, bool(data["taped"]))
