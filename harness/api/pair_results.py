"""Culprits and pairs as the Python interface gives them, from what `investigation.json` says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..investigate.culprit_words import lines_of
from ..records import culprit
from ..records.codec import NUMBERS
from ..records.findings import PairFindings

TAKEN = (
    "kind", "status", "significance", "phase", "module", "op", "source", "step", "share_of_drift", "error_ulp", "rho",
)  # fmt: skip
"""What the interface gives as the record of a culprit has it."""


@dataclass(frozen=True, slots=True)
class Culprit:
    """One cause of a pair's drift.

    `status` is `culprit` with both proofs, else `suspect`; `share_of_drift` is 0 to 1. `error_ulp` and `rho`
    are by side, `a` and `b`. `script` is the standalone script that shows it, where one reproduces. `text` is
    for people, and `content` has everything that `investigation.json` says
    (docs/guide/investigation-json.md)."""

    kind: str
    status: str | None
    significance: str | None
    phase: str | None
    module: str | None
    op: str | None
    source: str | None
    step: int | None
    share_of_drift: float | None
    swap_in_holds: bool | None
    swap_out_holds: bool | None
    error_ulp: Mapping[str, float]
    rho: Mapping[str, float]
    script: Path | None
    text: Sequence[str] = field(repr=False)
    content: Mapping[str, Any] = field(repr=False)


@dataclass(frozen=True, slots=True)
class Pair:
    """What is known of two runs; `a` is the reference, both are labels.

    `verdict` is identical, rounding, beyond-rounding, different-setup, nondeterministic, nonfinite or failed;
    None while nothing decides, and then `undecided` says what would. `score` and `threshold` are multiples of
    the reference's rounding noise. `exit_code` is that of the command line: 0 without drift beyond rounding.
    `content` is as in `Culprit`."""

    a: str
    b: str
    verdict: str | None
    undecided: str
    text: Sequence[str] = field(repr=False)
    notes: Sequence[str] = field(repr=False)
    first_differing_step: int | None
    first_significant_step: int | None
    score: float | None
    threshold: float | None
    closer_to_fp64: str | None
    culprits: Sequence[Culprit] = field(repr=False)
    content: Mapping[str, Any] = field(repr=False)

    @property
    def exit_code(self) -> int:
        if self.verdict == "failed":
            return 3
        return 0 if self.verdict in ("identical", "rounding") else 1


def pair_of(found: PairFindings, content: Mapping[str, Any]) -> Pair:
    """A pair of `investigation.json`, as it was read and as it is written there."""
    content = with_numbers(content)
    both = zip(found.culprits, content.get("culprits", ()), strict=True)
    return Pair(
        **{name: getattr(found, name) for name in ("a", "b", "verdict", "undecided", "score", "threshold")},
        **{name: getattr(found, name) for name in ("first_differing_step", "first_significant_step", "closer_to_fp64")},
        text=tuple(found.text),
        notes=tuple(found.notes),
        culprits=tuple(culprit_of(one, written, found.a, found.b) for one, written in both),
        content=content,
    )


def culprit_of(found: culprit.Culprit, content: Mapping[str, Any], a: str, b: str) -> Culprit:
    """A culprit of a pair; a difference in the set-up has neither place nor proof."""
    script = found.script
    return Culprit(
        **{name: getattr(found, name) for name in TAKEN},
        swap_in_holds=None if found.proof is None else found.proof.swap_in.holds,
        swap_out_holds=None if found.proof is None else found.proof.swap_out.holds,
        script=Path(script.path) if script is not None and script.reproduces and script.path else None,
        text=tuple(lines_of(found, a, b)),
        content=content,
    )


def with_numbers(value: Any) -> Any:
    """A value of JSON with the numbers that JSON writes as text."""
    if isinstance(value, Mapping):
        return {key: with_numbers(one) for key, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [with_numbers(one) for one in value]
    return NUMBERS.get(value, value) if isinstance(value, str) else value
