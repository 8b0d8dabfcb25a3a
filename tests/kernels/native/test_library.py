"""What the native kernels take, and when they leave the work to torch."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx
from torch.utils.checkpoint import checkpoint

from numdrift.kernels.native import library
from numdrift.kernels.native.library import elementwise

needs_native = pytest.mark.skipif(
    not library.status().startswith("native"), reason=f"no C kernels here: {library.status()}"
)


def decomposed(g: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return g * (1 - y * y)


def layouts() -> dict[str, tuple[torch.Tensor, torch.Tensor]]:
    whole = torch.randn(6, 8, generator=torch.Generator().manual_seed(1))
    return {
        "contiguous": (whole, whole + 1),
        "offset in the storage": (whole[2:], whole[:4]),
        "transposed": (whole.t(), whole.t() + 1),
        "every second": (whole[:, ::2], whole[::1, 1::2]),
        "broadcast": (whole[:, :1], whole[0]),
        "expanded": (whole[:1].expand(6, 8), whole),
        "no dimension": (whole[1, 2], whole[2, 1]),
        "no dimension and a matrix": (whole[1, 2], whole),
        "empty": (whole[:0], whole[:0]),
        "empty by broadcasting": (whole[:, :0], whole[:, :1]),
        "negated lazily": (torch.complex(whole, whole).conj().imag, whole),
        "a parameter": (torch.nn.Parameter(whole), whole),
        "freshly resized": (torch.empty(0).resize_(6, 8).copy_(whole), whole),
    }


@needs_native
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("layout", layouts())
def test_any_layout(layout: str, dtype: torch.dtype) -> None:
    g, y = (one.detach().to(dtype) if dtype != one.dtype else one for one in layouts()[layout])
    before = (g.detach().clone(), y.clone())
    result = elementwise("tanh_backward_decomposed", [g, y])
    expected = decomposed(g, y)
    assert result is not None and result.dtype == dtype and result.is_contiguous()
    assert result.shape == expected.shape and torch.equal(result, expected)
    assert torch.equal(g, before[0]) and torch.equal(y, before[1])


def freed() -> torch.Tensor:
    tensor = torch.ones(4)
    tensor.untyped_storage().resize_(0)
    return tensor


def fake() -> torch.Tensor:
    with torch._subclasses.FakeTensorMode():
        return torch.ones(4)


UNREADABLE = {
    "int64": lambda: torch.ones(4, dtype=torch.int64),
    "bfloat16": lambda: torch.ones(4, dtype=torch.bfloat16),
    "meta": lambda: torch.ones(4, device="meta"),
    "fake": fake,
    "functional": lambda: torch._to_functional_tensor(torch.ones(4)),
    "freed": freed,
    "sparse": lambda: torch.eye(4).to_sparse(),
}


@pytest.mark.parametrize("kind", UNREADABLE)
def test_what_cannot_be_read_is_left_to_torch(kind: str) -> None:
    tensor = UNREADABLE[kind]()  # type: ignore[no-untyped-call]
    assert elementwise("tanh_backward_fma", [tensor, tensor]) is None
    assert elementwise("tanh_backward_fma", [torch.ones(4), tensor]) is None
    assert elementwise("tanh_backward_fma", [tensor, torch.ones(())]) is None


def test_mixed_dtypes_are_left_to_torch() -> None:
    assert elementwise("tanh_backward_fma", [torch.ones(4), torch.ones(4, dtype=torch.float64)]) is None


@pytest.mark.slow
def test_a_lazy_tensor_is_left_to_torch() -> None:
    code = """
import torch, torch._lazy.ts_backend as backend
backend.init()
from numdrift.kernels.native.library import elementwise
print(elementwise("tanh_backward_fma", [torch.ones(4, device="lazy")] * 2))
"""
    assert run(code) == "None"


@needs_native
def test_tracers_get_torch_operations_instead_of_a_constant() -> None:
    seen = []

    def function(g: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        result = elementwise("tanh_backward_decomposed", [g, y])
        seen.append(result)
        return decomposed(g, y) if result is None else result

    ones, others = torch.ones(3), torch.ones(3)
    traced = make_fx(function)(ones, others)
    recorded = torch.jit.trace(function, (ones, others), check_trace=False)
    torch.vmap(function)(ones, others)
    torch.func.functionalize(function)(ones, others)
    assert seen == [None] * 4
    for again in (traced, recorded):
        assert again(ones * 3, ones * 2).tolist() == [-9.0] * 3


@needs_native
def test_surroundings_do_not_disturb() -> None:
    g, y = torch.randn(5), torch.rand(5)
    expected = decomposed(g, y)
    with torch.device("meta"), torch.inference_mode():
        result = elementwise("tanh_backward_decomposed", [g, y])
    assert result is not None and torch.equal(result, expected)

    def loss(x: torch.Tensor) -> Any:
        inner = elementwise("tanh_backward_decomposed", [x.detach(), y])
        assert inner is not None and not inner.requires_grad
        return (x * inner).sum()

    checkpoint(loss, g.clone().requires_grad_(), use_reentrant=False).backward()


@needs_native
def test_threads_may_call_at_once() -> None:
    g, y = torch.randn(1000), torch.rand(1000)
    expected = decomposed(g, y)
    equal: list[bool] = []

    def call() -> None:
        for _ in range(50):
            result = elementwise("tanh_backward_decomposed", [g, y])
            equal.append(result is not None and torch.equal(result, expected))

    threads = [threading.Thread(target=call) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert equal == [True] * 400


def test_another_name_or_number_of_operands_is_refused() -> None:
    one = torch.ones(1)
    for name, tensors, scalars in [("tanh", [one], []), ("fma", [one, one], []), ("fma", [one] * 3, [1.0])]:
        with pytest.raises(ValueError, match=name):
            elementwise(name, tensors, scalars)


@needs_native
def test_shapes_that_do_not_broadcast_raise_as_in_torch() -> None:
    with pytest.raises(RuntimeError, match="size of tensor"):
        elementwise("tanh_backward_fma", [torch.ones(2), torch.ones(3)])


STATUS = """
import torch
from numdrift.kernels.native.library import elementwise, rows, status
ones = torch.ones(2, 2)
print(elementwise("tanh_backward_fma", [ones, ones]), rows("sum_kahan", ones), status())
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    "environment", [{"CC": "/nonexistent"}, {"PATH": ""}, {"CC": "/bin/false"}, {"NUMDRIFT_CACHE": "/proc/x"}]
)
def test_without_a_compiler_torch_formulas_are_used_and_the_reason_is_named(
    environment: dict[str, str], tmp_path: Path
) -> None:
    said = run(STATUS, {"NUMDRIFT_CACHE": str(tmp_path)} | environment)
    assert said.startswith("None None torch formulas (") and "\n" not in said
    asked = next(iter(environment.values()))
    assert (asked or "no C compiler") in said


@pytest.mark.slow
def test_a_cpu_without_the_instruction_is_served_by_the_emulation(tmp_path: Path) -> None:
    said = run(STATUS, {"NUMDRIFT_CACHE": str(tmp_path), "CC": "cc -DNUMDRIFT_EMULATE_FMA"})
    assert said.endswith("native (emulated fma)")


def run(code: str, environment: dict[str, str] | None = None) -> str:
    command = [sys.executable, "-c", code]
    done = subprocess.run(
        command, env=os.environ | (environment or {}), capture_output=True, text=True, check=True, timeout=120
    )
    return done.stdout.strip()
