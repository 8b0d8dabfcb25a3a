"""Arithmetic with a bound on its rounding error, and calls of ops whose arguments have such bounds.

    fl(x op y) = (x op y)(1 + d) + e,    |d| <= u,  |e| <= eta / 2,  e = 0 for sums and differences

N. J. Higham, Accuracy and Stability of Numerical Algorithms, 2nd ed., SIAM 2002: the model is (2.4), with underflow
(2.8); running error analysis is section 3.3, gamma_n = n u / (1 - n u) Lemma 3.1, and a sum of n numbers errs by at
most gamma_(n-1) sum |x|, whatever its order (section 4.2). u is the unit roundoff, eta the smallest subnormal number.
Underflow is assumed to be gradual; there is no bound beyond overflow. Terms of second order are kept, so these are
bounds, not estimates. They also hold for contracted steps (fused multiply-add), which round less.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from ...tape.tape import mapped
from ...torch_private.operators import schema_of, written_names


class NoBound(Exception):
    """Raised where no bound on the error of a correct kernel is known."""


@dataclass(frozen=True, slots=True)
class Digits:
    """The precision of a dtype: its unit roundoff and its smallest subnormal number."""

    dtype: torch.dtype
    unit: float
    least: float

    @classmethod
    def of(cls, dtype: torch.dtype) -> Digits:
        limits = torch.finfo(dtype)
        return cls(dtype, limits.eps / 2, limits.smallest_normal * limits.eps)

    def gamma(self, roundings: int) -> float:
        """Return n u / (1 - n u). Raises NoBound where n u reaches 1."""
        if roundings * self.unit >= 1:
            raise NoBound
        return roundings * self.unit / (1 - roundings * self.unit)

    def rounded(self, value: Tensor | float) -> Computed:
        """Return an argument rounded to these digits, before any computation."""
        exact = torch.as_tensor(value, dtype=torch.float64)
        rounded = exact.to(self.dtype).double()
        return Computed(exact, torch.where(rounded == exact, 0.0, (rounded - exact).abs()), self)


@dataclass(frozen=True, slots=True, eq=False)
class Computed:
    """An exact `value` in double, and a bound on the `error` of the value that a kernel computes for it."""

    value: Tensor
    error: Tensor
    digits: Digits

    def __add__(self, other: Computed) -> Computed:
        return self._rounded(self.value + other.value, self.error + other.error, underflows=False)

    def __sub__(self, other: Computed) -> Computed:
        return self._rounded(self.value - other.value, self.error + other.error, underflows=False)

    def __mul__(self, other: Computed) -> Computed:
        size, other_size = self.value.abs(), other.value.abs()
        carried = size * other.error + other_size * self.error + self.error * other.error
        return self._rounded(self.value * other.value, carried)

    def __truediv__(self, other: Computed) -> Computed:
        """Divide: (a + da) / (b + db) is a / b within (|da| + |a / b| |db|) / (|b| - |db|)."""
        value = self.value / other.value
        carried = (self.error + value.abs() * other.error) / (other.value.abs() - other.error).clamp(min=0.0)
        return self._rounded(value, carried)

    def sqrt(self) -> Computed:
        """Take the root: sqrt(a + da) is sqrt(a) within |da| / sqrt(a), and within sqrt(|da|) near zero.

        The root itself may err by 2 u: vector libraries promise a unit in the last place, not correct rounding.
        """
        value = self.value.sqrt()
        carried = torch.fmin(self.error / value, self.error.sqrt())
        return self._rounded(value, carried + self.digits.unit * (value + carried), underflows=False)

    def sum(self, dimensions: list[int] | None = None, *, keepdim: bool = False) -> Computed:
        """Sum in any order; a sum of a single number counts as one rounding."""

        def total(value: Tensor) -> Tensor:
            return value.sum(dimensions or list(range(value.dim())), keepdim)

        value, carried = total(self.value), total(self.error)
        terms = self.value.numel() // max(value.numel(), 1)
        error = carried + self.digits.gamma(max(terms - 1, 1)) * (total(self.value.abs()) + carried)
        return Computed(value, error, self.digits)

    def rounded_to(self, digits: Digits) -> Computed:
        """Return the value as it is stored with other digits."""
        return Computed(self.value, self.error, digits)._rounded(self.value, self.error)

    def _rounded(self, value: Tensor, carried: Tensor, *, underflows: bool = True) -> Computed:
        error = carried + self.digits.unit * (value.abs() + carried)
        return Computed(value, error + self.digits.least / 2 if underflows else error, self.digits)


def any_of(*forms: Computed) -> Computed:
    """Return a value that a kernel may compute in any of these forms, which are equal in exact arithmetic."""
    error = forms[0].error
    for form in forms[1:]:
        error = torch.maximum(error, form.error)
    return Computed(forms[0].value, error, forms[0].digits)


@dataclass(frozen=True, slots=True)
class BoundedCall:
    """A call of an op, prepared for a bound on the error of one of its results.

    name: the op's name without overload and without the underscore of an in-place op.
    operation: the overload that writes nothing.
    arguments: the arguments of the call, by their names in the schema.
    dtype: the dtype of the result.
    digits: the precision that the kernel computes in.
    output: the index of the result.
    """

    name: str
    operation: Any
    arguments: Mapping[str, Any]
    dtype: torch.dtype
    digits: Digits
    output: int

    def number(self, name: str) -> Computed:
        """Return an argument as the kernel uses it.

        The kernel may have rounded a scalar argument to the result's dtype.
        """
        value = self.arguments[name]
        if isinstance(value, Tensor) and value.dim():
            return self.digits.rounded(value)
        return replace(Digits.of(self.dtype).rounded(value), digits=self.digits)

    def summands(self) -> Computed:
        """Return the input of a reduction, converted to the reduction's argument `dtype` if there is one."""
        converted = self.arguments.get("dtype") is not None
        return (Digits.of(self.dtype) if converted else self.digits).rounded(self.arguments["self"])

    def factor(self, name: str) -> tuple[float, float]:
        """Return the size of a factor such as alpha, and the relative error that multiplying by it adds through the
        rounding of the factor and of the product."""
        value = self.number(name)
        size = float(value.value.abs())
        if size in (0.0, 1.0):
            return size, 0.0
        return size, (float(value.error) / size + self.digits.unit) * (1 + self.digits.unit)

    def apply(self, function: Callable[[Tensor], Tensor] = lambda value: value, **instead: Any) -> Tensor:
        """Compute the result in double. `instead` replaces arguments, and `function` is applied to the floating-point
        ones."""

        def changed(value: Any) -> Any:
            is_floating = isinstance(value, Tensor) and value.is_floating_point()
            return function(value) if is_floating else value

        arguments = {**self.arguments, **instead}
        result = self.operation(**{name: mapped(changed, value) for name, value in arguments.items()})
        chosen: Tensor = result if isinstance(result, Tensor) else result[self.output]
        return chosen


