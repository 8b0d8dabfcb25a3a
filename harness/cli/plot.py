"""`numdrift plot`: loss curves and their drift."""

from __future__ import annotations

from pathlib import Path

import click

from numdrift.plots.appearance import save
from numdrift.plots.curve import Curve
from numdrift.plots.loss_curve import loss_curve
from numdrift.plots.loss_drift import loss_drift

from ..errors import CollisionError, UsageError
from ..runs.find import RecordedRun, find_investigation, runs_with_suffixes
from ..runs.layout import Investigation
from .output import console, force_option, out_option

FORMATS = ("png", "svg")
DRAWN = {"loss_curve": loss_curve, "loss_drift": loss_drift}

EXAMPLES = """\b
Examples:
  numdrift plot runs/sam_tanh --suffix main
  numdrift plot --suffix before --suffix after
"""


@click.command(
    epilog=EXAMPLES, help="Draw the loss curves of an investigation's batches (default: the newest)."
)
@click.argument("investigation", required=False)
@click.option("--suffix", "suffixes", multiple=True, metavar="TAG", help="A batch to draw; may be repeated.")
@click.option(
    "--output", type=click.Path(path_type=Path), metavar="PATH",
    help="Where to write, without a file type (default: <SUFFIX>_loss_curve in the investigation).",
)  # fmt: skip
@out_option
@force_option
def command(
    investigation: str | None, suffixes: tuple[str, ...], output: Path | None, out: Path, force: bool
) -> int:
    folder = find_investigation(out, investigation, suffixes=suffixes)
    runs = runs_with_suffixes(folder, suffixes)
    drawn = tuple(dict.fromkeys(run.manifest.suffix for run in runs))
    curves = curves_of(runs)
    if not any(run.journal.steps for run in runs):
        raise UsageError(f"no run in {folder} has a recorded step: there is nothing to draw")
    plain = output or Investigation(folder).plot(drawn, "loss_curve")
    stems = {"loss_curve": plain, "loss_drift": plain.with_name(_drift_name(plain.name))}
    if len({curve.reference for curve in curves} - {None}) == 0:
        del stems["loss_drift"]
    for stem in stems.values():
        for kind in FORMATS:
            path = stem.with_name(f"{stem.name}.{kind}")
            if path.exists() and not force:
                raise CollisionError(path, "choose another --output, or replace it with --force")
    for what, stem in stems.items():
        try:
            written = save(DRAWN[what](curves, title=title_of(runs)), stem, FORMATS)
        except OSError as error:
            raise UsageError(f"{stem} cannot be written: {error.strerror}") from None
        for path in written:
            console().print(f"Wrote {path}", soft_wrap=True)
    return 0


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
