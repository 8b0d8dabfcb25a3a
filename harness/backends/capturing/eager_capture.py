"""The eagerly executed ops of a step: one graph for each sequence of consecutive ops of the same phase.

A step of SAM has six graphs: forward, backward, optimizer, and all three again. In a mode that compiles, the same
capture records the ops that the script runs outside of the compiled regions (stage `stream`).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch

from numdrift.kernels.swaps.sites import MARK, ModulePaths

from ...hooks.graph_capture import Capture, CaptureRequest
from ...hooks.mode_protocol import Moment
from ...records.tools.graph_record import Node
from ...tape.origin import script_line
from ...tape.recording.followed_calls import FollowedOps, OpCall
from ...torch_private.dispatching import current_autograd_node
from .captured_step import CapturedStep


class EagerCapture(Capture):
    """The capture of the steps that a request names. It calls the request's `failed` if an op cannot be captured."""

    def __init__(self, request: CaptureRequest) -> None:
        self.failed = request.failed
        self._inside: Callable[[], bool] = lambda: False
        self._folder = request.folder
        self._script = request.script
        self._steps = request.steps
        self._named_tensors = request.named_tensors
        self._stage = "pre"
        self._phase = "forward"
        self._adopted = False
        self._seen: dict[str, str] = {}
        self._step: CapturedStep | None = None
        self._mode: FollowedOps | None = None
        self._modules: ModulePaths | None = None

    def join(self, inside: Callable[[], bool]) -> None:
        """From now on, ignore ops dispatched while `inside()` is true: they belong to compiled graphs."""
        self._inside = inside
        self._stage = "stream"
        self._follow_modules(False)

    def install(self) -> None:
        self._begin()

    def adopted(self, module: torch.nn.Module) -> None:
        if self._step is None:
            return
        if not self._adopted and self._phase == "forward":
            self._step = CapturedStep()  # earlier ops are the script's set-up
        self._adopted = True
        self._step.name(self._named_tensors())

    def backward_started(self, losses: Sequence[torch.Tensor]) -> None:
        self._phase = "backward"
        if self._step is not None:
            for number, loss in enumerate(losses):
                self._step.bind(loss, f"loss {number}" if len(losses) > 1 else "loss")

    def closing(self, moment: Moment) -> None:
        if self._step is not None and moment == "backward":
            self._step.name(self._named_tensors())
            self._phase = "optimizer"
        elif moment in ("step", "end"):
            self.remove()

    def reached(self, moment: Moment) -> None:
        if moment == "step":
            self._begin()

    def remove(self) -> None:
        mode, self._mode = self._mode, None
        if mode is not None:
            mode.__exit__(None, None, None)
        self._follow_modules(False)
        step, self._step = self._step, None
        if step is not None:
            step.name(self._named_tensors())
            for graph in step.graphs(self._stage, self._folder.step):
                base = self._seen.get(graph.hash)
                if base is None:
                    base = self._seen[graph.hash] = self._folder.reserve(graph.phase)
                    self._folder.write(replace(graph, name=f"{base}-{self._stage}"))
                self._folder.executed(base, graph.hash)

    def _take(self, call: OpCall, outputs: Any) -> None:
        try:
            self.dispatched(call, outputs)
        except Exception as error:  # noqa: BLE001, the training continues whatever fails here
            self.failed(error)

    def dispatched(self, call: OpCall, outputs: Any) -> None:
        """Add an op that has run to the captured step."""
        if self._step is None or self._inside():
            return
        if self._phase == "optimizer" and torch.is_grad_enabled():
            self._phase = "forward"
        node = current_autograd_node()
        path = None
        if self._modules is not None:
            path = self._modules.current if node is None else node.metadata.get(MARK)
        place = Node("", "", phase=self._phase, module=path, source=script_line(self._script) or "")
        self._step.add(call, outputs, place)

    def _begin(self) -> None:
        self._phase = "forward"
        if self._folder.step not in self._steps:
            return
        self._step = CapturedStep()
        self._step.name(self._named_tensors())
        self._follow_modules(self._stage == "pre")  # a compiler would trace the hooks that follow modules
        self._mode = FollowedOps(lambda call: call, self._take)
        self._mode.__enter__()  # type: ignore[no-untyped-call]

    def _follow_modules(self, follow: bool) -> None:
        if self._modules is not None:
            self._modules.close()
        self._modules = ModulePaths() if follow else None
