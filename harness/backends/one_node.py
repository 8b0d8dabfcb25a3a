"""Ask a backend about one aten node: make a graph of only this node, and execute it on the backend's device."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from ..hooks.node_kinds import TensorKind, Unanswerable
from ..records.tools.backend_work import SupportAnswer
from ..torch_private.compiler.partitioner import without_modes
from ..torch_private.compiler.probing import copied_graph


@dataclass(frozen=True, slots=True)
class OneNode:
    """A node as a graph. `graph` takes tensors of the kinds `inputs` and returns the node's tensors as a tuple."""

    graph: torch.fx.GraphModule
    inputs: tuple[TensorKind, ...]


def one_node(node: torch.fx.Node) -> OneNode:
    """Return the graph of a node. The `meta["val"]` of the node and of its inputs must be fake tensors.

    Raise Unanswerable if an input is not a tensor or has no static shape.
    """
    graph = torch.fx.Graph()
    kinds: list[TensorKind] = []
    placeholders: dict[torch.fx.Node, torch.fx.Node] = {}

    def placed(source: torch.fx.Node) -> torch.fx.Node:
        if source not in placeholders:
            value = source.meta.get("val")
            if not isinstance(value, torch.Tensor):
                raise Unanswerable(f"the input {source.name} of {node.target} is not a tensor")
            kinds.append(TensorKind.of(value))
            placeholders[source] = graph.placeholder(f"input_{len(placeholders)}")
        return placeholders[source]

    args = torch.fx.node.map_arg(node.args, placed)
    kwargs = torch.fx.node.map_arg(node.kwargs, placed)
    assert callable(node.target)
    call = graph.call_function(node.target, args, kwargs)
    value = node.meta.get("val")
    if isinstance(value, (list, tuple)):
        chosen = [at for at, result in enumerate(value) if isinstance(result, torch.Tensor)]
        graph.output(tuple(graph.call_function(operator.getitem, (call, at)) for at in chosen))
    else:
        graph.output((call,) if isinstance(value, torch.Tensor) else ())
    return OneNode(torch.fx.GraphModule(torch.nn.Module(), graph), tuple(kinds))


def examples(kinds: Sequence[TensorKind]) -> list[torch.Tensor]:
    """Return example tensors of these kinds, with values, on the CPU."""
    return [kind.example() for kind in kinds]


# The execution on a device, op by op or lazily, of aten graphs that were made on the CPU.

Settle = Callable[[Sequence[torch.Tensor]], None]
"""Executes all pending ops that compute these tensors together, so that reading one tensor executes nothing."""

Counters = Callable[[], Mapping[str, int]]

FALLBACK = "aten::"
"""The prefix of the counters in which lazy cores count the ops that they handed to the CPU."""


def nothing_pending(tensors: Sequence[torch.Tensor]) -> None:
    """Do nothing: the `Settle` for devices that execute an op when it is called."""


def graph_on(
    graph: torch.fx.GraphModule, device: str, settle: Settle = nothing_pending
) -> Callable[..., tuple[Any, ...]]:
    """Return a function that executes a graph on a device. It takes and returns tensors on the CPU."""
    return taking_cpu_tensors(naming_device(graph, device), device, settle)


def naming_device(graph: torch.fx.GraphModule, device: str) -> torch.fx.GraphModule:
    """Return a copy of the graph with this device in place of every device that its calls name."""
    copied = copied_graph(graph)
    for node in copied.graph.nodes:
        named = {
            name: torch.device(device) if isinstance(value, torch.device) else value
            for name, value in node.kwargs.items()
        }
        args = tuple(torch.device(device) if isinstance(value, torch.device) else value for value in node.args)
        node.kwargs, node.args = named, args
    copied.recompile()
    return copied


def taking_cpu_tensors(
    run: Callable[..., Any], device: str, settle: Settle = nothing_pending
) -> Callable[..., tuple[Any, ...]]:
    """Return a function that executes `run` on a device. It takes and returns tensors on the CPU."""

    def execute(*inputs: Any) -> tuple[Any, ...]:
        with without_modes(), torch.no_grad():
            results = run(*(to_device(value, device) for value in inputs))
            settle([value for value in results if isinstance(value, torch.Tensor)])
            return tuple(to_device(value, "cpu") for value in results)

    return execute


def answer_by_execution(
    node: torch.fx.Node, device: str, failure_at: str, settle: Settle = nothing_pending, counters: Counters = dict
) -> SupportAnswer:
    """Execute a node once on a device, on tensors of the same shapes and dtypes; return whether the device supports it.

    The device does not support the node if the execution raises on the device but not on the CPU, or if `counters`
    count a fallback. The CPU's random generator is left as it was.
    """
    alone = one_node(node)
    before = counters()
    with torch.random.fork_rng(devices=[]):
        error = _failure(alone, graph_on(alone.graph, device, settle))
        if error is not None and _failure(alone, alone.graph) is None:
            first = next(iter(str(error).splitlines()), "")
            return SupportAnswer(f"{type(error).__name__}: {first}", failure_at)
    # A lazy core counts each op by name: `aten::sort` was handed to the CPU, `lazy::mm` has a kernel in the core.
    grown = {name for name, count in counters().items() if count > before.get(name, 0)}
    fallen = sorted(name for name in grown if name.startswith(FALLBACK))
    if fallen:
        return SupportAnswer(f"{', '.join(fallen)} fell back to the CPU", failure_at)
    return SupportAnswer(instructions=tuple(sorted(name for name in grown if "::" in name)))


def _failure(alone: OneNode, execute: Callable[..., Any]) -> Exception | None:
    try:
        with torch.no_grad():
            execute(*examples(alone.inputs))
    except Exception as error:  # noqa: BLE001, a backend may raise anything
        return error
    return None


def to_device(value: Any, device: str) -> Any:
    return value.detach().to(device) if isinstance(value, torch.Tensor) else value
