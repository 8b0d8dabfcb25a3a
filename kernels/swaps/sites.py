"""The site of an op that is being executed: its phase, its module, and its index among the calls of its step.

A backward op belongs to the module whose forward created its autograd node. When a module's call ends, the nodes behind
its outputs are marked with its path, except those that an inner module has marked. When a module calls another, the
nodes behind the inputs of that call are marked with the caller's path. If a swap names a module, torch's global module
hooks follow the modules.
"""

from __future__ import annotations

import weakref
from collections import Counter
from collections.abc import Hashable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from numdrift.harness.torch_private.compiler.compiling import traced_place, without_wrapper
from numdrift.harness.torch_private.dispatching import current_autograd_node

from ..expectation import tensors_in

Phase = Literal["forward", "backward", "optimizer"]
MARK = "numdrift_module"


@dataclass(frozen=True, slots=True)
class CallSite:
    """The site of one call. `module` is the path from the outermost called module: "" for that module itself, and None
    if modules are not followed."""

    phase: Phase
    module: str | None = None


def traced_site() -> CallSite:
    """Return the site of the op that a compiler is tracing."""
    backward, module = traced_place()
    return CallSite("backward" if backward else "forward", module)


class Sites:
    """Follows the script; `here()` returns the current site."""

    def __init__(self) -> None:
        self._after_backward = False
        self._counts: Counter[Hashable] = Counter()
        self._modules: ModulePaths | None = None

    def follow_modules(self) -> None:
        if self._modules is None:
            self._modules = ModulePaths()

    def here(self) -> CallSite:
        node = current_autograd_node()
        if node is not None:
            return CallSite("backward", None if self._modules is None else node.metadata.get(MARK))
        # An evaluation also runs without gradients, but not between the backward and the end of a step.
        optimizing = self._after_backward and not torch.is_grad_enabled()
        path = None if self._modules is None else self._modules.current
        return CallSite("optimizer" if optimizing else "forward", path)

    def occurrence(self, key: Hashable) -> int:
        """Return the number of earlier queries for the same key in this step."""
        self._counts[key] += 1
        return self._counts[key] - 1

    def backward_ended(self) -> None:
        self._after_backward = True

    def step_ended(self) -> None:
        self._after_backward = False
        self._counts.clear()

    def close(self) -> None:
        if self._modules is not None:
            self._modules.close()
            self._modules = None


class ModuleNames:
    """The paths of modules in the modules that contain them."""

    def __init__(self) -> None:
        self._names: weakref.WeakKeyDictionary[torch.nn.Module, dict[int, str]] = weakref.WeakKeyDictionary()

    def path(self, module: torch.nn.Module, root: torch.nn.Module) -> str:
        """Return the path of a module from a root: "" for the root itself.

        A module that the root does not contain, for example one created in a forward, is named by its class.
        """
        names = self._names.get(root)
        if names is None or id(module) not in names:  # the root is new, or the module was added to it later
            named = root.named_modules(remove_duplicate=True)
            names = {id(submodule): without_wrapper(name) for name, submodule in named}
            self._names[root] = names
        return names.get(id(module), type(module).__name__)


class ModulePaths:
    """Tracks the path of the module whose forward runs, and marks the autograd nodes that it creates."""

    def __init__(self) -> None:
        self._names = ModuleNames()
        self._stack: list[str] = []
        self._roots: list[torch.nn.Module] = []
        self._hooks = ExitStack()
        self._hooks.callback(register_module_forward_pre_hook(self._entered).remove)
        self._hooks.callback(register_module_forward_hook(self._left, always_call=True).remove)

    @property
    def current(self) -> str | None:
        return self._stack[-1] if self._stack else None

    def close(self) -> None:
        self._hooks.close()

    def _entered(self, module: torch.nn.Module, inputs: Any) -> None:
        if self._stack:  # the nodes that created this module's inputs belong to the calling module
            self._mark(inputs, self._stack[-1])
        else:
            self._roots = [module]
        self._stack.append(self._names.path(module, self._roots[0]))

    def _left(self, module: torch.nn.Module, _: Any, outputs: Any) -> None:
        if not self._stack:  # the hooks were added while the module ran
            return
        path = self._stack.pop()
        if not self._stack:
            self._roots = []
        self._mark(outputs, path)

    def _mark(self, tensors: Any, path: str) -> None:
        """Mark the autograd nodes behind these tensors with the path, unless they are already marked."""
        pending = [tensor.grad_fn for tensor in tensors_in(_leaves(tensors)) if tensor.grad_fn is not None]
        while pending:
            node = pending.pop()
            metadata: dict[str, str] = node.metadata  # type: ignore[assignment]  # torch annotates it as a method
            if MARK not in metadata:
                metadata[MARK] = path
                pending += [following for following, _ in node.next_functions if following is not None]


def _leaves(outputs: Any) -> Any:
    """Return a module's outputs, with dictionaries (and the outputs of transformers' models) as lists."""
    if isinstance(outputs, dict):
        return [_leaves(output) for output in outputs.values()]
    return [_leaves(output) for output in outputs] if isinstance(outputs, (list, tuple)) else outputs
