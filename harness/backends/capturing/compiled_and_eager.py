"""Capture both the graphs that torch.compile makes and the ops that the script runs outside of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ...hooks.graph_capture import Capture, CaptureRequest
from ...hooks.mode_protocol import Moment
from ...torch_private.patches import Patches
from ...torch_private.profiling.compile_work import around_compile_calls
from .compiled_capture import CompiledCapture
from .eager_capture import EagerCapture


class EagerUntilCompiled(Capture):
    """The capture of eager modes. A capture of compiled graphs joins it once the script calls `torch.compile`.

    From that call on, modules are no longer followed, because a compiler would trace the hooks that follow them.
    """

    def __init__(self, request: CaptureRequest) -> None:
        self._request = request
        self._eager = EagerCapture(request)
        self._compiled = Capture()
        self._patches = Patches("the capture of graphs")
        self._watching = False

    def install(self) -> None:
        self._patches.also(around_compile_calls("the capture of graphs", self._compile_called))
        self._watching = True
        self._eager.install()

    def _compile_called(self, compile_: Callable[[], Any]) -> Any:
        if self._watching and not isinstance(self._compiled, CompiledCapture):
            try:
                compiled = self._joined()
                compiled.install()
                self._compiled = compiled
            except Exception as error:  # noqa: BLE001, the training continues whatever fails here
                self._request.failed(error)
        return compile_()

    def _joined(self) -> CompiledCapture:
        request = self._request
        compiled = CompiledCapture(request.folder, request.script, request.named_tensors, request.steps)
        self._eager.join(lambda: compiled.inside)
        return compiled

    def adopted(self, module: torch.nn.Module) -> None:
        self._compiled.adopted(module)
        self._eager.adopted(module)

    def backward_started(self, losses: Sequence[torch.Tensor]) -> None:
        self._compiled.backward_started(losses)
        self._eager.backward_started(losses)

    # The eager capture begins a step last and ends it first, so its step is within that of the compiled capture.

    def closing(self, moment: Moment) -> None:
        self._eager.closing(moment)
        self._compiled.closing(moment)

    def reached(self, moment: Moment) -> None:
        self._compiled.reached(moment)
        self._eager.reached(moment)

    def remove(self) -> None:
        self._watching = False
        self._patches.undo()
        self._eager.remove()
        self._compiled.remove()


class CompiledAndEager(EagerUntilCompiled):
    """The capture of modes that compile: both captures from the start."""

    def __init__(self, request: CaptureRequest) -> None:
        super().__init__(request)
        self._compiled = self._joined()

    def install(self) -> None:
        self._compiled.install()
        self._eager.install()
