"""Lazy tensors: torch's own core with the TorchScript backend, and the mark-step policies.

A policy determines where the pending graph is cut and executed:

    auto    where the script itself calls `torch._lazy.mark_step()`; if its code never does, the same as `phase`
    phase   after each backward and after each optimizer step, in addition to the script's own cuts
    step    after each optimizer step only; the script's own calls do nothing
    off     nowhere; one sync at the end of each step then executes the values that a run records

With `execute=op` each op is a separate graph, compiled and executed when the op is called. A mark_step then has nothing
to execute.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from numdrift.kernels.swaps.engine import Swaps

from ...hooks.backend_adapter import Adapter, load_adapter
from ...hooks.graph_capture import Capture, CaptureRequest
from ...hooks.mode_protocol import CuttingMode, Moment, ScriptFacts
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
from ...torch_private.patches import Patches, Undo
from ..eager.mode import EagerMode
from .tensor_lists import give_lists_of_lazy_tensors


class LazyMode(CuttingMode):
    """The mode that executes on the device `lazy` and reads values only once a mark_step has produced them."""

    device = "lazy"

    capabilities = LAZY

    def __init__(self, spec: ModeSpec) -> None:
        self.policy = spec.mark_step or "auto"
        self.eager = EagerMode(spec)
        self.eager.device = self.device
        self._mark = lazy_mark_step()
        self._waiting: list[Callable[[], None]] = []
        self._patches = Patches("the lazy mode")
        self._cutting: list[tuple[Callable[[], None], Callable[[], None]]] = []

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

    def adopt(self, module: torch.nn.Module) -> None:
        self.eager.adopt(module)

    def close(self, moment: Moment, settled: Callable[[], None] | None = None) -> None:
        self.eager.close(moment)
        if settled is not None:
            self._waiting.append(settled)
        placed = {"phase": ("backward", "step"), "step": ("step",)}.get(self.policy, ())
        if moment in placed:
            self.execute()
        elif moment == "end" or (moment == "step" and self.policy == "off"):
            self._settle()

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

    def adapter(self) -> Adapter:
        return load_adapter("lazy.adapter:LazyAdapter", self.eager.spec)

    def read(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        if self.policy == "off":
            sync_lazy(tensors, "recording")
        with torch.no_grad():  # detach() would create a separate graph for each tensor
            return [tensor.cpu() for tensor in tensors]

    def execute(self) -> None:
        """Execute the pending ops whatever the policy is, because a state is read or set from outside."""
        for about_to_cut, _ in self._cutting:
            about_to_cut()
        self._mark()
        for _, cut in self._cutting:
            cut()
        self._settle()

    def observe_cuts(self, about_to_cut: Callable[[], None], cut: Callable[[], None] = lambda: None) -> Undo:
        """Call `about_to_cut` before each mark_step, including the script's own, and `cut` after it."""
        observer = (about_to_cut, cut)
        self._cutting.append(observer)
        return lambda: self._cutting.remove(observer)

    def mark_step(self, *args: object, **kwargs: object) -> None:
        """Cut the graph if the policy allows the script to. This function also replaces `torch._lazy.mark_step`."""
        if self.policy in ("script", "phase"):
            self.execute()

    def leave(self) -> None:
        """Restore the original `mark_step` and settings. The backend itself cannot be stopped."""
        self._patches.undo()
        self.eager.leave()

    def _settle(self) -> None:
        waiting, self._waiting = self._waiting, []
        for settled in waiting:
            settled()
