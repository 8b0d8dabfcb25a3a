"""Execute the script's training in another way, as the mode's keys state: the script itself is not changed.

    optimizer=fused           torch's optimizers update all parameters in one kernel
    checkpointing=on          the blocks of each model are computed again in the backward
    workers=2                 data loaders use two processes

The changes are those that are meant to compute the same thing. What a key has changed is reported once, and a key that
has changed nothing by the end of the first step is reported as a doubt.
"""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.utils.data
from torch.optim.optimizer import Optimizer, register_optimizer_step_pre_hook
from torch.utils.checkpoint import checkpoint

from ..records.modes.execution_keys import (
    CHECKPOINTING,
    CLIPPING,
    EXECUTION_KEYS,
    FOREACH,
    FUSED,
    LOOP,
    MEMORY_FORMAT,
    NO_EFFECT,
    OPTIMIZER,
    WORKERS,
    ZERO_GRAD,
)
from ..records.modes.mode_spec import ModeSpec
from ..records.run.adoption_facts import AdoptionFacts
from ..torch_private.patches import Patches
from .understood import ScriptNotes

CLIPPED = ("clip_grad_norm_", "clip_grad_value_")
OF_PROCESSES = ("prefetch_factor", "persistent_workers", "multiprocessing_context", "timeout")
"""Arguments of a data loader that it only accepts if it has processes."""

NOTHING_TO_CHANGE: Mapping[str, str] = {
    OPTIMIZER: "no optimizer that has stepped has this implementation",
    CLIPPING: "the script calls neither clip_grad_norm_ nor clip_grad_value_ of torch.nn.utils",
    ZERO_GRAD: "the script calls no zero_grad()",
    CHECKPOINTING: "no model has blocks with parameters",
    MEMORY_FORMAT: "no model has weights with four dimensions",
    WORKERS: "the script makes no torch.utils.data.DataLoader",
}


