"""Every kernel of an op against the op itself in float64, over dtypes and layouts."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from numdrift.harness.errors import NotAvailable
from numdrift.harness.torch_private.operators import decomposition_of, find_overload
from numdrift.kernels.registry import FLOATING, KernelRegistry, built_in

UNIT_ROUNDOFF = {
    torch.float64: 2.0**-53,
    torch.float32: 2.0**-24,
    torch.float16: 2.0**-11,
    torch.bfloat16: 2.0**-9,
}
COARSE = {"bf16": 2.0**-9, "bf16_moments": 2.0**-9, "tf32": 2.0**-12}
"""Unit roundoff inside kernels of low precision."""

ROUNDINGS = 40
"""How many unit roundoffs the norm of a result may be off: the sums here have at most 200 addends."""

LAYOUTS = ("contiguous", "transposed", "sliced")


@dataclass(frozen=True)
class Maker:
    """Makes random tensors of one dtype in one layout."""

    dtype: torch.dtype
    layout: str = "contiguous"
    seed: torch.Generator = field(default_factory=lambda: torch.Generator().manual_seed(3))

    def __call__(self, *shape: int) -> torch.Tensor:
        if self.layout == "transposed" and shape:
            return self._random(*reversed(shape)).permute(*reversed(range(len(shape))))
        if self.layout == "sliced" and shape:
            return self._random(*shape[:-1], 2 * shape[-1])[..., ::2]
        return self._random(*shape)

    def positive(self, *shape: int) -> torch.Tensor:
        return self(*shape).abs() + 0.5

    def _random(self, *shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=self.seed, dtype=torch.float64).to(self.dtype)


@dataclass(frozen=True)
class Call:
    args: tuple[Any, ...]
    kwargs: dict[str, Any]


def call(*args: Any, **kwargs: Any) -> Call:
    return Call(args, kwargs)


Calls = Callable[[Maker], Iterator[Call]]


@functools.cache
def registry() -> KernelRegistry:
    return built_in()


def cases(ops: Sequence[str]) -> list[tuple[str, str, str]]:
    """(op, kernel, dtype) for every kernel of the ops and every dtype of its record."""
    return [
        (op, kernel.name, dtype)
        for op in ops
        for kernel in registry().kernels(op)
        if not kernel.on_request
        for dtype in FLOATING
        if kernel.supports(dtype, "cpu")
    ]


def check_records(op: str) -> None:
    """An op is registered with at least four kernels that can be had, each explained and importable."""
    assert op in {operation.name for operation in registry().operations()}
    kernels = [kernel for kernel in registry().kernels(op) if not kernel.on_request]
    assert len(kernels) >= 4
    for kernel in kernels:
        assert callable(kernel.load())
        assert kernel.description and kernel.formula and "\n" not in kernel.description
        assert kernel.source or kernel.name in ("aten", "decomposed", "fp64")


def check(op: str, kernel: str, dtype: str, calls: Calls) -> None:
    """The kernel gives what the op gives, up to rounding, and writes what the op writes and nothing else."""
    function = registry().kernel(op, kernel).load()
    for layout in LAYOUTS:
        for number, one in enumerate(calls(Maker(getattr(torch, dtype), layout))):
            before, expected, wide = (copied(list(one.args)) for _ in range(3))
            wide = widened(wide)
            actual_args = copied(list(one.args))
            try:
                actual = function(*actual_args, **one.kwargs)
            except NotAvailable:
                assert kernel == "decomposed" and decomposition_of(_overload(op, one)) is None
                return
            result = _overload(op, one)(*expected, **one.kwargs)
            exact = find_overload(op, wide, one.kwargs)(*wide, **_widened_keywords(one.kwargs))
            where = f"{layout} call {number}"
            # Results wider than the inputs: torch's decompositions of norms round their statistics to the inputs'
            # dtype, and its attention of bfloat16 takes a rough exponential for its log-sum-exp.
            foreign = kernel in ("aten", "decomposed")
            coarse = UNIT_ROUNDOFF[getattr(torch, dtype)] if foreign else COARSE.get(kernel, 0.0)
            _compare(where, coarse, leaves(actual), leaves(result), leaves(exact))
            _compare_written(where, coarse, before, actual_args, expected, wide)


def copied(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        fresh = torch.empty_strided(value.shape, value.stride(), dtype=value.dtype)
        return fresh.copy_(value)
    return type(value)(copied(one) for one in value) if isinstance(value, (list, tuple)) else value


def widened(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        return value.double() if value.is_floating_point() else value
    if isinstance(value, (list, tuple)):
        return type(value)(widened(one) for one in value)
    return torch.float64 if isinstance(value, torch.dtype) else value


def leaves(value: Any) -> list[Any]:
    if isinstance(value, (list, tuple)):
        return [leaf for one in value for leaf in leaves(one)]
    return [value]


def distance(actual: torch.Tensor, exact: torch.Tensor) -> float:
    """Norm of the difference over the norm of what is right."""
    off, size = float((actual.double() - exact.double()).norm()), float(exact.double().norm())
    return off / size if size else off


def _overload(op: str, one: Call) -> Any:
    return find_overload(op, one.args, one.kwargs)


def _widened_keywords(kwargs: dict[str, Any]) -> dict[str, Any]:
    """`grad_scale` and `found_inf` are float32 whatever the lists are."""
    return {name: value if name in ("grad_scale", "found_inf") else widened(value) for name, value in kwargs.items()}


def _compare(where: str, coarse: float, actual: list[Any], result: list[Any], exact: list[Any]) -> None:
    for place, (one, like, right) in enumerate(itertools.zip_longest(actual, result, exact)):
        assert (one is None) == (like is None), f"{where}, result {place}"
        if like is None:
            continue
        assert (one.shape, one.dtype) == (like.shape, like.dtype), f"{where}, result {place}"
        assert torch.equal(one.isnan(), like.isnan()), f"{where}, result {place}"
        bound = ROUNDINGS * max(UNIT_ROUNDOFF[one.dtype], coarse)
        off = distance(one.nan_to_num(), right.nan_to_num())
        assert off <= bound, f"{where}, result {place}: {off:.2e} above {bound:.2e}"


def _compare_written(where: str, coarse: float, before: Any, actual: Any, expected: Any, exact: Any) -> None:
    for old, one, like, right in zip(*map(leaves, (before, actual, expected, exact)), strict=True):
        if not isinstance(old, torch.Tensor):
            continue
        if torch.equal(old, like):
            assert torch.equal(old, one), f"{where}: wrote to an argument"
        else:
            assert not torch.equal(old, one), f"{where}: did not write to an argument"
            _compare(f"{where}, written", coarse, [one], [like], [right])
