"""A difference between the inputs of two runs."""

from __future__ import annotations

from dataclasses import dataclass

KINDS = ("script", "arguments", "autocast", "initial", "hyper-parameter", "generator", "batch", "steps")
"""The kinds of differences, in an order in which a cause comes before its consequences in the same step."""


@dataclass(frozen=True, slots=True)
class SetupDifference:
    """A difference between the inputs of two runs, at the first step at which it shows.

    name: the tensor, hyper-parameter, generator or argument
    size: a relative distance, if there is one
    follows: whether it is a consequence of another difference, or of the drift itself
    harmless: "rounding" for values that are a few ULP apart, "unused" for a generator that nothing is drawn from,
        "stated" for a script or arguments that the modes themselves state, else ""
    """

    kind: str
    step: int
    name: str
    text: str
    size: float | None = None
    follows: bool = False
    harmless: str = ""

    @property
    def counts(self) -> bool:
        """Check whether this difference alone makes the runs incomparable."""
        return not self.follows and not self.harmless
