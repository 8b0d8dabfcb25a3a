"""Bundles as the commands name and show them: by path or URL, a table of what is in one, a bar while it is packed."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn
from rich.table import Table

from ...errors import UsageError
from ...tools.bundle.archive import Bundle, download, is_url
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
    with Progress(TextColumn(what), BarColumn(), DownloadColumn(), console=errors, transient=True) as progress:
        task = progress.add_task(what)
        yield lambda done, of: progress.update(task, completed=done, total=of)


@contextmanager
def local_copy(named: str) -> Iterator[Path]:
    """The archive itself, or a copy of what is at the URL while the context lasts. Raises UsageError."""
    if not is_url(named):
        if not Path(named).is_file():
            raise UsageError(f"there is no bundle {named}; `numdrift bundle INVESTIGATION` makes one")
        yield Path(named)
        return
    with tempfile.TemporaryDirectory() as temporary:
        archive = Path(temporary) / "bundle.zip"
        download(named, archive)
        yield archive
