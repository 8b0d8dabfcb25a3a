"""The stages of torch.compile, watched from outside: the graphs of dynamo and AOTAutograd, and Inductor's input.

Each `watch_...` installs one hook and returns the function that removes it. The callback decides what to do with the
stage. It must not raise, since it runs inside the compiler. Verified on torch 2.13.0."""

from __future__ import annotations

import importlib
import itertools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from ..patches import Patches, Undo, wrapped
from ..presence import private, require

Compile = Callable[[], Any]

CALL = "numdrift_call"
"""The key under which a traced node keeps the number of the call from which it was decomposed."""


@dataclass(frozen=True, slots=True)
class GraphInput:
    """An input of a dynamo graph.

    source: the expression that it comes from, such as `L['self']._parameters['w']`
    example: the script's own tensor, or the size; None if the tensor no longer exists
    """

    name: str
    source: str
    example: Any


@dataclass(frozen=True, slots=True)
class DynamoGraph:
    """The graph that dynamo passes to its backend.

    break_reason, break_line: the reason and the line of the graph break that ended the graph, "" without a break
    file, locals: the file of the Python frame that was traced, and the names of the frame's variables in order
    """

    graph: torch.fx.Graph
    inputs: Sequence[GraphInput]
    backend: str
    break_reason: str
    break_line: str
    file: str
    locals: Sequence[str]


def watch_dynamo(around: Callable[[DynamoGraph, Compile], Any]) -> Undo:
    """Make `around` compile each dynamo graph: `around` calls its last argument, and returns the result."""
    holder = private("torch._dynamo.output_graph", "OutputGraph")
    require(holder, "_call_user_compiler")

    def seen(output: Any, module: torch.fx.GraphModule) -> DynamoGraph:
        inputs = []
        for node in module.graph.nodes:
            if node.op == "placeholder":
                argument = node.meta.get("grapharg")
                source = getattr(argument, "source", None) or getattr(node, "_dynamo_source", None)
                name = getattr(source, "name", "")  # a method in older versions of torch
                try:
                    example = getattr(argument, "example", None)
                except AssertionError:  # torch raises it if the tensor no longer exists
                    example = None
                inputs.append(GraphInput(node.name, str(name() if callable(name) else name), example))
        # A graph that ends without a break also has a reason, but the `graph_break` of this reason is False.
        reason = getattr(module, "compile_subgraph_reason", None)
        broken = reason is not None and getattr(reason, "graph_break", False)
        lines = str(getattr(reason, "reason", "")).strip().splitlines()
        stack = list(getattr(reason, "user_stack", ()))
        code = getattr(getattr(output, "root_tx", None), "f_code", None)
        backend = getattr(output, "compiler_fn", None)
        return DynamoGraph(
            module.graph,
            inputs,
            str(getattr(backend, "_compiler_name", None) or getattr(backend, "__name__", type(backend).__name__)),
            lines[0] if broken and lines else "",
            f"{stack[-1].filename}:{stack[-1].lineno}" if stack else "",
            "" if code is None else code.co_filename,
            () if code is None else code.co_varnames,
        )

    def watched(original: Callable[..., Any]) -> Callable[..., Any]:
        def compile_(output: Any, module: torch.fx.GraphModule, example_inputs: Any) -> Any:
            return around(seen(output, module), lambda: original(output, module, example_inputs))

        return compile_

    return wrapped("dynamo's graphs", holder, "_call_user_compiler", watched)


def retraces(error: BaseException) -> bool:
    """Return whether dynamo handles this error of a backend by tracing the same frame again."""
    return isinstance(error, private("torch._dynamo.exc", "RestartAnalysis"))


AotCompiler = Callable[..., Any]


def watch_aot(around: Callable[[str, AotCompiler], AotCompiler]) -> Undo:
    """Replace each compiler of AOTAutograd's backends, except Inductor's, with `around(phase, compiler)`."""
    module = importlib.import_module("torch._dynamo.backends.common")
    private("torch._dynamo.backends.common", "aot_module_simplified")
    inductors = private("torch._functorch.aot_autograd", "SerializableAOTDispatchCompiler")
    phases = {"fw_compiler": "forward", "bw_compiler": "backward", "inference_compiler": "forward"}

    def watched(original: Callable[..., Any]) -> Callable[..., Any]:
        def simplified(*args: Any, **kwargs: Any) -> Any:
            for name, phase in phases.items():
                compiler = kwargs.get(name)
                if compiler is not None and not isinstance(compiler, inductors):
                    kwargs[name] = around(phase, compiler)
            return original(*args, **kwargs)

        return simplified

    return wrapped("AOTAutograd's graphs", module, "aot_module_simplified", watched)


@dataclass(frozen=True, slots=True)
class InnerCompilation:
    """A request to Inductor's inner compile: `key` is the same for the forward and the backward of one dynamo graph."""

    module: torch.fx.GraphModule
    inputs: Sequence[Any]
    options: Mapping[str, Any]

    @property
    def phase(self) -> str:
        return "backward" if self.options.get("is_backward") else "forward"

    @property
    def key(self) -> int | None:
        return self.options.get("graph_id")


def watch_inductor(around: Callable[[InnerCompilation, Compile], Any]) -> Undo:
    """Make `around` perform Inductor's inner compilations: `around` calls its last argument, and returns the result."""
    return around_inner_compile(
        "Inductor's graphs",
        lambda module, inputs, options, compile_: around(
            InnerCompilation(module, list(inputs), dict(options)), compile_
        ),
    )


