"""Reads and writes of a buffer that change places."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, fx

from ..case import Cases
from ..training import Training, replace

CASES = Cases("order", __name__)


def replace_centred(training: Training, forward: Callable[[Tensor, Tensor], Tensor]) -> None:
    """Let the module `centred` compute `forward` of its input and its running mean."""
    centred = training.model.get_submodule("centred")
    mean = centred.get_buffer("mean")
    replace(centred, lambda x: forward(x, mean))


CASES.of_modes(
    "buffer_read_again_after_write",
    "The compiled backward subtracts the running mean again, which the forward has overwritten (pytorch#197039).",
    models=("centred",),
    modes=("compile",),
    culprit={"phase": "backward", "kind": "order", "op": "sub"},
)


@CASES.planted(models=("centred",), modes=("compile",), culprit={"phase": "forward", "kind": "order", "op": "sub"})
def buffer_read_after_write(training: Training) -> None:
    """The compiler writes the running mean before the subtraction that reads its earlier value."""
    torch._inductor.config.post_grad_custom_post_pass = write_early


def write_early(graph: fx.Graph) -> None:
    """Move each write of an input behind the node whose value is written."""
    for write in [node for node in graph.nodes if node.target is torch.ops.aten.copy_.default]:
        source = write.args[1]
        assert isinstance(source, fx.Node)
        source.append(write)
        for node in [node for node in graph.nodes if write.args[0] in node.all_input_nodes and node is not write]:
            if not in_need(node, source):
                write.append(node)


def in_need(node: fx.Node, source: fx.Node) -> bool:
    """Whether the source is computed from the node's value."""
    needed, seen = [source], set[fx.Node]()
    while needed:
        current = needed.pop()
        if current is node:
            return True
        if current not in seen:
            seen.add(current)
            needed += current.all_input_nodes
    return False


@CASES.planted(models=("centred",), modes=("cpu", "compile"), culprit={"phase": "forward", "module": "centred"})
def buffer_updated_first(training: Training) -> None:
    """The running mean is updated before it is subtracted."""

    def forward(x: Tensor, mean: Tensor) -> Tensor:
        mean.mul_(0.75).add_(x.detach().mean(0), alpha=0.25)
        return torch.tanh(x - mean)

    replace_centred(training, forward)


@CASES.planted(models=("centred",), modes=("cpu", "compile"), culprit={"phase": "forward", "module": "centred"})
def buffer_of_the_batch_itself(training: Training) -> None:
    """The mean of the batch itself is subtracted, and not the running one."""

    def forward(x: Tensor, mean: Tensor) -> Tensor:
        centred = x - x.detach().mean(0)
        mean.mul_(0.75).add_(x.detach().mean(0), alpha=0.25)
        return torch.tanh(centred)

    replace_centred(training, forward)


@CASES.planted(models=("centred",), modes=("cpu", "compile"), culprit={"phase": "forward", "module": "centred"})
def buffer_updated_twice(training: Training) -> None:
    """The running mean takes in each batch twice."""

    def forward(x: Tensor, mean: Tensor) -> Tensor:
        y = torch.tanh(x - mean)
        for _ in range(2):
            mean.mul_(0.75).add_(x.detach().mean(0), alpha=0.25)
        return y

    replace_centred(training, forward)


@CASES.planted(models=("centred",), modes=("cpu", "compile"), culprit={"phase": "forward", "module": "centred"})
def buffer_not_updated_at_first(training: Training) -> None:
    """The first three batches are missing in the running mean."""

    def forward(x: Tensor, mean: Tensor) -> Tensor:
        y = torch.tanh(x - mean)
        if training.number >= 3:
            mean.mul_(0.75).add_(x.detach().mean(0), alpha=0.25)
        return y

    replace_centred(training, forward)
