"""The control: a run against its own repetition, bit for bit."""

from __future__ import annotations

from dataclasses import dataclass

from ..runs.recorded_run import RecordedRun
from .recorded_drift import RecordedDifference, differences, generator_differences

GENERATORS = {
    "torch": ("torch's generator", "torch.manual_seed(0)"),
    "python": ("Python's generator", "random.seed(0)"),
    "numpy": ("NumPy's generator", "numpy.random.seed(0)"),
}
"""How each generator is called, and the call that seeds it."""

FIRST_TANH = (
    "; where the machine was busy, repeat it first: torch's first tanh on several threads of a process is now and then "
    "computed wrongly (pytorch/pytorch#188792)"
)


@dataclass(frozen=True, slots=True)
class Repetition:
    """Whether a run gave the same bits again; else the first difference, what was said of it, and what helps.

    `what` is initial, generator, batch, loss, gradient, value or steps. A generator that differs without any
    other difference does not count.
    """

    repeatable: bool
    step: int | None = None
    tensor: str = ""
    what: str = ""
    text: str = ""
    remedy: str = ""


def repetition(first: RecordedRun, again: RecordedRun) -> Repetition:
    """Hold a run against its repetition: everything that both journals hold."""
    found = next((one for one in differences(first, again) if one.what != "generator"), None)
    if found is None:
        return Repetition(True, text=f"{first.manifest.label} repeats bit for bit")
    before = [one for one in generator_differences(first, again) if one.used and one.step <= found.step]
    if before and found.what != "steps":
        found = RecordedDifference(before[0].step, "generator", before[0].generator)
    return Repetition(
        False,
        step=found.step,
        tensor=found.name,
        what=found.what,
        text=f"{first.manifest.label} does not repeat: {_text(found)}",
        remedy=_remedy(found),
    )


def _text(found: RecordedDifference) -> str:
    if found.what == "steps":
        return f"{found.name} were recorded"
    if found.what == "initial":
        return f"`{found.name}` starts from other values"
    if found.what == "generator":
        called = GENERATORS.get(found.name, (f"the generator of {found.name}", ""))[0]
        return f"{called} is at another state before step {found.step}"
    if found.what == "batch":
        return f"the batch of step {found.step} differs ({found.name})"
    if found.what == "loss":
        return f"{found.name} of step {found.step} differs"
    return f"the {found.what} of `{found.name}` differs in step {found.step}"


def _remedy(found: RecordedDifference) -> str:
    if found.what == "generator":
        seed = GENERATORS.get(found.name, ("", f"torch.{found.name}.manual_seed(0)"))[1]
        return f"call {seed} at the beginning of the script, and draw the same count in every run"
    if found.what == "initial":
        return (
            "seed the generators before the model is made (torch.manual_seed(0)), and let no run read what another has "
            "written (a checkpoint to resume from)"
        )
    if found.what == "batch":
        return (
            "give the data a fixed order: a generator of its own for the DataLoader "
            "(generator=torch.Generator().manual_seed(0)), sorted file lists, no time or process number in it"
        )
    if found.what == "steps":
        return "let the script end after a fixed number of steps, not after a time"
    return "run with threads=1 and call torch.use_deterministic_algorithms(True)" + (
        FIRST_TANH if found.step == 0 else ""
    )
