"""A model with a sort in parts on xla: prints each partition as JSON, and whose bits its output has.

python partitioned.py    # in the environment of torch_xla
"""

import json

import torch
from torch import nn

import numdrift


class MLP(nn.Module):
    def __init__(self, input_size: int = 28 * 28, output_size: int = 10, layers: tuple[int, int] = (128, 64)) -> None:
        super().__init__()
        self.fc1 = nn.Linear(input_size, layers[0])
        self.fc2 = nn.Linear(layers[0], layers[1])
        self.fc3 = nn.Linear(layers[1], output_size)
        self.relu = nn.ReLU()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        r2 = self.relu(self.fc2(self.relu(self.fc1(x))))
        out, _ = torch.sort(torch.log_softmax(self.fc3(r2), dim=1))
        return out


class SortedBetween(MLP):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        sort_r1, _ = torch.sort(self.relu(self.fc1(x)))
        return torch.log_softmax(self.fc3(self.relu(self.fc2(sort_r1))), dim=1)


torch.manual_seed(0)
inputs = torch.rand(32, 784)
modules = {"after": MLP().eval(), "between": SortedBetween().eval()}


@torch.no_grad()
def tell(name: str, module: nn.Module, *moved: str, percentage: float = 0.0, most: int = -1) -> None:
    """Partition a module, with some operators moved to the CPU, and say what became of it."""
    config = numdrift.PartitionConfig(
        ops_to_partition=set(moved), min_operator_percentage_threshold=percentage, max_subgraph_count=most
    )
    try:
        net = numdrift.partition(module, inputs, mode="xla", config=config)
    except ValueError as error:
        print(json.dumps({"name": name, "refused": str(error)}))
        return
    output, eager = net(inputs), module(inputs)
    whole = module.to("xla")(inputs.to("xla")).cpu()
    module.to("cpu")
    (graph,) = net.partitioning.graphs
    found = {
        "name": name,
        "supported": graph.percentage,
        "subgraphs": [[one.device, dict(one.operators)] for one in graph.subgraphs],
        "as xla": torch.equal(output, whole),
        "as cpu": torch.equal(output, eager),
    }
    print(json.dumps(found))


tell("default", modules["after"])
tell("sort", modules["after"], "aten::sort")
tell("between", modules["between"], "aten::sort")
tell("limited", modules["between"], "aten::sort", most=2)
tell("besides", modules["after"], "aten::sort", "aten::log_softmax", percentage=0.8)
tell("sort alone", modules["after"], "aten::linear", "aten::relu", "aten::log_softmax")
