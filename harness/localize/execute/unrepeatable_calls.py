"""The results of calls that do not repeat: each is executed once on the same inputs, and keeps its results.

A kernel that adds atomically computes different bits each time. If hybrids executed such a call anew, two of them would
differ although nothing was swapped. So its results are kept by its op and inputs:

    index_put on inputs X, side a      executed, or recorded on the tape; kept
    index_put on inputs X, side b      the results of side a, if side b's kernel computes them up to its own spread
    index_put on inputs Y              executed, kept
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...tape.recording.call_log import digest_of
from ...tape.replaying.settling import is_about_as_near
from .prepared_call import PreparedCall, RecordedResults

MOST_KEPT = 1 << 28
"""The bytes of results that are kept; the oldest are dropped first."""

Key = tuple[str, tuple[str, ...]]


class UnrepeatableCalls:
    """The kept results of both sides' calls that do not repeat: fresh outputs, then written arguments."""

    def __init__(self) -> None:
        self._kept: dict[Key, Sequence[torch.Tensor]] = {}
        self._trusted: set[tuple[int, int, Key]] = set()
        self._free = MOST_KEPT

    def keep(self, op: str, inputs: Sequence[str], values: Sequence[torch.Tensor], *, replaces: bool = False) -> None:
        """Keep the results of a call of an op on tensors with these digests, unless other results are kept already."""
        key = op, tuple(inputs)
        if key in self._kept and not replaces:
            return
        self._free += sum(value.nbytes for value in self._kept.pop(key, ()))
        self._kept[key] = values
        self._free -= sum(value.nbytes for value in values)
        while self._free < 0 and len(self._kept) > 1:
            oldest = next(iter(self._kept))
            self._free += sum(value.nbytes for value in self._kept.pop(oldest))

    def execute(self, side: int, call: PreparedCall, kernel: Callable[[PreparedCall], list[Any]]) -> list[Any]:
        """Execute a call by the kernel of a side, which has the number `side`, unless its results on these inputs are
        kept.

        Results that another call has kept are used only if this kernel's results are about as near to them as two of
        its own executions are to each other.
        """
        key: Key = call.node.call.op, tuple(digest_of(tensor) for tensor in call.tensors)
        kept = self._kept.get(key)
        if kept is not None and (side, call.number, key) in self._trusted:
            return RecordedResults((), kept).outputs(call)
        before = [tensor.clone() for tensor in call.written]
        outputs = kernel(call)
        results = call.results(outputs)
        if kept is None:
            self.keep(*key, [result.clone() for result in results])
            return outputs
        own = [result.clone() for result in results]
        call.write(before)
        again = call.results(kernel(call))
        if not all(map(is_about_as_near, kept, own, [[value] for value in again])):
            call.write(own[len(own) - len(before) :])
            return outputs
        self._trusted.add((side, call.number, key))
        return RecordedResults((), kept).outputs(call)
