"""The facts and the doubts about a script, written to the journal as they are found."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal

from ...errors import AdoptionError

Kind = Literal[
    "loss", "step", "parameters", "device", "placement", "compile", "autocast", "generators", "settings", "execution"
]

ADOPTION = "adoption"
"""The journal's event for a fact. Its fields are `kind`, `text` and `source`."""

NO_AUTOCAST = "autocast does nothing on "
"""The beginning of the doubt that is recorded if a script uses autocast in a mode that has none."""

DOUBT = "doubt"
"""The journal's event for a doubt about whether the run means what the user thinks. Its fields are `text` and
`source`."""


class AdoptionFacts:
    """Receives facts and doubts, and writes each once.

    With `strict`, `check` raises the first doubt as an error. `write` takes the name of a journal event and the event's
    fields. Facts and doubts that cannot be written are dropped, so that the training continues.
    """

    def __init__(self, write: Callable[..., None], *, strict: bool = False) -> None:
        self._write = write
        self._strict = strict
        self._reported: set[tuple[str, ...]] = set()
        self._first_doubt: str | None = None

    def note(self, kind: Kind, text: str, source: str = "") -> None:
        """Record a fact: something that was understood or changed, such as the script's loss or a redirected device."""
        self._report_once(ADOPTION, kind=kind, text=text, source=source)

    def doubt(self, text: str, source: str = "") -> None:
        """Record something in the script that was not understood, with a remedy."""
        if self._first_doubt is None:
            self._first_doubt = text
        self._report_once(DOUBT, text=text, source=source)

    def check(self) -> None:
        """Raise AdoptionError if `strict` is set and there is a doubt. Call this where the training may be stopped."""
        if self._strict and self._first_doubt is not None:
            raise AdoptionError(f"{self._first_doubt} (--strict)")

    def _report_once(self, event: str, **fields: Any) -> None:
        key = (event, *(str(value) for value in fields.values()))
        if key not in self._reported:
            self._reported.add(key)
            with suppress(OSError, ValueError):
                self._write(event, **fields)
