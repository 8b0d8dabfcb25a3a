"""A planned graph as something that is executed: each subgraph where it belongs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
import torch.fx

from ...backends.one_node import extent_of
from ...hooks.backend_adapter import Adapter
from ...records.partition_record import CPU
from .partition_plan import Plan


def executable(plan: Plan, adapter: Adapter) -> torch.fx.GraphModule:
    """Compile the backend's subgraphs; those of the CPU run op by op, by torch's own kernels."""
    for name, device in plan.placed:
        if device != CPU:
            subgraph = getattr(plan.module, name)
            delattr(plan.module, name)
            plan.module.add_module(name, _placed(subgraph, adapter))
    plan.module.recompile()
    return plan.module


class Placed(torch.nn.Module):
    """A subgraph on a backend. Its results have the strides that the rest of the graph was traced with."""

    def __init__(self, run: Callable[..., Any], strides: Sequence[tuple[int, ...] | None], alone: bool) -> None:
        super().__init__()
        self._run = run
        self._strides = strides
        self._alone = alone

    def forward(self, *inputs: Any) -> Any:
        results = self._run(*inputs)
        laid_out = [_laid_out(one, stride) for one, stride in zip(results, self._strides, strict=True)]
        return laid_out[0] if self._alone else tuple(laid_out)


def _placed(subgraph: torch.fx.GraphModule, adapter: Adapter) -> Placed:
    output = subgraph.graph.output_node()
    given = output.args[0]
    alone = isinstance(given, torch.fx.Node)
    nodes: Any = (given,) if alone else given
    output.args = (tuple(nodes),)
    subgraph.recompile()
    inputs = [node.meta.get("val") for node in subgraph.graph.nodes if node.op == "placeholder"]
    run = adapter.compile_graph(subgraph, inputs)
    return Placed(run, [_stride(node.meta.get("val")) for node in nodes], alone)


def _stride(value: Any) -> tuple[int, ...] | None:
    return tuple(value.stride()) if isinstance(value, torch.Tensor) else None


def _laid_out(value: Any, stride: tuple[int, ...] | None) -> Any:
    if stride is None or not isinstance(value, torch.Tensor) or tuple(value.stride()) == stride:
        return value
    if extent_of(value.shape, stride) < value.numel():  # what was expanded has memory of its own now
        return value
    return torch.empty_strided(value.shape, stride, dtype=value.dtype, device=value.device).copy_(value)
