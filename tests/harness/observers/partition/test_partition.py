"""Partitions by the toy backend, which has no sort of floating numbers, and by the modes that are at hand everywhere."""

from __future__ import annotations

import copy
import logging
from collections.abc import Iterator

import pytest
import torch
from torch import nn

from numdrift import PartitionConfig, partition
from numdrift.harness.errors import PartitionError, UsageError
from numdrift.harness.observers.partition.partitioned_module import PartitionedModule, partitioned
from numdrift.harness.records.tools.partition_record import GraphPartition

from .models import INPUTS, MLP, ToyAdapter


@pytest.fixture(autouse=True)
def _captured_anew() -> Iterator[None]:
    yield
    torch.compiler.reset()


@pytest.fixture
def inputs() -> torch.Tensor:
    return torch.rand(8, INPUTS, generator=torch.Generator().manual_seed(1))


def toy(
    module: nn.Module,
    inputs: object,
    config: PartitionConfig | None = None,
    adapter: ToyAdapter | None = None,
) -> PartitionedModule:
    return partitioned(module, inputs, adapter or ToyAdapter(), config or PartitionConfig(), lambda _: None)


def forward_of(module: PartitionedModule) -> GraphPartition:
    return module.partitioning.of_phase("forward")[0]


def placed(graph: GraphPartition) -> list[tuple[str, dict[str, int]]]:
    return [(one.device, dict(one.operators)) for one in graph.subgraphs]


def gradients(module: nn.Module, output: torch.Tensor) -> dict[str, torch.Tensor]:
    module.zero_grad()
    (output * torch.linspace(0.5, 1.5, output.numel()).view_as(output)).sum().backward()
    return {name: one.grad.clone() for name, one in module.named_parameters() if one.grad is not None}


def test_an_unsupported_operator_at_the_end_goes_to_the_cpu(inputs: torch.Tensor) -> None:
    # given
    module = MLP().eval()
    # when
    with torch.no_grad():
        made = toy(module, inputs)
        found = made(inputs)
    # then operators are counted as they were written
    graph = forward_of(made)
    assert graph.as_written and (graph.supported, graph.total) == (6, 7)
    assert placed(graph) == [
        ("toy", {"aten::linear": 3, "aten::relu": 2, "aten::log_softmax": 1}),
        ("CPU", {"aten::sort": 1}),
    ]
    [unsupported] = [row for row in graph.operators if not row.supported]
    assert unsupported.kind == "aten::sort" and unsupported.reason == "the toy sorts no torch.float32"
    assert unsupported.call.startswith("models.py:") and unsupported.configuration == "float32[8, 10]"
    # and the results are the module's
    assert torch.equal(found, module(inputs))


def test_too_many_subgraphs_are_an_error_that_says_both_numbers(inputs: torch.Tensor) -> None:
    with pytest.raises(ValueError) as caught, torch.no_grad():
        toy(MLP("first").eval(), inputs, PartitionConfig(max_subgraph_count=2))
    assert str(caught.value) == (
        "The partitioner has found 3 subgraphs which exceeds the specified max subgraph count of 2."
    )
    assert isinstance(caught.value, PartitionError) and (caught.value.found, caught.value.allowed) == (3, 2)


def test_a_supported_operator_is_moved_when_it_is_named(inputs: torch.Tensor) -> None:
    config = PartitionConfig(min_operator_percentage_threshold=0.8, ops_to_partition={"aten::log_softmax"})
    with torch.no_grad():
        graph = forward_of(toy(MLP().eval(), inputs, config))
    assert f"{graph.percentage:.2f}" == "85.71"
    assert placed(graph) == [
        ("toy", {"aten::linear": 3, "aten::relu": 2}),
        ("CPU", {"aten::log_softmax": 1, "aten::sort": 1}),
    ]
    [moved] = [row for row in graph.operators if row.kind == "aten::log_softmax"]
    assert moved.supported and moved.moved and moved.device == "CPU"


def test_the_log_has_the_founding_form(inputs: torch.Tensor, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "numdrift.partition")
    with torch.no_grad():
        partition(MLP().eval(), inputs, mode="cpu", config=PartitionConfig(ops_to_partition={"aten::sort"}))
    said = caplog.messages
    assert said[1:6] == [
        "The following operations are currently supported:",
        *("aten::linear", "aten::relu", "aten::log_softmax", "aten::sort"),
    ]
    assert "100.00% of arithmetic operations (7 of 7) are supported" in said
    assert "Num Partitions: 2" in said
    assert said[-3:] == [
        "Creating Partition #2 for device: CPU",
        "The following operators will be included in this partition:",
        "aten::sort:1",
    ]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (
            PartitionConfig(min_operator_percentage_threshold=0.9),
            "The partitioner has found 85.71% of operators (6 of 7) to be supported, which is below the specified "
            + "min operator percentage threshold of 90.00%.",
        ),
        (
            PartitionConfig(min_subgraph_size=2),
            "The partitioner has found a subgraph of 1 operator which is below the specified min subgraph size of 2.",
        ),
    ],
)
def test_other_limits_say_what_was_found(config: PartitionConfig, said: str, inputs: torch.Tensor) -> None:
    with pytest.raises(PartitionError) as caught, torch.no_grad():
        toy(MLP().eval(), inputs, config)
    assert str(caught.value) == said


