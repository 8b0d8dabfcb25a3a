"""`numdrift bundle open`: checks and unpacks a bundle, and replays its snapshots and scripts."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path

import click

from ...api.bundling import local_copy
from ...launch.required_mode import require_mode
from ...records.modes.mode_spec import parse_mode
from ...tools.bundle.archive import Bundle
from ...tools.bundle.opening import extract
from ...tools.bundle.replaying import replay_scripts, replay_snapshots
from ..command_options import force_option, json_option
from ..output import console, table, write_json
from .make import bytes_bar, mebibytes

EXAMPLES = """\b
Examples:
  numdrift bundle open train.numdrift.zip
  numdrift bundle open train.numdrift.zip --to elsewhere --replay --mode cpu
  numdrift bundle open s3://bucket/train.zip --replay --run-scripts

\b
Every file is checked against its SHA-256, and nothing is unpacked unless all files match. --replay executes
snapshots: these contain only ops that torch has registered, and no code by the bundle's author. --run-scripts
executes the bundle's Python scripts with your permissions, so use it only if you trust the bundle's author.
Exit codes: 0 opened (and every replayed result equals the recorded one, or cannot be compared because the mode
draws different random numbers), 1 a result differs, 2 wrong usage, 3 the bundle is damaged or was changed.
"""


@click.command(epilog=EXAMPLES, help="Check BUNDLE, a path or URL, and unpack it into a folder.")
@click.argument("bundle")
@click.option(
    "--to",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="The folder to unpack into (default: the bundle's name).",
)
@click.option("--replay", is_flag=True, help="Execute the snapshots, and compare the results with the recorded ones.")
@click.option("--mode", metavar="SPEC", help="The mode to replay in (default: the mode of each snapshot).")
@click.option("--run-scripts", is_flag=True, help="Execute the culprits' scripts: Python code by the bundle's author.")
@click.option("--quiet", "-q", is_flag=True, help="Print only replayed results that differ from the recorded ones.")
@force_option
@json_option
def command(
    bundle: str,
    to: Path | None,
    replay: bool,
    mode: str | None,
    run_scripts: bool,
    quiet: bool,
    force: bool,
    json_path: str | None,
) -> int:
    if mode is not None:
        require_mode(replace(parse_mode(mode), python=None))  # a replay happens in this interpreter
    folder = to or Path(Path(bundle).name.removesuffix(".zip").removesuffix(".numdrift"))
    with local_copy(bundle) as archive, bytes_bar("checking", quiet=quiet) as unpacked:
        opened = extract(archive, folder, force=force, unpacked=unpacked)
    replay = replay or mode is not None  # --mode implies --replay
    results = [*(replay_snapshots(folder, mode) if replay else ()), *(replay_scripts(folder) if run_scripts else ())]
    if json_path:
        content = {"folder": str(folder), **asdict(opened), "replayed": [asdict(result) for result in results]}
        write_json(json_path, content)
    failed = [result for result in results if not result.holds]
    if json_path != "-" and not quiet:
        out = console()
        size = mebibytes(opened.bytes)
        out.print(
            f"Opened {folder}: {len(opened.files):,} files, {size}, all unchanged since they were packed",
            soft_wrap=True,
        )
        if results:
            rows = table("replayed", "result")
            for result in results:
                rows.add_row(result.path, result.text)
            out.print(rows)
        for text in _what_else(opened, replay=replay, run_scripts=run_scripts):
            out.print(text, soft_wrap=True)
    for result in failed:
        console(stderr=True).print(f"numdrift: {result.path}: {result.text}", soft_wrap=True)
    return 1 if failed else 0


def _what_else(bundle: Bundle, *, replay: bool, run_scripts: bool) -> Iterator[str]:
    """Yield sentences on what else can be done with the bundle, or why nothing can."""
    if bundle.redacted:
        yield "It is redacted: it has digests in place of tensors, so nothing in it can be replayed."
        return
    if replay != bool(bundle.of_kind("snapshots")):
        yield "It contains no snapshots." if replay else "--replay executes its snapshots."
    if not run_scripts and any(file.path.endswith(".py") for file in bundle.of_kind("repro")):
        yield "--run-scripts executes the culprits' scripts: Python code by the bundle's author."
