"""Aten graphs of the CPU, executed op by op or lazily on another device."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
import torch.fx

from ..records.backend_work import SupportAnswer
from ..torch_private import copied_graph
from ..torch_private.partitioning import without_modes
from .one_node import OneNode, examples, one_node

Settle = Callable[[Sequence[torch.Tensor]], None]
"""Executes what is pending for tensors of a device, so that reading one of them does not execute it alone."""

Counters = Callable[[], Mapping[str, int]]

FALLBACK = "aten::"
"""With this prefix lazy cores count the ops that they gave to the CPU."""


def nothing_pending(tensors: Sequence[torch.Tensor]) -> None:
    """Settles on devices that execute an op when it is called."""


def graph_on(
    graph: torch.fx.GraphModule, device: str, settle: Settle = nothing_pending
) -> Callable[..., tuple[Any, ...]]:
    """What executes a graph on a device, with inputs and outputs on the CPU."""
    there = _moved(graph, device)

    def execute(*inputs: Any) -> tuple[Any, ...]:
        with without_modes(), torch.no_grad():
            results = there(*(_to(one, device) for one in inputs))
            settle([one for one in results if isinstance(one, torch.Tensor)])
            return tuple(_to(one, "cpu") for one in results)

    return execute


def asked_by_execution(
    node: torch.fx.Node,
    device: str,
    failure_at: str,
    settle: Settle = nothing_pending,
    counters: Counters = dict,
) -> SupportAnswer:
    """Whether a device can do a node: it is executed there once, on tensors of the same shapes and dtypes.

    It cannot where it raises and the CPU does not, and where `counters` count a fallback. Random generators are left as
    they were.
    """
    alone = one_node(node)
    before = counters()
    with torch.random.fork_rng(devices=[]):
        error = _failure(alone, graph_on(alone.graph, device, settle))
        if error is not None and _failure(alone, alone.graph) is None:
            return SupportAnswer(f"{type(error).__name__}: {_first_line(error)}", failure_at)
    after = counters()
    grown = {name: count for name, count in after.items() if count > before.get(name, 0)}
    fallen = sorted(name for name in grown if name.startswith(FALLBACK))
    if fallen:
        return SupportAnswer(f"{', '.join(fallen)} fell back to the CPU", failure_at)
    return SupportAnswer(instructions=tuple(sorted(name for name in grown if "::" in name)))


def _failure(alone: OneNode, execute: Callable[..., Any]) -> Exception | None:
    try:
        with torch.no_grad():
            execute(*examples(alone.inputs))
    except Exception as error:  # noqa: BLE001, a backend refuses with whatever it likes
        return error
    return None


def _first_line(error: Exception) -> str:
    return next(iter(str(error).splitlines()), "")


def _to(value: Any, device: str) -> Any:
    return value.detach().to(device) if isinstance(value, torch.Tensor) else value


def _moved(graph: torch.fx.GraphModule, device: str) -> torch.fx.GraphModule:
    """The graph with every device that its calls name replaced."""
    made = copied_graph(graph)
    for node in made.graph.nodes:
        named = {
            name: torch.device(device) if isinstance(value, torch.device) else value
            for name, value in node.kwargs.items()
        }
        args = tuple(
            torch.device(device) if isinstance(value, torch.device) else value for value in node.args
        )
        node.kwargs, node.args = named, args
    made.recompile()
    return made
