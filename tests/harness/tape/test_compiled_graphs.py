from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

from numdrift.harness.observers.compilations_told import told_again
from numdrift.harness.tape.compiled_graphs import (
    CompiledGraph,
    CompiledGraphs,
    ProbedGraph,
    Probes,
    ReadingTime,
    ValueKey,
    computed_values,
)
from numdrift.harness.torch_private.probing import Boxed


@pytest.fixture
def probes() -> Iterator[Probes]:
    made = Probes()
    yield made
    made.close()


def traced() -> torch.fx.GraphModule:
    def function(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        y = x.t().sin()
        variance, mean = torch.var_mean(y, dim=0)
        return (y * mean).exp(), variance + 1

    found: torch.fx.GraphModule = make_fx(function, tracing_mode="fake")(torch.ones(3, 4))
    return found


class Compiler:
    """Executes graphs op by op, and gives other results where one of the values `touchy` is probed."""

    def __init__(self, touchy: set[str]) -> None:
        self.touchy = touchy
        self.compilations = 0

    def again(self, module: torch.fx.GraphModule) -> Boxed:
        self.compilations += 1
        probed = {str(node.args[0]) for node in module.graph.nodes if "probe" in str(node.target)}
        disturbed = bool(probed & self.touchy)
        return lambda inputs: (disturbed, module(*inputs))


class Execution:
    def __init__(self) -> None:
        self.input = torch.randn(3, 4)

    def repeated(self, compiled: Boxed) -> bool:
        disturbed, _ = compiled([self.input])
        return not disturbed


def values_of(graph: torch.fx.GraphModule, execution: Execution) -> dict[ValueKey, torch.Tensor]:
    """By executing the graph with every value as an output."""
    keys, found = dict(computed_values(graph.graph)), {}

    class Noting(torch.fx.Interpreter):
        def run_node(self, node: torch.fx.Node) -> Any:
            result = super().run_node(node)
            if node in keys:
                found[keys[node]] = result
            return result

    Noting(graph).run(execution.input)
    return found


def test_views_are_no_values_and_results_of_one_op_are_several() -> None:
    names = [(node.name, key) for node, key in computed_values(traced().graph)]
    assert [key for _, key in names] == [
        ("sin", 0),
        ("var_mean", 0),
        ("var_mean", 1),
        ("mul", 0),
        ("exp", 0),
        ("add", 0),
    ]


def test_every_value_is_read(probes: Probes) -> None:
    graph, compiler, execution = traced(), Compiler(set()), Execution()
    probed = ProbedGraph(graph, compiler.again, probes, ReadingTime())
    found = probed.values(execution)
    expected = values_of(graph, execution)
    assert found.keys() == expected.keys()
    assert all(torch.equal(found[key], value) for key, value in expected.items())
    assert not any("probe" in str(node.target) for node in graph.graph.nodes)


@pytest.mark.parametrize("touchy", [{"exp"}, {"sin"}, {"mul", "add"}])
def test_what_cannot_be_read_is_found_and_left_out(touchy: set[str], probes: Probes) -> None:
    graph, compiler = traced(), Compiler(touchy)
    probed = ProbedGraph(graph, compiler.again, probes, ReadingTime())
    found = probed.values(Execution())
    assert found.keys() == {key for _, key in computed_values(graph.graph) if key[0] not in touchy}
    # then the next execution needs no compilation
    before, execution = compiler.compilations, Execution()
    again = probed.values(execution)
    assert compiler.compilations == before
    expected = values_of(graph, execution)
    assert again.keys() == found.keys() and all(torch.equal(again[key], expected[key]) for key in again)


def test_a_graph_that_never_repeats_is_given_up(probes: Probes) -> None:
    class Never(Execution):
        def repeated(self, compiled: Boxed) -> bool:
            compiled([self.input])
            return False

    compiler = Compiler(set())
    probed = ProbedGraph(traced(), compiler.again, probes, ReadingTime())
    assert probed.values(Never()) == {} and probed.values(Never()) == {}
    assert compiler.compilations == 2


class Reading:
    """Reads the values of every graph that is executed."""

    def captured(self, graph: Any, inputs: Sequence[Any], execute: Callable[[], Any]) -> Any:
        return execute()

    def executed(self, graph: CompiledGraph, inputs: Sequence[Any], execute: Callable[[], Any]) -> Any:
        self.inputs = [one.detach().clone() if isinstance(one, torch.Tensor) else one for one in inputs]
        outputs = execute()
        assert graph.probed is not None and graph.probed.values(self)
        return outputs

    def repeated(self, compiled: Boxed) -> bool:
        compiled(list(self.inputs))
        return True


def test_what_is_compiled_again_is_told_by_its_number() -> None:
    # given a graph with a backward
    said: list[tuple[str, dict[str, Any]]] = []
    told = told_again(__file__, lambda event, **fields: said.append((event, fields)))
    graphs = CompiledGraphs(op_by_op=False, told_again=told)
    graphs.install()
    graphs.executor = Reading()
    try:
        # when it is executed, and taken apart
        x = torch.ones(3, requires_grad=True)
        torch.compile(lambda x: (x.sin() * x.exp()).sum(), backend="aot_eager")(x).backward()
    finally:
        graphs.remove()
        torch._dynamo.reset()
    # then
    assert [event for event, _ in said] == ["compiling", "compiled"] * 2
    forward, backward = (fields for event, fields in said if event == "compiling")
    assert (forward["again"], forward["backward"]) == (1, False)
    assert (backward["again"], backward["backward"]) == (2, True)
    assert Path(forward["line"].rpartition(":")[0]).name == "test_compiled_graphs.py"
