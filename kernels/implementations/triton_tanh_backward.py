"""tanh_backward in Triton, and an example of a kernel file: copy it, change the formula, and use it as your own.

Triton comes with torch's builds for GPUs. With TRITON_INTERPRET=1 it runs, slowly, on the CPU. The function that Triton
compiles may have no annotations but tl.constexpr, because Triton reads them.
"""

from __future__ import annotations

import importlib
import importlib.util
import os
from contextlib import nullcontext
from typing import Any

import torch

from numdrift.harness.errors import NotAvailable

DESCRIPTION = "one Triton kernel: 1 - y*y with one rounding, times g"
FORMULA = "g * fma(-y, y, 1)"
DTYPES = ("float32", "float64")
DEVICES = ("cuda",)

HAS_TRITON = importlib.util.find_spec("triton") is not None
INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
BLOCK = 1024
"""The number of elements that one program instance computes."""

if HAS_TRITON:
    triton: Any = importlib.import_module("triton")
    tl: Any = importlib.import_module("triton.language")

    @triton.jit  # type: ignore[untyped-decorator]
    def _kernel(grad_output, output, result, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
        places = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
        g = tl.load(grad_output + places, mask=places < n)
        y = tl.load(output + places, mask=places < n)
        unity = tl.full((BLOCK,), 1.0, y.dtype)
        tl.store(result + places, g * tl.fma(-y, y, unity), mask=places < n)


def tanh_backward(grad_output: torch.Tensor, output: torch.Tensor) -> torch.Tensor:
    """Return the gradient of tanh for tensors in float32 or float64, contiguous and in their broadcast shape.

    Raises NotAvailable without Triton and, unless TRITON_INTERPRET=1 is set, for tensors that are not on a GPU.
    """
    if not HAS_TRITON:
        raise NotAvailable("kernel tanh_backward=triton", "triton is not installed", "pip install triton")
    if grad_output.device.type != "cuda" and not INTERPRETED:
        raise NotAvailable("kernel tanh_backward=triton", f"it needs a GPU, not {grad_output.device}")
    g, y = (tensor.contiguous() for tensor in torch.broadcast_tensors(grad_output, output))
    result = torch.empty_like(g)
    # Triton launches on the current GPU, which may not be the tensors' GPU.
    current = torch.cuda.device(g.device) if g.is_cuda else nullcontext()
    with current:
        if result.numel():
            _kernel[(triton.cdiv(result.numel(), BLOCK),)](g, y, result, result.numel(), BLOCK=BLOCK)
    return result
