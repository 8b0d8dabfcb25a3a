"""What the nodes of compiled graphs are to the step: their module, their line, and which of them belong together."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import torch

from ... import torch_private
from ...tape.compiled_graphs import CompiledGraph
from ...tape.tape import CompiledNode
from .fx_graph import module_path, script_line

STACKS = ("nn_module_stack", "fwd_nn_module_stack")


class NodeNames:
    """Numbers the nodes of one step. `run` is the number of an execution, which a backward shares with its forward."""

    def __init__(self, script: str) -> None:
        self._script = script
        self._sequences: dict[Hashable, int] = {}
        self._groups: dict[Hashable, int] = {}
        self._modules: dict[tuple[int, Any], str] = {}

    def describe(self, graph: CompiledGraph, run: int, node: torch.fx.Node) -> CompiledNode:
        origin = node.meta.get("original_aten")
        if torch_private.is_operation_overload(node.target):
            origin = torch_private.op_behind(node.target) or origin
        call = node.meta.get(torch_private.CALL)
        key = (run, graph.phase, node.name) if call is None else (run, call)
        return CompiledNode(
            graph.name,
            node.name,
            str(origin if torch_private.is_operation_overload(origin) else node.target),
            self._groups.setdefault(key, len(self._groups)),
        )

    def sequence(self, run: int, node: torch.fx.Node) -> int | None:
        """A negative number that this node and its counterparts in the other direction have, and no others."""
        number = node.meta.get("seq_nr")
        if not isinstance(number, int) or number < 0:
            return None
        return self._sequences.setdefault((run, number), -len(self._sequences) - 1)

    def module(self, graph: CompiledGraph, node: torch.fx.Node) -> str | None:
        """The path of the node's module; a backward node has that of the forward node with its number."""
        key = (graph.region, node.meta.get("seq_nr"))
        for name in STACKS:
            if node.meta.get(name):
                path = module_path(node.meta[name])
                if graph.phase == "forward":
                    self._modules.setdefault(key, path)
                return path
        if key in self._modules:
            return self._modules[key]
        return "" if graph.phase == "forward" and node.meta.get("stack_trace") else None

    def line(self, node: torch.fx.Node) -> str | None:
        stack = str(node.meta.get("stack_trace") or "").rstrip()
        return script_line(stack, self._script) or None
