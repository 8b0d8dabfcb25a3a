"""What the script itself says of its steps by `numdrift.log`: kept as tensors until they can be read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch

from ..tape.journal_writing import loss_to_json
from ..torch_private.dispatching import without_dispatch_modes, without_function_modes
from ..torch_private.untraced import unwrapped
from .ended_step import Said, scalar

LOSS = "loss"


class LoggedValues:
    """Takes values for the step under way and for the one before, which a script may speak of when it has
    ended.

    `doubt` is told of what is no single number.
    """

    def __init__(self, doubt: Callable[[str], None]) -> None:
        self._doubt = doubt
        self._losses: dict[int, list[torch.Tensor]] = {}
        self._values: dict[int, dict[str, torch.Tensor]] = {}
        self.used = False

    def add(self, step: int, values: Mapping[str, Any]) -> None:
        """Keep copies of values of this step. Nothing is read."""
        self.used = True
        with torch.no_grad(), without_dispatch_modes(), without_function_modes():
            for name, value in values.items():
                kept = _kept(value, any_size=name == LOSS)
                if kept is None:
                    self._doubt(f"numdrift.log: {name} is no single number ({_described(value)}) and is not recorded")
                elif name == LOSS:
                    self._losses.setdefault(step, []).append(kept)
                else:
                    self._values.setdefault(step, {})[name] = kept

    def take(self) -> tuple[Said, ...]:
        """Give what was said since the last time, step by step, and forget it."""
        losses, self._losses = self._losses, {}
        values, self._values = self._values, {}
        return tuple(Said(step, losses.get(step, ()), values.get(step, {})) for step in sorted({*losses, *values}))


def _kept(value: Any, *, any_size: bool) -> torch.Tensor | None:
    """A copy that the script cannot change any more; None for what is no number."""
    if isinstance(value, torch.Tensor):
        plain = unwrapped(value)
        fits = plain is not None and (plain.numel() == 1 or (any_size and plain.numel()))
        return plain.detach().clone() if plain is not None and fits and not plain.is_complex() else None
    try:
        if isinstance(value, (str, bytes)):
            return None
        return torch.tensor(float(value), dtype=torch.float64, device="cpu")
    except (TypeError, ValueError, OverflowError):
        return None


def _described(value: Any) -> str:
    shape = f" of shape {list(value.shape)}" if isinstance(value, torch.Tensor) else ""
    return type(value).__name__ + shape


def described(said: Said, read: Iterator[torch.Tensor]) -> dict[str, Any]:
    """What was said of a step as fields of a journal's event; `read` gives the values of its tensors in their
    order."""
    losses = [loss_to_json(scalar(next(read))) for _ in said.losses]
    logged = {name: loss_to_json(scalar(next(read))) for name in said.values}
    return ({"losses": losses} if losses else {}) | ({"logged": logged} if logged else {})
