"""Composite ops kept whole in Inductor's graphs: `decompose.linear=off`.

Inductor receives a graph in which each call of the op is one node, and its backward another. Before lowering, the
traced nodes are restored, so the compiled code stays the same.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Container, Sequence
from itertools import takewhile
from typing import Any

import torch
from torch.fx import Node
from torch.fx.node import map_arg

from numdrift.harness.torch_private import operators
from numdrift.harness.torch_private.compiler import composite_ops
from numdrift.harness.torch_private.compiler.composite_ops import (
    autograd_numbers,
    change_around_inner_compile,
    traced_graph,
    traced_node,
)
from numdrift.harness.torch_private.operators import overloads_of
from numdrift.harness.torch_private.patches import Patches
from numdrift.harness.torch_private.registered_kernels import OpaqueOps

from ..expectation import tensors_in
from .swap import Target
from .whole_graph import fold, is_folded, unfold
from .whole_groups import CALL, CompositeCall, Group, NamedNode, groups_of

Original = Callable[..., Any]


def is_composite(op: str) -> bool:
    """Check whether torch decomposes an overload of the op before autograd, as it does for `linear`."""
    return any(map(operators.is_composite, overloads_of(op.partition(".")[0])))


class WholeComposites:
    """Records calls of composite ops while compilers trace, and folds each into one node, until `close`."""

    def __init__(self, ops: Container[str]) -> None:
        self._ops = ops
        self._calls: list[CompositeCall] = []
        self._numbers: dict[str, int] = {}
        self._groups: dict[int, Group] = {}
        self._opaque_ops = OpaqueOps()
        self._opaque: dict[str, Any] = {}
        self._running = threading.local()
        self._patches = Patches("swapped composite ops")

    def covers(self, target: Target) -> bool:
        """Check whether calls of this overload are recorded."""
        return target.composite and not target.writes and target.op in self._ops

    def install(self) -> None:
        def fold_calls(module: torch.fx.GraphModule) -> None:
            if groups := groups_of(module.graph, self._calls):
                module.graph = fold(module.graph, groups, self._opaque_op)

        def unfold_calls(module: torch.fx.GraphModule) -> None:
            if is_folded(module.graph):
                unfold(module.graph)
                module.recompile()

        self._patches.also(change_around_inner_compile(fold_calls, unfold_calls))

    def replace_python_kernels(self, target: Target, replacement: Callable[[Original], Original]) -> None:
        """Also replace torch's Python implementations of the op."""
        self._patches.also(composite_ops.replace_python_kernels(target.overload, replacement))

    def close(self) -> None:
        self._patches.undo()
        self._opaque_ops.close()

    def followed(self, target: Target, original: Original) -> Original:
        """Wrap torch's implementation of the op to record the nodes of its calls while a compiler traces."""

        def call(*args: Any, **kwargs: Any) -> Any:
            graph = traced_graph()
            if graph is None or getattr(self._running, "inside", False):
                return original(*args, **kwargs)
            # The nodes of a call follow the node that was last before the call; inner calls are part of the call.
            before = next(iter(reversed(graph.nodes)), None)
            self._running.inside = True
            try:
                result = original(*args, **kwargs)
            finally:
                self._running.inside = False
            nodes = list(takewhile(lambda node: node is not before, reversed(graph.nodes)))
            results = [traced_node(tensor) for tensor in tensors_in(result)]
            if not nodes or not results or any(node not in nodes for node in results):
                return result
            number = len(self._calls)
            for node in nodes:
                node.meta[CALL] = number
            inputs = [*tensors_in(list(args)), *tensors_in(list(kwargs.values()))]
            try:
                named, keywords = _named(tuple(args)), _named(dict(kwargs))
            except LookupError:  # an opaque op then represents the call
                named, keywords = None, {}
            self._calls.append(
                CompositeCall(
                    number,
                    target.op.partition(".")[0],
                    target.overload,
                    named,
                    keywords,
                    {node.name: node.meta["val"] for node in results if node is not None},
                    autograd_numbers(tensors_in(result), inputs),
                )
            )
            return result

        return call

    def _opaque_op(self, group: Group) -> tuple[Any, int]:
        """Return the op that computes the results of all groups with this group's name, for example
        `numdrift::linear_backward(gradients, saved, number)`, and return this group's number."""
        number = self._numbers.setdefault(group.text, len(self._numbers))
        self._groups.setdefault(number, group)
        if group.name not in self._opaque:
            tensors = "Tensor[] gradients, Tensor[] saved" if group.backward else "Tensor[] saved"
            schema = f"({tensors}, int number, *, SymInt[] sizes=[]) -> Tensor[]"
            self._opaque[group.name] = self._opaque_ops.define(group.name, schema, self._compute, self._compute)
        return self._opaque[group.name], number

    def _compute(self, *args: Any, sizes: Sequence[Any] = ()) -> list[torch.Tensor]:
        *tensors, number = args
        group = self._groups[number]
        inputs = [node for inputs_of_kind in group.kinds_of_inputs for node in inputs_of_kind]
        input_values = [*(tensor for tensor_list in tensors for tensor in tensor_list), *sizes]
        values: dict[Node, Any] = dict(zip(inputs, input_values, strict=True))
        for node in group.members:
            args, kwargs = map_arg((node.args, node.kwargs), values.__getitem__)
            assert callable(node.target)
            values[node] = node.target(*args, **kwargs)
        return [values[node] for node in group.outputs]


def _named(value: Any) -> Any:
    """Return arguments with node names in place of tensors.

    Raises LookupError for a size that the graph computes, and for a tensor without a node.
    """
    if isinstance(value, torch.Tensor):
        node = traced_node(value)
        if node is None:
            raise LookupError("a tensor without a node")
        return NamedNode(node.name)
    if isinstance(value, (torch.SymInt, torch.SymFloat, torch.SymBool)):
        raise LookupError(f"{value} is computed in the graph")  # noqa: TRY004  (the type is right, but no name exists)
    if isinstance(value, dict):
        return {name: _named(element) for name, element in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)(_named(element) for element in value)
    return value
