"""Print the results of `numdrift snapshot show` and `numdrift snapshot replay`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from rich.console import Console

from ...errors import SnapshotError
from ...records.run.execution_facts import in_mib
from ...records.tools.snapshot_index import entries_of
from ...snapshots.snapshot_file import read_snapshot
from ...snapshots.snapshot_record import Snapshot
from ...tools.snapshots.replay_answer import answer_of
from ...tools.snapshots.snapshot_contents import Contents, PortFacts, contents_of, hlo_instructions
from ..output import console, number, table, write_json

SCHEMA = 1
MOST_ROWS = 40
"""The maximum number of inputs, or of outputs, that are shown; --json has all."""


def readable(path: Path) -> Snapshot:
    """Read the snapshot in a file. Raises SnapshotError if it is missing or incomplete, or cannot be read."""
    if not path.exists():
        entries = {entry.path.name: entry for entry in entries_of(path.parent.parent)}
        entry = entries.get(path.name)
        if entry is not None:
            raise SnapshotError(path, f"is incomplete: {entry.incomplete}")
        raise SnapshotError(path, "there is no such file; `numdrift snapshot list` shows the snapshots of a run")
    if path.is_dir():
        raise SnapshotError(path, "is a folder; `numdrift snapshot list` shows the snapshots of a run")
    return read_snapshot(path)


def show(path: Path, json_path: str | None, *, hlo: bool = False) -> int:
    snapshot = readable(path)
    if hlo:
        if snapshot.hlo is None:
            raise SnapshotError(path, f"has no HLO: it was taken in mode {snapshot.around.mode}")
        console().print(snapshot.hlo.text, soft_wrap=True, markup=False, highlight=False)
        return 0
    contents = contents_of(snapshot)
    if json_path:
        write_json(json_path, as_json(path, snapshot, contents))
    if json_path == "-":
        return 0
    out = console()
    execution, around = snapshot.execution, snapshot.around
    place = f"rank {around.rank} of {around.world_size}, " if around.world_size > 1 else ""
    device = f"device {execution.device_index} ({', '.join(around.devices)})"
    mode = f"mode {around.spec} with torch {around.torch}, {around.threads} threads, from {Path(around.script).name}"
    holds = " and ".join(snapshot.held) or "the graph"
    lines = [
        f"{execution.name}: step {execution.step}, execution {execution.count}, {place}{device}",
        f"taken in {mode}; {in_mib(path.stat().st_size)}, contains {holds}",
    ]
    if snapshot.reason != "chosen":
        lines.append(f"taken because of: {snapshot.reason}")
    if snapshot.error:
        lines.append(f"it raised the error {snapshot.error}")
    if snapshot.unplayable:
        lines.append(f"it cannot be replayed: {snapshot.unplayable}")
    calls = len(snapshot.tape.calls)
    ops = ", ".join(f"{op.removeprefix('aten.')} {count}x" for op, count in contents.ops.items())
    for line in (*lines, *snapshot.notes, f"{calls:,} call{'s' * (calls != 1)}: {ops or 'none'}"):
        out.print(line, soft_wrap=True)
    if snapshot.hlo is not None:
        out.print(f"HLO: {hlo_instructions(snapshot.hlo):,} instructions, which --hlo prints", soft_wrap=True)
    _ports(out, "inputs", contents.inputs)
    _ports(out, "outputs", contents.outputs)
    sensitive = snapshot.sensitive()
    if sensitive:  # printed last, so that it is seen before the file is shared
        listed = ", ".join(f"{words} ({count})" for words, count in sensitive.items())
        out.print(f"\nIt may be confidential: it contains the values of {listed}.", soft_wrap=True)
    return 0


def _ports(out: Console, title: str, ports: Sequence[PortFacts]) -> None:
    if not ports:
        return
    rows = table(title, "dtype", "shape", ">min", ">max", ">NaN", ">infinite")
    for port in ports[:MOST_ROWS]:
        rows.add_row(
            port.name,
            port.dtype,
            "x".join(map(str, port.shape)) or "scalar",
            *("-" if value is None else f"{value:.6g}" for value in (port.minimum, port.maximum)),
            *("-" if count is None else f"{count:,}" for count in (port.nan, port.inf)),
        )
    out.print()
    out.print(rows)
    if len(ports) > MOST_ROWS:
        out.print(f"and {len(ports) - MOST_ROWS} more (--json shows all)")


def as_json(path: Path, snapshot: Snapshot, contents: Contents) -> dict[str, object]:
    """Return all facts about a snapshot, but not its values."""
    return {
        "schema": SCHEMA,
        "path": str(path),
        "bytes": path.stat().st_size,
        **{name: value for name, value in asdict(snapshot.execution).items() if name != "count"},
        "execution": snapshot.execution.count,
        **asdict(snapshot.around),
        "reason": snapshot.reason,
        "holds": list(snapshot.held),
        "error": snapshot.error,
        "unplayable": snapshot.unplayable,
        "notes": list(snapshot.notes),
        "calls": len(snapshot.tape.calls),
        "ops": contents.ops,
        "hlo": None if snapshot.hlo is None else snapshot.hlo.text,
        "inputs": [asdict(port) for port in contents.inputs],
        "outputs": [asdict(port) for port in contents.outputs],
        "sensitive": snapshot.sensitive(),
    }


ORDER = ("beyond rounding", "within rounding", "equal", "identical", "not held")
"""The states of outputs, in the order of the table: those that differ come first."""


def replay(path: Path, mode: str | None, *, quiet: bool, json_path: str | None) -> int:
    answer = answer_of(path, mode, readable(path))
    if json_path:
        write_json(
            json_path,
            {
                "schema": SCHEMA,
                "path": str(path),
                "mode": answer.spec,
                "holds": answer.holds,
                "text": answer.text,
                "error": answer.error,
                "identical": answer.comparison.identical and not answer.error,
                "comparable": answer.comparable,
                "unmeasured": answer.comparison.unmeasured,
                "notes": list(answer.notes),
                "outputs": [asdict(output) for output in answer.comparison.outputs],
            },
        )
    if json_path != "-" and not quiet:
        out = console()
        out.print(f"In mode {answer.spec} {answer.text}.", soft_wrap=True)
        outputs = sorted(answer.comparison.outputs, key=lambda output: ORDER.index(output.state))
        if any(output.state in ORDER[:2] for output in outputs):  # without a difference no table is needed
            rows = table("output", "dtype", "shape", ">differing", ">max ULP", ">relative L2", ">of rounding", "")
            for output in outputs[:MOST_ROWS]:
                rows.add_row(
                    output.name,
                    output.dtype,
                    "x".join(map(str, output.shape)) or "scalar",
                    f"{output.differing:,}",
                    "-" if output.max_ulp is None else f"{output.max_ulp:,}",
                    number(output.relative_l2),
                    "-" if output.of_rounding is None else f"{output.of_rounding:.3g}x",
                    "other draws" if output.other_draws else output.state,
                )
            out.print(rows)
            if len(outputs) > MOST_ROWS:
                out.print(f"and {len(outputs) - MOST_ROWS} more (--json shows all)")
        for note in answer.notes:
            out.print(f"note: {note}", soft_wrap=True)
    return 0 if answer.holds else 1
