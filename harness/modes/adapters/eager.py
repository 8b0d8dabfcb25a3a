"""Eager execution: every operator by itself, as torch has it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

import torch

from ...errors import NotAvailable
from ..adapter import OperatorCall, Verdict, Work

if TYPE_CHECKING:
    from ..spec import ModeSpec


class EagerAdapter:
    name = "eager"
    instruction_set = "aten"

    def __init__(self, spec: ModeSpec) -> None:
        self.spec = spec

    def versions(self) -> Mapping[str, str]:
        return {"torch": torch.__version__}

    def observe_support(
        self, script: str, told: Callable[[OperatorCall], None]
    ) -> AbstractContextManager[None]:
        raise NotAvailable("support analysis", "eager has none")

    def supports(self, node: torch.fx.Node) -> Verdict:
        raise NotAvailable("asking for support", "eager has none")

    def compile_graph(self, graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        raise NotAvailable("compiling a graph", "eager has none")

    def observe_work(self, script: str, told: Callable[[Work], None]) -> AbstractContextManager[None]:
        raise NotAvailable("metrics", "eager has none")

    def counters(self) -> Mapping[str, int]:
        return {}

    def report(self) -> str:
        return ""
