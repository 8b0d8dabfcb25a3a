"""Names for the graphs that cuts execute. A name consists of the step's phases since the previous cut."""

from __future__ import annotations

from collections import Counter

from ..hooks.observer import Progress
from .camera import Camera
from .segments import BEGINS


class CutPhases:
    """The phases since the previous cut. `latest` is the current phase of the training."""

    def __init__(self) -> None:
        self.latest = "setup"
        self._phases: dict[str, None] = {}
        self._in_step: Counter[str] = Counter()

    def closing(self) -> None:
        """Record that a piece of work is about to end. Its end may cut the graph."""
        if self.latest == "optimizer":
            self._phases.setdefault(self.latest)

    def reached(self, progress: Progress) -> None:
        if progress in BEGINS:
            self.latest = progress
        # The phase `optimizer` is added by `closing` instead, since a cut right after a backward may come before the
        # optimizer's first op.
        if progress in ("forward", "backward"):
            self._phases.setdefault(self.latest)
        if progress == "step":
            self._in_step.clear()

    def named(self, camera: Camera) -> tuple[str, str]:
        """Return the name and the phases of the graph that is about to be executed. Begin the next graph's phases."""
        phase = "+".join(self._phases) or self.latest
        self._phases.clear()
        self._in_step[phase] += 1
        return camera.name_of(self._in_step[phase], phase), phase
