"""What the recorder says of the training once its first step, and at last the script, has ended."""

from __future__ import annotations

from collections.abc import Sequence

from ..records.adoption_facts import AdoptionFacts
from .named_tensors import OPTIMIZED, NamedTensor

HOW_TO_SAY_THE_STEP = "call numdrift.step() where a step of the training ends"
HOW_TO_SAY_THE_LOSS = "call numdrift.log(loss=...) in each step"


def say_parameters(facts: AdoptionFacts, named: Sequence[NamedTensor], modules: Sequence[str]) -> None:
    """Say whose parameters are recorded and how many they are; it is a doubt when there are none."""
    parameters = [one for one in named if one.kind == "parameter"]
    if not parameters:
        facts.doubt("no parameters were found: losses are recorded, and nothing of what they train")
        return
    buffers = len(named) - len(parameters)
    values = sum(one.tensor.numel() for one in parameters)
    unnamed = sum(one.name.startswith(OPTIMIZED) for one in parameters)
    whose = " and ".join(modules) or "no module"
    also = f" and {buffers} buffers" if buffers else ""
    places = f"; {unnamed} of them go by their places in the optimizer" if unnamed else ""
    facts.note("parameters", f"{whose}: {len(parameters)} parameters of {values:,} values{also}{places}")


def say_step(facts: AdoptionFacts, ended_by: str, source: str) -> None:
    """Say where a step ends."""
    facts.note("step", f"ends {ended_by}", source)


def say_ending(facts: AdoptionFacts, steps: int, loss_found: bool) -> None:
    """Say what was never found, when the script has ended by itself."""
    if not steps and loss_found:
        facts.doubt(f"no step was seen to end: no optimizer's step() was called; {HOW_TO_SAY_THE_STEP}")
    elif not steps:
        facts.doubt(
            "no training was seen: neither a backward() nor an optimizer's step() in the script's own "
            "process; where it "
            f"trains in another way, {HOW_TO_SAY_THE_STEP}"
        )
    elif not loss_found:
        facts.doubt(
            "no loss was found: no backward() was called, and without gradients an optimizer's steps change nothing; "
            f"where the script trains in another way, {HOW_TO_SAY_THE_LOSS}"
        )
