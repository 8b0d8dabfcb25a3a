"""`numdrift runs`: lists, shows, exports and removes recorded runs."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from pathlib import Path

import click

from ..api.chosen_runs import remove, runs_to_remove
from ..api.run_exporting import runs_exported
from ..records.codec import plain
from ..runs.loss_spikes import spikes_of
from ..runs.recorded_ops import first_nan
from ..runs.recorded_run import RecordedRun, find_investigation, investigations, load_run, runs_in
from ..runs.run_layout import JOURNAL
from ..tools.export.export_format import FORMATS
from .command_options import force_option, json_option, out_option
from .output import console, table, write_json

EXAMPLES = """\b
Examples:
  numdrift runs list
  numdrift runs show runs/sam_tanh/compile_main
  numdrift runs export sam_tanh --to parquet --output sam_tanh.parquet
  numdrift runs rm sam_tanh --suffix main
"""

EXPORT_EXAMPLES = """\b
Examples:
  numdrift runs export sam_tanh --to csv --output sam_tanh.csv
  numdrift runs export sam_tanh --suffix main --mode cpu --mode lazy --to tensorboard --output logs
  numdrift runs export runs/sam_tanh --to mlflow --output mlruns

\b
The export contains each step's losses, the values that the script passed to numdrift.log, and the seconds since
training began.
  csv          one table, with a row for each step
  parquet      the same table                                    pip install 'numdrift[parquet]'
  tensorboard  event files, a folder per run; losses as float32  pip install 'numdrift[tensorboard]'
  mlflow       a file store: one experiment with all the runs    pip install 'numdrift[mlflow]'
  wandb        offline runs; nothing is sent anywhere            pip install 'numdrift[wandb]'
