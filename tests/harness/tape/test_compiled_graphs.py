from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import torch
from torch._dynamo.utils import counters
from torch._inductor.utils import fresh_cache
from torch.fx.experimental.proxy_tensor import make_fx

from numdrift.harness.observers.calls.compilation_events import compiling_again
from numdrift.harness.tape.recording import probed_graph
from numdrift.harness.tape.recording.compiled_graphs import CompiledGraph, CompiledGraphs
from numdrift.harness.tape.recording.probed_graph import (
    ProbedGraph,
    Probes,
    PutOff,
    ReadingTime,
    ValueKey,
    computed_values,
)
from numdrift.harness.torch_private.compiler.probing import Boxed


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


def test_a_quick_reading_ends_where_it_would_take_long(probes: Probes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probed_graph, "QUICK_SECONDS", 0.0)
    compiler = Compiler({"sin"})
    with pytest.raises(PutOff):
        ProbedGraph(traced(), compiler.again, probes, ReadingTime(quick=True)).values(Execution())
    # then the first compilation has been tried, and no second one
    assert compiler.compilations == 1


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
    told = compiling_again(__file__, lambda event, **fields: said.append((event, fields)))
    graphs = CompiledGraphs(op_by_op=False, compiling_again=told)
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


class BothWays(Reading):
    """Reads the buffers of every graph that is executed, and all of its values by probes."""

    def __init__(self) -> None:
        self.found: dict[str, tuple[dict[ValueKey, torch.Tensor], dict[ValueKey, torch.Tensor]]] = {}
        self.hits = 0

    def executed(self, graph: CompiledGraph, inputs: Sequence[Any], execute: Callable[[], Any]) -> Any:
        self.inputs = [value.detach().clone() if isinstance(value, torch.Tensor) else value for value in inputs]
        outputs = execute()
        probed = graph.probed
        assert probed is not None
        values = probed._tried(probed._keys, self)
        assert values is not None
        self.found[graph.name] = (probed._buffers(self) or {}, values)
        return outputs


def read_both_ways(module: torch.nn.Module, words: torch.Tensor) -> BothWays:
    graphs, executor = CompiledGraphs(op_by_op=False), BothWays()
    graphs.install()
    graphs.executor = executor
    before = counters["inductor"]["fxgraph_cache_hit"]
    try:
        torch.compile(module)(words).backward()
    finally:
        executor.hits = counters["inductor"]["fxgraph_cache_hit"] - before
        graphs.remove()
        torch._dynamo.reset()
    return executor


class Scattering(torch.nn.Module):
    """A model whose step writes more than once to what it makes, and part by part."""

    def __init__(self) -> None:
        super().__init__()
        self.words, self.places = torch.nn.Embedding(11, 8), torch.nn.Embedding(5, 8)
        self.up, self.norm, self.out = torch.nn.Linear(8, 16), torch.nn.LayerNorm(16), torch.nn.Linear(16, 4)

    def forward(self, words: torch.Tensor) -> torch.Tensor:
        hidden = self.words(words) + self.places.weight
        up = self.up(hidden)
        parts = torch.cat([up.tanh(), (up.relu() @ self.up.weight).sin()], dim=-1)
        hidden = self.norm(torch.tanh(up)) + parts.sum(-1, keepdim=True)
        best, chosen = self.out(hidden).topk(2, dim=-1)
        gates = torch.zeros_like(self.out(hidden)).scatter(-1, chosen, best.softmax(-1))
        rows = hidden.sum(-1).index_put((words.flatten()[:5] % 3,), torch.ones(5, 5), accumulate=True)
        total: torch.Tensor = gates.square().mean() + rows.square().mean() + hidden.sum().square()
        return total


@pytest.mark.exhaustive
@pytest.mark.parametrize("deterministic", [False, True])
def test_the_buffers_of_generated_code_hold_what_probes_read(deterministic: bool) -> None:
    scattering, words = Scattering(), torch.randint(0, 11, (3, 5))
    torch.use_deterministic_algorithms(deterministic)
    try:
        with fresh_cache():
            # when it is compiled, and another time
            compiled, again = read_both_ways(scattering, words), read_both_ways(scattering, words)
    finally:
        torch.use_deterministic_algorithms(False)
    # then the second time all of it comes from Inductor's cache: each graph, its copy with probes, its shown buffers
    assert (compiled.hits, again.hits) == (0, 6)
    for executor in (compiled, again):
        assert executor.found.keys() == {"0 forward", "0 backward"}
        for name, (buffers, values) in executor.found.items():
            assert len(buffers) >= 8, name
            others = [key for key, value in buffers.items() if not torch.equal(value, values[key])]
            assert not others, name


def on_a_device(graph: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """The graph, its values said to be those of an accelerator."""
    for node in graph.graph.nodes:
        if isinstance(node.meta.get("val"), torch.Tensor):
            node.meta["val"] = node.meta["val"].to("meta")
    return graph


@pytest.mark.parametrize(
    ("limit", "place"), [("MOST_PROBED", on_a_device), ("MOST_PROBED_ON_CPU", lambda graph: graph)]
)
def test_what_the_code_of_a_large_graph_does_not_write_is_not_probed(
    probes: Probes,
    monkeypatch: pytest.MonkeyPatch,
    limit: str,
    place: Callable[[torch.fx.GraphModule], torch.fx.GraphModule],
) -> None:
    # given a graph whose code shows one value
    shown = {computed_values(traced().graph)[0][1]: torch.ones(3)}
    monkeypatch.setattr(ProbedGraph, "_buffers", lambda self, repetition: shown)
    for most, compilations, why in ((2, 0, "fused into the kernels of other values"), (64, 1, "")):
        monkeypatch.setattr(probed_graph, limit, most)
        compiler = Compiler(set())
        probed = ProbedGraph(place(traced()), compiler.again, probes, ReadingTime())
        # when
        found = probed.values(Execution())
        # then the others are left unknown in a large one, and read in a small one
        assert compiler.compilations == compilations and why in probed.unread
        assert found.keys() >= shown.keys() and bool(probed.unread) == (len(found) == 1)


def test_a_large_graph_of_the_cpu_is_read_again_by_its_probes(probes: Probes, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a graph for the CPU, larger than what is probed on accelerators, with a value that cannot be read
    monkeypatch.setattr("numdrift.harness.tape.recording.probed_graph.MOST_PROBED", 2)
    probed = ProbedGraph(traced(), Compiler({"exp"}).again, probes, ReadingTime())
    # when it is executed twice
    first, second = probed.values(Execution()), probed.values(Execution())
    # then all but that value is read both times, and nothing is said to be fused
    assert first.keys() == second.keys() == {key for _, key in computed_values(traced().graph)} - {("exp", 0)}
    assert probed.unread == ""


def test_on_an_accelerator_reading_ends_with_its_time(probes: Probes, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a graph of which no value can be read without changing the results, and no time but for one compilation
    monkeypatch.setattr("numdrift.harness.tape.recording.probed_graph.READING_LEAST", 0.0)
    compiler, reading = Compiler({"sin", "mul", "exp", "add"}), ReadingTime()
    probed = ProbedGraph(on_a_device(traced()), compiler.again, probes, reading)
    # when
    found = probed.values(Execution())
    # then
    assert found == {} and compiler.compilations == 1
    assert reading.is_over
    assert "the limit of 0 s for reading values was reached" in probed.unread
    # and the time grows with that of the compilations themselves
    reading.compiled = 100.0
    assert not reading.is_over and reading.limit == 200.0
