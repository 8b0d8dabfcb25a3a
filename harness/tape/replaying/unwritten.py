"""Elements of an op's results that the op has not written: they hold whatever was in the memory.

Such elements are not values of the step. No comparison may rest on them, and no op may read them:

    mkldnn_rnn_layer    output 3 is the workspace of the library, which the backward takes back
    _ctc_loss           output 1 has a row for each input; rows beyond an input's length stay unwritten
    torch.empty         nothing is written until another op writes

They are found by a table of ops (`NO_VALUES`) and by a trial: torch can fill new memory with NaN or the largest integer
before an op writes to it. An element that then holds the filling, and otherwise does not, is unwritten.

A second trial shows whether the step reads such elements: the tape is replayed with 0 and with 1 in all of them. If
a watched value differs, the step's results depend on what happened to be in the memory.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch

from ...torch_private.dispatching import bare_execution
from ..files.journal_writing import bytes_of
from ..step_settings import put_settings, read_settings
from ..tape import SCRATCH, Call, Tape, View, views_in
from .replay import AsRecorded, Computation, Replay, bits_of, executed, results, take_over

NO_VALUES: Mapping[str, tuple[int, ...]] = {
    "mkldnn_rnn_layer": (3,),  # workspace
    "_cudnn_rnn": (3,),  # reserve
    "miopen_rnn": (3,),
    "cudnn_batch_norm": (3,),
    "_batch_norm_with_update": (3,),
    "_batch_norm_impl_index": (3,),
    "_scaled_dot_product_flash_attention": (6, 7, 8),  # state of the generator, offset, mask for debugging
    "_scaled_dot_product_cudnn_attention": (6, 7, 8),
    "_scaled_dot_product_fused_attention_overrideable": (6, 7, 8),
    "_scaled_dot_product_efficient_attention": (2, 3),  # seed, offset: unwritten without dropout
    "_flash_attention_forward": (2, 3, 4),
    "_efficient_attention_forward": (2, 3),
    "_cudnn_attention_forward": (6, 7, 8),
}
"""By op, the outputs that only the op's own backward understands (native_functions.yaml and derivatives.yaml of torch
2.13). The numbers are indices of outputs."""

FILLED: Mapping[str, Any] = {"deterministic": "warn", "fill_uninitialized_memory": True}

Masks = list[torch.Tensor | None]
"""For each fresh output of a call, its unwritten elements; None if all of them are written."""


@contextmanager
def filled_memory() -> Iterator[None]:
    """Let torch fill new memory with NaN or the largest integer within the context."""
    before = read_settings(FILLED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about ops without a kernel that repeats
        put_settings(FILLED)
        try:
            yield
        finally:
            put_settings(before)


def unwritten_elements(value: torch.Tensor, in_filled_memory: torch.Tensor) -> torch.Tensor | None:
    """Return the elements of a result that hold the filling only if memory was filled, None if there are none."""
    if value.shape != in_filled_memory.shape or value.dtype != in_filled_memory.dtype or value.is_quantized:
        return None
    with bare_execution(), torch.no_grad():
        is_filling, was_filling = map(_is_filling, (in_filled_memory.to(value.device), value))
        mask = is_filling & ~was_filling
        return mask if bool(mask.any()) else None


def _is_filling(value: torch.Tensor) -> torch.Tensor:
    if value.is_floating_point() or value.is_complex():
        return value.isnan()
    return value if value.dtype == torch.bool else value == torch.iinfo(value.dtype).max


def table_masks(call: Call, fresh: Sequence[torch.Tensor]) -> Masks:
    """Return the masks of a call's fresh outputs according to the table, all elements or none."""
    numbers = [number for number, is_fresh in enumerate(call.fresh) if is_fresh]
    named = NO_VALUES.get(call.name, ())
    return [
        torch.ones_like(value, dtype=torch.bool) if number in named else None
        for number, value in zip(numbers, fresh, strict=True)
    ]


