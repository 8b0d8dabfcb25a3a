"""What the localizations of a pair say."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ..errors import JournalError
from ..records.culprit import Culprit, CulpritScript
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
        replace(one, command=command, script=_script(found.path, one.script)) for one in found.culprits
    ]
    return replace(found, content={**found.content, "culprits": culprits})


def _script(folder: Path, told: CulpritScript | None) -> CulpritScript:
    if told is None:
        return CulpritScript(None, why="none was written")
    return told if told.path is None else replace(told, path=str(folder / Path(told.path).name))


def culprits_in(found: Sequence[Localization], threshold: float, step: int | None = None) -> list[Culprit]:
    """The culprits of all localized steps: one that is met in several is that of `step`, else of the first.

    Those of a step whose drift is that of a discrete choice on the edge are rounding.
    """
    known: dict[object, Culprit] = {}
    for one in sorted(found, key=lambda one: (one.step != step, one.is_explained(threshold))):
        for culprit in one.culprits:
            if one.is_explained(threshold):
                culprit = replace(culprit, significance="rounding")
            look = (culprit.phase, culprit.op, culprit.kind, tuple(culprit.reasons))
            known.setdefault(look, culprit)
    order: dict[str | None, int] = {"beyond-rounding": 0, "rounding": 1}
    return sorted(known.values(), key=lambda one: order.get(one.significance, 2))


def notes_of(found: Sequence[Localization]) -> list[str]:
    """What else the localizations say."""
    said = []
    for one in found:
        if one.reason:
            said.append(f"step {one.step} could not be localized: {one.reason}")
        said += [f"step {one.step}: {note}" for note in one.content.get("notes", ())]
    return said
