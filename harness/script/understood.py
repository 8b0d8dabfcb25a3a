"""Reports to the reader: facts that were found in a script, and changes that were made for the script."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from ..records.run.adoption_facts import AdoptionFacts, Kind
from ..tape.origin import script_line
from .named_tensors import OPTIMIZED, NamedTensor

HOW_TO_SAY_THE_STEP = "call numdrift.step() at the end of each training step"
HOW_TO_SAY_THE_LOSS = "call numdrift.log(loss=...) in each step"


def say_parameters(facts: AdoptionFacts, named: Sequence[NamedTensor], modules: Sequence[str]) -> None:
    """Report the modules whose parameters are recorded, and the number of these parameters.

    If there are no parameters, report a doubt.
    """
    parameters = [entry for entry in named if entry.kind == "parameter"]
    if not parameters:
        facts.doubt("no parameters were found: only losses are recorded")
        return
    buffers = len(named) - len(parameters)
    values = sum(entry.tensor.numel() for entry in parameters)
    unnamed = sum(entry.name.startswith(OPTIMIZED) for entry in parameters)
    counts = Counter(modules)  # a script may train several modules of one class
    classes = [f"{count} x {name}" if count > 1 else name for name, count in counts.items()]
    whose = " and ".join(classes) or "outside of modules"
    also = f" and {buffers} buffers" if buffers else ""
    places = f"; {unnamed} parameters are named by their index in the optimizer" if unnamed else ""
    facts.note("parameters", f"{whose}: {len(parameters)} parameters with {values:,} values{also}{places}")


def say_step(facts: AdoptionFacts, ended_by: str, source: str) -> None:
    """Report where a step ends."""
    facts.note("step", f"ends {ended_by}", source)


def say_ending(facts: AdoptionFacts, steps: int, loss_found: bool) -> None:
    """Report a doubt if no step or no loss was found. Call this after the script has ended by itself."""
    if not steps and loss_found:
        facts.doubt(f"no step was found, because no optimizer's step() was called: {HOW_TO_SAY_THE_STEP}")
    elif not steps:
        facts.doubt(
            "no training was seen: the script's own process called neither backward() nor an optimizer's step(); "
            f"if it trains in another way, {HOW_TO_SAY_THE_STEP}; if it does not train, compare its calls with "
            "`numdrift check`"
        )
    elif not loss_found:
        facts.doubt(
            "no loss was found: no backward() was called, and without gradients an optimizer's steps change nothing; "
            f"if the script trains in another way, {HOW_TO_SAY_THE_LOSS}"
        )


# Reports of changes that were made for a script, with the script's line that required the change.


class ScriptNotes:
    """Reports each text once, with the line of `script` that first caused the report.

    Only the first report of a text inspects the stack, so a script that causes a thousand reports of it pays for one.
    """

    def __init__(self, facts: AdoptionFacts, script: str) -> None:
        self._facts = facts
        self._script = script
        self._reported: set[str] = set()
        self._silent = False

    def note(self, kind: Kind, text: str) -> None:
        if self._is_new(text):
            self._facts.note(kind, text, script_line(self._script) or "")

    def doubt(self, text: str) -> None:
        if self._is_new(text):
            self._facts.doubt(text, script_line(self._script) or "")

    def forget(self) -> None:
        """Stop reporting. Called in a fork of the recorded process."""
        self._silent = True

    def _is_new(self, text: str) -> bool:
        if self._silent or text in self._reported:
            return False
        self._reported.add(text)
        return True
