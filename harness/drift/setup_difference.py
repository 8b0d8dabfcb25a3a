"""One thing that two runs were given differently."""

from __future__ import annotations

from dataclasses import dataclass

KINDS = ("script", "arguments", "autocast", "initial", "hyper-parameter", "generator", "batch", "steps")
"""In the order in which, at one step, a cause comes before its consequence."""


@dataclass(frozen=True, slots=True)
class SetupDifference:
    """A difference between what went into two runs, at the first step at which it shows.

    `name` is the tensor, hyper-parameter, generator or argument, `size` a relative distance where there is one.
    `follows` marks a consequence of another difference, or of the drift itself. `harmless` is "rounding" for values
    that are a few ULP apart, "unused" for a generator that nothing is drawn from, else empty.
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
        """Whether it alone makes the runs incomparable."""
        return not self.follows and not self.harmless
