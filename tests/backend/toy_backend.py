"""A backend that a vendor might bring: it executes aten graphs, lacks one op, and one of its kernels is inaccurate.

`sort` is not there: where a graph has one, the CPU executes it. `tanh_backward` computes in bfloat16.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch._dynamo.backends.common import aot_autograd
from torch._dynamo.backends.registry import register_backend

from numdrift.harness.backends.compiled.mode import CompileMode
from numdrift.harness.errors import NotAvailable
from numdrift.harness.hooks.backend_adapter import Tell
from numdrift.harness.records.modes.mode_spec import ModeSpec
from numdrift.harness.records.tools.backend_work import OperatorCall, SupportAnswer, Work
from numdrift.harness.script.script_lines import ScriptLines

aten = torch.ops.aten
counts: Counter[str] = Counter()
listeners: list[Callable[[Work], None]] = []
callers: list[Callable[[OperatorCall], None]] = []
lines: list[ScriptLines] = []


def inaccurate_tanh_backward(gradient: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    low = output.to(torch.bfloat16)
    return gradient * (1 - low * low).to(gradient.dtype)


KERNELS: Mapping[Any, Callable[..., Any]] = {aten.tanh_backward.default: inaccurate_tanh_backward}


def name_of(operation: Any) -> str:
    return str(operation.name()).partition(".")[0]


def refuses(operation: Any) -> str:
    """What the toy compiler says when it is given an op, "" where it takes it."""
    return "toy has no sort" if name_of(operation) == "aten::sort" else ""


class Program(torch.fx.Interpreter):
    """A compiled graph."""

    def __init__(self, graph: torch.fx.GraphModule) -> None:
        super().__init__(graph)
        self.name = f"toy{counts['ToyCompile']}"
        self.size = len(graph.graph.nodes)
        counts["ToyCompile"] += 1

    def run_node(self, n: torch.fx.Node) -> Any:
        self.call = lines[-1].of_stack(n.meta.get("stack_trace") or "") if lines else ""
        return super().run_node(n)

    def call_function(self, target: Any, args: Any, kwargs: Any) -> Any:
        if not isinstance(target, torch._ops.OpOverload):
            return super().call_function(target, args, kwargs)
        reason, name = refuses(target), name_of(target)
        counts[name if reason else name.replace("aten", "toy")] += 1
        shapes = ", ".join(f"{one.dtype}{list(one.shape)}" for one in args if isinstance(one, torch.Tensor))
        made = (name.replace("aten::", "toy."),)
        for report in callers:
            report(OperatorCall(name, shapes, self.call, made, "toyc" if reason else "", reason))
        if reason:
            tell(Work("fallback", name, call=self.call))
        return KERNELS.get(target, target)(*args, **kwargs)

    def __call__(self, *inputs: Any) -> Any:
        began = time.perf_counter()
        with torch.no_grad():
            results = self.run(*inputs)
        tell(Work("execute", self.name, time.perf_counter() - began, self.size))
        return results


def tell(work: Work) -> None:
    for report in listeners:
        report(work)


def compile_aten(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    program = Program(graph)
    tell(Work("compile", program.name, 0.0, program.size, cached=False))

    def execute(inputs: list[Any]) -> Any:
        return program(*inputs)

    execute._boxed_call = True  # type: ignore[attr-defined]
    return execute


register_backend(aot_autograd(fw_compiler=compile_aten), name="toy")


class ToyMode(CompileMode):
    def __init__(self, spec: ModeSpec) -> None:
        super().__init__(spec)
        self.backend = "toy"
        self.device = self.eager.device = "cpu"

    def adapter(self) -> ToyAdapter:
        return ToyAdapter()


class ToyAdapter:
    name = "toy"
    instruction_set = "toy"
    executes_at_once = False

    def versions(self) -> Mapping[str, str]:
        return {"torch": torch.__version__, "toyc": "0.1"}

    @contextmanager
    def observe_support(self, script: str, report: Callable[[OperatorCall], None]) -> Iterator[None]:
        lines.append(ScriptLines(script))
        callers.append(report)
        yield
        callers.remove(report)

    def without_execution(self) -> AbstractContextManager[None]:
        raise NotAvailable("a dry run", "the toy compiler executes what it compiles")

    def supports(self, node: torch.fx.Node) -> SupportAnswer:
        return SupportAnswer(refuses(node.target), "toyc") if refuses(node.target) else SupportAnswer()

    def compile_graph(self, graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        return Program(graph)

    @contextmanager
    def observe_work(self, script: str, report: Callable[[Work], None]) -> Iterator[Tell]:
        lines.append(ScriptLines(script))
        listeners.append(report)
        yield lambda: None
        listeners.remove(report)

    def counters(self) -> Mapping[str, int]:
        return dict(counts)

    def report(self) -> str:
        return ""
