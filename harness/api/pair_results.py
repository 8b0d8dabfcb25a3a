"""Culprits and pairs as the Python interface gives them, from what `investigation.json` says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ..investigate.culprit_words import lines_of
from ..records import culprit
from ..records.codec import NUMBERS

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


def pair_of(content: Mapping[str, Any]) -> Pair:
    """A pair of `investigation.json`. Raises KeyError or Unreadable where it lacks what schema 1 has."""
    content = with_numbers(content)
    return Pair(
        **{name: content[name] for name in ("a", "b", "verdict", "undecided", "score", "threshold")},
        **{name: content[name] for name in ("first_differing_step", "first_significant_step", "closer_to_fp64")},
        text=tuple(content["text"]),
        notes=tuple(content["notes"]),
        culprits=tuple(culprit_of(one, content["a"], content["b"]) for one in content["culprits"]),
        content=content,
    )


def culprit_of(content: Mapping[str, Any], a: str, b: str) -> Culprit:
    """A culprit of a pair; a difference in the set-up has neither place nor proof."""
    found = culprit.Culprit.from_json(content)
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
