"""The results of a step that its ops leave to the script: those that no later op reads, and numbers read from tensors.

The script may compute with such results outside of torch, for instance in NumPy, and keep what it computes. No tape
shows that computation, so replays with random rounding do not move its results. They move what it starts from.
"""

from __future__ import annotations

from dataclasses import replace

import torch

from ..tape import Tape, View, Watched, views_in
from .replay import executions

LEFT = "left to the script "
"""The prefix of the names under which these results are watched."""

READS_A_NUMBER = "_local_scalar_dense"

MOST_ELEMENTS = 1 << 16
"""The largest number of elements of a result that is watched: a script reads small results into Python."""

MOST_RESULTS = 32
"""The largest number of results that are watched, the last ones of the step."""


def with_results_left(tape: Tape) -> Tape:
    """Return the tape with the floating results that its ops leave to the script watched, too.

    Such a result is the first output of an op of the data or the forward. Results that are watched already are left
    out: their noise is measured under their own names. The values of the new watched results are empty.

    Raises NotReplayable if this torch lacks one of the tape's ops.
    """
    results: dict[int, tuple[int, View]] = {}
    left: dict[int, tuple[int, View]] = {}
    for computation in executions(tape):
        call = computation.call
        read = {view.slot for view in views_in(call)}
        if call.name == READS_A_NUMBER and call.phase != "optimizer":
            left |= {slot: results[slot] for slot in read if slot in results}
            continue
        results = {slot: result for slot, result in results.items() if slot not in read}
        output = call.outputs[0] if call.outputs and call.phase in ("data", "forward") else None
        if isinstance(output, View) and output.dtype.is_floating_point and 0 < output.extent <= MOST_ELEMENTS:
            results[output.slot] = (computation.position + 1, output)
    own = {watched.view.slot for watched in tape.watched}
    found = sorted((result for slot, result in (left | results).items() if slot not in own), key=lambda found: found[0])
    nothing = torch.empty(0)
    watched = [
        Watched(position, f"{LEFT}{number}", view, nothing)
        for number, (position, view) in enumerate(found[-MOST_RESULTS:])
    ]
    return replace(tape, watched=(*tape.watched, *watched))
