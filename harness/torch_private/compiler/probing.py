"""The graphs that Inductor compiles: observed with their inputs, compiled again, and read by probes.

Verified on torch 2.13.0.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

import torch

from ..patches import Patches, Undo
from ..presence import private
from .graph_stages import (
    AotCompiler,
    Compile,
    DynamoGraph,
    InnerCompilation,
    number_decomposed_calls,
    watch_aot,
    watch_compiled_calls,
    watch_dynamo,
    watch_inductor,
    without_graph_caches,
)

Boxed = Callable[[list[Any]], Any]
"""A compiled graph: takes the list of its inputs, which it may empty."""


def compile_again(compilation: InnerCompilation, module: torch.fx.GraphModule) -> Boxed:
    """Compile a graph with the inputs and options of an earlier compilation, even while a compiler is running."""
    # Leave out the options that describe the first compilation: its number, and whether CUDA graphs are possible.
    options = {name: value for name, value in compilation.options.items() if name not in ("graph_id", "cudagraphs")}
    return _compiled(module, list(compilation.inputs), options)


class CompiledGraphsWatcher(Protocol):
    """An observer of compiled graphs from their capture to each of their executions."""

    def around_dynamo(self, seen: DynamoGraph, compile_: Compile) -> Any:
        """Observe the compilation of a captured graph by `compile_`."""

    def around_aot(self, phase: str, compiler: AotCompiler) -> AotCompiler:
        """Return the compiler to call instead of a backend's compiler of an aten graph."""

    def around_inductor(self, seen: InnerCompilation, compile_: Compile) -> Any:
        """Observe Inductor's compilation of an aten graph by `compile_`."""

    def around_call(self, compiled: Any, inputs: Sequence[Any], execute: Compile) -> Any:
        """Observe the execution of a compiled graph by `execute`."""


def watch_compiled_graphs(watcher: CompiledGraphsWatcher) -> Undo:
    """Show every compiled graph to `watcher`, with the cache of captured graphs turned off.

    Inductor's code for a graph may still come from Inductor's cache. Raises NotAvailable, and then leaves no hook
    installed.
    """
    with Patches("compiled graphs") as patches:
        patches.also(without_graph_caches(of_inductor=False))
        patches.also(number_decomposed_calls())
        patches.also(watch_dynamo(watcher.around_dynamo))
        patches.also(watch_aot(watcher.around_aot))
        patches.also(watch_inductor(watcher.around_inductor))
        patches.also(watch_compiled_calls(watcher.around_call))
    return patches.undo


def compile_graph(module: torch.fx.GraphModule, inputs: Sequence[Any], *, backward: bool) -> Boxed:
    """Compile a graph of aten ops with Inductor and its current settings; `inputs` are tensors of one fake mode."""
    return _compiled(module, list(inputs), {"is_backward": backward})


def _compiled(module: torch.fx.GraphModule, inputs: list[Any], options: Mapping[str, Any]) -> Boxed:
    inner = private("torch._inductor.compile_fx", "compile_fx_inner")
    tracing = private("torch._guards", "tracing")
    # Give Inductor a new context: otherwise it would find the context of the current compilation, which has a different
    # fake mode. Without any context, Inductor does not look into its cache.
    input_mode = private("torch._guards", "detect_fake_mode")(inputs)
    context = None if input_mode is None else private("torch._guards", "TracingContext")(input_mode)
    with tracing(context), torch.no_grad():
        compiled: Boxed = inner(module, inputs, **options)
    return compiled


def copied_graph(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """Return a copy of a graph whose nodes and metadata can be changed without changing the original."""
    copied = torch.fx.GraphModule(module, copy.deepcopy(module.graph))
    copied.meta.update(module.meta)
    return copied


OF_THE_CAPTURE = ("grapharg", "example_value", "tensor_dict")
"""Metadata of dynamo's nodes that holds the script's tensors, or belongs to the current compilation."""


def undescribed_graph(graph: torch.fx.Graph) -> torch.fx.GraphModule:
    """Return a copy of a dynamo graph. The copy keeps nothing of the script alive and can be compiled on its own."""
    undescribed = torch.fx.GraphModule(graph.owning_module or {}, copy.deepcopy(graph))
    for node in undescribed.graph.nodes:
        for name in OF_THE_CAPTURE:
            node.meta.pop(name, None)
    return undescribed


def compile_captured(module: torch.fx.GraphModule, inputs: Sequence[Any], backend: str) -> Callable[..., Any]:
    """Compile a copy of a dynamo graph with a backend of torch.compile and Inductor's current settings.

    `inputs` are the tensors with which the copy will be called. The backward is compiled when it is first executed.
    """
    compiler = private("torch._dynamo.backends.registry", "lookup_backend")(backend)
    compiled: Callable[..., Any] = compiler(undescribed_graph(module.graph), list(inputs))
    return compiled


def fake_mode() -> Any:
    """Return a fake mode, in which tensors have no values."""
    return private("torch._subclasses.fake_tensor", "FakeTensorMode")()


class ProbeOp:
    """The op `numdrift::probe(Tensor x, int index) -> ()`, which shows a value to `show`, until `close`.

    The op accepts every layout of the value, so `show` receives the layout that the value has without a probe.
    """

    def __init__(self, show: Callable[[int, torch.Tensor], None]) -> None:
        self._library: Any = torch.library.Library("numdrift", "FRAGMENT")
        tags = (torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout)
        self._library.define("probe(Tensor x, int index) -> ()", tags=tags)
        self._library.impl("probe", lambda x, index: show(index, x), "CompositeExplicitAutograd")
        self._library.impl("probe", lambda x, index: None, "Meta")  # as in `define_show_op`
        self.operation = torch.ops.numdrift.probe.default
        private("torch.fx.node", "has_side_effect")(self.operation)

    def insert_after(self, node: torch.fx.Node, index: int) -> None:
        """Probe the value of a node."""
        graph = node.graph
        with graph.inserting_after(node):
            probe = graph.call_function(self.operation, (node, index))
        probe.meta["val"] = None

    def close(self) -> None:
        self._library._destroy()


def annotate(module: torch.fx.GraphModule, inputs: Sequence[Any], mode: Any) -> None:
    """Record the fake value of each node in its metadata, for `compile_graph`; `inputs` are fake tensors of `mode`."""
    remaining = iter(inputs)
    values: dict[torch.fx.Node, Any] = {}
    with mode, torch.no_grad():
        for node in module.graph.nodes:
            if node.op == "placeholder":
                values[node] = next(remaining)
            elif node.op == "call_function":
                args = torch.fx.node.map_arg(node.args, values.__getitem__)
                kwargs = torch.fx.node.map_arg(node.kwargs, values.__getitem__)
                values[node] = node.target(*args, **kwargs)
            if node.op != "output":
                node.meta["val"] = values[node]
