"""The values by which executions of a step of mode `xla` are compared. They are read once they are available."""

from __future__ import annotations

from collections.abc import Iterator

import torch

from ...torch_private.deferred.xla import read_xla
from ...torch_private.deferred.xla_tensors import is_pending, xla_value_held
from .executed_again import ValueNumber


class SettledValues:
    """The watched values. Each is held until it is available; then it is read and released.

    A value has to be held, because torch_xla reuses a released value's memory for values that are written to the tensor
    later, for example when a gradient is accumulated.
    """

    def __init__(self) -> None:
        self._pending: list[tuple[str, ValueNumber, torch.Tensor]] = []
        self._read: list[tuple[str, ValueNumber, torch.Tensor]] = []

    def hold(self, name: str, number: ValueNumber, tensor: torch.Tensor) -> None:
        """Hold the current value of an xla tensor under its number, even if the tensor is overwritten later."""
        self._pending.append((name, number, xla_value_held(tensor)))
        self.read()

    def read(self) -> None:
        """Read and release the held values that are available now."""
        available = [held for held in self._pending if not is_pending(held[-1])]
        self._pending = [held for held in self._pending if is_pending(held[-1])]
        for (name, number, _), value in zip(available, read_xla([tensor for *_, tensor in available]), strict=True):
            self._read.append((name, number, value))

    @property
    def lacking(self) -> str | None:
        """The name of the first value that is not available yet, None if there is none."""
        return next((name for name, *_ in self._pending), None)

    @property
    def numbers(self) -> set[ValueNumber]:
        """The numbers of the values that were read."""
        return {number for _, number, _ in self._read}

    def __iter__(self) -> Iterator[tuple[str, ValueNumber, torch.Tensor]]:
        """Yield the values that were read: the name, the number and the value on the CPU."""
        return iter(self._read)
