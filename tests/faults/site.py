"""Whether a pair's culprits are what its case has planted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Blamed:
    """The proven culprits of a pair beyond rounding, the first one first, against what the case states.

    `matches` says of each whether it is what was planted; `suspects` counts those whose proof does not hold. `tests`
    are the hybrids that were executed, `runs` the trainings.
    """

    matches: tuple[bool, ...]
    suspects: int
    tests: int
    runs: int

    @property
    def first(self) -> bool:
        return self.matches[:1] == (True,)

    @property
    def any(self) -> bool:
        return any(self.matches)


def blamed(pair: Mapping[str, Any], planted: Mapping[str, Any]) -> Blamed:
    """Hold a pair of `investigation.json` against the CULPRIT of a case."""
    culprits = [
        one for one in pair.get("culprits", ()) if "proof" in one and one["significance"] == "beyond-rounding"
    ]
    proven = [one for one in culprits if one["status"] == "culprit"]
    return Blamed(
        tuple(is_planted(one, planted) for one in proven),
        len(culprits) - len(proven),
        int(pair.get("tests", 0)),
        int(pair.get("runs_used", 0)),
    )


def is_planted(culprit: Mapping[str, Any], planted: Mapping[str, Any]) -> bool:
    """Whether a culprit has the phase, the module, the op and the step that the case states."""
    ops = [culprit["op"] or "", *culprit["ops"]["a"], *culprit["ops"]["b"]]
    return (
        planted.get("phase", culprit["phase"]) == culprit["phase"]
        and ("op" not in planted or plain(planted["op"]) in map(plain, ops))
        and ("module" not in planted or _is_in(planted["module"], [culprit["module"], *culprit["places"]]))
        and planted.get("step", culprit["step"]) == culprit["step"]
    )


def plain(op: str) -> str:
    """The op without its namespace, whether in place or not."""
    return op.rpartition(".")[2].removesuffix("_")


def _is_in(module: str, places: Sequence[str | None]) -> bool:
    return any(place is not None and (place == module or place.startswith(f"{module}.")) for place in places)
