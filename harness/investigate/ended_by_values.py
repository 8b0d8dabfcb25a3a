"""Scripts that end by what they compute: a loss that is small enough, a validation that gets no better.

    cpu                ends after step 24, whose loss is under the limit
    compile            its loss is over it by a rounding: it ends after step 25
    compile-from-cpu   step 24 begun in cpu's state: it ends there, as cpu does

A length that follows the reference's state is no other set-up, as one that an option gives would be.
"""

from __future__ import annotations

from ..records.run_config import RunConfig
from ..runs.recorded_run import RecordedRun


def ended_by_values(reference: RecordedRun, run: RecordedRun, forced: RecordedRun | None) -> bool:
    """Whether the run has another length than the reference, and the reference's where its last common step begins in
    the reference's state."""
    counts = [len(one.journal.steps) for one in (reference, run)]
    if forced is None or counts[0] == counts[1] or forced.manifest.status != "complete":
        return False
    begun = {int(event["step"]) for event in forced.journal.events("resynced")}
    is_whole = RunConfig.load(forced.path / "config.json").until is None
    return is_whole and min(counts) - 1 in begun and len(forced.journal.steps) == counts[0]


def length_in_words(reference: RecordedRun, run: RecordedRun) -> str:
    """The two lengths, and by what the script has decided, as far as its losses tell."""
    ours, theirs = (len(one.journal.steps) for one in (reference, run))
    a, b, last = reference.manifest.label, run.manifest.label, min(ours, theirs) - 1
    losses = [one.journal.steps[last].loss for one in (reference, run)]
    values = "" if None in losses else f" (the loss of step {last:,} is {losses[0]:.9g} against {losses[1]:.9g})"
    return (
        f"the script ends by what it computes, after {ours:,} steps in {a} and {theirs:,} in {b}{values}: where {b} "
        f"begins step {last:,} in the state of {a}, it ends with {a}, so the set-up is the same; their {last + 1:,} "
        "common steps are compared"
    )