def masks_of(
    computation: Computation,
    arguments: tuple[Any, ...],
    keywords: Mapping[str, Any],
    fresh: Sequence[torch.Tensor],
) -> Masks:
    """Return the masks of an executed call's fresh outputs, by the table and by trial.

    The arguments are those before the call. The trial writes to those that the call writes to.
    """
    masks = table_masks(computation.call, fresh)
    if computation.call.name in SCRATCH:
        return [torch.ones_like(value, dtype=torch.bool) for value in fresh]
    with suppress(Exception), filled_memory():  # an op may refuse a deterministic mode
        outputs = results(computation, executed(computation, arguments, keywords), arguments, keywords)
        for number, (value, output) in enumerate(zip(fresh, outputs, strict=False)):
            if masks[number] is None:
                masks[number] = unwritten_elements(value, output)
    return masks


@dataclass(frozen=True, slots=True)
class UnwrittenRead:
    """A call that leaves elements of its results unwritten, and the first later call whose results depend on them."""

    made_by: Call
    read_by: Call

    def to_json(self) -> dict[str, object]:
        return {"made_by": described(self.made_by), "read_by": described(self.read_by)}


def described(call: Call) -> dict[str, object]:
    """Return a call and its place as JSON values."""
    return {"op": call.op, "line": call.line or "", "phase": call.phase, "module": call.module}


def unwritten_reads(tape: Tape) -> list[UnwrittenRead]:
    """Return a read of unwritten elements on which a watched value depends; empty if no watched value does.

    Raises NotReplayable, and the errors of ops.
    """
    replay, trial = Replay(tape), _Trial()
    replay.show(trial, lambda name, value: None)
    if not trial.masks:
        return []
    patterned = [_Patterned(trial.masks, pattern) for pattern in (0, 1)]
    for arithmetic in patterned:
        replay.show(arithmetic, arithmetic.see)
    if patterned[0].watched == patterned[1].watched:
        return []
    digests = [arithmetic.digests for arithmetic in patterned]
    reader = next(position for position in digests[0] if digests[0][position] != digests[1][position])
    # The nearest call that leaves elements unwritten, if possible one whose memory the reader takes
    slots = {view.slot for view in views_in(tape.calls[reader])}
    makers = [position for position in trial.masks if position < reader]
    direct = [position for position in makers if slots.intersection(_slots_made(tape.calls[position]))]
    maker = (direct or makers)[-1]
    return [UnwrittenRead(tape.calls[maker], tape.calls[reader])]


def _slots_made(call: Call) -> set[int]:
    return {output.slot for output in call.outputs if isinstance(output, View)}


class _Trial(AsRecorded):
    """A replay that finds the unwritten elements of each call, by the call's position."""

    def __init__(self) -> None:
        self.masks: dict[int, Masks] = {}

    def execute(self, computation: Computation, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> list[Any]:
        written = computation.written(arguments, keywords)
        before = [tensor.clone() for tensor in written]
        outputs = super().execute(computation, arguments, keywords)
        after = [tensor.clone() for tensor in written]
        fresh = results(computation, outputs, arguments, keywords)
        fresh = fresh[: len(fresh) - len(written)]
        if fresh:
            take_over(before, written)
            masks = masks_of(computation, arguments, keywords, fresh)
            take_over(after, written)
            if any(mask is not None for mask in masks):
                self.masks[computation.position] = masks
        return outputs


def _digest(value: torch.Tensor) -> bytes:
    with bare_execution(), torch.no_grad():
        return hashlib.sha256(bytes_of(bits_of(value.cpu()))).digest()


class _Patterned(AsRecorded):
    """A replay with one number in all unwritten elements, and the digests of what the other elements became: of each
    call's results, and of the watched values."""

    def __init__(self, masks: Mapping[int, Masks], pattern: int) -> None:
        self.digests: dict[int, list[bytes]] = {}
        self.watched: dict[str, bytes] = {}
        self._masks = masks
        self._pattern = pattern

    def execute(self, computation: Computation, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> list[Any]:
        outputs = super().execute(computation, arguments, keywords)
        made = results(computation, outputs, arguments, keywords)
        for value, mask in zip(made, self._masks.get(computation.position, ()), strict=False):
            if mask is not None:
                value.masked_fill_(mask, self._pattern)
        if computation.position not in self._masks:
            self.digests[computation.position] = [_digest(value) for value in made]
        return outputs

    def see(self, name: str, value: torch.Tensor) -> None:
        self.watched[name] = _digest(value)
