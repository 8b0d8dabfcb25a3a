"""What is done with a script, told with the line of the script that it was done for."""

from __future__ import annotations

from ..records.adoption_facts import AdoptionFacts, Kind
from ..tape.origin import script_line


class ScriptNotes:
    """Tells each text once, with the first line of `script` that asked for it.

    Whoever says the same a thousand times pays for it once: the stack is looked at for the first only.
    """

    def __init__(self, facts: AdoptionFacts, script: str) -> None:
        self._facts = facts
        self._script = script
        self._known: set[str] = set()
        self._silent = False

    def note(self, kind: Kind, text: str) -> None:
        if self._is_new(text):
            self._facts.note(kind, text, script_line(self._script) or "")

    def doubt(self, text: str) -> None:
        if self._is_new(text):
            self._facts.doubt(text, script_line(self._script) or "")

    def forget(self) -> None:
        """Say nothing any more: this is a fork of the recorded process."""
        self._silent = True

    def _is_new(self, text: str) -> bool:
        if self._silent or text in self._known:
            return False
        self._known.add(text)
        return True
