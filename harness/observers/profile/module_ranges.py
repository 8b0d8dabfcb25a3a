"""A range for each call of a module, by the name that the model has it under."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.nn.modules.module import register_module_forward_hook, register_module_forward_pre_hook

from ...records.profile_record import MODULE
from ...torch_private.patches import Patches
from .trace_ranges import Ranges

ROOT = "(root)"


class ModuleRanges:
    """Hooks of torch's that belong to no module: a model that is copied or saved takes nothing along."""

    def __init__(self, ranges: Ranges) -> None:
        self._ranges = ranges
        self._names: weakref.WeakKeyDictionary[torch.nn.Module, str] = weakref.WeakKeyDictionary()
        self._patches = Patches("the ranges of modules")

    def install(self) -> None:
        def enter(module: torch.nn.Module, _: Any) -> None:
            if not torch.compiler.is_compiling():
                self._ranges.enter(self._name(module), "module")

        def leave(module: torch.nn.Module, _: Any, __: Any) -> None:
            if not torch.compiler.is_compiling():
                self._ranges.leave(self._name(module), "module")

        self._patches.also(register_module_forward_pre_hook(enter).remove)
        self._patches.also(register_module_forward_hook(leave, always_call=True).remove)

    def remove(self) -> None:
        self._patches.undo()

    def adopted(self, root: torch.nn.Module) -> dict[str, str]:
        """Learn the names of a root module's parts; gives the class of each."""
        found = {}
        for name, module in root.named_modules():
            self._names.setdefault(module, name or ROOT)
            found[self._names[module]] = type(module).__name__
        return found

    def _name(self, module: torch.nn.Module) -> str:
        return MODULE + self._names.get(module, type(module).__name__)
