"""A module's forward and backward as aten graphs, executed by functions of the caller instead of a compiler.

Verified on torch 2.13.0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from typing import Any, Literal

import torch
import torch.fx
from torch.fx.passes.infra.partitioner import CapabilityBasedPartitioner
from torch.fx.passes.operator_support import OperatorSupportBase

from ..presence import private
from .compiling import KINDS_OF_ARGUMENTS, compiled_call
from .probing import fake_mode

Phase = Literal["forward", "backward"]

GraphCompiler = Callable[[torch.fx.GraphModule, Phase], Callable[..., Any]]
"""Returns the function to execute instead of an aten graph."""

MARK = "numdrift_call"
"""The metadata key under which a node keeps the number of its call in the captured graph."""


def without_modes() -> AbstractContextManager[Any]:
    """Return a context in which no dispatch mode is active, not even torch's own; other modes may be entered in it."""
    context: AbstractContextManager[Any] = private("torch.utils._python_dispatch", "_disable_current_modes")()
    return context


def call_by_backend(module: torch.nn.Module, backend: Any) -> Callable[..., Any]:
    """Return a function that calls the module, including its hooks, through torch.compile with `backend`.

    Each combination of shapes and dtypes is compiled separately. An error of the backend is raised unchanged.
    """
    compiled = compiled_call(module, backend, dynamic=False)
    patched = private("torch._dynamo.config", "patch")
    failed = private("torch._dynamo.exc", "BackendCompilerFailed")

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            with patched(recompile_limit=KINDS_OF_ARGUMENTS):
                return compiled(*args, **kwargs)
        except failed as error:
            raise error.inner_exception from None

    return call


def call_in_place(module: torch.nn.Module, backend: Any) -> None:
    """Make calls of the module go through torch.compile with `backend`, as in `call_by_backend`."""
    module._compiled_call_impl = call_by_backend(module, backend)


def compile_with_autograd(
    graph: torch.fx.GraphModule,
    inputs: Sequence[Any],
    compile_: GraphCompiler,
    planned: Callable[[torch.fx.GraphModule, Phase], None],
) -> Callable[..., Any]:
    """Make `compile_` produce the functions that execute a captured graph's forward and backward.

    For training, `planned` receives both aten graphs before the forward is compiled. The backward is compiled when it
    is first needed. The graphs consist of the dispatched ops: nothing is decomposed.
    """
    autograd = private("torch._dynamo.backends.common", "aot_autograd")
    split = private("torch._functorch.partitioners", "default_partition")
    boxed = private("torch._functorch.aot_autograd", "make_boxed_func")

    def forward(module: torch.fx.GraphModule, _: Any) -> Any:
        return boxed(compile_(module, "forward"))

    def backward(module: torch.fx.GraphModule, _: Any) -> Any:
        return boxed(compile_(module, "backward"))

    def partition(joint: torch.fx.GraphModule, joint_inputs: Any, **options: Any) -> Any:
        graphs = split(joint, joint_inputs, **options)
        planned(graphs[0], "forward")
        planned(graphs[1], "backward")
        return graphs

    # A call without gradients has no joint graph to split, so only its forward is planned.
    def inference(module: torch.fx.GraphModule, _: Any) -> Any:
        planned(module, "forward")
        return forward(module, _)

    backend = autograd(fw_compiler=forward, bw_compiler=backward, inference_compiler=inference, partition_fn=partition)
    compiled: Callable[..., Any] = backend(graph, list(inputs))
    return compiled


def mark_calls(graph: torch.fx.Graph) -> None:
    """Number the calls of a captured graph; aten nodes traced from a call carry its number, in the backward too."""
    for number, node in enumerate(graph.nodes):
        if node.op.startswith("call_"):
            node.meta["custom"] = {**node.meta.get("custom", {}), MARK: number}


def call_of(node: torch.fx.Node) -> int | None:
    """Return the number of the call that an aten node comes from, None if there is none."""
    custom = node.meta.get("custom")
    return custom.get(MARK) if isinstance(custom, Mapping) else None


def written_graph(graph: torch.fx.GraphModule, inputs: Sequence[Any]) -> torch.fx.Graph:
    """Return a captured graph's ops as they were written (`aten.linear`, not its decomposition), with their marks."""
    trace = private("torch.fx.experimental.proxy_tensor", "make_fx")
    keep_meta = private("torch.fx.traceback", "preserve_node_meta")
    tracing = private("torch._guards", "tracing")
    # The modes that a compiler traces with are removed first: the fake mode of the trace must be the only one.
    with tracing(None), without_modes(), fake_mode(), keep_meta():
        traced = trace(torch.fx.Interpreter(graph).run, pre_dispatch=True)(*map(_without_values, inputs))
    ops: torch.fx.Graph = traced.graph
    return ops


def _without_values(value: Any) -> Any:
    """Return a fake tensor like this input, made in the active fake mode, with plain numbers as its sizes."""
    if not isinstance(value, torch.Tensor):
        return value
    fake = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device=value.device)
    return fake.requires_grad_(value.requires_grad)


class _Chosen(OperatorSupportBase):
    def __init__(self, chosen: Callable[[torch.fx.Node], bool]) -> None:
        self._chosen = chosen

    def is_node_supported(self, submodules: Mapping[str, torch.nn.Module], node: torch.fx.Node) -> bool:
        return node.op == "call_function" and self._chosen(node)


def fuse(
    module: torch.fx.GraphModule, chosen: Callable[[torch.fx.Node], bool], prefix: str
) -> dict[str, list[torch.fx.Node]]:
    """Move the chosen nodes, in place, into as few submodules as torch.fx's partitioner can manage.

    Returns the nodes of each submodule by its name (the prefix with a number). The nodes of the graph are replaced with
    new ones whose `meta` has the same contents.
    """
    partitioner = CapabilityBasedPartitioner(module, _Chosen(chosen), allows_single_node_partition=True)
    proposed = partitioner.propose_partitions()
    inside = {f"{prefix}{at}": list(proposal.nodes) for at, proposal in enumerate(proposed)}
    partitioner.fuse_partitions(proposed, prefix=prefix)
    return inside
