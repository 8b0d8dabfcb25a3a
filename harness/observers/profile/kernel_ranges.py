"""Inductor's kernels in the trace: each call by its name, and of which ops, modules and lines each kernel was
made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch

from ...backends.compiled.fx_graph import module_path, script_line
from ...torch_private.graph_kernels import GraphKernel, Lowered, watch_kernels
from ...torch_private.graph_stages import parts_of_op, without_graph_caches
from ...torch_private.patches import Patches
from ...torch_private.torch_profiler import name_inductor_kernels
from .trace_ranges import Handle

STACKS = ("nn_module_stack", "fwd_nn_module_stack")


class KernelRanges:
    """While it is installed; `told` hears of each kernel that is generated, as an event's fields."""

    def __init__(self, begin: Callable[[str], Handle | None], script: str, told: Callable[..., None]) -> None:
        self._begin = begin
        self._script = script
        self._told = told
        self._patches = Patches("the ranges of kernels")

    def install(self, *, detailed: bool) -> None:
        """With `detailed` every graph is compiled here, past the caches, so that its making is seen."""
        self._patches.also(name_inductor_kernels(lambda name: lambda: self._begin(name)))
        if detailed:
            self._patches.also(watch_kernels(self._seen, self._failed))
            self._patches.also(without_graph_caches())

    def remove(self) -> None:
        self._patches.undo()

    def _seen(self, lowered: Lowered) -> None:
        try:
            for kernel in lowered.kernels:
                self._told(**self._described(kernel))
        except Exception as error:  # noqa: BLE001, this runs inside the compiler
            self._failed(error)

    def _described(self, kernel: GraphKernel) -> Mapping[str, Any]:
        nodes = kernel.origins
        return {
            "name": kernel.name,
            "ops": sorted({_op(one) for one in nodes}),
            "modules": list(dict.fromkeys(path for one in nodes if (path := _module(one)) is not None)),
            "lines": list(dict.fromkeys(line for one in nodes if (line := self._line(one)))),
        }

    def _line(self, node: torch.fx.Node) -> str:
        return script_line(str(node.meta.get("stack_trace") or ""), self._script)

    def _failed(self, error: Exception) -> None:
        self._told(name="", problem=f"{type(error).__name__}: {error}")


def _op(node: torch.fx.Node) -> str:
    parts = parts_of_op(node.target)
    return "::".join(parts[:2]) if parts is not None else str(node.target)


def _module(node: torch.fx.Node) -> str | None:
    return next((module_path(node.meta[key]) for key in STACKS if node.meta.get(key)), None)
