"""The named ranges of a trace: one for each call of a module, and for each call of a kernel that Inductor generated."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from ...records.tools.profile_record import MODULE
from ...tape.node_origin import line_in_stack, module_path, stack_of
from ...torch_private.compiler.graph_kernels import Lowered, watch_kernels
from ...torch_private.compiler.graph_stages import parts_of_op, without_graph_caches
from ...torch_private.patches import Patches
from ...torch_private.profiling.torch_profiler import name_inductor_kernels
from .trace_ranges import Handle, Ranges

ROOT = "(root)"


class ModuleRanges:
    """Opens a range for each call of a module, with the module's name in the model.

    The hooks are torch's global ones, not those of a module: a copied or saved model does not contain them.
    """

    def __init__(self, ranges: Ranges) -> None:
        self._ranges = ranges
        self._names: weakref.WeakKeyDictionary[torch.nn.Module, str] = weakref.WeakKeyDictionary()
        self._patches = Patches("the ranges of modules")

    def install(self) -> None:
        # While a function is being compiled, ranges would become part of its graph.
        def enter(module: torch.nn.Module, _: Any) -> None:
            if not torch.compiler.is_compiling():
                self._ranges.enter(MODULE + self._names.get(module, type(module).__name__), "module")

        def leave(module: torch.nn.Module, _: Any, __: Any) -> None:
            if not torch.compiler.is_compiling():
                self._ranges.leave(MODULE + self._names.get(module, type(module).__name__), "module")

        self._patches.also(register_module_forward_pre_hook(enter).remove)
        self._patches.also(register_module_forward_hook(leave, always_call=True).remove)

    def remove(self) -> None:
        self._patches.undo()

    def adopted(self, root: torch.nn.Module) -> dict[str, str]:
        """Record the names of a root module's submodules. Return the class of each by name."""
        classes = {}
        for name, module in root.named_modules():
            # A submodule of two models keeps its first name.
            self._names.setdefault(module, name or ROOT)
            classes[self._names[module]] = type(module).__name__
        return classes


class KernelRanges:
    """Opens a range for each call of a kernel, from `install` until `remove`.

    `report` receives each generated kernel as an event's fields: its ops, modules and lines.
    """

    def __init__(self, begin: Callable[[str], Handle | None], script: str, report: Callable[..., None]) -> None:
        self._begin = begin
        self._script = script
        self._report = report
        self._patches = Patches("the ranges of kernels")

    def install(self, *, detailed: bool) -> None:
        """Install the ranges. With `detailed`, graphs are compiled without caches, so that every kernel is seen."""
        self._patches.also(name_inductor_kernels(lambda name: lambda: self._begin(name)))
        if detailed:
            self._patches.also(watch_kernels(self._seen, self._failed))
            self._patches.also(without_graph_caches())

    def remove(self) -> None:
        self._patches.undo()

    def _seen(self, lowered: Lowered) -> None:
        try:
            for kernel in lowered.kernels:
                # One kernel comes from many nodes. Ops are sorted; modules and lines keep the graph's order.
                ops: set[str] = set()
                modules: dict[str, None] = {}
                lines: dict[str, None] = {}
                for node in kernel.origins:
                    parts = parts_of_op(node.target)
                    ops.add("::".join(parts[:2]) if parts is not None else str(node.target))
                    stack = stack_of(node)
                    path = None if stack is None else module_path(stack)
                    line = line_in_stack(str(node.meta.get("stack_trace") or ""), self._script)
                    modules |= {} if path is None else {path: None}
                    lines |= {line: None} if line else {}
                self._report(name=kernel.name, ops=sorted(ops), modules=list(modules), lines=list(lines))
        except Exception as error:  # noqa: BLE001, this runs inside the compiler
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        self._report(name="", problem=f"{type(error).__name__}: {error}")
