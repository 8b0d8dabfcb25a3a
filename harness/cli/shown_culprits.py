"""Print the culprits of a pair.

If the verdict is `rounding`, the proven culprits are printed as a table of contributors. By default, suspects that no
experiment supports are only counted.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from ..investigate.words.culprit_words import (
    PHASES,
    frames_of,
    from_here,
    lines_of,
    name_of,
    named_culprits,
    named_places,
    versions_of,
    versions_of_all,
)
from ..records.results.culprit import KERNEL, Culprit
from ..records.results.findings import PairFindings
from .output import number, table

CULPRITS_SHOWN = 8
PLACES, NARROWEST, NUMBER = 3, 12, 9
"""The index of the column that may be narrowed, its minimum width, and the width of a number, in characters."""


def show_culprits(out: Console, pair: PairFindings, *, suspects: bool, frames: bool) -> None:
    """Print the culprits, then the drift that they leave unexplained.

    suspects: also print suspects that no experiment supports
    frames: print all of the user's frames of each culprit
    """
    listed, counted = named_culprits(pair.verdict, pair.culprits, suspects=suspects)
    contributors = [culprit for culprit in listed if culprit.is_proven] if pair.verdict == "rounding" else []
    if contributors:
        _show_contributors(out, contributors[:CULPRITS_SHOWN], pair, frames=frames)
    # If there is a fault, one sentence is enough for the culprits within rounding.
    faults = any(culprit.is_proven and culprit.significance == "beyond-rounding" for culprit in listed)
    beside = [item for item in listed if faults and not suspects and item.is_proven and item.significance == "rounding"]
    remaining = [culprit for culprit in listed if culprit not in (*contributors, *beside)]
    first_number = len(contributors) + 1
    for position, culprit in enumerate(remaining[:CULPRITS_SHOWN], first_number):
        title, *further = lines_of(culprit, pair.a, pair.b)
        out.print(f"  {position}. {title}", soft_wrap=True)
        for line in further:
            out.print(f"     {line}", soft_wrap=True)
        if frames and culprit.frames:
            out.print(f"     {frames_of(culprit)}", soft_wrap=True)
    more = max(0, len(contributors) - CULPRITS_SHOWN) + max(0, len(remaining) - CULPRITS_SHOWN)
    if more:
        out.print(f"  and {more} more in investigation.json", soft_wrap=True)
    if beside:
        # culprits that were swapped together have no share of their own
        shares: dict[str, float | None] = {}
        for contributor in beside:
            name, share = name_of(contributor), contributor.share_of_drift
            shares[name] = share if share is None else share + (shares.get(name) or 0.0)
        names = ", ".join(name if share is None else f"{name} ({100 * share:.0f} %)" for name, share in shares.items())
        out.print(f"  also proven, but within rounding: {names}", soft_wrap=True)
    if counted:
        subject = "1 suspect has" if counted == 1 else f"{counted} suspects have"
        out.print(f"  {subject} no proof; --suspects lists {'it' if counted == 1 else 'them'}", soft_wrap=True)
    if pair.unexplained:
        out.print(f"  {pair.unexplained}", soft_wrap=True)
    elif pair.explained is not None and any(culprit.is_proven for culprit in listed):
        out.print("  the drift disappears completely when all culprits are swapped out together", soft_wrap=True)


def _show_contributors(out: Console, culprits: Sequence[Culprit], pair: PairFindings, *, frames: bool) -> None:
    names = ("  ", "op", "phase", "places", "share", f"ULP in {pair.a}", f"ULP in {pair.b}")
    cells: list[tuple[str, ...]] = []
    for place, record in enumerate(culprits, 1):
        share = "" if record.share_of_drift is None else f"{100 * record.share_of_drift:.0f} %"
        errors = (number(record.error_ulp.get(side)) for side in ("a", "b"))
        phases = ", ".join(
            PHASES.get(phase, phase).removeprefix("the ") for phase in record.phases or (record.phase or "",)
        )
        cells.append((f"  {place}.", name_of(record), phases, named_places(record), share, *errors))
    rows = table(*(f">{name}" if place > PLACES else name for place, name in enumerate(names)))
    # In a narrow terminal, the names of modes are wrapped first, then places, and names of ops last.
    widths = [max(map(len, (names[place], *(row[place] for row in cells)))) for place in range(len(names))]
    if sum(widths) + 2 * (len(widths) - 1) > out.width:
        for place in (-2, -1):
            rows.columns[place].max_width = widths[place] = NUMBER
        other_widths = sum(widths) - widths[PLACES] + 2 * (len(widths) - 1)
        rows.columns[PLACES].max_width = max(NARROWEST, out.width - other_widths)
    for row in cells:
        rows.add_row(*row)
    out.print(rows)
    for place, record in enumerate(culprits, 1):
        if record.kind != KERNEL and record.reasons:  # the table shows the errors of kernels; other kinds have reasons
            out.print(f"  {place}: {', '.join(record.reasons)}", soft_wrap=True)
        if frames and record.frames:
            out.print(f"  {place}: {frames_of(record)}", soft_wrap=True)
    several = [culprit for culprit in culprits if culprit.torch]
    if len(several) == 1:
        out.print(f"  {versions_of(several[0])}", soft_wrap=True)
    elif several:
        out.print(f"  {versions_of_all(several[0], pair.a, pair.b)}", soft_wrap=True)
    shown = [
        Path(culprit.script.path)
        for culprit in culprits
        if culprit.script and culprit.script.reproduces and culprit.script.path
    ]
    if shown:
        files = ", ".join(path.name for path in shown)
        verb = "shows it" if len(shown) == 1 else "show them"
        out.print(f"  {files} in {from_here(str(shown[0].parent))} {verb} without numdrift", soft_wrap=True)
