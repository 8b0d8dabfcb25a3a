"""Inductor's lowering of a training's graphs, watched: what each node becomes, and what is handed to ATen's
kernels.

What a hook here calls runs inside the compiler and must not raise. Verified on torch 2.13.0.
"""

from __future__ import annotations

import copy
import importlib
import importlib.metadata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

import torch

from ..errors import NotAvailable
from .graph_stages import Undo, replace_attribute, undo_all
from .presence import private, require

FALLBACKS = ("FallbackKernel", "ExternKernelMultiOut")
"""Classes of Inductor's IR that call ATen's kernel for want of a lowering, besides those whose names end in
`Fallback`. Other classes that derive from FallbackKernel are none: complex views, collectives, checks of
memory."""

BOXES = ("TensorBox", "StorageBox", "ComputedBuffer", "MutableBox")


def code_generators() -> Mapping[str, str]:
    """The versions of what Inductor generates code for, by name, where it is installed."""
    found = {}
    for name in ("triton",):
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


@dataclass(frozen=True, slots=True)
class LoweredNode:
    """A node of the graph that Inductor was handed, and what its lowering has made of it: the class of the
    result (`Pointwise`, `Reduction`, `PermuteView`, `FallbackKernel`), and the extern kernel that is called,
    "" for none.

    `reason` says why Inductor falls back to ATen's kernel, "" where it does not.
    """

    node: torch.fx.Node
    made: str
    extern: str
    reason: str


def watch_lowering(
    seen: Callable[[LoweredNode], None],
    failed: Callable[[torch.fx.Node, Exception], None],
    ended: Callable[[], None],
) -> Undo:
    """Have `seen` told each node that Inductor lowers, `failed` the one whose lowering raises, `ended` the
    end of each graph. None of them may raise. Raises NotAvailable."""
    lowering = private("torch._inductor.graph", "GraphLowering")
    for name in ("run_node", "run"):
        require(lowering, name)
    run_node, run = lowering.run_node, lowering.run
    told: list[Exception] = []

    def run_node_(graph: Any, node: torch.fx.Node) -> Any:
        before = len(graph.operations)
        try:
            result = run_node(graph, node)
        except Exception as error:
            if not told:  # not again for each graph around it
                failed(node, error)
            told.append(error)
            raise
        if node.op == "call_function":
            seen(_lowered(node, result, graph.operations[before:]))
        return result

    def run_(graph: Any, *args: Any) -> Any:
        told.clear()
        try:
            return run(graph, *args)
        finally:
            ended()

    return undo_all(
        [replace_attribute(lowering, "run_node", run_node_), replace_attribute(lowering, "run", run_)]
    )


def _lowered(node: torch.fx.Node, result: Any, operations: Sequence[Any]) -> LoweredNode:
    """What one node became; `operations` are those that Inductor has added to its program meanwhile."""
    for operation in operations:
        name = type(operation).__name__
        if name in FALLBACKS or name.endswith("Fallback"):
            return LoweredNode(node, name, str(getattr(operation, "op_overload", "")), _reason(node))
    made = _class_of(result)
    externs = [one for one in operations if getattr(one, "python_kernel_name", None)]
    if externs and made not in ("Pointwise", "Reduction"):
        return LoweredNode(node, type(externs[-1]).__name__, str(externs[-1].python_kernel_name), "")
    return LoweredNode(node, made, "", "")


def _class_of(result: Any) -> str:
    """The class of what computes a result, without the boxes around it; "" for what is no value of
    Inductor's."""
    while type(result).__name__ in BOXES:
        result = result.data
    if isinstance(result, (list, tuple)):
        return _class_of(result[0]) if result else ""
    return type(result).__name__ if type(result).__module__.startswith("torch._inductor") else ""


def _reason(node: torch.fx.Node) -> str:
    lowering = importlib.import_module("torch._inductor.lowering")
    unsupported = getattr(lowering, "fallback_node_due_to_unsupported_type", None)
    if unsupported is not None and unsupported(node):
        return f"Inductor generates no code for {_unsupported_types(node)} tensors: ATen's kernel is called"
    registered = getattr(lowering, "lowerings", {}).get(node.target)
    if registered is None or getattr(registered, "_is_fallback_handler", False):
        return f"Inductor has no lowering for {node.target}: ATen's kernel is called"
    return f"Inductor's lowering of {node.target} hands this configuration to ATen's kernel"


def _unsupported_types(node: torch.fx.Node) -> str:
    """The dtypes of what goes into a node and comes out of it that Inductor generates no code for."""
    refused = private("torch._inductor.lowering", "unsupported_output_tensor")
    values = [one.meta.get("val") for one in (*node.all_input_nodes, node)]
    tensors = [one for one in values if isinstance(one, torch.Tensor)]
    return " and ".join(
        dict.fromkeys(str(one.dtype).removeprefix("torch.") for one in tensors if refused(one))
    )


class _LoweredOnly(Exception):
    """Raised where Inductor is about to generate code: the lowering is done."""


@contextmanager
def inductor_without_execution() -> Iterator[None]:
    """Within the context graphs are lowered by Inductor; no code is generated for them, and where they would
    be executed their outputs are zeros. Raises NotAvailable."""
    compiling = importlib.import_module("torch._inductor.compile_fx")
    lowering = private("torch._inductor.graph", "GraphLowering")
    original = private("torch._inductor.compile_fx", "_compile_fx_inner")
    require(lowering, "compile_to_module")

    def inner(module: torch.fx.GraphModule, inputs: Any, *args: Any, **kwargs: Any) -> Any:
        before = torch.fx.GraphModule(module, copy.deepcopy(module.graph))
        try:
            return original(module, inputs, *args, **kwargs)
        except Exception as error:
            if not isinstance(getattr(error, "inner_exception", error), _LoweredOnly):
                raise
        return _stand_in(before)

    def compile_to_module(*_: Any) -> Any:
        raise _LoweredOnly

    undo = undo_all(
        [
            replace_attribute(compiling, "_compile_fx_inner", inner),
            replace_attribute(lowering, "compile_to_module", compile_to_module),
        ]
    )
    try:
        yield
    finally:
        undo()


def _stand_in(module: torch.fx.GraphModule) -> Callable[[list[Any]], Any]:
    """What is called in place of a compiled graph: zeros of the shapes that its inputs lead to."""
    fake_mode = private("torch._subclasses.fake_tensor", "FakeTensorMode")

    def run(inputs: list[Any]) -> Any:
        mode = fake_mode(allow_non_fake_inputs=True)
        given = [mode.from_tensor(one) if isinstance(one, torch.Tensor) else one for one in inputs]
        inputs.clear()
        try:
            with mode, torch.no_grad():
                outputs = module(*given)
        except Exception as error:
            raise NotAvailable("the dry run of a compiled graph", str(error).splitlines()[0]) from error
        return [_zeros(one) for one in outputs]

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


def _zeros(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device).zero_()
