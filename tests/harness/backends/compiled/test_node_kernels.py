"""The kernels of nodes that are compiled together: which graphs are executed for a node, and what they give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch

from numdrift.harness.backends.compiled import node_kernels
from numdrift.harness.backends.compiled.node_kernels import NodeKernels
from numdrift.harness.tape.replaying.replay import Computation, executions
from numdrift.harness.tape.tape import CompiledNode, Tape

from ...localize.test_standalone_scripts import tape_of

OPS = ("aten.tanh.default", "aten.exp.default", "aten.neg.default")


class Graphs:
    """A compiler whose graphs execute their ops one by one. A graph takes `seconds` of a clock that it moves on.

    A graph of a single node adds `error` to its result.
    """

    def __init__(self, compiling: float, executing: float, error: float = 0.0) -> None:
        self.now = 0.0
        self.executed: list[int] = []  # for each execution, the number of its nodes
        self._compiling = compiling
        self._executing = executing
        self._error = error

    def __call__(
        self, module: torch.fx.GraphModule, inputs: Sequence[Any], *, backward: bool
    ) -> Callable[[list[Any]], Sequence[Any]]:
        self.now += self._compiling
        count = len([node for node in module.graph.nodes if node.op == "call_function"])

        def run(values: list[Any]) -> Sequence[Any]:
            self.now += self._executing
            self.executed.append(count)
            results: tuple[torch.Tensor, ...] = module(*values)
            return [result + self._error for result in results] if count == 1 else results

        return run


@pytest.fixture(scope="module")
def tape() -> Tape:
    def step(watch: Callable[[str, torch.Tensor], object]) -> None:
        values = torch.linspace(-1, 1, 8)
        watch("loss 0", -torch.exp(torch.tanh(values)))

    recorded = tape_of(step)
    nodes = {op: CompiledNode("0 forward", op, op, 0) for op in OPS}
    return replace(recorded, calls=tuple(replace(call, compiled=nodes.get(call.op)) for call in recorded.calls))


def executed(graphs: Graphs, tape: Tape, monkeypatch: pytest.MonkeyPatch, times: int) -> list[torch.Tensor]:
    """Prepare all nodes together, and execute the tanh so many times."""
    monkeypatch.setattr(node_kernels.time, "monotonic", lambda: graphs.now)
    kernels = NodeKernels(tape, graphs)
    nodes = [computation for computation in executions(tape) if computation.call.compiled is not None]
    kernels.prepare([node.position for node in nodes])
    tanh: Computation = next(node for node in nodes if node.call.op == OPS[0])
    return [kernels.execute(tanh, (torch.linspace(-1, 1, 8),), {})[0] for _ in range(times)]


def test_a_node_is_compiled_alone_once_its_neighbours_have_cost_more_than_that(
    tape: Tape, monkeypatch: pytest.MonkeyPatch
) -> None:
    graphs = Graphs(compiling=2.5, executing=1.0)
    results = executed(graphs, tape, monkeypatch, 5)
    # After the third execution, the graph has been executed for longer than it was compiled. The fourth execution
    # compares the node alone.
    assert graphs.executed == [3, 3, 3, 1, 1, 1]
    assert all(torch.equal(result, torch.linspace(-1, 1, 8).tanh()) for result in results)


def test_a_node_that_computes_other_bits_alone_stays_with_its_neighbours(
    tape: Tape, monkeypatch: pytest.MonkeyPatch
) -> None:
    graphs = Graphs(compiling=0.5, executing=1.0, error=1e-3)
    results = executed(graphs, tape, monkeypatch, 3)
    assert graphs.executed == [3, 1, 3, 3]
    assert all(torch.equal(result, torch.linspace(-1, 1, 8).tanh()) for result in results)
