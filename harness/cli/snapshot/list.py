"""`numdrift snapshot list`: lists the snapshots of runs."""

from __future__ import annotations

from pathlib import Path

import click

from ...api.chosen_runs import runs_meant
from ...records.run.execution_facts import in_mib
from ...records.tools.snapshot_index import entries_of
from ...runs.recorded_run import ranks_of
from ..command_options import json_option, out_option, run_mode_option, target_argument
from ..output import console, table, write_json

SCHEMA = 1

EXAMPLES = """\b
Examples:
  numdrift snapshot list runs/train
  numdrift snapshot list runs/train/compile --json -

\b
The executions of each graph are counted from 0. A snapshot is incomplete if writing its file failed or was
interrupted. It is not replayable if it lacks some calls of the execution; `numdrift snapshot show` says why.
"""


@click.command(epilog=EXAMPLES, help="List the snapshots of a run, or of an investigation (default: the newest).")
@target_argument
@run_mode_option
@out_option
@json_option
def command(target: str | None, mode: str | None, out: Path, json_path: str | None) -> int:
    runs = runs_meant(target, out, mode)
    entries_of_runs = [(rank, entries_of(rank.path)) for run in runs for rank in ranks_of(run)]
    listed = [(run, entries) for run, entries in entries_of_runs if entries]
    if json_path:
        content = [
            {
                "path": str(run.path),
                "mode": run.manifest.mode,
                "spec": run.manifest.spec,
                "rank": run.manifest.rank,
                "snapshots": [
                    {"path": str(entry.path), "bytes": entry.size, "incomplete": entry.incomplete, **entry.facts}
                    for entry in entries
                ],
            }
            for run, entries in listed
        ]
        write_json(json_path, {"schema": SCHEMA, "runs": content})
    if json_path == "-":
        return 0
    out_console = console()
    if not listed:
        out_console.print(
            f"{runs[0].path.parent} has no snapshots; `numdrift snapshot take` takes some", soft_wrap=True
        )
        return 0
    for number, (run, entries) in enumerate(listed):
        out_console.print("\n" * (number > 0) + f"{run.path} ({run.manifest.spec})", soft_wrap=True)
        rows = table(">step", "graph", ">execution", "holds", ">calls", ">size", "taken because", "file")
        for entry in entries:
            facts = entry.facts  # empty for an incomplete snapshot, which is listed all the same
            contents = " ".join(facts.get("held", ())) or "only the graph"
            rows.add_row(
                *(str(facts.get(name, "-")) for name in ("step", "graph", "execution")),
                f"{contents}, not replayable" if facts.get("unplayable") else contents,
                f"{facts.get('calls', 0):,}",
                in_mib(entry.size),
                str(facts.get("reason", "-")),
                f"incomplete: {entry.incomplete}" if entry.incomplete else entry.path.name,
            )
        out_console.print(rows)
    return 0
