"""Snapshots of mode `xla`'s executions: the graph of a cut, as HLO and as the aten calls that it was lowered from.

The HLO of all pending work and its inputs are read before the cut, the values after it. An execution without a cut (an
op that falls back to the CPU, `.item()`) happens inside torch_xla and is not observed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch

from ...hooks.mode_protocol import CuttingMode, Moment
from ...hooks.observer import Progress
from ...snapshots.camera import Camera, is_finite
from ...snapshots.cut_phases import CutPhases
from ...snapshots.segments import Bound
from ...snapshots.snapshot_observer import SnapshotObserver
from ...snapshots.snapshot_record import Circumstances, Reason, bytes_of_tensors
from ...tape.tape import Phase
from ...torch_private.deferred.xla import read_xla, xla_counter
from ...torch_private.deferred.xla_tensors import count_pending, xla_data, xla_value_id
from ...torch_private.dispatching import without_dispatch_modes, without_function_modes
from .pending_calls import PendingCalls
from .pending_modules import PendingModule, XlaPending

SYNCS = ("CachedCompile", "UncachedCompile")
"""torch_xla's counters, of which one grows at each execution of a graph."""

PHASES: Mapping[Progress, Phase] = {
    "forward": "forward",
    "backward": "forward",
    "optimizer": "optimizer",
    "step": "data",
    "end": "data",
}
"""The phase of an op called outside of autograd, by the point that the training has reached."""

NOT_CUT = "no snapshots are taken: with mark_step=off nothing is cut"
OP_BY_OP = "no snapshots are taken: with execute=op no graph is executed, but each op by itself"
MADE_UNSEEN = "{} values that are pending were made by ops that nobody saw: no snapshots are taken of {}"
UNSEEN = (
    "torch_xla executed {} graphs beside those at its cuts (ops that fall back to the CPU, values that are read): "
    "no snapshots are taken of them"
)


class XlaCuts(SnapshotObserver):
    """The observer of the mode's cuts. It reports a failure to the camera, and the training continues."""

    def __init__(
        self, camera: Camera, around: Circumstances, mode: CuttingMode, bound: Bound, *, op_by_op: bool
    ) -> None:
        self._camera = camera
        self._around = around
        self._mode = mode
        self._bound = bound
        self._phases = CutPhases()
        self._calls = PendingCalls(around.script)
        self._names: dict[int, str] = {}
        self._pending: XlaPending | None = None
        self._step = 0
        self._is_fresh = True
        self._open = True
        self._cuts = 0
        self._before = _executions()
        mode.observe_cuts(self._about_to_cut, self._cut)
        if mode.policy == "off" or op_by_op:
            camera.tell(OP_BY_OP if op_by_op else NOT_CUT)
            self._open = False
        self._note()

    @property
    def is_behind(self) -> bool:
        """True when ops of a step that has ended are still to be executed."""
        return self._open and not self._is_fresh and self._step < self._camera.step

    def closing(self, moment: Moment, step: int) -> None:
        self._phases.closing()

    def reached(self, progress: Progress, step: int) -> None:
        self._phases.reached(progress)
        self._calls.phase = PHASES[progress]
        if progress in ("forward", "backward") and self._is_fresh:
            self._step, self._is_fresh = step, False
        if progress == "forward":
            self._try("naming xla tensors", self._name)
        if progress == "step" and self._mode.policy != "script":
            self._note(step)
        if progress == "end" and self._open:
            unseen = _executions() - self._before - self._cuts
            if unseen > 0:
                self._camera.tell(UNSEEN.format(unseen))

    def close(self) -> None:
        """Stop. Drop a pending graph: if the script has failed, that graph was never executed and did not raise."""
        self._open = False
        self._pending = None
        self._calls.stop()

    def _note(self, step: int = 0) -> None:
        """Record the calls of a step that may be chosen, and stop recording in other steps.

        If the script makes the cuts itself, a step ends before its ops are executed, so all steps are recorded.
        """
        steps = self._camera.choice.steps
        if self._open and (steps is None or step in steps or self._mode.policy == "script"):
            self._calls.start()
        else:
            self._calls.stop()

    def _about_to_cut(self) -> None:
        if self._open:
            self._pending = self._try("looking at a pending graph", self._look)

    def _cut(self) -> None:
        pending, self._pending = self._pending, None
        self._calls.forget()
        self._is_fresh = True
        if not self._open:
            return
        if pending is not None:
            before = _executions()
            self._try("taking a snapshot", lambda: self._take(pending))
            self._before += _executions() - before
        self._try("naming xla tensors", self._name)

    def _look(self) -> XlaPending | None:
        drawn = self._calls.released()
        pending = count_pending() - sum(len(tensors) for tensors in drawn.values())
        if not pending:
            return None
        self._cuts += 1
        # A cut in the middle of a step or after its end executes ops of the step that began last.
        now, self._camera.step = self._camera.step, self._camera.step if self._is_fresh else self._step
        try:
            name, phase = self._phases.named(self._camera)
            wish = self._camera.begins(name, phase)
        finally:
            self._camera.step = now
        roots = self._calls.pending(pending)
        if wish is None or self._camera.choice.on == "error":
            return None
        if len(roots) < pending:  # XLA will execute a graph other than the known one
            self._camera.tell(MADE_UNSEEN.format(pending - len(roots), wish.execution.name))
            return None
        data = xla_data(list(roots.values()))
        if not self._camera.has_room(wish, bytes_of_tensors([entry.tensor for entry in data])):
            return None
        names = {xla_value_id(tensor): name for name, tensor in self._bound().items() if tensor.device.type == "xla"}
        module = PendingModule.of(list(roots.values()), data)
        return XlaPending.of(wish, module, self._calls, roots, drawn, self._names, names)

    def _name(self) -> None:
        """Name the current values of the script's tensors after the tensors."""
        for name, tensor in self._bound().items():
            if tensor.device.type == "xla":
                self._names.setdefault(xla_value_id(tensor), name)

    def _take(self, pending: XlaPending) -> None:
        values = read_xla(pending.roots)
        reason: Reason = "chosen"
        if self._camera.choice.on == "nonfinite":
            reason = "nonfinite"
            if all(is_finite(port.name, value) for port, value in zip(pending.outputs, values, strict=True)):
                return
        self._camera.take(pending.wish, pending.snapshot(self._around, values, reason))

    def _try(self, doing: str, do: Any) -> Any:
        try:
            with torch.no_grad(), without_dispatch_modes(), without_function_modes():
                return do()
        except Exception as error:  # noqa: BLE001, the training continues whatever fails here
            self._camera.failed(doing, error)
            return None


def _executions() -> int:
    return sum(xla_counter(name) for name in SYNCS)
