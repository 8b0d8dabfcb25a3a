"""The result of compared calls on the screen: the answer for each mode, then its numbers and its causes."""

from __future__ import annotations

from rich.console import Console

from ..investigate.words.call_words import says
from ..investigate.words.culprit_words import from_here
from ..records.results.call_check import CallCheck, CheckedMode
from .output import number, table
from .shown_culprits import show_culprits

RESULTS_SHOWN = 8

UNITS = "differs by, rounding alone: L2 distances, relative to the reference's result; z: their ratio"


def show_calls(out: Console, found: CallCheck, *, suspects: bool = False, frames: bool = False) -> None:
    """Print the answer for each mode, then its numbers and its causes."""
    for mode in found.modes:
        out.print(f"{mode.answer}.", soft_wrap=True)
    calls = f"{len(found.calls)} call{'' if len(found.calls) == 1 else 's'}"
    labels = f"{', '.join(found.calls[:3])}{', ...' if len(found.calls) > 3 else ''}"
    out.print(f"\n{found.target}: {calls}{'' if labels == 'the call' else f' ({labels})'}", soft_wrap=True)
    for mode in found.modes:
        _show_mode(out, found, mode, suspects=suspects, frames=frames)
    for note in found.notes:
        out.print(f"note: {note}", soft_wrap=True)
    out.print(f"\n{found.seconds:.1f} s; everything is in {found.folder}", soft_wrap=True)


def _show_mode(out: Console, found: CallCheck, mode: CheckedMode, *, suspects: bool, frames: bool) -> None:
    out.print(f"\n{mode.mode} against {found.reference}: {mode.verdict or 'undecided'}", soft_wrap=True)
    for sentence in (*mode.differences[:RESULTS_SHOWN], *mode.text):
        out.print(f"  {sentence}", soft_wrap=True)
    if mode.results:
        rows = table("  result", ">differs by", ">rounding alone", ">z", "farthest in")
        for row in mode.results[:RESULTS_SHOWN]:
            rows.add_row(f"  {row.name}", number(row.difference), number(row.rounding), number(row.z), row.call)
        out.print(rows)
        out.print(f"  {UNITS}", soft_wrap=True)
    for script in mode.shrunk:
        text = f"shrunk: {from_here(script.path)} ({script.text})" if script.path else script.text
        out.print(f"  {text}", soft_wrap=True)
    if mode.pair is not None:
        with out.capture() as captured:
            show_culprits(out, mode.pair, suspects=suspects, frames=frames)
        for line in says(captured.get(), found.stepped).splitlines():
            if line.strip():
                out.print(line, soft_wrap=True)
