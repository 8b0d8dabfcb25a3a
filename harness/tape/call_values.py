"""What the calls of a step have given: digests of all of it, and the values themselves as far as they may be kept."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .value_digests import digest_of

VALUE_BUDGET = 2**30
"""Bytes of values that one step keeps; the oldest are let go first."""


class CallValues:
    """For each call, in order, what it has given: its fresh outputs, then the arguments that it has written.

    `swapped` are calls of compiled graphs that another kernel executes, by what executes them.
    """

    def __init__(self, budget: int = VALUE_BUDGET) -> None:
        self.digests: list[list[str | None]] = []
        self.notes: list[str] = []
        self.swapped: dict[int, Callable[..., Any]] = {}
        self._kept: dict[int, list[torch.Tensor]] = {}
        self._free = budget

    def add(self, given: Sequence[torch.Tensor]) -> None:
        """Note the next call."""
        self.digests.append([digest_of(one) for one in given])

    def set(self, position: int, given: Sequence[torch.Tensor | None], *, keep: bool) -> None:
        """Say of a call that it has given this, None where that is not known. What is kept must not be changed."""
        self.digests[position] = [None if one is None else digest_of(one) for one in given]
        known = [one.detach() for one in given if one is not None]
        if keep and known and len(known) == len(given):
            self._keep(position, known)

    def value(self, position: int) -> list[torch.Tensor] | None:
        """What a call of a compiled graph has given, None where it was not kept."""
        return self._kept.get(position)

    def _keep(self, position: int, values: list[torch.Tensor]) -> None:
        self._kept[position] = values
        self._free -= _size(values)
        while self._free < 0 and self._kept:
            oldest = next(iter(self._kept))
            self._free += _size(self._kept.pop(oldest))


def _size(values: Sequence[torch.Tensor]) -> int:
    return sum(one.numel() * one.element_size() for one in values)
