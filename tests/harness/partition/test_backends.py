"""The modes' own backends: each is asked, computes what it supports, and gives what the module gives."""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping

import pytest
import torch

from numdrift import PartitionConfig, partition
from numdrift.harness.errors import NotAvailable, PartitionError, UsageError
from numdrift.harness.partition.module import PartitionedModule
from numdrift.harness.partition.record import GraphPartition

from .models import INPUTS, MLP


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
    # and it executes each operator by the kernel that eager has
    assert all(map(torch.equal, trained(made, inputs), trained(plain, inputs)))
    torch.compiler.reset()


def test_xla_says_that_it_is_not_here(inputs: torch.Tensor) -> None:
    with pytest.raises(NotAvailable, match=r"torch_xla is not installed .*python=/path/to/its/python"):
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
