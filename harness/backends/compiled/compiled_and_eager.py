"""Compile mode: the graphs that torch.compile makes, and the ops that the script runs outside of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..capture_request import CaptureRequest
from ..eager.capture import EagerCapture
from .capture import CompiledCapture

if TYPE_CHECKING:
    import torch

    from ...hooks.mode_protocol import Moment


class CompiledAndEager:
    """Both captures as one."""

    def __init__(self, request: CaptureRequest) -> None:
        self._compiled = CompiledCapture(request.folder, request.script, request.named_tensors, request.steps)
        self._eager = EagerCapture(request)
        self._eager.join(lambda: self._compiled.inside)

    def install(self) -> None:
        self._compiled.install()
        self._eager.install()

    def adopted(self, module: torch.nn.Module) -> None:
        self._compiled.adopted(module)
        self._eager.adopted(module)

    def backward_started(self, losses: Sequence[torch.Tensor]) -> None:
        self._compiled.backward_started(losses)
        self._eager.backward_started(losses)

    def closing(self, moment: Moment) -> None:
        self._eager.closing(moment)
        self._compiled.closing(moment)

    def reached(self, moment: Moment) -> None:
        self._compiled.reached(moment)
        self._eager.reached(moment)

    def remove(self) -> None:
        self._eager.remove()
        self._compiled.remove()
