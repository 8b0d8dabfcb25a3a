"""`numdrift bundle`: packs an investigation.

This module also has the table and the progress bar that the bundle commands share.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path

import click
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn
from rich.table import Table

from ...api.bundling import bundled, sensitive_in
from ...runs.recorded_run import find_investigation
from ...tools.bundle.archive import Bundle
from ...tools.bundle.bundle_contents import KINDS, MEANINGS, chosen_kinds
from ..command_options import force_option, json_option, out_option
from ..output import console, table, write_json

EXAMPLES = f"""\b
Examples:
  numdrift bundle runs/train
  numdrift bundle runs/train --redact --leave-out source --to redacted.zip
  numdrift bundle runs/train --values --to values.zip
  numdrift bundle runs/train --to s3://bucket/train.zip

\b
Kinds of files: {", ".join(KINDS)}.
`values` are packed only with --values. A redacted bundle contains digests (hash, min, max, mean, L2) in place of
tensors, and leaves out the script's output.
"""


@click.command(epilog=EXAMPLES, help="Pack INVESTIGATION (default: the newest) into one archive.")
@click.argument("investigation", required=False)
@click.option(
    "--to", metavar="PATH|URL", help="The file to write (default: NAME.numdrift.zip), or any URL that fsspec supports."
)
@click.option("--redact", is_flag=True, help="Replace parameters and data with their digests.")
@click.option("--values", is_flag=True, help="Also pack parameters, gradients and the tapes of steps.")
@click.option(
    "--leave-out", "left_out", multiple=True, metavar="KIND", help="Leave out files of this kind; may be repeated."
)
@click.option("--quiet", "-q", is_flag=True, help="Print only warnings about sensitive data.")
@out_option
@force_option
@json_option
def command(
    investigation: str | None,
    to: str | None,
    redact: bool,
    values: bool,
    left_out: Sequence[str],
    quiet: bool,
    out: Path,
    force: bool,
    json_path: str | None,
) -> int:
    kinds = chosen_kinds(left_out, values=values)
    folder = find_investigation(out, investigation)
    to = to or f"{folder.resolve().name}.numdrift.zip"
    with bytes_bar("packing", quiet=quiet) as packed:
        bundle, size = bundled(folder, to, kinds, packed, redact=redact, force=force)
    if json_path:
        write_json(json_path, {"to": to, "size": size, **asdict(bundle)})
    if json_path != "-" and not quiet:
        console().print(contents_table(bundle))
        console().print(f"Wrote {to} ({mebibytes(size)})", soft_wrap=True)
    for text in sensitive_in(bundle, folder):  # even with --quiet: the data leaves the machine
        console(stderr=True).print(f"numdrift: sensitive: {text}", soft_wrap=True)
    return 0


def contents_table(bundle: Bundle) -> Table:
    """Return a table with one row per kind of file, including kinds that were left out."""
    rows = table("kind", ">files", ">size", ">left out", "what")
    for kind in KINDS:
        files = bundle.of_kind(kind)
        left_out = sum(1 for file in bundle.left_out if file.kind == kind)
        if files or left_out:
            size = mebibytes(sum(file.bytes for file in files)) if files else "-"
            rows.add_row(kind, f"{len(files):,}", size, f"{left_out:,}" if left_out else "", MEANINGS[kind])
    return rows


def mebibytes(size: int) -> str:
    return f"{size / 2**20:,.1f} MiB" if size >= 2**20 else f"{size / 2**10:,.1f} KiB"


@contextmanager
def bytes_bar(label: str, *, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar if standard error is a terminal.

    Yield a function that takes the number of bytes done and the total number of bytes.
    """
    # on standard error: standard output may be JSON for another program
    errors = console(stderr=True)
    if quiet or not errors.is_terminal:
        yield lambda done, total: None
        return
    with Progress(TextColumn(label), BarColumn(), DownloadColumn(), console=errors, transient=True) as progress:
        task = progress.add_task(label)
        yield lambda done, total: progress.update(task, completed=done, total=total)
