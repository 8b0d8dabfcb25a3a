"""How bundles are shown: a table of what is in one, and a bar while it is packed or opened."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn
from rich.table import Table

from ...tools.bundle.archive import Bundle
from ...tools.bundle.bundle_contents import KINDS, MEANINGS
from ..output import console, table


def contents_table(bundle: Bundle) -> Table:
    """A row a kind of file, those that were left out included."""
    rows = table("kind", ">files", ">size", ">left out", "what")
    for kind in KINDS:
        there = bundle.of_kind(kind)
        gone = sum(1 for one in bundle.left_out if one.kind == kind)
        if there or gone:
            size = mebibytes(sum(one.bytes for one in there)) if there else "-"
            rows.add_row(kind, f"{len(there):,}", size, f"{gone:,}" if gone else "", MEANINGS[kind])
    return rows


def mebibytes(size: int) -> str:
    return f"{size / 2**20:,.1f} MiB" if size >= 2**20 else f"{size / 2**10:,.1f} KiB"


@contextmanager
def bytes_bar(what: str, *, quiet: bool) -> Iterator[Callable[[int, int], None]]:
    """A bar in a terminal, nothing elsewhere; gives what is to be told how many of how many bytes are done."""
    errors = console(stderr=True)
    if quiet or not errors.is_terminal:
        yield lambda done, of: None
        return
    with Progress(
        TextColumn(what), BarColumn(), DownloadColumn(), console=errors, transient=True
    ) as progress:
        task = progress.add_task(what)
        yield lambda done, of: progress.update(task, completed=done, total=of)
