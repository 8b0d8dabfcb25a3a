"""torch_xla (PJRT)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch

from ...errors import NotAvailable
from ...hooks.backend_adapter import Tell
from ...records.backend_work import OperatorCall, SupportAnswer, Work
from ...torch_private.xla import start_xla, sync_xla, xla_versions
from ..one_node import asked_by_execution, graph_on
from .mode import require_xla
from .support import observe_xla
from .work import XlaWork, xla_counters, xla_metrics

if TYPE_CHECKING:
    from ...records.mode_spec import ModeSpec


class XlaAdapter:
    name = "xla"
    instruction_set = "hlo"
    executes_at_once = False

    def __init__(self, spec: ModeSpec) -> None:
        self.spec = spec

    def versions(self) -> Mapping[str, str]:
        return {"torch": torch.__version__, **xla_versions()}

    def observe_support(self, script: str, told: Callable[[OperatorCall], None]) -> AbstractContextManager[None]:
        return observe_xla(script, told)

    def without_execution(self) -> AbstractContextManager[None]:
        raise NotAvailable(
            f"a dry run in mode {self.spec.name!r}",
            "torch_xla executes a graph wherever a value is read",
            "take --mode lazy or --mode compile, or leave --dry out",
        )

    def supports(self, node: torch.fx.Node) -> SupportAnswer:
        require_xla()
        start_xla()
        return asked_by_execution(node, "xla", "xla lowering", sync_xla, xla_counters)

    def compile_graph(self, graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        require_xla()
        start_xla()
        return graph_on(graph, "xla", sync_xla)

    def observe_work(self, script: str, told: Callable[[Work], None]) -> AbstractContextManager[Tell]:
        return XlaWork(script, told)

    def counters(self) -> Mapping[str, int]:
        return xla_counters()

    def report(self) -> str:
        return str(xla_metrics().metrics_report())
