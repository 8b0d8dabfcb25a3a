"""Draw tensors from the input sets, with values that suit an argument's role in its op."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

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
"""The functions that draw the numbers of the `INPUT_SETS`."""

MIXED = ("subnormal", "zero", "special")
"""Sets whose numbers are mixed with numbers from N(0, 1), so that an op also combines them with ordinary numbers."""


Activation = Callable[[torch.Tensor], torch.Tensor]


class InputPart(Enum):
    """The role of an argument in its op, which bounds its values."""

    REAL = "any number"
    POSITIVE = "a positive number"
    TANH = "an output of tanh"
    SIGMOID = "an output of sigmoid"
    UNIT = "a number from -1 to 1"
    ABOVE_ONE = "a number above 1"


@dataclass(frozen=True, slots=True)
class Source:
    """Draws the tensors of one input set, in one dtype, from its own generator."""

    inputs: str
    dtype: torch.dtype
    generator: torch.Generator
    samples: int
    device: str = "cpu"

    def elements(self, *shape: int, part: InputPart = InputPart.REAL) -> torch.Tensor:
        """Return arguments of an elementwise op, in which every kind of number is combined with every other."""
        count = _size(shape)
        numbers = DRAWS[self.inputs](count, self.format, self.generator)
        if self.inputs in MIXED:
            plain = stress.normal(count, self.format, self.generator)
            numbers = torch.where(torch.rand(count, generator=self.generator) < 0.5, numbers, plain)
        # Map the numbers into the range of `part`. NaN stays NaN. Where a range has no upper bound,
        # `special` deliberately includes numbers that are out of range.
        if part is InputPart.POSITIVE and self.inputs != "special":
            numbers = numbers.abs()
        elif part is InputPart.ABOVE_ONE and self.inputs != "special":
            numbers = 1 + numbers.abs()
        elif part is InputPart.SIGMOID:
            numbers = self._activations(numbers, torch.sigmoid, 2.0).clamp(0, 1)
        elif part in (InputPart.TANH, InputPart.UNIT):
            numbers = self._activations(numbers, torch.tanh, 1.0).clamp(-1, 1)
        return self._shaped(numbers, shape)

    def saved(self, forward: Callable[..., Sequence[torch.Tensor]], args: Sequence[Any]) -> list[torch.Tensor]:
        """Return the tensors that the device's forward saves for its backward.

        For bfloat16, a GPU saves statistics in float32 and the CPU in bfloat16; a backward accepts only the dtype that
        its own device saves.
        """
        device_args = [value.to(self.device, copy=True) if isinstance(value, torch.Tensor) else value for value in args]
        return [tensor.to("cpu") for tensor in forward(*device_args)]

    def rows(self, *shape: int) -> torch.Tensor:
        """Return arguments of an op that works on rows. A row has at most one special number, and squares in the set
        `range` do not overflow."""
        draw = stress.half_dynamic_range if self.inputs == "range" else DRAWS[self.inputs]
        count = _size(shape)
        if self.inputs not in ("special", "zero"):
            return self._shaped(draw(count, self.format, self.generator), shape)
        numbers = stress.normal(count, self.format, self.generator).reshape(-1, shape[-1] if shape else 1)
        drawn = draw(count, self.format, self.generator).reshape(numbers.shape)
        rows, columns = numbers.shape
        if self.inputs == "special":  # one element of every second row
            chosen = torch.randint(columns, (rows,), generator=self.generator)
            where = torch.zeros(rows, columns, dtype=torch.bool)
            where[torch.arange(0, rows, 2), chosen[::2]] = True
        else:  # all of every second row, and about half of the elements of the other rows
            where = torch.rand(numbers.shape, generator=self.generator) < 0.5
            where[::2] = True
        return self._shaped(torch.where(where, drawn, numbers), shape)

    def others(self, *shape: int) -> torch.Tensor:
        """Return the second operand of an op on rows, drawn from N(0, 1) for the sets in `MIXED`."""
        return self.parameters(*shape) if self.inputs in MIXED else self.rows(*shape)

    def parameters(self, *shape: int) -> torch.Tensor:
        """Draw weights and similar arguments, from N(0, 1) in every set."""
        return self._shaped(stress.normal(_size(shape), self.format, self.generator), shape)

    @property
    def format(self) -> Format:
        return format_of(self.dtype)

    def _activations(self, numbers: torch.Tensor, function: Activation, scale: float) -> torch.Tensor:
        """Map numbers of `random`, `saturated` and `offset` to outputs of an activation; leave other sets unchanged."""
        if self.inputs == "offset":
            numbers = 1 + (numbers - stress.OFFSET_MEAN)
        if self.inputs not in ("random", "saturated", "offset"):
            return numbers
        if self.inputs == "random":
            return function(numbers)
        # `offset` does not use these numbers; drawing them keeps its tensors the same in all versions of numdrift
        limits = stress.near_one(numbers.numel(), self.format, self.generator).reshape(numbers.shape)
        close = torch.rand(numbers.shape, generator=self.generator) < 1 / 8
        outputs = function(numbers * scale)
        return torch.where(close, limits, outputs) if self.inputs == "saturated" else outputs

    def _shaped(self, numbers: torch.Tensor, shape: Sequence[int]) -> torch.Tensor:
        return numbers.to(self.dtype).reshape(shape)


def source(inputs: str, op: str, dtype: torch.dtype, samples: int, seed: int, device: str = "cpu") -> Source:
    """Return the source of one set; equal arguments give equal numbers, whatever else is drawn."""
    generator = torch.Generator().manual_seed(zlib.crc32(f"{seed} {op} {inputs}".encode()))
    return Source(inputs, dtype, generator, samples, device)


def _size(shape: Sequence[int]) -> int:
    return int(torch.Size(shape).numel())
