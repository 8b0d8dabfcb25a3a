"""Every kernel of the elementwise ops, in every dtype and layout, against the op's float64 reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from numdrift.kernels.registry import ANY_DEVICE, Kernel, built_in, load_target

from ...row_by_row import table

Tensor = torch.Tensor
REGISTRY = built_in()
DTYPES = ("float32", "float64", "bfloat16", "float16")
ROUNDINGS = 12
"""How many units of rounding of the scale a kernel may be off."""


@dataclass(frozen=True, slots=True)
class Case:
    """An op: what its tensor arguments look like, and the size that its rounding errors are measured by.

    `gelu_backward` does not broadcast: oneDNN, which computes it for float32, raises (torch 2.13).
    """

    op: str
    draw: tuple[Callable[[Tensor], Tensor], ...]
    scale: Callable[..., Tensor]
    keywords: tuple[dict[str, Any], ...] = ({},)
    numbers: tuple[tuple[float, ...], ...] = ((),)
    broadcasts: bool = True


def plain(x: Tensor) -> Tensor:
    return x


def wide(x: Tensor) -> Tensor:
    return 4 * x


def away_from_zero(x: Tensor) -> Tensor:
    return torch.copysign(0.5 + x.abs(), x)


def gradient_scale(grad: Tensor, x: Tensor, **_: Any) -> Tensor:
    return grad.abs() * (1 + x.abs())


VALUES: tuple[dict[str, Any], ...] = ({}, {"value": -0.3}, {"value": 2})
FORMS: tuple[dict[str, Any], ...] = ({}, {"approximate": "none"}, {"approximate": "tanh"})
CASES = (
    Case("tanh", (wide,), lambda x: torch.ones_like(x)),
    Case("tanh_backward", (plain, torch.tanh), lambda g, y: g.abs() * (1 + y * y)),
    Case("sigmoid", (wide,), lambda x: torch.ones_like(x)),
    Case("sigmoid_backward", (plain, torch.sigmoid), lambda g, y: (g * y).abs() * (1 + y.abs())),
    Case("silu", (wide,), lambda x: x.abs()),
    Case("silu_backward", (plain, wide), gradient_scale),
    Case("gelu", (wide,), lambda x, **_: x.abs(), FORMS),
    Case("gelu_backward", (plain, wide), gradient_scale, FORMS, broadcasts=False),
    Case("addcmul", (plain, plain, plain), lambda a, b, c, value=1: a.abs() + (value * b * c).abs(), VALUES),
    Case(
        "addcdiv",
        (plain, plain, away_from_zero),
        lambda a, b, c, value=1: a.abs() + (value * b / c).abs(),
        VALUES,
    ),
    Case("lerp", (plain, plain, torch.sigmoid), lambda a, b, w: a.abs() + b.abs()),
    Case("lerp", (plain, plain), lambda a, b, w: a.abs() + b.abs(), numbers=((0.3,), (0.7,), (1.0,))),
)
APPROXIMATIONS = {
    ("gelu", "tanh_form"): 5e-4,
    ("gelu", "exp_form"): 5e-4,
    ("gelu", "quick"): 0.021,
    ("gelu_backward", "tanh_form"): 2e-3,
    ("tanh", "rational"): 4e-7,
}
"""How far a kernel that computes another function is from the op, in absolute terms."""


def layouts(count: int, broadcasts: bool) -> Iterator[tuple[str, list[Tensor]]]:
    """`count` float64 tensors with normal numbers, for each layout."""
    made = torch.Generator().manual_seed(count)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=made, dtype=torch.float64)

    yield "contiguous", [normal(5, 67) for _ in range(count)]
    yield "no dimensions", [normal() for _ in range(count)]
    yield "empty", [normal(3, 0) for _ in range(count)]
    if count > 1 and broadcasts:
        yield "broadcast", [normal(*((4, 1, 6), (4, 3, 1), (1, 3, 6))[place % 3]) for place in range(count)]


STRIDED: dict[str, Callable[[Tensor], Tensor]] = {
    "as is": plain,
    "transposed": lambda x: x.mT if x.dim() > 1 else x,
    "every other, with an offset": lambda x: x.repeat_interleave(2, -1)[..., 1::2] if x.dim() else x,
    "expanded": lambda x: x[..., :1].expand(x.shape) if x.dim() else x,
}


def kernels() -> Iterator[Any]:
    for case in CASES:
        for kernel in (one for one in REGISTRY.kernels(case.op) if one.devices == ANY_DEVICE):
            for dtype in DTYPES:
                number = "scalar" if case.numbers != ((),) else "tensors"
                yield pytest.param(case, kernel, dtype, id=f"{case.op}-{kernel.name}-{dtype}-{number}")


def bound(kernel: Kernel, dtype: torch.dtype, scale: Tensor) -> Tensor:
    unit = torch.finfo(torch.bfloat16 if kernel.name.startswith("bf16") else dtype).eps
    tiny = torch.finfo(dtype).smallest_normal * torch.finfo(dtype).eps
    return ROUNDINGS * unit * scale + 4 * tiny + APPROXIMATIONS.get((kernel.op, kernel.name), 0)


@pytest.mark.slow
@table(("case", "kernel", "dtype"), [*kernels()])
def test_kernel_returns_what_the_op_returns(case: Case, kernel: Kernel, dtype: str) -> None:
    function, reference = kernel.load(), load_target(REGISTRY.operation(case.op).reference)
    precision: torch.dtype = getattr(torch, dtype)
    assert kernel.supports(dtype, "cpu")
    for name, drawn in layouts(len(case.draw), case.broadcasts):
        for stride, restride in STRIDED.items():
            # given
            tensors = [restride(draw(x).to(precision)) for draw, x in zip(case.draw, drawn, strict=True)]
            before = [one.clone() for one in tensors]
            for keywords in case.keywords:
                for numbers in case.numbers:
                    # when
                    result = function(*tensors, *numbers, **keywords)
                    # then
                    arguments = [*(one.double() for one in tensors), *numbers]
                    expected = reference(*arguments, **keywords)
                    scale = case.scale(*arguments, **keywords).broadcast_to(expected.shape)
                    where = f"{name}, {stride}, {keywords}, {numbers}"
                    assert (result.shape, result.dtype) == (expected.shape, precision), where
                    error = (result.double() - expected).abs()
                    assert (error <= bound(kernel, precision, scale)).all(), where
            assert all(torch.equal(a, b) for a, b in zip(tensors, before, strict=True)), "inputs changed"


@pytest.mark.parametrize("case", CASES[:-1], ids=lambda case: case.op)
def test_op_has_kernels_and_each_says_what_it_computes(case: Case) -> None:
    operation = REGISTRY.operation(case.op)
    own = [one for one in REGISTRY.kernels(case.op) if one.name not in ("aten", "fp64") and not one.on_request]
    assert operation.family in ("activation", "pointwise") and operation.summary
    assert len(own) >= 4
    assert "bf16" in {kernel.name for kernel in own}
    for kernel in own:
        assert kernel.description and kernel.formula
        assert kernel.source or kernel.name == "decomposed", kernel.name


def test_tanh_backward_has_the_kernels_of_the_founding_case() -> None:
    names = {kernel.name for kernel in REGISTRY.kernels("tanh_backward")}
    assert names >= {"aten", "decomposed", "fma", "mac", "mac_unfused", "factored", "bf16", "fp64"}


@pytest.mark.parametrize(
    "kernel",
    [one for op in ("gelu", "gelu_backward") for one in REGISTRY.kernels(op) if not one.on_request],
    ids=lambda k: f"{k.op}-{k.name}",
)
def test_gelu_knows_its_two_forms_apart(kernel: Kernel) -> None:
    # given arguments where the forms differ by 1e-4 and more
    x = torch.linspace(-3, 3, 64)
    arguments = [torch.ones_like(x), x] if kernel.op == "gelu_backward" else [x]
    # when
    erf, tanh = (kernel.load()(*arguments, approximate=form) for form in ("none", "tanh"))
    # then only the kernels that compute one function whichever is asked for give the same
    assert torch.equal(erf, tanh) == (kernel.name in ("tanh_form", "exp_form", "quick"))
