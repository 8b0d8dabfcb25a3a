"""From which step on runs differ bit for bit, by the digests in their journals."""

from __future__ import annotations

from collections.abc import Sequence

from ...runs.journal import Journal


def first_differing_steps(runs: Sequence[tuple[str, Journal]]) -> dict[str, int]:
    """For each run but the first, its first step whose loss, values or gradients are not those of the first run's.

    A run that never differs has none.
    """
    reference = _by_step(runs[0][1])
    found = {}
    for name, journal in runs[1:]:
        steps = _by_step(journal)
        differing = (step for step in sorted(reference) if step in steps and steps[step] != reference[step])
        first = next(differing, None)
        if first is not None:
            found[name] = first
    return found


def _by_step(journal: Journal) -> dict[int, object]:
    """What identifies each step: its loss and the digests of its tensors."""
    losses = {one.step: one.loss for one in journal.steps}
    digests = dict(journal.digests())
    return {step: (str(loss), digests.get(step)) for step, loss in losses.items()}
