"""A step that is over, as the recorder keeps it until its values can be read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch

from ..script.named_tensors import NamedTensor


@dataclass(frozen=True, slots=True)
class Table:
    """The tensors that the frames of a step hold, in this order. `number` names it in the frames."""

    number: int
    tensors: tuple[NamedTensor, ...]


@dataclass(frozen=True, slots=True)
class Said:
    """Of one step: its losses in the order in which they were given, other single numbers by name."""

    step: int
    losses: Sequence[torch.Tensor]
    values: Mapping[str, torch.Tensor]

    @property
    def tensors(self) -> list[torch.Tensor]:
        return [*self.losses, *self.values.values()]


@dataclass(frozen=True, slots=True)
class EndedStep:
    """A step whose values may not be readable yet. `said` is what the script said of it and of the one
    before."""

    number: int
    losses: tuple[torch.Tensor, ...]
    gradients: tuple[torch.Tensor | None, ...]
    table: Table
    said: Sequence[Said] = ()

    @property
    def state(self) -> Iterator[torch.Tensor]:
        """The tensors of the table, then the gradients that there are."""
        yield from (named.tensor for named in self.table.tensors)
        yield from (gradient for gradient in self.gradients if gradient is not None)


def scalar(loss: torch.Tensor) -> float:
    """The loss as a Python float; what is no scalar is summed up, as `backward` does with its gradient."""
    return float(loss.item() if loss.numel() == 1 else loss.double().sum().item())
