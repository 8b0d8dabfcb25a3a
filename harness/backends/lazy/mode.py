"""Lazy tensors: torch's own core with the TorchScript backend, and the mark-step policies.

A policy says where the pending graph is cut and executed:

    auto    where the script itself calls `torch._lazy.mark_step()`; if its code never does, as `phase`
    phase   after each backward and after each optimizer step, besides the script's own places
    step    after each optimizer step only; the script's own calls do nothing
    off     nowhere; what a run records is then executed by one sync at the end of each step

With `execute=op` each op is a graph of its own, compiled and executed where it is called; a mark_step finds
nothing then.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import torch

from numdrift.kernels.swaps.engine import Swaps

from ...hooks.backend_adapter import Adapter, load_adapter
from ...hooks.mode_protocol import Moment, ScriptFacts
from ...records.mode_spec import ModeSpec
from ...torch_private.lazy import (
    execute_lazy_op_by_op,
    lazy_mark_step,
    replace_lazy_mark_step,
    start_lazy_backend,
    sync_lazy,
)
from ...torch_private.patches import Patches
from ..eager.mode import EagerMode
from .tensor_lists import give_lists_of_lazy_tensors


class LazyMode:
    """Executes on the device `lazy` and reads values only once a mark_step has produced them."""

    device = "lazy"

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

    def step_recorder(self, step: int, script: str) -> Any:
        """What records a step as the core executes it (see `executed_step`)."""
        return importlib.import_module("numdrift.harness.backends.lazy.executed_step").LazyStepRecorder(step, script)

    def adapter(self) -> Adapter:
        return load_adapter("lazy.adapter:LazyAdapter", self.eager.spec)

    def read(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        if self.policy == "off":
            sync_lazy(tensors, "recording")
        with torch.no_grad():  # detach() would make a graph of its own for each tensor
            return [tensor.cpu() for tensor in tensors]

    def execute(self) -> None:
        """Execute what is pending now, whatever the policy says: a state is read or put in place from outside."""
        for about_to_cut, _ in self._cutting:
            about_to_cut()
        self._mark()
        for _, cut in self._cutting:
            cut()
        self._settle()

    def observe_cuts(self, about_to_cut: Callable[[], None], cut: Callable[[], None] = lambda: None) -> None:
        """Have `about_to_cut` called before each mark_step, the script's own included, and `cut` after it."""
        self._cutting.append((about_to_cut, cut))

    def mark_step(self, *args: object, **kwargs: object) -> None:
        """The script says that the graph may be cut here. This is what its own `torch._lazy.mark_step` is, too."""
        if self.policy in ("script", "phase"):
            self.execute()

    def leave(self) -> None:
        """Give the script's own `mark_step` and settings back; the backend itself cannot be stopped."""
        self._patches.undo()
        self.eager.leave()

    def _settle(self) -> None:
        waiting, self._waiting = self._waiting, []
        for settled in waiting:
            settled()
