"""The observer that takes the snapshots of a mode's executions."""

from __future__ import annotations

from ..hooks.observer import Observer


class SnapshotObserver(Observer):
    """Hands each execution of the mode to a camera."""

    @property
    def is_behind(self) -> bool:
        """Check whether ops of a step that has ended are still to be executed."""
        return False
