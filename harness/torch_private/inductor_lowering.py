"""Inductor's answer to one aten graph, short of generating code: what it lowers to, and where it falls back
to aten.

Verified on torch 2.13.0.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.fx

from .presence import private
from .probing import copied_graph, fake_mode
from .watched_lowering import FALLBACKS


@dataclass(frozen=True, slots=True)
class Lowering:
    """`operations` are what Inductor would execute, by name; `fallbacks` those that are aten's own kernels
    because it has no lowering for them."""

    operations: tuple[str, ...]
    fallbacks: tuple[str, ...]


def lower(graph: torch.fx.GraphModule, inputs: Callable[[], Sequence[torch.Tensor]]) -> Lowering:
    """Lower a graph as Inductor is configured now; `inputs` makes examples, and is called within a fake mode.

    Random ops are lowered as Inductor lowers them: they draw by its own generator, unless it is to draw
    eager's.

    Raises what Inductor raises for a graph that it cannot lower.
    """
    trace = private("torch.fx.experimental.proxy_tensor", "make_fx")
    decompositions = private("torch._inductor.decomposition", "select_decomp_table")
    lowering = private("torch._inductor.graph", "GraphLowering")
    virtual = private("torch._inductor.virtualized", "V")
    own_draws = private("torch._inductor.fx_passes.replace_random", "replace_random_passes")
    tracing = private("torch._guards", "tracing")
    mode = fake_mode()
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
    names = [(_name(one), is_fallback(one)) for one in lowered.operations]
    return Lowering(
        tuple(name for name, _ in names if name), tuple(name for name, fell in names if name and fell)
    )


def is_fallback(operation: Any) -> bool:
    """Whether an operation of Inductor's calls ATen's kernel for want of a lowering."""
    kind = type(operation).__name__
    return kind in FALLBACKS or kind.endswith("Fallback")


def _name(operation: Any) -> str:
    """An aten op or a library's kernel by its name, generated code by its kind; "" for what only takes a
    result apart."""
    kind = type(operation).__name__
    if kind == "MultiOutput":
        return ""
    overload = getattr(operation, "op_overload", None)
    if overload is not None:
        return str(overload)
    kernel = getattr(operation, "python_kernel_name", None)
    return str(kernel or type(getattr(operation, "data", operation)).__name__)


def compile_by_inductor(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Compile an aten graph whose outputs are a tuple, as Inductor is configured now; without gradients."""
    compile_ = private("torch._inductor.compile_fx", "compile_fx")
    tracing = private("torch._guards", "tracing")
    with tracing(None), torch.no_grad():
        made: Callable[..., Any] = compile_(copied_graph(graph), list(inputs))
    return made


def compile_by_backend(name: str, graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
    """Compile an aten graph by another backend of torch.compile; without gradients."""
    find = private("torch._dynamo.backends.registry", "lookup_backend")
    tracing = private("torch._guards", "tracing")
    with tracing(None), torch.no_grad():
        made: Callable[..., Any] = find(name)(copied_graph(graph), list(inputs))
    return made
