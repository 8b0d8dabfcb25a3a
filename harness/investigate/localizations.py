"""What the localizations of a pair say."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import JournalError
from ..records.localization_record import Localization, read_localization
from .evidence import PairEvidence


def localizations(evidence: PairEvidence) -> list[Localization]:
    """What was localized of a pair, in the order of the steps. What cannot be read is left out."""
    found = []
    for folder in evidence.localized:
        try:
            one = read_localization(folder)
        except JournalError:
            continue
        if one is not None:
            found.append(_placed(one, evidence))
    return found


def _placed(found: Localization, evidence: PairEvidence) -> Localization:
    """The localization with the command that repeats it in each culprit, and the scripts' paths from where the runs are read."""
    runs = shlex.join(str(run.path) for run in (evidence.a, evidence.b))
    command = f"numdrift localize {runs} --step {found.step}"
    culprits = [
        {**one, "command": command, "script": _script(found.path, one.get("script"))}
        for one in found.culprits
    ]
    return replace(found, content={**found.content, "culprits": culprits})


def _script(folder: Path, told: Any) -> dict[str, Any]:
    script = dict(told) if isinstance(told, dict) else {"path": None, "why": "none was written"}
    path = script.get("path")
    if isinstance(path, str):
        script["path"] = str(folder / Path(path).name)
    return script


def culprits_in(
    found: Sequence[Localization], threshold: float, step: int | None = None
) -> list[dict[str, Any]]:
    """The culprits of all localized steps: one that is met in several is that of `step`, else of the first.

    Those of a step whose drift is that of a discrete choice on the edge are rounding.
    """
    known: dict[object, dict[str, Any]] = {}
    for one in sorted(found, key=lambda one: (one.step != step, one.is_explained(threshold))):
        for culprit in one.culprits:
            if one.is_explained(threshold):
                culprit = {**culprit, "significance": "rounding"}
            known.setdefault(
                (culprit["phase"], culprit["op"], culprit["kind"], tuple(culprit["reasons"])), culprit
            )
    order = {"beyond-rounding": 0, "rounding": 1}
    return sorted(known.values(), key=lambda one: order.get(one["significance"], 2))


def notes_of(found: Sequence[Localization]) -> list[str]:
    """What else the localizations say."""
    said = []
    for one in found:
        if one.reason:
            said.append(f"step {one.step} could not be localized: {one.reason}")
        said += [f"step {one.step}: {note}" for note in one.content.get("notes", ())]
    return said
