"""Inductor's lowering of one aten graph, without generating code: its operations, and its calls of ATen's kernels.

Verified on torch 2.13.0.
"""

from __future__ import annotations

import copy
import importlib
import importlib.metadata
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from ...errors import NotAvailable
from ..patches import Patches, Undo
from ..presence import private, require
from .graph_stages import around_inner_compile
from .probing import copied_graph, fake_mode


@dataclass(frozen=True, slots=True)
class Lowering:
    """The result of a lowering.

    operations: the names of the operations that Inductor would execute
    fallbacks: the operations that call ATen's kernels, because Inductor has no lowering
    """

    operations: tuple[str, ...]
    fallbacks: tuple[str, ...]


def lower(graph: torch.fx.GraphModule, inputs: Callable[[], Sequence[torch.Tensor]]) -> Lowering:
    """Lower a graph with Inductor's current settings.

    `inputs` returns example inputs, and is called within a fake mode. Random ops draw from Inductor's own generator,
    unless Inductor is set to draw eager's numbers.

    Raises Inductor's error for a graph that it cannot lower.
    """
    trace = private("torch.fx.experimental.proxy_tensor", "make_fx")
    decompositions = private("torch._inductor.decomposition", "select_decomp_table")
    lowering = private("torch._inductor.graph", "GraphLowering")
    virtual = private("torch._inductor.virtualized", "V")
    own_draws = private("torch._inductor.fx_passes.replace_random", "replace_random_passes")
    tracing = private("torch._guards", "tracing")
    mode = fake_mode()
    # Repeat what Inductor does before it generates code: decompose, replace random ops, lower node by node.
    with tracing(None), torch.no_grad():
        with mode:
            fakes = list(inputs())
            decomposed = trace(graph, decomposition_table=decompositions())(*fakes)
        with virtual.set_fake_mode(mode):
            own_draws(decomposed)
        lowered = lowering(decomposed, example_inputs=fakes, is_inference=True)
        with (
            virtual.set_fake_mode(mode),
            virtual.set_graph_handler(lowered),
            virtual.set_extern_kernel_nodes([]),
        ):
            lowered.run(*fakes)
    names = [(_name(operation), is_fallback(operation)) for operation in lowered.operations]
    return Lowering(tuple(name for name, _ in names if name), tuple(name for name, fell in names if name and fell))


def is_fallback(operation: Any) -> bool:
    """Return whether an operation of Inductor calls ATen's kernel because it has no lowering."""
    kind = type(operation).__name__
    return kind in FALLBACKS or kind.endswith("Fallback")


def _name(operation: Any) -> str:
    """Return an operation's name: the name of its aten op or library kernel, or the kind of its generated code.

    The name is "" for an operation that only unpacks a result.
    """
    kind = type(operation).__name__
    if kind == "MultiOutput":
        return ""
    overload = getattr(operation, "op_overload", None)
    if overload is not None:
        return str(overload)
    kernel = getattr(operation, "python_kernel_name", None)
    return str(kernel or type(getattr(operation, "data", operation)).__name__)


