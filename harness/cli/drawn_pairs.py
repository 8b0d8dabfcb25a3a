"""The pairs of an investigation as the pictures take them, read from its `investigation.json`."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from numdrift.plots.drift_heatmap import ScoredStep

from ..drift.curve_envelope import Envelope
from ..errors import JournalError, UsageError
from ..records.findings import INVESTIGATION, SCHEMA


@dataclass(frozen=True, slots=True)
class DrawnPair:
    """A pair of modes, `a` being the reference: the scores of its steps, and its envelope if there is one."""

    a: str
    b: str
    title: str
    steps: tuple[ScoredStep, ...]
    envelope: Envelope | None

    @property
    def names(self) -> tuple[str, str]:
        """Both modes as they can stand in the name of a file."""
        a, b = (re.sub(r"[^A-Za-z0-9._-]", "_", name) for name in (self.a, self.b))
        return a, b


def drawn_pairs(investigation: Path) -> list[DrawnPair]:
    """The pairs that the investigation decided on.

    Raises UsageError when it has not decided yet, JournalError when its file cannot be read.
    """
    path = investigation / INVESTIGATION
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UsageError(
            f"{investigation} has no findings: `numdrift investigate {investigation}` makes them"
        ) from None
    except (OSError, ValueError, RecursionError) as error:
        raise JournalError(path, f"cannot be read: {error}") from error
    try:
        if data["schema"] != SCHEMA:
            raise JournalError(path, f"schema {data['schema']!r} is not known (known: {SCHEMA})")
        script = Path(data["reproducer"]).name
        return [_pair(pair, script) for pair in data["pairs"]]
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        why = f"lacks {error}" if isinstance(error, KeyError) else f"is not as expected: {error}"
        raise JournalError(path, why) from error


def _pair(data: Mapping[str, Any], script: str) -> DrawnPair:
    a, b = str(data["a"]), str(data["b"])
    curve = data.get("curve")
    return DrawnPair(
        a=a,
        b=b,
        title=f"{script} · {b} against {a} · {data.get('verdict') or 'undecided'}",
        steps=_steps(data.get("steps") or ()),
        envelope=Envelope.from_json(curve) if curve else None,
    )


def _steps(data: Sequence[Mapping[str, Any]]) -> tuple[ScoredStep, ...]:
    """The scores of all steps: a value that a step does not list was the same on both sides there."""
    steps = [_step(step) for step in data]
    names = dict.fromkeys(name for step in steps for name in step.scores)
    return tuple(replace(step, scores={name: step.scores.get(name, 0.0) for name in names}) for step in steps)


def _step(data: Mapping[str, Any]) -> ScoredStep:
    scores = {str(one["name"]): float(one["score"]) for one in data["tensors"]}
    if any(not score >= 0 for score in scores.values()):
        raise ValueError(f"step {data['step']} has a score that is no number from 0 on")
    return ScoredStep(int(data["step"]), scores, bool(data["taped"]))
