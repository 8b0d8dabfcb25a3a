"""What the capture knows of lazy values: who made each, and what the script calls it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch

from .lazy_calls import Call, number_of

SAME = ("alias_copy", "detach_copy")
"""Ops whose result is their argument: the core keeps a tensor and what it was detached from as two values."""


class KnownValues:
    """Values by the lazy core's number. A number is never used again, so nothing is forgotten."""

    def __init__(self) -> None:
        self.calls: dict[int, Call] = {}
        self._makers: dict[int, Call] = {}
        self._bindings: dict[int, str] = {}
        self._executed: dict[int, str] = {}
        self._same: dict[int, list[int]] = {}

    def name(self, tensors: Mapping[str, torch.Tensor]) -> None:
        """Say what the script calls the values that these tensors have now."""
        for binding, tensor in tensors.items():
            number = number_of(tensor)
            if number is not None:
                self._bindings.setdefault(number, binding)

    def bind(self, number: int, binding: str) -> None:
        self._bindings.setdefault(number, binding)

    def made(self, call: Call) -> None:
        """Take a call that has run."""
        for number in call.made:
            self._makers[number] = call
        given = call.operands[0].tensor if call.operands else None
        if call.place.op in SAME and given is not None and call.made:
            self._same.setdefault(call.made[0], []).append(given)
            self._same.setdefault(given, []).append(call.made[0])

    def executed(self, number: int, value: str) -> None:
        """Note that a graph has computed a value, and what it is called there."""
        self._executed.setdefault(number, value)

    def maker(self, number: int) -> Call | None:
        return self._makers.get(number)

    def binding(self, number: int) -> str:
        """What the script calls a value, or the one that it is the same as; "" for one that it has no name for."""
        return next((self._bindings[one] for one in self._alike(number) if one in self._bindings), "")

    def saved(self, number: int) -> str:
        """What a value was called in the graph that has computed it, "" where none has."""
        return self._executed.get(number, "")

    def _alike(self, number: int) -> Iterator[int]:
        """The value itself, then all that are the same as it, nearest first."""
        met, waiting = {number}, [number]
        while waiting:
            one = waiting.pop(0)
            yield one
            following = [other for other in self._same.get(one, ()) if other not in met]
            met.update(following)
            waiting += following
