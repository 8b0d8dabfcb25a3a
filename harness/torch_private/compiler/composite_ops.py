"""Ops that torch composes from other ops above autograd: find their nodes, and change the graphs that Inductor gets."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterable
from typing import Any

import torch

from ..patches import Patches, Undo
from ..presence import private, require
from .graph_stages import around_inner_compile

PYTHON_KEYS = ("CompositeImplicitAutograd", "Autograd")
"""The keys under which torch registers an op's Python decompositions, beside its kernel in C++."""


def traced_graph() -> torch.fx.Graph | None:
    """Return the graph that a compiler is writing on this thread, None if there is none."""
    tracing = private("torch.fx.experimental.proxy_tensor", "get_proxy_mode")()
    return None if tracing is None else tracing.tracer.graph


def traced_node(tensor: torch.Tensor) -> torch.fx.Node | None:
    """Return the node that represents a tensor in the graph that is being written."""
    tracing = private("torch.fx.experimental.proxy_tensor", "get_proxy_mode")()
    slot_of = private("torch.fx.experimental.proxy_tensor", "get_proxy_slot")
    # Functionalization wraps the tensor to which the node belongs.
    if isinstance(tensor, private("torch._subclasses.functional_tensor", "FunctionalTensor")):
        tensor = private("torch", "_from_functional_tensor")(tensor.elem)
    slot = None if tracing is None else slot_of(tensor, tracing.tracer, None)
    return None if slot is None else slot.proxy.node


def autograd_numbers(results: Iterable[torch.Tensor], inputs: Iterable[torch.Tensor]) -> frozenset[int]:
    """Return the sequence numbers of the autograd nodes that lead from `results` back to `inputs`.

    A traced backward op carries the number of its node.
    """
    boundary = {tensor.grad_fn for tensor in inputs}
    numbers: dict[Any, int] = {}
    pending = [tensor.grad_fn for tensor in results]
    while pending:
        node = pending.pop()
        if node is None or node in boundary or node in numbers or node.name().endswith("AccumulateGrad"):
            continue
        require(node, "_sequence_nr")
        numbers[node] = node._sequence_nr()
        pending += [following for following, _ in node.next_functions]
    return frozenset(numbers.values())


def replace_python_kernels(
    overload: Any, replacement: Callable[[Callable[..., Any]], Callable[..., Any]]
) -> Callable[[], None]:
    """Replace an op's Python kernels, which compilers prefer to its C++ kernel; return the undo.

    `replacement` takes the old kernel and returns the new one.
    """
    require(overload, "py_kernels")
    kernels, cached = overload.py_kernels, overload._dispatch_cache
    keys = [getattr(private("torch._C", "DispatchKey"), name) for name in PYTHON_KEYS]
    before = {key: kernels[key] for key in keys if key in kernels}

    def undo() -> None:
        kernels.update(before)
        cached.clear()

    kernels.update({key: replacement(kernel) for key, kernel in before.items()})
    cached.clear()  # the overload caches its dispatch
    return undo


def is_operator(target: Any) -> bool:
    """Return whether a node calls an overload of an op, not a Python function."""
    return isinstance(target, private("torch._ops", "OpOverload"))


Change = Callable[[torch.fx.GraphModule], None]


def change_around_inner_compile(before: Change, inside: Change) -> Undo:
    """Apply `before` to each graph before Inductor's inner compile, and `inside` at the start of the inner compile.

    Returns the undo. A wrapper of the inner compile runs between the two, and sees the graph as `before` has left it.
    """
    compiling = importlib.import_module("torch._inductor.compile_fx")
    outer_names = ("compile_fx_forward", "compile_fx_backward")
    for name in outer_names:
        private("torch._inductor.compile_fx", name)

    def outer(original: Callable[..., Any]) -> Callable[..., Any]:
        def compile_graph(graph: Any, *args: Any, inner_compile: Callable[..., Any], **kwargs: Any) -> Any:
            def inner(graph: Any, *args: Any, **kwargs: Any) -> Any:
                before(graph)
                return inner_compile(graph, *args, **kwargs)

            return original(graph, *args, inner_compile=inner, **kwargs)

        return compile_graph

    def compile_inside(graph: Any, inputs: Any, options: Any, compile_: Callable[[], Any]) -> Any:
        inside(graph)
        return compile_()

    with Patches("ops that stay whole") as patches:
        for name in outer_names:
            patches.wrap(compiling, name, outer)
        patches.also(around_inner_compile(patches.owner, compile_inside))
    return patches.undo
