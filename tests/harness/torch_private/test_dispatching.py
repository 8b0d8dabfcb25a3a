from __future__ import annotations

import pytest
import torch

from numdrift.harness.torch_private.registered_kernels import Overrides, original_kernel

DTYPES = (torch.float64, torch.float32, torch.bfloat16, torch.float16, torch.int64, torch.bool)


@pytest.mark.parametrize("op", ["mul", "add", "sub", "div"])
def test_torchs_own_kernel_takes_numbers_for_tensors_as_torch_does(op: str) -> None:
    overload = getattr(torch.ops.aten, op).Tensor
    kernel = original_kernel(overload, "CPU")
    generator = torch.Generator().manual_seed(0)
    compared = 0
    for dtype in DTYPES:
        for shape in ((5,), ()):
            values = (3 * torch.randn(shape, generator=generator)).to(dtype)
            for number in (2, 0.1, True, 2.0**-130):  # 0.1 has no exact form, the last none in half precision
                try:
                    expected = getattr(torch, op)(values, number)
                except RuntimeError:  # booleans are not subtracted
                    with pytest.raises(RuntimeError):
                        kernel(values, number)
                    continue
                found = kernel(values, number)
                assert found.dtype == expected.dtype, (dtype, shape, number)
                assert torch.equal(found, expected), (dtype, shape, number)
                compared += 1
    assert compared >= 30


def test_an_override_that_calls_torchs_kernel_is_given_numbers_and_by_name() -> None:
    overload = torch.ops.aten.mul.Tensor
    kernel, given = original_kernel(overload, "CPU"), []

    def counted(self: torch.Tensor, other: object) -> object:
        given.append(other)
        # a kernel that calls another with a number, while torch takes numbers for tensors
        return kernel(kernel(self, 0.5), other=other)

    overrides = Overrides()
    try:
        overrides.replace(overload, "CPU", counted)
        doubled = torch.arange(4.0) * 4
    finally:
        overrides.close()
    assert given == [4]
    assert doubled.tolist() == [0.0, 2.0, 4.0, 6.0]
    assert (torch.arange(4.0) * 4).tolist() == [0.0, 4.0, 8.0, 12.0]
