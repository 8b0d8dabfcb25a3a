"""torch's own lazy core with the TorchScript backend."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch

from ...hooks.backend_adapter import Tell
from ...records.backend_work import OperatorCall, SupportAnswer, Work
from ...torch_private.lazy import start_lazy_backend, sync_lazy
from ...torch_private.lazy_graphs import lazy_counters
from ...torch_private.lazy_support import lazy_without_execution
from ...torch_private.lazy_work import lazy_report
from ..one_node import asked_by_execution, graph_on
from .support import observe_lazy
from .work import LazyWork

if TYPE_CHECKING:
    from ...records.mode_spec import ModeSpec


class LazyAdapter:
    name = "lazy (TorchScript)"
    instruction_set = "lazy"
    executes_at_once = False

    def __init__(self, spec: ModeSpec) -> None:
        self.spec = spec

    def versions(self) -> Mapping[str, str]:
        return {"torch": torch.__version__}

    def observe_support(self, script: str, told: Callable[[OperatorCall], None]) -> AbstractContextManager[None]:
        return observe_lazy(script, told)

    def without_execution(self) -> AbstractContextManager[None]:
        return lazy_without_execution()

    def supports(self, node: torch.fx.Node) -> SupportAnswer:
        start_lazy_backend()
        return asked_by_execution(node, "lazy", "lazy core", sync_lazy, lazy_counters)

    def compile_graph(self, graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        start_lazy_backend()
        return graph_on(graph, "lazy", sync_lazy)

    def observe_work(self, script: str, told: Callable[[Work], None]) -> AbstractContextManager[Tell]:
        return LazyWork(script, told)

    def counters(self) -> Mapping[str, int]:
        return lazy_counters()

    def report(self) -> str:
        return lazy_report()
