"""The elements of a block's results that no op of the block has written: two sides may differ in them without a cause.

    _ctc_loss    output 1 has rows beyond an input's length, which differ at random

They are found by trial (see unwritten in tape/replaying). Outputs that hold no value at all have no counterpart (see
tape_pair).
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

import torch

from ...tape.replaying.unwritten import filled_memory, unwritten_elements
from ..align.storage_flow import SIDES, Side, Use
from .hybrid import HybridExecution
from .prepared_call import PlainKernels
from .step_memory import Memory

Results = dict[Side, list[torch.Tensor]]
"""Each side's version of the results of a block, on the reference's device."""


def without_unwritten(
    execution: HybridExecution, number: int, before: Memory, compared: Sequence[tuple[Use, Use]], results: Results
) -> tuple[list[tuple[Use, Use]], Results]:
    """Return the compared results of a block, and both sides' values, without those that differ only in elements that a
    side has not written.

    `before` is the memory at the start of the block.
    """
    masks: list[torch.Tensor | None] = [None] * len(compared)
    for place, side in enumerate(SIDES):
        uses = [pair[place] for pair in compared]
        found = _masks(execution, number, side, before, uses, results[side])
        masks = [_joined(mask, other) for mask, other in zip(masks, found, strict=True)]
    kept = [
        at
        for at, (a, b, mask) in enumerate(zip(results["a"], results["b"], masks, strict=True))
        if mask is None or _differ_elsewhere(a, b, mask)
    ]
    return [compared[at] for at in kept], {side: [results[side][at] for at in kept] for side in SIDES}


def _masks(
    execution: HybridExecution,
    number: int,
    side: Side,
    before: Memory,
    uses: Sequence[Use],
    values: Sequence[torch.Tensor],
) -> list[torch.Tensor | None]:
    """Return the unwritten elements of each result, as a side computes the block."""
    pair = execution.pair
    masks: list[torch.Tensor | None] = [None] * len(uses)
    memory = before.fork()
    with suppress(Exception):  # an op may refuse a deterministic mode, or this process may lack its kernel
        filled = HybridExecution(pair, execution.hybrid, {**pair.kernels, side: PlainKernels()})
        with filled_memory():
            filled.run_as(side, number, memory)
        for at, (use, value) in enumerate(zip(uses, values, strict=True)):
            masks[at] = unwritten_elements(value, memory.tensor(side, use).to(value.device))
    return masks


def _joined(first: torch.Tensor | None, second: torch.Tensor | None) -> torch.Tensor | None:
    return second if first is None else first if second is None else first | second


def _differ_elsewhere(a: torch.Tensor, b: torch.Tensor, mask: torch.Tensor) -> bool:
    b = b.to(a.dtype)
    same = (a == b) | (a.isnan() & b.isnan())
    return bool((~same & ~mask.to(a.device)).any())