def bounded_call(
    operation: Any, arguments: Sequence[Any], keywords: Mapping[str, Any], dtype: torch.dtype, output: int
) -> BoundedCall | None:
    """Return the prepared call.

    Return None for an op outside of aten, an op without an overload that writes nothing, complex arguments, and a
    result that is not floating-point.
    """
    space, _, name = schema_of(operation).name.partition("::")
    if space != "aten" or not dtype.is_floating_point:
        return None
    name = name.rstrip("_")
    # The overload that returns a new tensor and writes nothing, if there is one
    overload = getattr(getattr(torch.ops.aten, name, None), str(operation).rpartition(".")[2], None)
    functional = None if overload is None or written_names(overload) else overload
    # The arguments by their names in the schema, with defaults for those that were left out
    schema = schema_of(operation).arguments
    defaults = {argument.name: argument.default_value for argument in schema if argument.has_default_value()}
    # torch passes arguments in the order of the schema
    by_name = {**defaults, **dict(zip((argument.name for argument in schema), arguments, strict=False)), **keywords}
    numbers = by_name.values()
    if functional is None or any(
        isinstance(number, complex) or (isinstance(number, Tensor) and number.is_complex()) for number in numbers
    ):
        return None
    # kernels compute half precision in float32, and round once at the end
    wide = torch.float32 if dtype.itemsize < torch.float32.itemsize else dtype
    return BoundedCall(name, functional, by_name, dtype, Digits.of(wide), output)
