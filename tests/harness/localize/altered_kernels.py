"""A side of a step whose kernels are wrong in chosen calls, with the worker that executes them, in this process."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from numdrift.harness.localize.align.storage_flow import FlowNode
from numdrift.harness.localize.execute.prepared_call import PreparedCall
from numdrift.harness.tape.recording.call_log import digest_of
from numdrift.harness.tape.replaying.laid_out import LaidOut
from numdrift.harness.tape.replaying.replay import AsRecorded, Computation, Replay, results
from numdrift.harness.tape.tape import Tape


def alter(value: Tensor) -> None:
    """Make a result wrong."""
    if value.dtype == torch.bool:
        value.logical_not_()
    elif value.is_floating_point() or value.is_complex():
        value.mul_(1.01)
    else:
        value.add_(1)


def can_be_altered(value: Tensor) -> bool:
    """Check whether `alter` changes a result and nothing else: no expanded one, and no index into something."""
    expanded = any(not step and n > 1 for n, step in zip(value.shape, value.stride(), strict=True))
    return (
        value.is_floating_point()
        and not expanded
        and bool(value.numel())
        and bool(value.isfinite().all() & value.any())
    )


@dataclass
class AlteredSide(AsRecorded):
    """A side of a step that computes these calls wrongly.

    wrong: the positions of the calls.
    kept: True if the real results are kept, as those of a compiled graph.
    alone: True if the worker computes the wrong results also for a call alone; a graph's fusion need not.
    unknown: the positions of calls whose real results nobody knows.
    """

    recorded: Tape
    wrong: Collection[int]
    kept: bool
    alone: bool
    unknown: Collection[int]
    tape: Tape = field(init=False)
    found: dict[int, list[Tensor]] = field(default_factory=dict)
    altered: set[int] = field(default_factory=set)
    count: int = 0

    def __post_init__(self) -> None:
        values = Replay(self.recorded).run(self)
        watched = tuple(replace(one, value=values[one.name]) for one in self.recorded.watched)
        self.tape = replace(self.recorded, watched=watched)

    def execute(self, computation: Computation, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> list[Any]:
        """Execute a call of the step as the mode itself does."""
        outputs = super().execute(computation, arguments, keywords)
        made = results(computation, outputs, arguments, keywords)
        if computation.position in self.wrong:
            self.altered |= {computation.position} if self._alter(made) else set()
        self.found[computation.position] = [value.clone() for value in made]
        return outputs

    @staticmethod
    def _alter(made: Sequence[Tensor]) -> bool:
        changed = [value for value in made if can_be_altered(value)]
        for value in changed:
            alter(value)
        return bool(changed)

    def digests(self) -> list[list[str | None]]:
        return [
            [None if number in self.unknown else digest_of(value) for value in self.found.get(number, [])]
            for number in range(len(self.tape.calls))
        ]


class AlteredCalls:
    """The worker of such a side."""

    def __init__(self, side: AlteredSide) -> None:
        self.count = 0
        self._side = side

    def execute(self, call: PreparedCall, settings: Mapping[str, Any] | None = None) -> list[Any]:
        self.count += 1
        outputs = call.execute()
        if self._side.alone and call.node.execution.position in self._side.wrong:
            self._side._alter(call.results(outputs))
        return outputs

    def called(self, node: FlowNode) -> list[LaidOut] | None:
        return None

    def prepare(self, nodes: Sequence[FlowNode]) -> None:
        """Everything is ready."""

    def value(self, node: FlowNode) -> list[Tensor] | None:
        position = node.execution.position
        return (
            [value.clone() for value in self._side.found[position]]
            if self._side.kept and position not in self._side.unknown
            else None
        )