InnerCompile = Callable[[torch.fx.GraphModule, Any, Mapping[str, Any], Compile], Any]


def around_inner_compile(owner: str, around: InnerCompile) -> Undo:
    """Make `around` perform each of Inductor's inner compilations.

    `around` receives the graph, the inputs and the options. It calls its last argument, and returns the result.
    """
    module = importlib.import_module("torch._inductor.compile_fx")
    private("torch._inductor.compile_fx", "_compile_fx_inner")

    def watched(original: Callable[..., Any]) -> Callable[..., Any]:
        def inner(graph: torch.fx.GraphModule, inputs: Any, *args: Any, **kwargs: Any) -> Any:
            return around(graph, inputs, kwargs, lambda: original(graph, inputs, *args, **kwargs))

        return inner

    return wrapped(owner, module, "_compile_fx_inner", watched)


def watch_executions(around: Callable[[Any, Compile], Any]) -> Undo:
    """Make `around` perform each call of a graph compiled by Inductor. `around` receives the compiled object."""
    return watch_compiled_calls(lambda compiled, inputs, execute: around(compiled, execute))


def watch_compiled_calls(around: Callable[[Any, Sequence[Any], Compile], Any]) -> Undo:
    """Make `around` perform each call of a graph compiled by Inductor, given the compiled object and the inputs."""
    holder = private("torch._inductor.output_code", "CompiledFxGraph")

    def watched(original: Callable[..., Any]) -> Callable[..., Any]:
        def call(compiled: Any, inputs: Sequence[Any]) -> Any:
            return around(compiled, inputs, lambda: original(compiled, inputs))

        return call

    return wrapped("calls of Inductor's graphs", holder, "__call__", watched)


def called_like(compiled: Callable[..., Any], replacement: Callable[..., Any]) -> Callable[..., Any]:
    """Return `replacement`, marked so that torch calls it as it calls `compiled`."""
    if getattr(compiled, "_boxed_call", False):
        replacement._boxed_call = True  # type: ignore[attr-defined]
    return replacement


def is_compiled_by_inductor(compiled: Any) -> bool:
    """Return whether `watch_executions` sees the calls of this object."""
    return isinstance(compiled, private("torch._inductor.output_code", "CompiledFxGraph"))


def generated_module(compiled: Any) -> str:
    """Return the source of the Python module that Inductor has generated for a graph, "" if there is none."""
    return str(getattr(compiled, "source_code", "") or "")


def number_decomposed_calls() -> Undo:
    """Make each traced node keep the number of the op call that it comes from, under `CALL`; return the undo."""
    module = importlib.import_module("torch.fx.experimental.proxy_tensor")
    private("torch.fx.experimental.proxy_tensor", "set_original_aten_op")
    copied = private("torch.fx.proxy", "_COPY_META_FIELDS")
    numbers = itertools.count(1)
    running = threading.local()

    def numbering(original: Callable[..., Any]) -> Callable[..., Any]:
        @contextmanager
        def numbered(operation: Any) -> Iterator[None]:
            outermost = not getattr(running, "depth", 0)
            running.depth = getattr(running, "depth", 0) + 1
            try:
                with original(operation):
                    meta = torch.fx.traceback.get_current_meta()
                    if outermost:
                        meta[CALL] = next(numbers)
                    try:
                        yield
                    finally:
                        if outermost:
                            meta.pop(CALL, None)
            finally:
                running.depth -= 1

        return numbered

    # Torch copies only these fields of a node's metadata to the nodes that are later made from the node.
    with Patches("the numbers of decomposed calls") as patches:
        copied.append(CALL)
        patches.also(lambda: copied.remove(CALL))
        patches.wrap(module, "set_original_aten_op", numbering)
    return patches.undo


def without_graph_caches(*, of_inductor: bool = True) -> Undo:
    """Make torch compile every graph anew; the cache of built C++ and Triton kernels stays in use.

    A graph from AOTAutograd's cache bypasses every hook of this module. A graph from Inductor's cache bypasses the
    hooks that observe lowering. With `of_inductor=False`, Inductor's cache stays as the script has set it.
    """
    caches = [("torch._functorch.config", name) for name in ("enable_autograd_cache", "enable_remote_autograd_cache")]
    if of_inductor:
        caches += [("torch._inductor.config", name) for name in ("fx_graph_cache", "fx_graph_remote_cache")]
    with Patches("graphs that come from no cache") as patches:
        for module, name in caches:
            config = importlib.import_module(module)
            require(config, name)
            patches.wrap(config, name, lambda before: False)
    return patches.undo


def broken_captures() -> list[str]:
    """Return the reasons why dynamo broke graphs or abandoned frames in this process, most frequent first."""
    counted = private("torch._dynamo.utils", "counters")
    reasons = counted["graph_break"] + counted["unimplemented"]
    return [str(reason).strip().splitlines()[0] for reason, _ in reasons.most_common() if str(reason).strip()]


def parts_of_op(target: Any) -> tuple[str, str, str] | None:
    """Return the namespace, name and overload ("" for the default) of an op, None for a target that is not an op."""
    if not isinstance(target, private("torch._ops", "OpOverload")):
        return None
    namespace, name, overload = str(target).split(".", 2)
    return namespace, name, "" if overload == "default" else overload
