"""The control: a run compared with its own repetition, bit for bit."""

from __future__ import annotations

from dataclasses import dataclass

from ..records.modes.mode_registry import DEVICES_OF_THE_CPU
from ..records.modes.mode_spec import parse_mode
from ..records.modes.repeating_advice import repeating_advice
from ..records.modes.setting_keys import device_of
from ..runs.recorded_run import RecordedRun
from .recorded_drift import GENERATORS, RecordedDifference, differences, generator_differences, own_steps

FIRST_TANH = (
    "; if the machine was busy, repeat the run first: the first tanh that torch computes on several threads of a "
    "process is occasionally wrong (pytorch/pytorch#188792)"
)


COMPUTED = ("loss", "gradient", "value")
"""The kinds of a first difference that arises within a step: the step began with an equal state and batch."""


@dataclass(frozen=True, slots=True)
class Repetition:
    """The comparison of a run with its repetition: either all bits are equal, or this is the first difference.

    `what` is initial, generator, batch, loss, gradient, value or steps. `text` is a sentence about the difference, and
    `remedy` says what to do. A generator that differs without any other difference does not count.

    score: how far apart the run's executions of one step from the same state are, as a multiple of the step's rounding
        noise; None if that is not known
    """

    repeatable: bool
    step: int | None = None
    tensor: str = ""
    what: str = ""
    text: str = ""
    remedy: str = ""
    score: float | None = None

    def is_noise(self, threshold: float) -> bool:
        """Check whether the run repeats, or differs only by a spread that is small enough to count as noise."""
        within = self.score is not None and self.score <= threshold
        return self.repeatable or (self.what in COMPUTED and within)


def repetition(first: RecordedRun, again: RecordedRun) -> Repetition:
    """Compare everything in the journals of a run and of its repetition."""
    difference = next((candidate for candidate in differences(first, again) if candidate.what != "generator"), None)
    if difference is None:
        return Repetition(True, text=f"{first.manifest.label} repeats bit for bit")
    before = [
        change
        for change in generator_differences(first, again, own_steps(again))
        if change.used and change.step <= difference.step
    ]
    if before and difference.what != "steps":
        difference = RecordedDifference(before[0].step, "generator", before[0].generator)
    what, name, step = difference.what, difference.name, difference.step
    spec = parse_mode(first.manifest.spec)
    raced = step == 0 and device_of(spec.base, spec.device) in DEVICES_OF_THE_CPU
    remedy = repeating_advice(spec) + (FIRST_TANH if raced else "")
    if what == "steps":
        remedy = "make the script end after a fixed number of steps, not after a fixed time"
    elif what == "initial":
        remedy = (
            "seed the generators before the model is created (torch.manual_seed(0)), and let no run read a file that "
            "another run wrote, such as a checkpoint"
        )
    elif what == "generator":
        _, seed = GENERATORS.get(name, ("", f"torch.{name}.manual_seed(0)"))
        remedy = f"call {seed} at the beginning of the script, and make the same draws in every run"
    elif what == "batch":
        remedy = (
            "give the data a fixed order: pass the DataLoader its own generator "
            "(generator=torch.Generator().manual_seed(0)), sort lists of files, and use no time or process number"
        )
    text = f"{first.manifest.label} does not repeat: {in_words(difference)}"
    return Repetition(False, step=step, tensor=name, what=what, text=text, remedy=remedy)


def in_words(difference: RecordedDifference) -> str:
    """Describe the first difference between two runs in a phrase."""
    what, name, step = difference.what, difference.name, difference.step
    match what:
        case "steps":
            return f"{name} were recorded"
        case "initial":
            return f"`{name}` starts from different values"
        case "generator":
            called, _ = GENERATORS.get(name, (f"the generator of {name}", ""))
            return f"{called} is in a different state before step {step}"
        case "batch":
            return f"the batch of step {step} differs ({name})"
        case "loss":
            return f"{name} of step {step} differs"
    return f"the {what} of `{name}` differs in step {step}"
