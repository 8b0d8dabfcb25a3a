"""Snapshots of mode `xla`'s executions: the graph of a cut, as HLO and as the aten calls that it was lowered from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from ...hooks.mode_protocol import CuttingMode
from ...hooks.observer import Progress
from ...snapshots.camera import Camera
from ...snapshots.segments import Bound
from ...snapshots.snapshot_record import Circumstances, Reason, Snapshot, bytes_of_tensors
from ...tape.tape import Phase
from ...torch_private.deferred.xla import read_xla, xla_counter
from ...torch_private.deferred.xla_tensors import count_pending, xla_data, xla_value_id
from ..deferring.cut_executions import CutExecutions
from .pending_calls import PendingCalls
from .pending_modules import PendingModule, XlaPending

PHASES: Mapping[Progress, Phase] = {
    "forward": "forward",
    "backward": "forward",
    "optimizer": "optimizer",
    "step": "data",
    "end": "data",
}
"""The phase of an op called outside of autograd, by the point that the training has reached."""

MADE_UNSEEN = "no snapshot of {} is taken: numdrift did not observe the ops that made {} of its pending values"


class XlaCuts(CutExecutions[XlaPending]):
    """The observer of the cuts of the mode `xla`."""

    device = "xla"
    core = "torch_xla"
    counter = staticmethod(xla_counter)
    value_id = staticmethod(xla_value_id)

    def __init__(
        self, camera: Camera, around: Circumstances, mode: CuttingMode, bound: Bound, *, op_by_op: bool
    ) -> None:
        self._calls = PendingCalls(around.script)
        self._step = 0
        self._is_fresh = True
        super().__init__(camera, around, mode, bound, op_by_op=op_by_op)
        self._open = not op_by_op and mode.policy != "off"
        self._note()

    @property
    def is_behind(self) -> bool:
        """True when ops of a step that has ended are still to be executed."""
        return self._open and not self._is_fresh and self._step < self._camera.step

    def reached(self, progress: Progress, step: int) -> None:
        self._calls.phase = PHASES[progress]
        if progress in ("forward", "backward") and self._is_fresh:
            self._step, self._is_fresh = step, False
        super().reached(progress, step)
        if progress == "step" and self._mode.policy != "script":
            self._note(step)

    def close(self) -> None:
        super().close()
        self._calls.stop()

    def _note(self, step: int = 0) -> None:
        """Record the calls of this step if the step may be chosen; otherwise stop recording.

        If the script makes the cuts itself, a step ends before its ops are executed, so all steps are recorded.
        """
        steps = self._camera.choice.steps
        if self._open and (steps is None or step in steps or self._mode.policy == "script"):
            self._calls.start()
        else:
            self._calls.stop()

    def _cut(self) -> None:
        self._calls.forget()
        self._is_fresh = True
        super()._cut()

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
        if len(roots) < pending:  # XLA will execute a graph whose outputs are not all known
            self._camera.tell(MADE_UNSEEN.format(wish.execution.name, pending - len(roots)))
            return None
        data = xla_data(list(roots.values()))
        if not self._camera.has_room(wish, bytes_of_tensors([entry.tensor for entry in data])):
            return None
        names = {xla_value_id(tensor): name for name, tensor in self._bound().items() if tensor.device.type == "xla"}
        module = PendingModule.of(list(roots.values()), data)
        return XlaPending.of(wish, module, self._calls, roots, drawn, self._names, names)

    def _values(self, pending: XlaPending) -> Sequence[tuple[str, torch.Tensor]]:
        values = read_xla(pending.roots)
        return [(port.name, value) for port, value in zip(pending.outputs, values, strict=True)]

    def _snapshot(self, pending: XlaPending, values: Sequence[tuple[str, torch.Tensor]], reason: Reason) -> Snapshot:
        return pending.snapshot(self._around, [value for _, value in values], reason)

    def _take(self, pending: XlaPending) -> None:
        before = self._executions()
        try:
            super()._take(pending)
        finally:
            self._before += self._executions() - before
