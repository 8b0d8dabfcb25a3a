"""Lazy tensors: torch's own core with the TorchScript backend, and the mark-step policies.

A policy determines where the pending graph is cut and executed:

    auto    where the script itself calls `torch._lazy.mark_step()`; if its code never does, the same as `phase`
    phase   after each backward and after each optimizer step, in addition to the script's own cuts
    step    after each optimizer step only; the script's own calls do nothing
    off     nowhere; one sync at the end of each step then computes the values that a run records

With `execute=op` each op is a separate graph, compiled and executed when the op is called. A mark_step then has nothing
to execute.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from numdrift.kernels.swaps.engine import Swaps

from ...hooks.graph_capture import Capture, CaptureRequest
from ...hooks.mode_protocol import ScriptFacts
from ...records.modes.mode_registry import LAZY
from ...records.modes.mode_spec import ModeSpec
from ...tape.recording.step_recorder import RecordingRequest, StepRecorders
from ...torch_private.deferred.lazy import (
    execute_lazy_op_by_op,
    lazy_has_value,
    lazy_mark_step,
    replace_lazy_mark_step,
    replace_lazy_unscaling,
    start_lazy_backend,
    sync_lazy,
)
from ..deferring.deferring_mode import DeferringMode
from .tensor_lists import give_lists_of_lazy_tensors


class LazyMode(DeferringMode):
    """The mode that executes on the device `lazy` and reads values only after a mark_step has produced them."""

    device = "lazy"

    capabilities = LAZY

    named_adapter = "lazy.adapter:LazyAdapter"

    def __init__(self, spec: ModeSpec) -> None:
        super().__init__(spec)
        self.eager.device = self.device
        self._mark = lazy_mark_step()

    def prepare(self, script: ScriptFacts, swaps: Swaps) -> None:
        start_lazy_backend()
        self.eager.prepare(script, swaps)
        if self.policy == "auto":
            self.policy = "script" if "mark_step" in script.names else "phase"
        self._patches.also(replace_lazy_mark_step(self.mark_step))
        self._patches.also(give_lists_of_lazy_tensors())
        self._patches.also(replace_lazy_unscaling())
        if self.eager.spec.execute == "op":
            self._patches.also(execute_lazy_op_by_op())

    def step_recorders(self, request: RecordingRequest) -> StepRecorders:
        """Return recorders of the ops that the core executes (see `executed_step`)."""
        recording = importlib.import_module("numdrift.harness.backends.lazy.executed_step")
        return StepRecorders(lambda step: recording.LazyStepRecorder(step, request.script))

    def capture(self, request: CaptureRequest) -> Capture:
        capturing = importlib.import_module("numdrift.harness.backends.lazy.capture")
        capture: Capture = capturing.LazyCapture(request)
        return capture

    def snapshots(self, camera: Any, circumstances: Any, bound: Callable[[], Mapping[str, torch.Tensor]]) -> Any:
        cuts = importlib.import_module("numdrift.harness.backends.lazy.cut_executions")
        return cuts.LazyCuts(camera, circumstances, self, bound)

    def has_value(self, tensor: torch.Tensor) -> bool:
        return lazy_has_value(tensor)

    def read(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        if self.policy == "off":
            sync_lazy(tensors, "recording")
        with torch.no_grad():  # detach() would create a separate graph for each tensor
            return [tensor.cpu() for tensor in tensors]

    def leave(self) -> None:
        super().leave()
        self.eager.leave()

    def _cut(self) -> None:
        self._cut_by(self._mark)
