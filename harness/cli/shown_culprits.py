"""The culprits of a pair as commands print them: what is proven, under `rounding` as a table of contributors, and of
suspects no more than an experiment says."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from ..investigate.culprit_words import (
    PHASES,
    frames_of,
    from_here,
    lines_of,
    name_of,
    named_places,
    told_of,
    versions_of,
    versions_of_all,
)
from ..records.culprit import KERNEL, Culprit
from ..records.findings import PairFindings
from .output import number, table

CULPRITS_SHOWN = 8
PLACES, NARROWEST, NUMBER = 3, 12, 9
"""The column of the table that is made narrow, how narrow, and what a number takes, in characters."""


def show_culprits(out: Console, pair: PairFindings, *, suspects: bool, frames: bool) -> None:
    """Print them, with `suspects` also those for which nothing speaks yet, with `frames` each with all of the user's
    frames; then what they leave unexplained."""
    listed, counted = told_of(pair.verdict, pair.culprits, suspects=suspects)
    contributors = [one for one in listed if one.is_proven] if pair.verdict == "rounding" else []
    if contributors:
        _show_contributors(out, contributors[:CULPRITS_SHOWN], pair, frames=frames)
    # Beside a fault it is enough to know what is rounding.
    faults = any(one.is_proven and one.significance == "beyond-rounding" for one in listed)
    beside = [one for one in listed if faults and not suspects and one.is_proven and one.significance == "rounding"]
    rest = [one for one in listed if one not in (*contributors, *beside)]
    first = len(contributors) + 1
    for place, culprit in enumerate(rest[:CULPRITS_SHOWN], first):
        title, *others = lines_of(culprit, pair.a, pair.b)
        out.print(f"  {place}. {title}", soft_wrap=True)
        for line in others:
            out.print(f"     {line}", soft_wrap=True)
        if frames and culprit.frames:
            out.print(f"     {frames_of(culprit)}", soft_wrap=True)
    more = max(0, len(contributors) - CULPRITS_SHOWN) + max(0, len(rest) - CULPRITS_SHOWN)
    if more:
        out.print(f"  and {more} more in investigation.json", soft_wrap=True)
    if beside:
        shares: dict[str, float] = {}
        for one in beside:
            shares[name_of(one)] = shares.get(name_of(one), 0.0) + (one.share_of_drift or 0.0)
        names = ", ".join(f"{name} ({100 * share:.0f} %)" for name, share in shares.items())
        out.print(f"  within rounding beside that: {names}", soft_wrap=True)
    if counted:
        said = "1 suspect has" if counted == 1 else f"{counted} suspects have"
        out.print(f"  {said} no proof; --suspects lists {'it' if counted == 1 else 'them'}", soft_wrap=True)
    if pair.unexplained:
        out.print(f"  {pair.unexplained}", soft_wrap=True)
    elif pair.explained is not None and any(one.is_proven for one in listed):
        out.print("  swapped out together, all of the drift goes", soft_wrap=True)


def _show_contributors(out: Console, culprits: Sequence[Culprit], pair: PairFindings, *, frames: bool) -> None:
    names = ("  ", "op", "phase", "places", "share", f"ULP in {pair.a}", f"ULP in {pair.b}")
    cells: list[tuple[str, ...]] = []
    for place, one in enumerate(culprits, 1):
        share = "" if one.share_of_drift is None else f"{100 * one.share_of_drift:.0f} %"
        errors = (number(one.error_ulp.get(side)) for side in ("a", "b"))
        phases = ", ".join(PHASES.get(each, each).removeprefix("the ") for each in one.phases or (one.phase or "",))
        cells.append((f"  {place}.", name_of(one), phases, named_places(one), share, *errors))
    rows = table(*(f">{name}" if place > PLACES else name for place, name in enumerate(names)))
    # Where a terminal is narrow the names of modes are broken into lines, then places, before names of ops are.
    widths = [max(map(len, (names[place], *(row[place] for row in cells)))) for place in range(len(names))]
    if sum(widths) + 2 * (len(widths) - 1) > out.width:
        for place in (-2, -1):
            rows.columns[place].max_width = widths[place] = NUMBER
        others = sum(widths) - widths[PLACES] + 2 * (len(widths) - 1)
        rows.columns[PLACES].max_width = max(NARROWEST, out.width - others)
    for row in cells:
        rows.add_row(*row)
    out.print(rows)
    for place, one in enumerate(culprits, 1):
        if one.kind != KERNEL and one.reasons:  # another kernel is told by its errors, of all else what is other
            out.print(f"  {place}: {', '.join(one.reasons)}", soft_wrap=True)
        if frames and one.frames:
            out.print(f"  {place}: {frames_of(one)}", soft_wrap=True)
    several = [one for one in culprits if one.torch]
    if len(several) == 1:
        out.print(f"  {versions_of(several[0])}", soft_wrap=True)
    elif several:
        out.print(f"  {versions_of_all(several[0], pair.a, pair.b)}", soft_wrap=True)
    shown = [Path(one.script.path) for one in culprits if one.script and one.script.reproduces and one.script.path]
    if shown:
        files = ", ".join(path.name for path in shown)
        how = "shows it" if len(shown) == 1 else "show them"
        out.print(f"  {files} in {from_here(str(shown[0].parent))} {how} without numdrift", soft_wrap=True)
