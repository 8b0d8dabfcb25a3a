"""Captures both the graphs that torch.compile makes and the ops that the script runs outside of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from ..captures import CaptureRequest
from ..eager.capture import EagerCapture
from .capture import CompiledCapture

if TYPE_CHECKING:
    import torch

    from ...hooks.mode_protocol import Moment
import functools
from typing import Any

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


# Eager modes: the ops of a step, and the graphs of torch.compile once the script itself calls it.
#
# From that call on modules are not followed any more: a compiler would trace the hooks that do it.


class EagerUntilCompiled:
    """An eager capture that is joined by one of compiled graphs when it is needed."""

    def __init__(self, request: CaptureRequest) -> None:
        self._request = request
        self._eager = EagerCapture(request)
        self._compiled: CompiledCapture | None = None
        self._original: Any = None

    def install(self) -> None:
        self._original = torch.compile
        original = self._original

        @functools.wraps(original)
        def compile_(*args: Any, **kwargs: Any) -> Any:
            self._script_compiles()
            return original(*args, **kwargs)

        torch.compile = compile_
        self._eager.install()

    def adopted(self, module: torch.nn.Module) -> None:
        if self._compiled is not None:
            self._compiled.adopted(module)
        self._eager.adopted(module)

    def backward_started(self, losses: Sequence[torch.Tensor]) -> None:
        if self._compiled is not None:
            self._compiled.backward_started(losses)
        self._eager.backward_started(losses)

    def closing(self, moment: Moment) -> None:
        self._eager.closing(moment)
        if self._compiled is not None:
            self._compiled.closing(moment)

    def reached(self, moment: Moment) -> None:
        if self._compiled is not None:
            self._compiled.reached(moment)
        self._eager.reached(moment)

    def remove(self) -> None:
        if self._original is not None:
            torch.compile, self._original = self._original, None
        self._eager.remove()
        if self._compiled is not None:
            self._compiled.remove()

    def _script_compiles(self) -> None:
        if self._compiled is not None or self._original is None:
            return
        request = self._request
        compiled = CompiledCapture(request.folder, request.script, request.named_tensors, request.steps)
        try:
            self._eager.join(lambda: compiled.inside)
            compiled.install()
        except Exception as error:  # noqa: BLE001, the training goes on whatever fails here
            request.failed(error)
            return
        self._compiled = compiled