"""


@click.group(epilog=EXAMPLES, help="List, show, export and remove recorded runs.")
def command() -> None:
    pass


@command.command("list", help="List the runs of one investigation, or of all investigations.")
@click.argument("investigation", required=False)
@out_option
@json_option
def list_(investigation: str | None, out: Path, json_path: str | None) -> int:
    folders = [find_investigation(out, investigation)] if investigation else investigations(out)
    runs = [run for folder in folders for run in runs_in(folder)]
    if json_path:
        write_json(json_path, {"schema": 1, "runs": [_summary(run) for run in runs]})
    if json_path == "-":  # standard output contains only the JSON
        return 0
    if not runs:
        console().print(f"{out} contains no runs; `numdrift run SCRIPT --modes cpu,compile` records some")
        return 0
    rows = table("run", "mode", "status", ">steps", ">last loss", ">seconds", ">size", "started")
    for run in runs:
        manifest = run.manifest
        losses = run.journal.losses
        rows.add_row(
            str(run.path),
            manifest.spec,
            manifest.status,
            f"{len(run.journal.steps):,}",
            f"{losses[-1]:.6g}" if losses else "-",
            f"{manifest.seconds:.1f}",
            _size(_bytes(run)),
            manifest.started,
        )
    console().print(rows)
    return 0


@command.command(help="Show one run: its request, how it ended, and what it recorded.")
@click.argument("run", type=click.Path(path_type=Path))
@json_option
def show(run: Path, json_path: str | None) -> int:
    recorded = load_run(run)
    if json_path:
        write_json(json_path, {"schema": 1} | _summary(recorded))
    if json_path != "-":
        rows = table("", "")
        rows.show_header = False
        for name, value in _facts(recorded).items():
            rows.add_row(name, value)
        console().print(rows)
    return 0


@command.command(
    epilog=EXPORT_EXAMPLES,
    help="Export the recorded steps of INVESTIGATION (default: the newest) for another tool.",
)
@click.argument("investigation", required=False)
@click.option(
    "--suffix", "suffixes", multiple=True, metavar="TAG", help="Export only the runs of this batch; may be repeated."
)
@click.option(
    "--mode", "modes", multiple=True, metavar="MODE", help="Export only the runs in this mode; may be repeated."
)
@click.option("--to", type=click.Choice(tuple(FORMATS)), required=True, help="The format.")
@click.option(
    "--output", type=click.Path(path_type=Path), required=True, metavar="PATH",
    help="The file to write, or the folder if the format has several files.",
)  # fmt: skip
@out_option
@force_option
def export(
    investigation: str | None,
    suffixes: tuple[str, ...],
    modes: tuple[str, ...],
    to: str,
    output: Path,
    out: Path,
    force: bool,
) -> int:
    runs = runs_exported(investigation, out, suffixes, modes, to, output, force=force)
    steps = sum(len(run.steps) for run in runs)
    console().print(f"Wrote {output} ({_count(runs)}, {steps:,} step{'s' if steps != 1 else ''})", soft_wrap=True)
    if command_line := FORMATS[to].opened_by.format(shlex.quote(str(output))):
        console().print(f"Open it with: {command_line}", soft_wrap=True)
    return 0


@command.command(help="Remove runs: a run's folder, a batch (--suffix), or a whole investigation.")
@click.argument("target")
@click.option("--suffix", metavar="TAG", help="Remove only the runs of this batch.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask for confirmation.")
@out_option
def rm(target: str, suffix: str | None, yes: bool, out: Path) -> int:
    folder, runs = runs_to_remove(target, suffix, out)
    size = sum(_bytes(run) for run in runs)
    if not yes:
        click.confirm(f"Remove {_count(runs)} ({_size(size)}) from {folder}?", abort=True, err=True)
    remove(folder, runs)
    console().print(f"Removed {_count(runs)}, {_size(size)}")
    return 0


def _count(runs: Sequence[object]) -> str:
    return f"{len(runs)} run{'s' if len(runs) != 1 else ''}"


def _summary(run: RecordedRun) -> dict[str, object]:
    losses = run.journal.losses
    facts = run.manifest.to_json() | {
        "path": str(run.path),
        "bytes": _bytes(run),
        "last_loss": losses[-1] if losses else None,
        "logged": _last_logged(run),
    }
    spikes = [plain(spike) for spike in spikes_of(run.journal)]
    counts = {"recorded_steps": len(run.journal.steps), "value_steps": len(run.journal.value_steps)}
    return facts | counts | ({"spikes": spikes} if spikes else {})


def _facts(run: RecordedRun) -> dict[str, str]:
    """Return the facts about a run that `runs show` prints, one per line."""
    manifest, journal = run.manifest, run.journal
    losses = journal.losses
    # parameters may be added late: the last table has all of them
    entries = list(journal.tables.values())[-1] if journal.tables else ()
    parameters = [entry for entry in entries if entry.kind == "parameter"]
    facts = {
        "run": str(run.path),
        "reproducer": " ".join([manifest.reproducer, *manifest.arguments]),
        "mode": manifest.spec,
        "status": f"{manifest.status}{': ' if manifest.message else ''}{manifest.message}",
        "started": manifest.started,
        "seconds": f"{manifest.seconds:.1f}",
        "steps": f"{len(journal.steps):,}",
        "loss": f"{losses[0]:.9g} first, {losses[-1]:.9g} last" if losses else "none",
        "loss found at": ", ".join(event["source"] for event in manifest.adopted.get("loss", [])) or "-",
        "recorded": manifest.record,
        "tensors": f"{len(parameters)} parameters, {len(entries) - len(parameters)} buffers",
        "digests of": f"{len(journal.digest_steps()):,} steps",
        "values kept for": f"{len(journal.value_steps):,} steps",
        "torch": str(manifest.environment.get("torch", "-")),
        "threads": str(manifest.environment.get("threads", "-")),
        "seeded by numdrift": ", ".join(manifest.environment.get("seeded", [])) or "-",
        "size": _size(_bytes(run)),
    }
    if manifest.rank:
        facts["rank"] = f"{manifest.rank} of {manifest.world_size}"
    else:  # the run is rank 0, and its manifest lists the other ranks
        for item in manifest.ranks:
            loss = f", loss {item['losses'][-1]:.9g} last" if item["losses"] else ""
            why = f": {item['message']}" if item["message"] else ""
            facts[f"rank {item['rank']}"] = f"{item['status']}{why}; {item['steps']:,} steps{loss}; in {item['path']}"
        if manifest.agreement is not None:
            facts["agreement"] = str(manifest.agreement["text"])
    if (first := first_nan(run.path / JOURNAL)) is not None:
        facts["first NaN"] = first.text
    for spike in spikes_of(journal):
        facts[f"steps {spike.first}-{spike.last}"] = f"recorded because {spike.text}"
    for event in journal.events("overhead"):
        left = f"{event['left_out']:,} steps without details" if event["left_out"] else "no details left out"
        facts["overhead"] = f"{event['share']:.2%} of the training's time (at most {100 * event['limit']:g}%), {left}"
    facts |= {f"logged {name}": f"{value:.9g} last" for name, value in _last_logged(run).items()}
    for item in manifest.swaps:
        calls = item["calls"]
        phases = [f"{calls[phase]:,} in the {phase}" for phase in ("forward", "backward", "optimizer") if calls[phase]]
        traced = [f"{calls['traced']:,} places in compiled graphs"] if calls["traced"] else []
        facts[item["swap"]] = "calls: " + (", ".join([*phases, *traced]) or "none")
    facts |= {f"problem {number}": text for number, text in enumerate(manifest.problems, 1)}
    return facts | {f"notice {number}": text for number, text in enumerate(manifest.notices, 1)}


def _last_logged(run: RecordedRun) -> dict[str, float]:
    """Return the last value of each name that the script logged."""
    return {name: value for step in run.journal.steps for name, value in step.logged.items()}


def _bytes(run: RecordedRun) -> int:
    return sum(path.stat().st_size for path in run.path.rglob("*") if path.is_file())


def _size(count: float) -> str:
    for unit in ("B", "KiB", "MiB"):
        if count < 1024:
            return f"{count:.0f} {unit}"
        count /= 1024
    return f"{count:.1f} GiB"
