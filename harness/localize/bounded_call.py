"""Arithmetic that carries a bound on its rounding error, and the arguments of a call as such numbers.

    fl(x op y) = (x op y)(1 + d) + e,    |d| <= u,  |e| <= eta / 2,  e = 0 for sums and differences

N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., SIAM 2002: the model is (2.4), with underflow
(2.8); running error analysis is section 3.3, gamma_n = n u / (1 - n u) Lemma 3.1, and a sum of n numbers errs by at
most gamma_(n-1) sum |x|, whatever its order (section 4.2). u is the unit roundoff, eta the smallest subnormal number.
Underflow is gradual; there is no bound beyond overflow. Terms of second order are kept, so these are bounds and no
estimates. They hold for contracted steps (fused multiply-add) too, which round less.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ..tape.tape import mapped
from ..torch_private.operators import schema_of, written_names


class NoBound(Exception):
    """Nothing is known of how far a correct kernel may err."""


@dataclass(frozen=True, slots=True)
class Digits:
    """The numbers that a dtype has: its unit roundoff and its smallest subnormal number."""

    dtype: torch.dtype
    unit: float
    least: float

    @classmethod
    def of(cls, dtype: torch.dtype) -> Digits:
        found = torch.finfo(dtype)
        return cls(dtype, found.eps / 2, found.smallest_normal * found.eps)

    def gamma(self, roundings: int) -> float:
        """n u / (1 - n u). Raises NoBound where n u reaches 1."""
        if roundings * self.unit >= 1:
            raise NoBound
        return roundings * self.unit / (1 - roundings * self.unit)

    def given(self, value: Tensor | float) -> Computed:
        """An argument, rounded to these digits before anything is done with it."""
        exact = torch.as_tensor(value, dtype=torch.float64)
        rounded = exact.to(self.dtype).double()
        return Computed(exact, torch.where(rounded == exact, 0.0, (rounded - exact).abs()), self)


@dataclass(frozen=True, slots=True, eq=False)
class Computed:
    """An exact `value` in double, and how far what is computed in its place may be from it."""

    value: Tensor
    error: Tensor
    digits: Digits

    def __add__(self, other: Computed) -> Computed:
        return self._rounded(self.value + other.value, self.error + other.error, underflows=False)

    def __sub__(self, other: Computed) -> Computed:
        return self._rounded(self.value - other.value, self.error + other.error, underflows=False)

    def __mul__(self, other: Computed) -> Computed:
        mine, theirs = self.value.abs(), other.value.abs()
        carried = mine * other.error + theirs * self.error + self.error * other.error
        return self._rounded(self.value * other.value, carried)

    def __truediv__(self, other: Computed) -> Computed:
        """(a + da) / (b + db) is a / b within (|da| + |a / b| |db|) / (|b| - |db|)."""
        value = self.value / other.value
        carried = (self.error + value.abs() * other.error) / (other.value.abs() - other.error).clamp(min=0.0)
        return self._rounded(value, carried)

    def sqrt(self) -> Computed:
        """sqrt(a + da) is sqrt(a) within |da| / sqrt(a), and within sqrt(|da|) near zero. It may err by 2 u:
        vector libraries promise a unit in the last place, not correct rounding."""
        value = self.value.sqrt()
        carried = torch.fmin(self.error / value, self.error.sqrt())
        return self._rounded(value, carried + self.digits.unit * (value + carried), underflows=False)

    def sum(self, dimensions: list[int] | None = None, *, keepdim: bool = False) -> Computed:
        """A sum in any order; one of a single number is taken to round once."""

        def total(value: Tensor) -> Tensor:
            return value.sum(dimensions or list(range(value.dim())), keepdim)

        value, carried = total(self.value), total(self.error)
        terms = self.value.numel() // max(value.numel(), 1)
        error = carried + self.digits.gamma(max(terms - 1, 1)) * (total(self.value.abs()) + carried)
        return Computed(value, error, self.digits)

    def rounded_to(self, digits: Digits) -> Computed:
        """The value stored in other digits."""
        return Computed(self.value, self.error, digits)._rounded(self.value, self.error)

    def _rounded(self, value: Tensor, carried: Tensor, *, underflows: bool = True) -> Computed:
        error = carried + self.digits.unit * (value.abs() + carried)
        return Computed(value, error + self.digits.least / 2 if underflows else error, self.digits)


def any_of(*forms: Computed) -> Computed:
    """What may be computed in any of these forms, which are equal in exact arithmetic."""
    error = forms[0].error
    for form in forms[1:]:
        error = torch.maximum(error, form.error)
    return Computed(forms[0].value, error, forms[0].digits)


@dataclass(frozen=True, slots=True)
class BoundedCall:
    """An op by its name without overload and the mark of one in place, `operation` the overload that writes
    nothing, and what it is given by the names of its schema. `dtype` is that of the result that is meant,
    number `output`; `digits` are computed in."""

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
        """The size of a factor like alpha, and by how much of it what it multiplies is off: its own rounding
        and the product's."""
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
    """None for what is no aten op, has no overload that writes nothing, or has complex numbers or integers as
    its result."""
    space, _, name = schema_of(operation).name.partition("::")
    if space != "aten" or not dtype.is_floating_point:
        return None
    name = name.rstrip("_")
    # The overload that gives a new tensor and writes nothing; None where there is none
    found = getattr(getattr(torch.ops.aten, name, None), str(operation).rpartition(".")[2], None)
    functional = None if found is None or written_names(found) else found
    # What the op is given, by the names of its schema, with the defaults that were left out
    schema = schema_of(operation).arguments
    defaults = {one.name: one.default_value for one in schema if one.has_default_value()}
    # torch gives arguments, in the order of the schema
    given = {**defaults, **dict(zip((one.name for one in schema), arguments, strict=False)), **keywords}
    numbers = given.values()
    if functional is None or any(
        isinstance(one, complex) or (isinstance(one, Tensor) and one.is_complex()) for one in numbers
    ):
        return None
    # half precision is computed in float32, and rounded once at the end
    wide = torch.float32 if dtype.itemsize < torch.float32.itemsize else dtype
    return BoundedCall(name, functional, given, dtype, Digits.of(wide), output)
