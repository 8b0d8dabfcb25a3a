"""Tensors drawn from the input sets, for the part that an argument plays in its op."""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

import torch

from . import formats as stress
from .formats import Format, format_of

DRAWS: dict[str, stress.Draw] = {
    "random": stress.normal,
    "saturated": stress.saturated,
    "offset": stress.offset,
    "range": stress.dynamic_range,
    "subnormal": stress.subnormal,
    "zero": stress.zero,
    "special": stress.special,
    "ties": stress.ties,
}
"""The numbers of each of the `INPUT_SETS`."""

MIXED = ("subnormal", "zero", "special")
"""Sets of which every second element is drawn from N(0, 1), so that each kind meets plain numbers, too."""


class InputPart(Enum):
    """What an argument is in its op, which bounds its values."""

    REAL = "any number"
    POSITIVE = "a positive number"
    TANH = "an output of tanh"
    SIGMOID = "an output of sigmoid"
    UNIT = "a number from -1 to 1"
    ABOVE_ONE = "a number above 1"


@dataclass(frozen=True, slots=True)
class Source:
    """Draws the tensors of one input set, in one dtype, from a generator of its own."""

    inputs: str
    dtype: torch.dtype
    generator: torch.Generator
    samples: int

    def elements(self, *shape: int, part: InputPart = InputPart.REAL) -> torch.Tensor:
        """Arguments of an op that works element by element: every kind of number meets every other."""
        numbers = self._numbers(shape, self.inputs, mixed=True)
        return self._shaped(_bounded(numbers, part, self), shape)

    def rows(self, *shape: int) -> torch.Tensor:
        """Arguments of an op that works on rows: at most one special number a row, and squares that fit."""
        draw = stress.half_dynamic_range if self.inputs == "range" else DRAWS[self.inputs]
        count = _size(shape)
        if self.inputs in ("special", "zero"):
            numbers = stress.normal(count, self.format, self.generator).reshape(-1, shape[-1] if shape else 1)
            drawn = draw(count, self.format, self.generator).reshape(numbers.shape)
            where = _one_a_row(numbers, self) if self.inputs == "special" else _half_and_whole(numbers, self)
            return self._shaped(torch.where(where, drawn, numbers), shape)
        return self._shaped(draw(count, self.format, self.generator), shape)

    def others(self, *shape: int) -> torch.Tensor:
        """The second operand of such an op: plain where the set is about single numbers."""
        return self.parameters(*shape) if self.inputs in MIXED else self.rows(*shape)

    def parameters(self, *shape: int) -> torch.Tensor:
        """N(0, 1) in every set: weights and the like."""
        return self._shaped(stress.normal(_size(shape), self.format, self.generator), shape)

    @property
    def format(self) -> Format:
        return format_of(self.dtype)

    def _numbers(self, shape: Sequence[int], inputs: str, *, mixed: bool) -> torch.Tensor:
        count = _size(shape)
        drawn = DRAWS[inputs](count, self.format, self.generator)
        if mixed and inputs in MIXED:
            plain = stress.normal(count, self.format, self.generator)
            return torch.where(torch.rand(count, generator=self.generator) < 0.5, drawn, plain)
        return drawn

    def _shaped(self, numbers: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
        return numbers.to(self.dtype).reshape(shape)


def source(inputs: str, op: str, dtype: torch.dtype, samples: int, seed: int) -> Source:
    """The source of one set; equal arguments give equal numbers, whatever else is drawn."""
    generator = torch.Generator().manual_seed(zlib.crc32(f"{seed} {op} {inputs}".encode()))
    return Source(inputs, dtype, generator, samples)


def _bounded(numbers: torch.Tensor, part: InputPart, source: Source) -> torch.Tensor:
    """The numbers brought into the range of their part; NaN stays, and in `special` the range is left."""
    if part is InputPart.POSITIVE:
        return numbers if source.inputs == "special" else numbers.abs()
    if part is InputPart.ABOVE_ONE:
        return numbers if source.inputs == "special" else 1 + numbers.abs()
    if part is InputPart.REAL:
        return numbers
    if part is InputPart.SIGMOID:
        return _activations(numbers, source, torch.sigmoid, 2.0).clamp(0, 1)
    return _activations(numbers, source, torch.tanh, 1.0).clamp(-1, 1)


def _activations(numbers: torch.Tensor, source: Source, function: object, scale: float) -> torch.Tensor:
    assert callable(function)
    if source.inputs == "offset":
        numbers = 1 + (numbers - stress.OFFSET_MEAN)
    if source.inputs not in ("random", "saturated", "offset"):
        return numbers
    if source.inputs == "random":
        return torch.as_tensor(function(numbers))
    limits = stress.near_one(numbers.numel(), source.format, source.generator).reshape(numbers.shape)
    close = torch.rand(numbers.shape, generator=source.generator) < 1 / 8
    outputs = torch.as_tensor(function(numbers * scale))
    return torch.where(close, limits, outputs) if source.inputs == "saturated" else outputs


def _one_a_row(numbers: torch.Tensor, source: Source) -> torch.Tensor:
    """Marks one element of every second row."""
    rows, columns = numbers.shape
    chosen = torch.randint(columns, (rows,), generator=source.generator)
    marked = torch.zeros(rows, columns, dtype=torch.bool)
    marked[torch.arange(0, rows, 2), chosen[::2]] = True
    return marked


def _half_and_whole(numbers: torch.Tensor, source: Source) -> torch.Tensor:
    """Marks every second row, and half of the elements of the others."""
    marked = torch.rand(numbers.shape, generator=source.generator) < 0.5
    marked[::2] = True
    return marked


def _size(shape: Sequence[int]) -> int:
    return int(torch.Size(shape).numel())
