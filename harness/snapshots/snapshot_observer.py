"""The observer that takes the snapshots of a mode's executions."""

from __future__ import annotations

from ..hooks.observer import Observer


class SnapshotObserver(Observer):
    """An observer that passes each execution of the mode to a camera."""

    @property
    def is_behind(self) -> bool:
        """Return whether ops of a finished step have yet to be executed."""
        return False