class ChangedExecution:
    """Changes how a training is executed, from `install` to `close`."""

    def __init__(self, spec: ModeSpec, script: str, facts: AdoptionFacts) -> None:
        self._spec = spec
        self._facts = facts
        self._notes = ScriptNotes(facts, script)
        self._keys = [key for key in (*EXECUTION_KEYS, WORKERS) if getattr(spec, key) is not None]
        self._unchanged = set(self._keys)
        self._recomputed = weakref.WeakSet[torch.nn.Module]()
        self._patches = Patches("the mode's changes of the execution")
        self._remove: Callable[[], None] | None = None

    def install(self) -> None:
        """Start changing what the script calls. Call this before the script imports anything."""
        if not self._keys:
            return
        with self._patches as patches:
            if OPTIMIZER in self._keys:
                self._remove = register_optimizer_step_pre_hook(self._choose_implementation).remove
            if CLIPPING in self._keys:
                for holder in (torch.nn.utils, torch.nn.utils.clip_grad):
                    for name in CLIPPED:
                        patches.wrap(holder, name, self._clipping)
            if ZERO_GRAD in self._keys:
                for owner in (Optimizer, torch.nn.Module):
                    patches.wrap(owner, "zero_grad", self._zeroing)
            if WORKERS in self._keys:
                patches.wrap(torch.utils.data.DataLoader, "__init__", self._loading)

    def adopt(self, module: torch.nn.Module) -> None:
        """Change a model before its first call, and before the mode compiles it."""
        if MEMORY_FORMAT in self._keys and any(parameter.dim() == 4 for parameter in module.parameters()):
            module.to(memory_format=torch.channels_last)  # type: ignore[call-overload]
            self._changed(MEMORY_FORMAT, f"the weights of {type(module).__name__} with four dimensions")
        if CHECKPOINTING in self._keys:
            self._checkpoint(module)

    def first_step_ended(self) -> None:
        """Report a doubt for each key that has changed nothing."""
        for key in self._keys:
            if key in self._unchanged:
                self._facts.doubt(f"{key}={getattr(self._spec, key)} {NO_EFFECT}{NOTHING_TO_CHANGE[key]}")

    def forget(self) -> None:
        """Stop reporting. Called in a fork of the recorded process."""
        self._notes.forget()

    def close(self) -> None:
        """Stop changing what is called. Changed models and optimizers stay as they are."""
        self._patches.undo()
        if self._remove is not None:
            self._remove()

    def _changed(self, key: str, what: str) -> None:
        self._unchanged.discard(key)
        self._notes.note("execution", f"{key}={getattr(self._spec, key)}: {what}")

    def _choose_implementation(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        wanted = self._spec.optimizer
        for group in optimizer.param_groups:
            if (wanted == LOOP and FOREACH in group) or wanted in group:
                # An optimizer cannot use lists where its step is to be differentiated.
                group.update({name: name == wanted for name in (FOREACH, FUSED) if name in group})
                self._changed(OPTIMIZER, type(optimizer).__name__)

    def _clipping(self, clip: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(clip)
        def clipped(*args: Any, **kwargs: Any) -> Any:
            self._changed(CLIPPING, clip.__name__)
            return clip(*args, **(kwargs | {"foreach": self._spec.clipping == FOREACH}))

        return clipped

    def _zeroing(self, zero_grad: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(zero_grad)
        def zeroed(owner: Any, set_to_none: bool = True) -> Any:
            self._changed(ZERO_GRAD, f"{type(owner).__name__}.zero_grad()")
            return zero_grad(owner, set_to_none=self._spec.zero_grad == "none")

        return zeroed

    def _loading(self, make: Callable[..., None]) -> Callable[..., None]:
        @functools.wraps(make)
        def made(loader: Any, *args: Any, **kwargs: Any) -> None:
            # `num_workers` is the sixth argument; few scripts pass it by its position.
            if len(args) <= 5:
                kwargs["num_workers"] = self._spec.workers
                if not self._spec.workers:
                    kwargs = {name: value for name, value in kwargs.items() if name not in OF_PROCESSES}
                self._changed(WORKERS, "torch.utils.data.DataLoader")
            make(loader, *args, **kwargs)

        return made

    def _checkpoint(self, module: torch.nn.Module) -> None:
        enable = getattr(module, "gradient_checkpointing_enable", None)
        if callable(enable):  # a model of transformers, which knows its own blocks and its caches
            enable(gradient_checkpointing_kwargs={"use_reentrant": False})
            self._changed(CHECKPOINTING, f"{type(module).__name__}.gradient_checkpointing_enable()")
            return
        names = []
        for name, block in blocks_of(module):
            if block in self._recomputed:  # a wrapper that the script makes anew has the same blocks
                continue
            self._recomputed.add(block)
            block.forward = functools.partial(_recomputed, block, block.forward)
            names.append(name)
        if names:
            shown = ", ".join(names[:3]) + (f" and {len(names) - 3} others" if len(names) > 3 else "")
            self._changed(CHECKPOINTING, f"the blocks {shown} of {type(module).__name__}")


def _recomputed(block: torch.nn.Module, forward: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call the forward of a block, and compute it again in the backward while the block is trained."""
    if block.training and torch.is_grad_enabled():
        return checkpoint(forward, *args, use_reentrant=False, **kwargs)
    return forward(*args, **kwargs)


def blocks_of(module: torch.nn.Module) -> list[tuple[str, torch.nn.Module]]:
    """Return the blocks of a model that activation checkpointing usually recomputes, with their names.

    These are the members of the outermost lists and sequences of modules. A model without such lists has its direct
    children as its blocks. Blocks have parameters.
    """
    found = list(_members(module, "")) or list(module.named_children())
    return [(name, block) for name, block in found if next(block.parameters(), None) is not None]


def _members(module: torch.nn.Module, prefix: str) -> Iterator[tuple[str, torch.nn.Module]]:
    for name, child in module.named_children():
        if isinstance(module, (torch.nn.ModuleList, torch.nn.Sequential)):
            yield f"{prefix}{name}", child
        else:
            yield from _members(child, f"{prefix}{name}.")
