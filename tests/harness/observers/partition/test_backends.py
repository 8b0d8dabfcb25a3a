"""The modes' own backends: each is asked, computes what it supports, and gives what the module gives."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
import torch
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx

from numdrift import PartitionConfig, partition
from numdrift.harness.errors import PartitionError, UsageError
from numdrift.harness.observers.partition.partitioned_module import PartitionedModule, partitioned
from numdrift.harness.records.modes.mode_registry import registry
from numdrift.harness.records.modes.mode_spec import parse_mode
from numdrift.harness.records.tools.partition_record import GraphPartition
from numdrift.harness.torch_private.compiler.composite_ops import is_operator

from ...backends.lazy_transposes import TransposesCopied
from .models import INPUTS, MLP, ToyAdapter


@pytest.fixture(scope="module")
def inputs() -> torch.Tensor:
    return torch.rand(8, INPUTS, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def compiled(inputs: torch.Tensor) -> Iterator[tuple[PartitionedModule, MLP]]:
    torch.manual_seed(0)
    plain = MLP()
    yield partition(copy.deepcopy(plain), inputs, mode="compile"), plain
    torch.compiler.reset()


def subgraphs(graph: GraphPartition) -> list[tuple[str, Mapping[str, int]]]:
    return [(one.device, one.operators) for one in graph.subgraphs]


def trained(module: torch.nn.Module, inputs: torch.Tensor) -> list[torch.Tensor]:
    """The output of one call, and the gradients of a weighted sum of it."""
    module.zero_grad()
    output = module(inputs)
    (output * torch.linspace(0.5, 1.5, output.numel()).view_as(output)).sum().backward()
    return [output.detach(), *(one.grad.clone() for one in module.parameters() if one.grad is not None)]


class Copying(ToyAdapter):
    """Executes its parts of the graphs on the CPU, with copies of what is transposed."""

    def compile_graph(self, graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        execute = super().compile_graph(graph, inputs)

        def run(*arguments: Any) -> Any:
            with TransposesCopied():
                return execute(*arguments)

        return run


def test_the_lazy_core_has_a_sort_and_no_scatter(inputs: torch.Tensor) -> None:
    # given
    torch.manual_seed(0)
    plain = MLP()
    # when
    made = partition(copy.deepcopy(plain), inputs, mode="lazy")
    forward, backward = made.partitioning.graphs
    # then
    assert subgraphs(forward) == [
        (
            "lazy (TorchScript)",
            {"aten::linear": 3, "aten::relu": 2, "aten::log_softmax": 1, "aten::sort": 1},
        )
    ]
    [unsupported] = [row for row in backward.operators if not row.supported]
    assert (unsupported.kind, unsupported.device, unsupported.failure_at) == (
        *("aten::scatter", "CPU"),
        "lazy core",
    )
    assert unsupported.reason == "aten::scatter.src fell back to the CPU"
    assert ("CPU", {"aten::scatter": 1}) in subgraphs(backward)
    # and it executes each operator by the kernel that eager has, of copies where eager has transposed views
    torch.compiler.reset()
    copying = partitioned(copy.deepcopy(plain), inputs, Copying(), PartitionConfig(), lambda _: None)
    found, expected = trained(made, inputs), trained(copying, inputs)
    assert all(map(torch.equal, found, expected)) and len(found) == len(expected) == 7
    torch.testing.assert_close(found, trained(plain, inputs), rtol=1e-5, atol=1e-6)
    torch.compiler.reset()


def test_xla_says_that_it_is_not_here(inputs: torch.Tensor) -> None:
    with pytest.raises(UsageError, match=r"torch_xla is not installed .*python=/path/to/its/python"):
        partition(MLP(), inputs, mode="xla")


def test_an_unknown_backend_is_no_lack_of_support(inputs: torch.Tensor) -> None:
    with pytest.raises(UsageError, match="did you mean 'inductor'"):
        partition(MLP(), inputs, mode="compile,backend=inductr")


@pytest.mark.slow
def test_inductor_falls_back_for_a_sort_at_the_end(
    compiled: tuple[PartitionedModule, MLP], inputs: torch.Tensor
) -> None:
    made, plain = compiled
    forward, backward = made.partitioning.graphs
    assert subgraphs(forward) == [
        ("inductor", {"aten::linear": 3, "aten::relu": 2, "aten::log_softmax": 1}),
        ("CPU", {"aten::sort": 1}),
    ]
    [unsupported] = [row for row in forward.operators if not row.supported]
    assert (unsupported.failure_at, unsupported.reason) == (
        "inductor lowering",
        "falls back to aten.sort.stable",
    )
    assert {one.device for one in backward.subgraphs} == {"inductor"}
    # and it trains as the module does, within the rounding of a few operations
    for found, expected in zip(trained(made, inputs), trained(plain, inputs), strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
def test_inductor_with_a_sort_between_layers_breaks_a_limit_of_two(inputs: torch.Tensor) -> None:
    with pytest.raises(PartitionError) as caught, torch.no_grad():
        partition(MLP("first").eval(), inputs, config=PartitionConfig(max_subgraph_count=2))
    assert str(caught.value) == (
        "The partitioner has found 3 subgraphs which exceeds the specified max subgraph count of 2."
    )


@pytest.mark.slow
def test_inductor_without_the_log_softmax_that_it_has(inputs: torch.Tensor) -> None:
    # given
    torch.manual_seed(0)
    module = MLP().eval()
    config = PartitionConfig(min_operator_percentage_threshold=0.8, ops_to_partition={"aten::log_softmax"})
    # when
    with torch.no_grad():
        made = partition(module, inputs, config=config)
        found = made(inputs)
    # then
    [graph] = made.partitioning.graphs
    assert f"{graph.percentage:.2f} {graph.supported} {graph.total}" == "85.71 6 7"
    assert subgraphs(graph) == [
        ("inductor", {"aten::linear": 3, "aten::relu": 2}),
        ("CPU", {"aten::log_softmax": 1, "aten::sort": 1}),
    ]
    assert {row.kind for row in graph.operators if row.supported} == {
        *("aten::linear", "aten::relu", "aten::log_softmax"),
    }
    torch.testing.assert_close(found, module(inputs), rtol=1e-5, atol=1e-6)


RANDOM_OPS: Mapping[str, Callable[..., Any]] = {
    "native_dropout": lambda x: torch.ops.aten.native_dropout(x, 0.5, True),
    "bernoulli": torch.ops.aten.bernoulli.default,
    "rand_like": torch.ops.aten.rand_like.default,
    "randn": lambda x: torch.ops.aten.randn(x.shape, device="cpu"),
    "randint": lambda x: torch.ops.aten.randint.low(2, 9, x.shape, device="cpu"),
}


@pytest.mark.parametrize("name", RANDOM_OPS)
def test_inductor_has_random_ops_unless_they_are_to_be_eagers(name: str) -> None:
    # given
    traced = make_fx(RANDOM_OPS[name], tracing_mode="fake")(torch.rand(4, 6))
    node = next(one for one in traced.graph.nodes if is_operator(one.target))
    own, eagers = (
        registry.load("compile")(parse_mode(mode)).adapter() for mode in ("compile", "compile,fallback_random=on")
    )
    # then
    assert own.supports(node).supported, own.supports(node)
    assert eagers.supports(node).reason.startswith("falls back to aten.")


@pytest.mark.slow
def test_inductor_trains_a_dropout() -> None:
    # given
    module, x = nn.Sequential(nn.Linear(6, 200), nn.Dropout(0.5)), torch.rand(4, 6)
    # when
    made = partition(module, x, mode="compile")
    output = made(x)
    output.sum().backward()
    # then half of the values are dropped, and have no gradient
    forward, _ = made.partitioning.graphs
    assert subgraphs(forward) == [("inductor", {"aten::linear": 1, "aten::dropout": 1})]
    dropped = output == 0
    assert 0.4 < dropped.float().mean() < 0.6
    kept = 2 * module[0](x).detach()
    torch.testing.assert_close(output.detach(), torch.where(dropped, torch.zeros(()), kept))
    assert isinstance(module[0].bias, torch.Tensor)
    torch.testing.assert_close(module[0].bias.grad, 2 * (~dropped).float().sum(0))
    torch.compiler.reset()


def test_the_lazy_core_has_the_batch_norm_that_a_training_calls_and_not_autograds() -> None:
    # given
    rows, ones, zeros = torch.rand(4, 3), torch.ones(3), torch.zeros(3)
    named = {
        "legit": torch.ops.aten._native_batch_norm_legit_functional.default,
        "native": torch.ops.aten.native_batch_norm.default,
    }
    adapter = registry.load("lazy")(parse_mode("lazy")).adapter()
    # when
    verdicts = {}
    for name, target in named.items():
        traced = make_fx(target, tracing_mode="fake")(rows, ones, zeros, zeros, ones, True, 0.1, 1e-5)
        node = next(one for one in traced.graph.nodes if one.target is target)
        verdicts[name] = adapter.supports(node)
    # then
    assert verdicts["legit"].reason == "aten::_native_batch_norm_legit fell back to the CPU"
    assert verdicts["native"].supported
