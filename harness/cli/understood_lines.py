"""The lines that say what was understood of a script, once each."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ..launch.tail import Understood


class UnderstoodLines:
    """Gives the block of a run; of further runs what has not been said yet."""

    def __init__(self) -> None:
        self._said: set[tuple[str, str]] = set()

    def block(self, name: str, understood: Sequence[Understood]) -> list[str]:
        """Lines to print for a run, a title first; empty when there is nothing new."""
        new = [one for one in understood if (one.kind, one.text) not in self._said]
        if not new:
            return []
        title = f"{name} also:" if self._said else f"{name} understood the script so:"
        self._said |= {(one.kind, one.text) for one in new}
        return [title, *(f"  {one.kind:<12}{one.text}{_where(one.source)}" for one in new)]


def _where(source: str) -> str:
    """`train.py:31` of the path of a script and its line."""
    return f" ({Path(source).name})" if source else ""
