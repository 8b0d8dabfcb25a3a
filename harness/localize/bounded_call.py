"""A call of which a bound is wanted: its arguments by name, and as they are computed with."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from .. import torch_private
from ..tape.tape import mapped
from .running_error import Computed, Digits


@dataclass(frozen=True, slots=True)
class BoundedCall:
    """An op by its name without overload and the mark of one in place, `operation` the overload that writes nothing, and what it is
    given by the names of its schema. `dtype` is that of the result that is meant, number `output`; `digits` are computed in."""

    name: str
    operation: Any
    given: Mapping[str, Any]
    dtype: torch.dtype
    digits: Digits
    output: int

    def number(self, name: str) -> Computed:
        """An argument as it is computed with; one number for all elements may have been given the result's digits."""
        value = self.given[name]
        if isinstance(value, Tensor) and value.dim():
            return self.digits.given(value)
        return replace(Digits.of(self.dtype).given(value), digits=self.digits)

    def summands(self) -> Computed:
        """What a reduction reads, which its argument `dtype` converts beforehand."""
        converted = self.given.get("dtype") is not None
        return (Digits.of(self.dtype) if converted else self.digits).given(self.given["self"])

    def factor(self, name: str) -> tuple[float, float]:
        """The size of a factor like alpha, and by how much of it what it multiplies is off: its own rounding and the product's."""
        value = self.number(name)
        size = float(value.value.abs())
        if size in (0.0, 1.0):
            return size, 0.0
        return size, (float(value.error) / size + self.digits.unit) * (1 + self.digits.unit)

    def apply(self, function: Callable[[Tensor], Tensor] = lambda value: value, **instead: Any) -> Tensor:
        """The result in double, the floating-point arguments mapped and those in `instead` replaced."""

        def changed(value: Any) -> Any:
            is_floating = isinstance(value, Tensor) and value.is_floating_point()
            return function(value) if is_floating else value

        given = {**self.given, **instead}
        found = self.operation(**{name: mapped(changed, value) for name, value in given.items()})
        chosen: Tensor = found if isinstance(found, Tensor) else found[self.output]
        return chosen


def bounded_call(
    operation: Any, arguments: Sequence[Any], keywords: Mapping[str, Any], dtype: torch.dtype, output: int
) -> BoundedCall | None:
    """None for what is no aten op, has no overload that writes nothing, or has complex numbers or integers as its result."""
    space, _, name = torch_private.schema_of(operation).name.partition("::")
    if space != "aten" or not dtype.is_floating_point:
        return None
    name = name.rstrip("_")
    functional = _functional(operation, name)
    given = _named(operation, arguments, keywords)
    if functional is None or any(map(_is_complex, given.values())):
        return None
    wide = torch.float32 if dtype.itemsize < torch.float32.itemsize else dtype
    return BoundedCall(name, functional, given, dtype, Digits.of(wide), output)


def _functional(operation: Any, name: str) -> Any:
    """The overload that gives a new tensor and writes nothing; None where there is none."""
    found = getattr(getattr(torch.ops.aten, name, None), str(operation).rpartition(".")[2], None)
    return None if found is None or torch_private.written_names(found) else found


def _named(operation: Any, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> dict[str, Any]:
    """What the op is given, by the names of its schema, with the defaults that were left out."""
    schema = torch_private.schema_of(operation).arguments
    defaults = {one.name: one.default_value for one in schema if one.has_default_value()}
    # torch gives arguments, in the order of the schema
    return {**defaults, **dict(zip((one.name for one in schema), arguments, strict=False)), **keywords}


def _is_complex(value: Any) -> bool:
    return isinstance(value, complex) or (isinstance(value, Tensor) and value.is_complex())