def test_a_training_has_a_partition_of_its_backward_and_the_same_gradients(inputs: torch.Tensor) -> None:
    # given
    module, adapter = MLP("first"), ToyAdapter()
    plain = copy.deepcopy(module)
    # when
    made = toy(module, inputs, PartitionConfig(ops_to_partition={"aten::log_softmax"}), adapter)
    executed = adapter.executed
    found = made(inputs)
    # then both graphs are there before a backward has run, and the gradient of a moved operator is moved with it
    [backward] = made.partitioning.of_phase("backward")
    assert not backward.as_written
    on_cpu = [row.kind for row in backward.operators if row.moved]
    assert "aten::_log_softmax_backward_data" in on_cpu and "aten::threshold_backward" not in on_cpu
    # and results and gradients are the module's, computed by the backend
    assert torch.equal(found, plain(inputs))
    expected = gradients(plain, plain(inputs))
    assert {name: torch.equal(one, expected[name]) for name, one in gradients(module, found).items()} == (
        dict.fromkeys(expected, True)
    )
    assert adapter.executed > executed + 1


def test_support_is_asked_once_for_each_configuration_and_can_differ(inputs: torch.Tensor) -> None:
    class Sorting(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            return torch.sort(torch.sort(x)[0])[0], torch.sort(x.to(torch.int64))[0]

    adapter = ToyAdapter()
    with torch.no_grad():
        made = toy(Sorting(), inputs, adapter=adapter)
    rows = [row for row in forward_of(made).operators if row.kind == "aten::sort"]
    assert [(row.configuration, row.count, row.supported) for row in rows] == [
        ("float32[8, 24]", 2, False),
        ("int64[8, 24]", 1, True),
    ]
    assert adapter.asked == 3  # two sorts and the conversion


def test_buffers_and_the_generator_are_as_they_were_after_the_first_call() -> None:
    # given a module that writes to buffers and draws random numbers
    module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Dropout(0.5))
    before = copy.deepcopy(module.state_dict())
    state = torch.get_rng_state()
    # when
    made = partition(module, torch.rand(6, 4, generator=torch.Generator().manual_seed(0)), mode="cpu")
    # then
    assert torch.equal(torch.get_rng_state(), state)
    assert all(torch.equal(one, before[name]) for name, one in module.state_dict().items())
    # and a step in parts is a step of the module
    plain = copy.deepcopy(module)
    x = torch.rand(6, 4)
    torch.manual_seed(3)
    expected = plain(x)
    torch.manual_seed(3)
    assert torch.equal(made(x), expected)
    assert all(torch.equal(one, plain.state_dict()[name]) for name, one in module.state_dict().items())


def test_other_shapes_and_evaluation_have_partitions_of_their_own(inputs: torch.Tensor) -> None:
    module = MLP()
    made = toy(module, inputs)
    with torch.no_grad():
        assert torch.equal(made(inputs[:3]), module(inputs[:3]))
    assert [(one.graph, one.phase) for one in made.partitioning.graphs] == [
        (0, "forward"),
        (0, "backward"),
        (1, "forward"),
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"mode": "cpu,dtype=float64"}, "the key 'dtype' sets up a process"),
        ({"mode": "compile,kernel.tanh=fma"}, "a partition cannot swap kernels"),
        (
            {"config": PartitionConfig(ops_to_partition={"aten::sord"})},
            "no graph contains 'aten::sord'; did you mean 'aten::sort'",
        ),
    ],
)
def test_what_makes_no_sense_is_one_line(arguments: dict[str, object], said: str, inputs: torch.Tensor) -> None:
    with pytest.raises(UsageError, match=said), torch.no_grad():
        partition(MLP().eval(), inputs, **({"mode": "cpu"} | arguments))  # type: ignore[arg-type]


def test_a_call_that_is_several_operators_is_asked_about_one_by_one(inputs: torch.Tensor) -> None:
    class Normalized(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.nn.functional.normalize(x, dim=0)

    config = PartitionConfig(ops_to_partition={"aten::div"})
    with torch.no_grad():
        graph = forward_of(toy(Normalized(), inputs, config))
    moved = {row.kind: row.moved for row in graph.operators}
    assert moved.pop("aten::div") and moved and not any(moved.values())


def test_a_module_that_is_elsewhere_is_refused(inputs: torch.Tensor) -> None:
    with pytest.raises(UsageError, match="MLP is on meta; pass a module on the CPU"):
        toy(MLP().to("meta"), inputs)
