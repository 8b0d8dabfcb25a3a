"""Whether a pair's culprits are what its case has planted, which may be several faults at once."""

from __future__ import annotations

import itertools
import linecache
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

SEEN = ("setup", "nondeterminism")
"""Kinds of culprits that need no proof where they are seen."""


@dataclass(frozen=True, slots=True)
class Blamed:
    """The proven culprits of a pair beyond rounding, the first one first, against what the case states. A draw that was
    seen needs no proof.

    `matches` are, of each, the numbers of the planted faults that it is one of, `planted` is how many there are;
    `suspects` counts those whose proof does not hold. `tests` are the hybrids that were executed, `runs` the trainings.
    """

    matches: tuple[frozenset[int], ...]
    planted: int
    suspects: int
    tests: int
    runs: int

    @property
    def found(self) -> frozenset[int]:
        """The planted faults that are among the proven culprits."""
        return frozenset().union(*self.matches)

    @property
    def first(self) -> bool:
        """Whether all that was planted comes before anything else."""
        leading = itertools.takewhile(bool, self.matches)
        return len(frozenset[int]().union(*leading)) == self.planted


def blamed(pair: Mapping[str, Any], planted: Sequence[Mapping[str, Any]]) -> Blamed:
    """Hold a pair of `investigation.json` against what a case has planted."""
    culprits = [one for one in pair.get("culprits", ()) if one["significance"] == "beyond-rounding"]
    culprits = [one for one in culprits if "proof" in one or one.get("what") == "generator"]
    proven = [one for one in culprits if one.get("status") == "culprit" or "proof" not in one]
    return Blamed(
        tuple(frozenset(number for number, fault in enumerate(planted) if is_planted(one, fault)) for one in proven),
        len(planted),
        len(culprits) - len(proven),
        int(pair.get("tests", 0)),
        int(pair.get("runs_used", 0)),
    )


def is_located(pair: Mapping[str, Any], text: str) -> bool:
    """Whether the draw, or the call that does not repeat, is named, and only in a line that has this text."""
    seen = [one for one in pair.get("culprits", ()) if one["kind"] in SEEN and "proof" not in one]
    sources = [one["source"] for one in seen if one.get("source")]
    return bool(sources) and all(text in _line(source) for source in sources)


def _line(source: str) -> str:
    file, _, number = source.rpartition(":")
    return linecache.getline(file, int(number))


def is_planted(culprit: Mapping[str, Any], planted: Mapping[str, Any]) -> bool:
    """Whether a culprit has the phase, the kind, the module, the op, the step and as many sites as the case states: one
    of the phases and of the ops, where it states several."""
    ops = {plain(op) for op in (culprit["op"] or "", *(op for side in culprit.get("ops", {}).values() for op in side))}
    stated = [planted["op"]] if isinstance(planted.get("op"), str) else planted.get("op", ops)
    phases = [planted["phase"]] if isinstance(planted.get("phase"), str) else planted.get("phase", [culprit["phase"]])
    return (
        culprit["phase"] in phases
        and planted.get("kind", culprit.get("kind")) == culprit.get("kind")
        and not ops.isdisjoint(map(plain, stated))
        and ("module" not in planted or _is_in(planted["module"], [culprit["module"], *culprit.get("places", ())]))
        and planted.get("step", culprit["step"]) == culprit["step"]
        and planted.get("sites", culprit.get("sites")) == culprit.get("sites")
    )


def plain(op: str) -> str:
    """The op without its namespace, whether in place or not."""
    return op.rpartition(".")[2].removesuffix("_")


def _is_in(module: str, places: Sequence[str | None]) -> bool:
    return any(place is not None and (place == module or place.startswith(f"{module}.")) for place in places)
