"""An investigation's findings, compared with what its row expects of them."""

from __future__ import annotations

import linecache
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..faults.score import is_silent
from .rows import ExpectedCause, Investigation


@dataclass(frozen=True, slots=True)
class Judged:
    """A pair's verdict and its first proven cause in words, and what is wrong with them ("" for nothing)."""

    verdict: str
    cause: str
    wrong: str


def judged(row: Investigation, pair: Mapping[str, Any]) -> Judged:
    """Judge a pair of `investigation.json`."""
    verdict, sentence = pair["verdict"] or "undecided", str(next(iter(pair["text"]), ""))
    proven = [one for one in pair["culprits"] if one.get("status") == "culprit"]
    cause = words_of(proven[0]) if proven else ""
    wrong = []
    if verdict not in row.verdicts:
        wrong.append(f"expected {' or '.join(row.verdicts)}: {sentence}")
    elif row.said not in sentence:
        wrong.append(f"the verdict does not speak of {row.said!r}: {sentence}")
    if row.causes and verdict != "identical" and not (proven and any(is_cause(one, proven[0]) for one in row.causes)):
        wrong.append(f"expected {said(row.causes)} as the cause" if proven else "no cause is proven")
    if is_silent(pair):
        wrong.append("neither the causes nor a sentence account for all of the drift")
    return Judged(verdict, cause, "; ".join(wrong))


def said(causes: Sequence[ExpectedCause]) -> str:
    """Return causes in words; any will do where there are none."""
    return " or ".join(map(str, causes)) or "any"


def is_cause(expected: ExpectedCause, culprit: Mapping[str, Any]) -> bool:
    """Whether a culprit is the cause that is expected."""
    setting = culprit.get("setting")
    if setting or expected.setting:
        return setting is not None and bool(setting["name"] == expected.setting)
    ops = [culprit.get("op") or "", *(op for side in culprit.get("ops", {}).values() for op in side)]
    return any(expected.op in op for op in ops) and expected.line in line_of(culprit.get("source") or "")


def line_of(source: str) -> str:
    """Return the line that `path:number` names."""
    file, _, number = source.rpartition(":")
    return linecache.getline(file, int(number)) if number.isdigit() else ""


def words_of(culprit: Mapping[str, Any]) -> str:
    """Name a culprit: its setting, or its op, phase and line."""
    if setting := culprit.get("setting"):
        values = setting["values"]
        return f"{setting['name']}: {values.get('a', 'the same')} against {values.get('b', 'the same')}"
    named = culprit.get("op") or culprit.get("name") or culprit.get("what") or culprit["kind"]
    phase = f" ({culprit['phase']})" if culprit.get("phase") else ""
    file, _, number = (culprit.get("source") or "").rpartition(":")
    return f"{named}{phase}, {Path(file).name}:{number}" if file else f"{named}{phase}"
