"""Sentences about the kinds of steps that were compared, and about those that were not."""

from __future__ import annotations

from collections.abc import Sequence

from ...records.results.findings import JUMP, StepKind

NAMED = 3
"""The number of kinds that a sentence names; the others are only counted."""


def not_compared(kinds: Sequence[StepKind]) -> list[StepKind]:
    """Return the kinds of which no step was compared."""
    return [kind for kind in kinds if not kind.compared]


def kinds_compared(kinds: Sequence[StepKind]) -> str:
    """Say of which kinds steps were compared; "" if all steps of the training are alike."""
    if not kinds:
        return ""
    compared = [kind for kind in kinds if kind.compared]
    if not compared:
        return f"no step of the {len(kinds)} kinds of steps was compared"
    count = f"all {len(kinds)}" if len(compared) == len(kinds) else f"{len(compared)} of {len(kinds)}"
    return f"steps of {count} kinds were compared ({_named(compared)})"


def kinds_left(kinds: Sequence[StepKind]) -> str:
    """Say that nothing is known of the kinds of which no step was compared; "" if there are none."""
    left = not_compared(kinds)
    if not left:
        return ""
    steps = ",".join(map(str, sorted({kind.first for kind in left})[:NAMED]))
    return f"nothing is known of the kinds that were not compared ({_named(left)}): compare them with --steps {steps}"


def _named(kinds: Sequence[StepKind]) -> str:
    named = [f"{_counted(kind)}{kind.text}" for kind in kinds[:NAMED]]
    more = len(kinds) - NAMED
    return "; ".join(named) + (f"; and {more} more" if more > 0 else "")


def _counted(kind: StepKind) -> str:
    if kind.aspect == JUMP:
        return ""
    return "1 step " if kind.steps == 1 else f"{kind.steps:,} steps "