def compile_by_inductor(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Compile an aten graph whose outputs are a tuple, with Inductor's current settings and without gradients."""
    return _compiled(private("torch._inductor.compile_fx", "compile_fx"), graph, inputs)


def compile_by_backend(name: str, graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Compile an aten graph with the backend of torch.compile that has this name, without gradients."""
    return _compiled(private("torch._dynamo.backends.registry", "lookup_backend")(name), graph, inputs)


def _compiled(
    compile_: Callable[..., Callable[..., Any]], graph: torch.fx.GraphModule, inputs: Sequence[Any]
) -> Callable[..., Any]:
    with private("torch._guards", "tracing")(None), torch.no_grad():
        return compile_(copied_graph(graph), list(inputs))


# Observe how Inductor lowers the graphs of a training run: the result for each node, and the calls of ATen's kernels.
#
# A callback runs inside the compiler and must not raise. Verified on torch 2.13.0.

FALLBACKS = ("FallbackKernel", "ExternKernelMultiOut")
"""Classes of Inductor's IR that call ATen's kernel because there is no lowering, besides those named `...Fallback`.

Other classes that derive from FallbackKernel do not count: complex views, collectives, checks of memory.
"""

BOXES = ("TensorBox", "StorageBox", "ComputedBuffer", "MutableBox")


@dataclass(frozen=True, slots=True)
class LoweredNode:
    """A node of Inductor's input graph with its lowering.

    made: the class of the result, such as `Pointwise`, `Reduction`, `PermuteView` or `FallbackKernel`
    extern: the extern kernel that is called, "" for none
    reason: the reason why Inductor falls back to ATen's kernel, "" if it does not
    """

    node: torch.fx.Node
    made: str
    extern: str
    reason: str


def watch_lowering(
    show: Callable[[LoweredNode], None],
    failed: Callable[[torch.fx.Node, Exception], None],
    ended: Callable[[], None],
) -> Undo:
    """Call `show` for each lowered node, `failed` for a node whose lowering raises, `ended` after each graph.

    None of these functions may raise. Raises NotAvailable.
    """
    lowering = private("torch._inductor.graph", "GraphLowering")
    for name in ("run_node", "run"):
        require(lowering, name)
    shown_errors: list[Exception] = []

    def lowering_a_node(run_node: Callable[..., Any]) -> Callable[..., Any]:
        def watched(graph: Any, node: torch.fx.Node) -> Any:
            before = len(graph.operations)
            try:
                result = run_node(graph, node)
            except Exception as error:
                if not shown_errors:  # reported once, not again for each enclosing graph
                    failed(node, error)
                shown_errors.append(error)
                raise
            if node.op == "call_function":
                show(_lowered(node, result, graph.operations[before:]))
            return result

        return watched

    def lowering_a_graph(run: Callable[..., Any]) -> Callable[..., Any]:
        def watched(graph: Any, *args: Any) -> Any:
            shown_errors.clear()
            try:
                return run(graph, *args)
            finally:
                ended()

        return watched

    with Patches("Inductor's lowering") as patches:
        patches.wrap(lowering, "run_node", lowering_a_node)
        patches.wrap(lowering, "run", lowering_a_graph)
    return patches.undo


def _lowered(node: torch.fx.Node, result: Any, operations: Sequence[Any]) -> LoweredNode:
    """Describe a lowered node; `operations` are the operations that Inductor has added to its program for the node."""
    for operation in operations:
        if is_fallback(operation):
            overload = str(getattr(operation, "op_overload", ""))
            return LoweredNode(node, type(operation).__name__, overload, _reason(node))
    result_class = _class_of(result)
    externs = [operation for operation in operations if getattr(operation, "python_kernel_name", None)]
    if externs and result_class not in ("Pointwise", "Reduction"):
        return LoweredNode(node, type(externs[-1]).__name__, str(externs[-1].python_kernel_name), "")
    return LoweredNode(node, result_class, "", "")


def _class_of(result: Any) -> str:
    """Return the class of a result without the boxes around it; "" for a value that is not Inductor's."""
    while type(result).__name__ in BOXES:
        result = result.data
    if isinstance(result, (list, tuple)):
        return _class_of(result[0]) if result else ""
    return type(result).__name__ if type(result).__module__.startswith("torch._inductor") else ""


def _reason(node: torch.fx.Node) -> str:
    lowering = importlib.import_module("torch._inductor.lowering")
    unsupported = getattr(lowering, "fallback_node_due_to_unsupported_type", None)
    if unsupported is not None and unsupported(node):
        # The dtypes of the node's inputs and outputs for which Inductor generates no code.
        refused = private("torch._inductor.lowering", "unsupported_output_tensor")
        values = [neighbour.meta.get("val") for neighbour in (*node.all_input_nodes, node)]
        tensors = [tensor for tensor in values if isinstance(tensor, torch.Tensor)]
        kinds = dict.fromkeys(str(tensor.dtype).removeprefix("torch.") for tensor in tensors if refused(tensor))
        return f"Inductor generates no code for {' and '.join(kinds)} tensors: ATen's kernel is called"
    registered = getattr(lowering, "lowerings", {}).get(node.target)
    if registered is None or getattr(registered, "_is_fallback_handler", False):
        return f"Inductor has no lowering for {node.target}: ATen's kernel is called"
    return f"Inductor's lowering of {node.target} calls ATen's kernel for this configuration"


class _LoweredOnly(Exception):
    """Raised when Inductor is about to generate code: the lowering is done."""


@contextmanager
def inductor_without_execution() -> Iterator[None]:
    """Make Inductor lower graphs within the context without generating code; their outputs are zeros.

    Raises NotAvailable.
    """
    lowering = private("torch._inductor.graph", "GraphLowering")
    require(lowering, "compile_to_module")

    def inner(
        module: torch.fx.GraphModule, inputs: Any, options: Mapping[str, Any], compile_: Callable[[], Any]
    ) -> Any:
        before = torch.fx.GraphModule(module, copy.deepcopy(module.graph))
        try:
            return compile_()
        except Exception as error:
            if not isinstance(getattr(error, "inner_exception", error), _LoweredOnly):
                raise
        return _stand_in(before)

    def compile_to_module(*_: Any) -> Any:
        raise _LoweredOnly

    with Patches("an Inductor that executes nothing") as patches:
        patches.also(around_inner_compile(patches.owner, inner))
        patches.wrap(lowering, "compile_to_module", lambda before: compile_to_module)
    try:
        yield
    finally:
        patches.undo()


def _stand_in(module: torch.fx.GraphModule) -> Callable[[list[Any]], Any]:
    """Return a replacement for a compiled graph. It returns zeros in the shapes that follow from its inputs."""
    fake_mode = private("torch._subclasses.fake_tensor", "FakeTensorMode")

    def run(inputs: list[Any]) -> Any:
        mode = fake_mode(allow_non_fake_inputs=True)
        fake_inputs = [mode.from_tensor(value) if isinstance(value, torch.Tensor) else value for value in inputs]
        inputs.clear()  # as a compiled graph does: nothing else frees the activations of a backward
        try:
            with mode, torch.no_grad():
                outputs = module(*fake_inputs)
        except Exception as error:
            raise NotAvailable("the dry run of a compiled graph", str(error).splitlines()[0]) from error
        # The strides matter as well as the shapes: the graphs that follow were compiled for these strides.
        return [
            torch.empty_strided(output.shape, output.stride(), dtype=output.dtype, device=output.device).zero_()
            if isinstance(output, torch.Tensor)
            else output
            for output in outputs
        ]

    run._boxed_call = True  # type: ignore[attr-defined]
    return run
