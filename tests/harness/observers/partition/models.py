"""The three modules of the founding text, small, and a backend that has no sort of floating numbers."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any

import torch
import torch.fx
from torch import nn

from numdrift.harness.backends.one_node import examples, one_node
from numdrift.harness.errors import NotAvailable
from numdrift.harness.hooks.backend_adapter import Tell
from numdrift.harness.records.tools.backend_work import OperatorCall, SupportAnswer, Work

INPUTS = 24


class MLP(nn.Module):
    """`sorted_after` says behind what the values are sorted: `first` or `output`."""

    def __init__(self, sorted_after: str = "output") -> None:
        super().__init__()
        self.fc1 = nn.Linear(INPUTS, 16)
        self.fc2 = nn.Linear(16, 12)
        self.fc3 = nn.Linear(12, 10)
        self.relu = nn.ReLU()
        self.sorted_after = sorted_after

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        r1 = self.relu(self.fc1(x))
        if self.sorted_after == "first":
            r1, _ = torch.sort(r1)
        r2 = self.relu(self.fc2(r1))
        out = torch.log_softmax(self.fc3(r2), dim=1)
        if self.sorted_after == "output":
            out, _ = torch.sort(out)
        return out


class Refusing(torch.fx.Interpreter):
    """The toy backend's way to execute a graph: aten's kernels, none for a sort of floating numbers."""

    def run_node(self, n: torch.fx.Node) -> Any:
        if n.target in (torch.ops.aten.sort.default, torch.ops.aten.sort.stable):
            tensor = self.env[n.args[0]]  # type: ignore[index]
            if tensor.is_floating_point():
                raise NotImplementedError(f"the toy sorts no {tensor.dtype}")
        return super().run_node(n)


class ToyAdapter:
    """Counts what it is asked and what it executes."""

    name = "toy"
    instruction_set = "toy"
    executes_at_once = False

    def __init__(self) -> None:
        self.asked = 0
        self.executed = 0

    def supports(self, node: torch.fx.Node) -> SupportAnswer:
        self.asked += 1
        alone = one_node(node)
        interpreter = Refusing(alone.graph)
        interpreter.extra_traceback = False
        try:
            interpreter.run(*examples(alone.inputs))
        except NotImplementedError as error:
            return SupportAnswer(str(error), "toy kernels")
        return SupportAnswer()

    def compile_graph(self, graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        def run(*arguments: Any) -> Any:
            self.executed += 1
            with torch.no_grad():
                return Refusing(graph).run(*arguments)

        return run

    def versions(self) -> Mapping[str, str]:
        return {}

    def observe_support(self, script: str, report: Callable[[OperatorCall], None]) -> AbstractContextManager[None]:
        raise NotAvailable("support analysis", "the toy has none")

    def without_execution(self) -> AbstractContextManager[None]:
        raise NotAvailable("a dry run", "the toy has none")

    def observe_work(self, script: str, report: Callable[[Work], None]) -> AbstractContextManager[Tell]:
        raise NotAvailable("metrics", "the toy has none")

    def counters(self) -> Mapping[str, int]:
        return {}

    def report(self) -> str:
        return ""
