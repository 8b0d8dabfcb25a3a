"""The output of commands: tables and lines for people, JSON for machines."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from ..errors import CollisionError, UsageError
from ..records.codec import json_text

INTERRUPTED = 130
"""The exit code after Ctrl-C: 128 + SIGINT, as in a shell."""


def console(*, stderr: bool = False) -> Console:
    """Return a console that interprets no markup in data. Outside a terminal it is 200 characters wide."""
    target = sys.stderr if stderr else sys.stdout
    width = None if target.isatty() else 200
    return Console(stderr=stderr, width=width, markup=False, highlight=False, emoji=False)


def table(*columns: str, title: str | None = None) -> Table:
    """Return an empty table; a column name that begins with > is aligned to the right."""
    result = Table(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for column in columns:
        right = column.startswith(">")
        result.add_column(Text(column.removeprefix(">")), justify="right" if right else "left", overflow="fold")
    return result


def number(value: float | None) -> str:
    """Return a distance as text: `0` for zero, otherwise three significant digits."""
    if value is None:
        return "-"
    return "0" if value == 0 else f"{value:.3g}"


def text_or_count(texts: Iterable[str], noun: str) -> str:
    """Return the text if all `texts` are equal, else the number of different texts, as in `3 lines`."""
    different = list(dict.fromkeys(texts))
    return f"{len(different)} {noun}" if len(different) > 1 else "".join(different)


def require_new(path: str | Path | None, *, force: bool) -> None:
    """Refuse to replace an existing file. Call this before the work that produces the new content.

    None and `-` are not files. Raises CollisionError.
    """
    if path is not None and str(path) != "-" and not force and Path(path).exists():
        raise CollisionError(Path(path), "choose another file, or replace it with --force")


def write_json(path: str, content: Any, *, force: bool = True) -> None:
    """Write JSON to a file, or to standard output for `-`. Infinities and NaN, which JSON lacks, become text."""
    require_new(path, force=force)
    text = json_text(content)
    if path == "-":
        sys.stdout.write(text)
    else:
        write_text(Path(path), text)


def write_text(path: Path, text: str) -> None:
    """Write text to a file. Raises UsageError."""
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{path} cannot be written: {error.strerror}") from None
