"""Scripts whose length depends on a computed value: they end when a loss is small enough or a validation stops
improving.

    cpu                ends after step 24, whose loss is under the limit
    compile            ends after step 25: the loss of step 24 is over the limit by a rounding error
    compile-from-cpu   begins step 24 in cpu's state and ends after it, as cpu does

If the length follows from the reference's state, the set-up does not differ. If an option sets the length, the set-up
differs.
"""

from __future__ import annotations

from ...records.run.run_config import RunConfig
from ...runs.recorded_run import RecordedRun


def ended_by_values(reference: RecordedRun, run: RecordedRun, forced: RecordedRun | None) -> bool:
    """Check whether the lengths of the two runs differ, but become equal if the last common step begins in the
    reference's state."""
    counts = [len(compared_run.journal.steps) for compared_run in (reference, run)]
    if forced is None or counts[0] == counts[1] or forced.manifest.status != "complete":
        return False
    begun = {int(event["step"]) for event in forced.journal.events("resynced")}
    is_whole = RunConfig.load(forced.path / "config.json").until is None
    return is_whole and min(counts) - 1 in begun and len(forced.journal.steps) == counts[0]


def length_in_words(reference: RecordedRun, run: RecordedRun) -> str:
    """Describe the two lengths and, if both are known, the losses of the step in which the script decided."""
    reference_steps, steps = (len(compared_run.journal.steps) for compared_run in (reference, run))
    a, b, last = reference.manifest.label, run.manifest.label, min(reference_steps, steps) - 1
    losses = [compared_run.journal.steps[last].loss for compared_run in (reference, run)]
    values = "" if None in losses else f" (the loss of step {last:,} is {losses[0]:.9g} against {losses[1]:.9g})"
    return (
        f"a computed value ends the script, after {reference_steps:,} steps in {a} and {steps:,} in {b}{values}: "
        f"if {b} begins step {last:,} in the state of {a}, it ends when {a} does, so the set-up is the same; their "
        f"{last + 1:,} common steps are compared"
    )
