"""A step that has ended, kept until its values can be read: its tensors, and the values logged by `numdrift.log`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch

from ...script.named_tensors import NamedTensor
from ...tape.files.journal_writing import loss_to_json
from ...torch_private.dispatching import unseen
from ...torch_private.untraced import unwrapped

LOSS = "loss"


@dataclass(frozen=True, slots=True)
class Table:
    """The tensors that a step's frames hold, in this order, and the parameters among them.

    `number` identifies the table in the frames.
    """

    number: int
    tensors: tuple[NamedTensor, ...]
    parameters: tuple[NamedTensor, ...]


@dataclass(frozen=True, slots=True)
class LoggedStep:
    """The logged values of one step.

    losses: losses in the order in which they were logged
    values: other single numbers by name
    """

    step: int
    losses: Sequence[torch.Tensor]
    values: Mapping[str, torch.Tensor]

    @property
    def tensors(self) -> list[torch.Tensor]:
        return [*self.losses, *self.values.values()]


@dataclass(frozen=True, slots=True)
class EndedStep:
    """A step whose values may not be readable yet.

    `logged` holds the values that the script logged for this step and for the previous one.
    """

    number: int
    losses: tuple[torch.Tensor, ...]
    gradients: tuple[torch.Tensor | None, ...]
    table: Table
    logged: Sequence[LoggedStep] = ()

    @property
    def state(self) -> list[torch.Tensor]:
        """The tensors of the table, then the gradients that exist."""
        tensors = [named.tensor for named in self.table.tensors]
        tensors += [gradient for gradient in self.gradients if gradient is not None]
        return tensors


def scalar(loss: torch.Tensor) -> float:
    """Return the loss as a Python float.

    A loss with several elements is summed: `backward`, given a gradient of ones, differentiates this sum.
    """
    return float(loss.item() if loss.numel() == 1 else loss.double().sum().item())


def described(step_values: LoggedStep, read: Iterator[torch.Tensor]) -> dict[str, Any]:
    """Return the values that the script logged for a step as fields of a journal event.

    `read` yields the values of the step's tensors in order.
    """
    losses = [loss_to_json(scalar(next(read))) for _ in step_values.losses]
    logged = {name: loss_to_json(scalar(next(read))) for name in step_values.values}
    return ({"losses": losses} if losses else {}) | ({"logged": logged} if logged else {})


class LoggedValues:
    """The values that the script logs for the current step, and for the previous step after its end.

    `doubt` receives a sentence about each value that is not a single number.
    """

    def __init__(self, doubt: Callable[[str], None]) -> None:
        self._doubt = doubt
        self._losses: dict[int, list[torch.Tensor]] = {}
        self._values: dict[int, dict[str, torch.Tensor]] = {}
        self.used = False

    def add(self, step: int, values: Mapping[str, Any]) -> None:
        """Keep copies of values of this step, so that the script can no longer change them. No value is read."""
        self.used = True
        with unseen():
            for name, value in values.items():
                copy = None
                if isinstance(value, torch.Tensor):
                    plain = unwrapped(value)
                    # Only a loss may have several elements: they are summed (see `scalar`).
                    fits = plain is not None and (plain.numel() == 1 or (name == LOSS and plain.numel()))
                    if plain is not None and fits and not plain.is_complex():
                        copy = plain.detach().clone()
                elif not isinstance(value, (str, bytes)):  # float() would parse a number from a string
                    with suppress(TypeError, ValueError, OverflowError):
                        copy = torch.tensor(float(value), dtype=torch.float64, device="cpu")
                if copy is None:
                    shape = f" of shape {list(value.shape)}" if isinstance(value, torch.Tensor) else ""
                    description = type(value).__name__ + shape
                    self._doubt(f"numdrift.log: {name} is not a single number ({description}), so it is not recorded")
                elif name == LOSS:
                    self._losses.setdefault(step, []).append(copy)
                else:
                    self._values.setdefault(step, {})[name] = copy

    def take(self) -> tuple[LoggedStep, ...]:
        """Return the values that were logged since the last call, grouped by step, and forget them."""
        losses, self._losses = self._losses, {}
        values, self._values = self._values, {}
        return tuple(
            LoggedStep(step, losses.get(step, ()), values.get(step, {})) for step in sorted({*losses, *values})
        )
