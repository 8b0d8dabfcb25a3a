"""Names the graph that a cut executes, by the phases of the step that came before it."""

from __future__ import annotations

from collections import Counter

from ..hooks.observer import Progress
from .camera import Camera
from .segments import BEGINS


class CutPhases:
    """Follows the training; `latest` is the phase that is under way."""

    def __init__(self) -> None:
        self.latest = "setup"
        self._phases: dict[str, None] = {}
        self._in_step: Counter[str] = Counter()

    def closing(self) -> None:
        """A piece of work is about to be closed, which may cut."""
        if self.latest == "optimizer":
            self._phases.setdefault(self.latest)

    def reached(self, progress: Progress) -> None:
        if progress in BEGINS:
            self.latest = progress
        # after a backward nothing of an optimizer may come before the cut
        if progress in ("forward", "backward"):
            self._phases.setdefault(self.latest)
        if progress == "step":
            self._in_step.clear()

    def named(self, camera: Camera) -> tuple[str, str]:
        """Return name and phase of the graph that is about to be executed; the next phases belong to the next graph."""
        phase = "+".join(self._phases) or self.latest
        self._phases.clear()
        self._in_step[phase] += 1
        return camera.name_of(self._in_step[phase], phase), phase
