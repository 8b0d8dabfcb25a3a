"""Snapshots of the graphs that are executed at the cuts of a mode that defers ops.

The graph and its inputs are read before the cut, the results after it. An execution without a cut (an op that falls
back to the CPU, `.item()`) happens inside the core and is not observed.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

import torch

from ...hooks.mode_protocol import CuttingMode, Moment
from ...hooks.observer import Progress
from ...snapshots.camera import Camera, Wish, is_finite
from ...snapshots.cut_phases import CutPhases
from ...snapshots.segments import Bound
from ...snapshots.snapshot_observer import SnapshotObserver
from ...snapshots.snapshot_record import Circumstances, Reason, Snapshot

SYNCS = ("CachedCompile", "UncachedCompile")
"""Counters of torch's lazy core and of torch_xla. Each execution of a graph increments one of them."""

NOT_CUT = "no snapshots are taken: with mark_step=off nothing is cut"
OP_BY_OP = "no snapshots are taken: with execute=op each op is executed on its own, so there is no graph"
UNSEEN = (
    "no snapshots are taken of the graphs that {} executed outside of cuts, for ops that fall back to the CPU or for "
    "values that are read ({} in all)"
)


class WithWish(Protocol):
    """A graph that is about to be executed, and the request for its snapshot."""

    @property
    def wish(self) -> Wish: ...


Pending = TypeVar("Pending", bound=WithWish)


class CutExecutions(SnapshotObserver, Generic[Pending]):
    """The observer of a mode's cuts. It reports a failure to the camera, and the training continues.

    device: the type of the mode's device.
    core: the name of the library that executes the mode's graphs, for messages.
    counter: returns a counter of the core by its name.
    value_id: returns the core's number for the value of a tensor.
    """

    device: str
    core: str
    counter: Callable[[str], int]
    value_id: Callable[[torch.Tensor], int]

    def __init__(
        self, camera: Camera, around: Circumstances, mode: CuttingMode, bound: Bound, *, op_by_op: bool = False
    ) -> None:
        self._camera = camera
        self._around = around
        self._mode = mode
        self._bound = bound
        self._phases = CutPhases()
        self._names: dict[int, str] = {}
        self._pending: Pending | None = None
        self._open = True
        self._cuts = 0
        self._before = self._executions()
        mode.observe_cuts(self._about_to_cut, self._cut)
        if mode.policy == "off" or op_by_op:
            camera.tell(OP_BY_OP if op_by_op else NOT_CUT)

    @abstractmethod
    def _look(self) -> Pending | None:
        """Return the graph that is about to be executed, None if no snapshot of it is wanted."""

    @abstractmethod
    def _values(self, pending: Pending) -> Sequence[tuple[str, torch.Tensor]]:
        """Return the results of an executed graph, with their names."""

    @abstractmethod
    def _snapshot(self, pending: Pending, values: Sequence[tuple[str, torch.Tensor]], reason: Reason) -> Snapshot: ...

    def closing(self, moment: Moment, step: int) -> None:
        self._phases.closing()

    def reached(self, progress: Progress, step: int) -> None:
        self._phases.reached(progress)
        if progress == "forward":
            self._name()
        if progress == "end" and self._open:
            unseen = self._executions() - self._before - self._cuts
            if unseen > 0:
                self._camera.tell(UNSEEN.format(self.core, unseen))

    def close(self) -> None:
        """Stop, and drop a pending graph.

        If the script has failed, this graph was never executed, so it is not the cause of the failure.
        """
        self._open = False
        self._pending = None

    def _about_to_cut(self) -> None:
        if self._open:
            self._pending = self._camera.attempt("looking at a pending graph", self._look)

    def _cut(self) -> None:
        pending, self._pending = self._pending, None
        if not self._open:
            return
        if pending is not None:
            self._camera.attempt("taking a snapshot", lambda: self._take(pending))
        self._name()

    def _take(self, pending: Pending) -> None:
        values = self._values(pending)
        reason: Reason = "chosen"
        if self._camera.choice.on == "nonfinite":
            reason = "nonfinite"
            if all(is_finite(name, value) for name, value in values):
                return
        self._camera.take(pending.wish, self._snapshot(pending, values, reason))

    def _name(self) -> None:
        """Name the current value of each of the script's tensors after the tensor. A value keeps its first name."""

        def name() -> None:
            for name, tensor in self._bound().items():
                if tensor.device.type == self.device:
                    self._names.setdefault(self.value_id(tensor), name)

        self._camera.attempt(f"naming {self.device} tensors", name)

    def _executions(self) -> int:
        return sum(map(self.counter, SYNCS))
