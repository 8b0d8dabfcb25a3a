"""`decompose.<op>=off` of composite ops: one node in the graphs that Inductor is given, and nothing else changes."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import torch
import torch._dynamo
import torch._inductor.config
from torch import nn
from torch._dynamo.source import ConstantSource
from torch._inductor.compile_fx import compile_fx, compile_fx_inner
from torch._inductor.graph import GraphLowering
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.fx.experimental.symbolic_shapes import ShapeEnv
from torch.nn import functional

from numdrift.harness.errors import UsageError
from numdrift.kernels.registry import KernelRegistry, built_in
from numdrift.kernels.swaps.counts import SwapCounts
from numdrift.kernels.swaps.engine import Swaps
from numdrift.kernels.swaps.request import swap_requests
from numdrift.kernels.swaps.whole_graph import WHOLE, fold, is_folded, unfold
from numdrift.kernels.swaps.whole_groups import CALL, CompositeCall, Group, NamedNode, groups_of

Numdrift = Callable[..., "subprocess.CompletedProcess[str]"]
Model = Callable[[], nn.Module]


@dataclass
class Compiled:
    """What a training made of compiled models: values, the graphs that Inductor was given, and its code."""

    values: list[torch.Tensor] = field(default_factory=list)
    graphs: list[torch.fx.GraphModule] = field(default_factory=list)
    code: list[str] = field(default_factory=list)
    counts: list[SwapCounts] = field(default_factory=list)

    def called(self) -> list[str]:
        return [str(one.target) for graph in self.graphs for one in graph.graph.nodes if one.op == "call_function"]


@pytest.fixture(scope="module")
def registry() -> KernelRegistry:
    return built_in()


@pytest.fixture
def compiled(registry: KernelRegistry, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Compiled]:
    """Train `make()` on `x`, compiled with `decompose.<op>=off` for each of `whole`; `then` sees it before that ends."""

    def run(
        make: Model,
        x: torch.Tensor,
        *whole: str,
        steps: int = 1,
        train: bool = True,
        then: Callable[[Compiled], None] = lambda _: None,
    ) -> Compiled:
        found = Compiled()

        def inner(module: torch.fx.GraphModule, inputs: Any, **options: Any) -> Any:
            found.graphs.append(torch.fx.GraphModule(module, torch.fx.Graph()))
            copied: dict[torch.fx.Node, torch.fx.Node] = {}
            found.graphs[-1].graph.output(found.graphs[-1].graph.graph_copy(module.graph, copied))
            found.graphs[-1].recompile()
            return compile_fx_inner(module, inputs, **options)

        def backend(module: torch.fx.GraphModule, inputs: Any) -> Any:
            return compile_fx(module, inputs, inner_compile=inner)

        monkeypatch.setattr(GraphLowering, "save_output_code", staticmethod(found.code.append))
        with swapped(registry, *whole) as swaps, torch._inductor.config.patch(force_disable_caches=True):
            torch.manual_seed(0)
            model = make()
            train_with(torch.compile(model, backend=backend), model, x, steps if train else 0, found.values)
            found.counts = swaps.counts()
            then(found)
        return found

    return run


@contextmanager
def swapped(registry: KernelRegistry, *whole: str) -> Iterator[Swaps]:
    swaps = Swaps(swap_requests({}, dict.fromkeys(whole, "off")), registry)
    torch._dynamo.reset()
    swaps.install("cpu", compiled=True)
    try:
        yield swaps
    finally:
        swaps.close()


def train_with(
    call: Callable[..., torch.Tensor],
    model: nn.Module,
    x: torch.Tensor,
    steps: int,
    values: list[torch.Tensor],
) -> None:
    """Train for some steps and keep losses, gradients and parameters; without steps call it once, without gradients."""
    if not steps:
        with torch.no_grad():
            values.append(call(x))
        return
    trained = [one for one in model.parameters() if one.requires_grad]
    for _ in range(steps):
        input_ = x.clone().requires_grad_()
        loss = call(input_).square().sum()
        gradients = torch.autograd.grad(loss, [input_, *trained])
        with torch.no_grad():
            for parameter, gradient in zip(trained, gradients[1:], strict=True):
                parameter.sub_(0.1 * gradient)
        values += [loss.detach(), *gradients, *(one.detach().clone() for one in trained)]


def without_comments(code: list[str]) -> list[str]:
    """The sources without comments, where the names of nodes stand."""
    return [re.sub(r"\s*(#(?!include|define|pragma)|//).*", "", one) for one in code]


def randn(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(1))


def tanh_mlp() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 4), nn.Tanh(), nn.Linear(4, 3), nn.Tanh())


def without_bias() -> nn.Module:
    return nn.Sequential(nn.Linear(5, 4, bias=False), nn.Tanh(), nn.Linear(4, 3, bias=False), nn.Tanh())


def frozen() -> nn.Module:
    model = tanh_mlp()
    model[0].weight.requires_grad_(False)  # type: ignore[index]
    return model


class Of(nn.Module):
    """A function of an input and parameters of these shapes."""

    def __init__(self, function: Callable[..., torch.Tensor], *shapes: tuple[int, ...]) -> None:
        super().__init__()
        self.function = function
        self.values = nn.ParameterList([nn.Parameter(torch.randn(shape)) for shape in shapes])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.function(x.tanh(), *self.values).sin()


LINEARS: dict[str, tuple[Model, tuple[int, ...], int, bool]] = {
    "three steps": (tanh_mlp, (6, 5), 3, True),
    "a batch of rows": (tanh_mlp, (2, 3, 5), 1, True),
    "without bias": (without_bias, (2, 3, 5), 1, True),
    "a frozen weight": (frozen, (6, 5), 1, True),
    "without gradients": (tanh_mlp, (2, 3, 5), 1, False),
}


def everyday(cases: Iterable[str], *chosen: str) -> list[Any]:
    """These cases, of which only the chosen ones are tried by every run of the tests: each is compiled twice."""
    return [pytest.param(case, marks=[] if case in chosen else pytest.mark.exhaustive) for case in cases]


@pytest.mark.slow
@pytest.mark.parametrize("case", everyday(LINEARS, "a frozen weight"))
def test_linear_stays_one_node_and_what_is_compiled_stays_the_same(
    case: str, compiled: Callable[..., Compiled]
) -> None:
    # given
    make, shape, steps, train = LINEARS[case]
    plain = compiled(make, randn(*shape), steps=steps, train=train)
    assert not any("linear" in one for one in plain.called())
    assert any(one in ("aten.addmm.default", "aten.mm.default") for one in plain.called())
    # when
    whole = compiled(make, randn(*shape), "aten.linear", steps=steps, train=train)
    # then each layer is one node forward and one backward, and no product is left beside them
    called = whole.called()
    assert called.count("aten.linear.default") == 2
    assert called.count("numdrift.linear_backward.default") == (2 if train else 0)
    assert not any("mm" in one for one in called)
    # and values and generated code are the same
    assert len(plain.values) == len(whole.values)
    assert all(torch.equal(a, b) for a, b in zip(plain.values, whole.values, strict=True))
    assert plain.code and without_comments(plain.code) == without_comments(whole.code)
    assert whole.counts == [SwapCounts(traced=2)]


OTHERS: dict[str, tuple[str, Model, tuple[int, ...], list[str]]] = {
    "matmul": (
        "matmul",
        lambda: Of(torch.matmul, (5, 4)),
        (2, 3, 5),
        ["aten.matmul", "numdrift.matmul_backward"],
    ),
    "cross entropy": (
        "cross_entropy_loss",
        lambda: Of(lambda x, w: functional.cross_entropy(x @ w, torch.arange(6) % 4), (5, 4)),
        (6, 5),
        ["numdrift.cross_entropy_loss", "numdrift.cross_entropy_loss_backward"],
    ),
    "attention": (
        "scaled_dot_product_attention",
        lambda: Of(lambda x, w: functional.scaled_dot_product_attention(x, x @ w, x), (8, 8)),
        (2, 2, 6, 8),
        ["numdrift.scaled_dot_product_attention", "numdrift.scaled_dot_product_attention_backward"],
    ),
    "layer_norm": (
        "layer_norm",
        lambda: Of(lambda x, w, b: functional.layer_norm(x, (5,), w, b) @ w, (5,), (5,)),
        (2, 3, 5),
        ["aten.layer_norm", "numdrift.layer_norm", "numdrift.layer_norm_backward"],
    ),
    "a tied weight": (
        "linear",
        lambda: Of(lambda x, w: functional.linear(functional.linear(x, w).tanh(), w), (5, 5)),
        (2, 3, 5),
        ["aten.linear"] * 2 + ["numdrift.linear_backward"] * 2,
    ),
    "recomputed in the backward": (
        "linear",
        lambda: Of(
            lambda x, w: torch.utils.checkpoint.checkpoint(
                lambda one: functional.linear(one, w).tanh(), x, use_reentrant=False
            ),
            (4, 5),
        ),
        (6, 5),
        ["aten.linear"] * 2 + ["numdrift.linear_backward"],
    ),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", everyday(OTHERS, "recomputed in the backward"))
def test_other_composite_ops_stay_whole_too(case: str, compiled: Callable[..., Compiled]) -> None:
    op, make, shape, expected = OTHERS[case]
    plain = compiled(make, randn(*shape))
    whole = compiled(make, randn(*shape), op)
    assert sorted(one.removesuffix(".default") for one in whole.called() if op in one) == sorted(expected)
    assert all(torch.equal(a, b) for a, b in zip(plain.values, whole.values, strict=True))
    assert without_comments(plain.code) == without_comments(whole.code)


@pytest.mark.slow
def test_the_graphs_that_inductor_is_given_compute_what_it_compiles(
    compiled: Callable[..., Compiled],
) -> None:
    """The nodes that stand for several can be executed, as any others."""

    def executed(whole: Compiled) -> None:
        # given the graphs of one step, and a model with the parameters of its beginning
        forward, backward = whole.graphs
        torch.manual_seed(0)
        given = {one.shape: one.detach() for one in [randn(2, 3, 5), *tanh_mlp().parameters()]}
        values = {one.name: given[one.meta["val"].shape] for one in placeholders(forward)}
        # when they are executed node by node
        returned = list(forward.graph.nodes)[-1].args[0]
        results = forward(*(values[one.name] for one in placeholders(forward)))
        values |= dict(zip(map(str, returned), results, strict=True)) | {"tangents_1": 2 * results[0]}
        gradients = backward(*(values[one.name] for one in placeholders(backward)))
        # then
        assert torch.allclose(results[0].square().sum(), whole.values[0])
        shapes = {one.shape: one for one in gradients}
        assert all(torch.allclose(shapes[one.shape], one, atol=1e-5) for one in whole.values[1:6])

    compiled(tanh_mlp, randn(2, 3, 5), "linear", then=executed)


def placeholders(module: torch.fx.GraphModule) -> list[torch.fx.Node]:
    return [one for one in module.graph.nodes if one.op == "placeholder"]


@pytest.mark.slow
def test_a_double_backward_is_refused_as_without_the_key(registry: KernelRegistry) -> None:
    for whole in ((), ("linear",)):
        with swapped(registry, *whole):
            x = randn(6, 5).requires_grad_()
            y = torch.compile(tanh_mlp())(x)
            (gradient,) = torch.autograd.grad(y.sum(), x, create_graph=True)
            with pytest.raises(RuntimeError, match="double backward"):
                gradient.sum().backward()


def test_an_op_that_nothing_takes_apart_is_refused(registry: KernelRegistry) -> None:
    said = pytest.raises(UsageError, match=r"Inductor does not decompose aten\.tanh; leave the key out")
    with said, swapped(registry, "tanh"):
        pass


def folded_linear() -> tuple[torch.fx.GraphModule, str]:
    """A graph in which two of the nodes are one call of linear, and its text before it was folded."""

    def function(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, ...]:
        w_t = w.t()
        y = x.tanh()
        return torch.mm(y, w_t).sin(), w_t

    module = make_fx(function, tracing_mode="fake")(randn(3, 5), randn(4, 5))
    nodes = {one.name: one for one in module.graph.nodes}
    for name in ("t", "mm"):
        nodes[name].meta[CALL] = 0
    results = {"mm": nodes["mm"].meta["val"]}
    overload = torch.ops.aten.linear.default
    call = CompositeCall(0, "linear", overload, (NamedNode("tanh"), NamedNode("w_1")), {}, results, frozenset())
    before = str(module.graph)
    module.graph = fold(module.graph, groups_of(module.graph, [call]), lambda _: pytest.fail("linear is enough"))
    module.recompile()
    return module, before


def test_folding_shows_the_call_and_unfolding_gives_the_same_graph() -> None:
    module, before = folded_linear()
    (linear,) = (one for one in module.graph.nodes if one.name == "linear")
    # the view of the weight is a result of the graph, so it stays
    assert [str(one.target) for one in module.graph.nodes if one.op == "call_function"] == [
        "aten.t.default",
        "aten.tanh.default",
        "aten.linear.default",
        "aten.sin.default",
    ]
    assert [one.name for one in linear.meta[WHOLE].members] == ["mm"]
    assert [one.name for one in linear.args] == ["tanh", "w_1"]
    unfold(module.graph)
    module.graph.lint()
    assert str(module.graph) == before and not is_folded(module.graph)


def test_sizes_of_a_gradient_are_not_compared_with_those_of_the_result() -> None:
    """Where they are symbols a comparison leaves a guard, and a batch of another size is compiled anew."""
    # given the result of a linear layer on a batch of any size, and the gradient of its weight
    known = ShapeEnv()
    with FakeTensorMode(shape_env=known):
        size = known.create_symintnode(known.create_symbol(6, ConstantSource("batch")), hint=6)
        result, gradient = torch.empty(size, 10), torch.empty(10, 10)
    graph = torch.fx.Graph()
    nodes = {name: graph.placeholder(name) for name in ("result", "gradient")}
    nodes["result"].meta["val"], nodes["gradient"].meta["val"] = result, gradient
    call = CompositeCall(0, "linear", torch.ops.aten.linear.default, (), {}, {"result": result}, frozenset())
    # when
    backward = Group(call, True, (nodes["gradient"],), (), (nodes["result"],), (nodes["gradient"],))
    # then
    assert backward.result is None and not known.guards


def test_what_is_added_to_a_folded_graph_stays_when_it_is_unfolded() -> None:
    module, before = folded_linear()
    # when a node is put behind each, with a copy of its meta, as probes are
    for node in list(module.graph.nodes):
        if node.op == "call_function":
            with module.graph.inserting_after(node):
                added = module.graph.call_function(torch.ops.aten.neg.default, (node,))
            added.meta = dict(node.meta)
    unfold(module.graph)
    module.graph.lint()
    # then it is behind what was put back, and everything else is as it was
    lines = str(module.graph).splitlines()
    (place,) = (number for number, line in enumerate(lines) if "mm.default" in line)
    assert "neg" in lines[place + 1] and "(%mm,)" in lines[place + 1]
    kept = [line for line in lines if "neg" not in line]
    assert [re.sub(r" \[num_users=\d+\]", "", line) for line in kept] == [
        re.sub(r" \[num_users=\d+\]", "", line) for line in before.splitlines()
    ]


@pytest.mark.slow
def test_a_run_keeps_linear_whole_and_its_bits(numdrift: Numdrift, tmp_path: Path) -> None:
    script = Path(__file__).parents[3] / "reproducers" / "sam_tanh.py"
    done = numdrift(
        "run", script, "--mode", "a=compile", "--mode", "b=compile,decompose.aten.linear=off", "--name", "s",
        "-q", "--", "--epochs", "2",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    (swap,) = json.loads((tmp_path / "runs/s/b/run.json").read_text())["swaps"]
    assert swap["swap"] == "decompose.aten.linear=off"
    assert swap["calls"]["traced"] and not swap["calls"]["backward"]
    assert "identical bit for bit" in numdrift("compare", "runs/s/a", "runs/s/b").stdout


def test_a_backend_without_inductors_graphs_is_refused(numdrift: Numdrift) -> None:
    script = Path(__file__).parents[3] / "reproducers" / "sam_tanh.py"
    mode = "compile,backend=aot_eager_decomp_partition,decompose.linear=off"
    done = numdrift("run", script, "--mode", mode, "--name", "s", "-q")
    assert done.returncode == 2
    assert "only the graphs that Inductor receives keep" in done.stderr
