"""Eager execution: every operator by itself, as torch has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any

import torch

from ...errors import NotAvailable
from ...hooks.backend_adapter import Tell
from ...records.backend_work import OperatorCall, SupportAnswer, Work
from ..one_node import asked_by_execution, graph_on
from .mode import require_device
from .support import observe_eager

if TYPE_CHECKING:
    from ...records.mode_spec import ModeSpec


class EagerAdapter:
    name = "eager"
    instruction_set = "aten"
    executes_at_once = True

    def __init__(self, spec: ModeSpec) -> None:
        self.spec = spec

    def versions(self) -> Mapping[str, str]:
        return {"torch": torch.__version__}

    def observe_support(self, script: str, told: Callable[[OperatorCall], None]) -> AbstractContextManager[None]:
        return observe_eager(script, self.spec.device or self.spec.base, told)

    def without_execution(self) -> AbstractContextManager[None]:
        raise NotAvailable(
            f"a dry run in mode {self.spec.name!r}",
            "it executes each operator when it is called",
            "take --mode lazy or --mode compile, or leave --dry out",
        )

    def supports(self, node: torch.fx.Node) -> SupportAnswer:
        return asked_by_execution(node, self._device, f"kernels of {self._device}")

    def compile_graph(self, graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        return graph_on(graph, self._device)

    @property
    def _device(self) -> str:
        """Raises NotAvailable when there is no such device here, or another in its place."""
        device = self.spec.device or self.spec.base
        require_device(device)
        there = torch.empty((), device=device).device.type
        if there != device.partition(":")[0]:
            raise NotAvailable(
                f"device {device!r}",
                f"in a training that runs on the {there.upper()} it stands for that",
                "partition the module by itself: FILE.py:FACTORY",
            )
        return device

    def observe_work(self, script: str, told: Callable[[Work], None]) -> AbstractContextManager[Tell]:
        return nullcontext(lambda: None)

    def counters(self) -> Mapping[str, int]:
        return {}

    def report(self) -> str:
        return ""
