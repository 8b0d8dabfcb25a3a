"""Kernels of the pointwise ops that optimizers and interpolation are made of.

A formula is evaluated as in `activations`. Scalars keep their digits in the half formats: they are used in
float32, as in ATen.
"""

from __future__ import annotations

from ..registry import Kernel, KernelRegistry, Operation
from .table import decomposition

_POINTWISE = "numdrift.kernels.implementations.lerp"
_LERP = "numdrift.kernels.implementations.lerp"


def register(registry: KernelRegistry) -> None:
    """Add addcmul, addcdiv and lerp."""
    registry.register(_operation("addcmul", "self + value*tensor1*tensor2"), ADDCMUL)
    registry.register(_operation("addcdiv", "self + value*tensor1/tensor2"), ADDCDIV)
    registry.register(_operation("lerp", "start + weight*(end - start)"), LERP)


def _operation(name: str, summary: str) -> Operation:
    return Operation(
        name,
        family="pointwise",
        summary=summary,
        reference=f"numdrift.kernels.references.elementwise_references:{name}",
        exact=f"numdrift.kernels.lab.exact_functions:{name}",
    )


ADDCMUL = (
    decomposition("addcmul", "self + (value*tensor1)*tensor2", "torch._refs.addcmul"),
    Kernel(
        "addcmul",
        "fma",
        "the last product and the sum with one rounding, what ATen computes where the CPU has FMA",
        "fma(value*tensor1, tensor2, self)",
        f"{_POINTWISE}:addcmul_fma",
        "ATen/native/cpu/PointwiseOpsKernel.cpp addcmul_cpu_kernel, contracted by the compiler",
        native=True,
    ),
    Kernel(
        "addcmul",
        "product_first",
        "the tensors multiplied first, as Inductor does on a CPU",
        "self + value*(tensor1*tensor2)",
        f"{_POINTWISE}:addcmul_product_first",
        "torch._inductor.lowering.addcmul",
    ),
    Kernel(
        "addcmul",
        "fma_product_first",
        "the tensors multiplied first, then one rounding, as on CUDA for value != 1",
        "fma(value, tensor1*tensor2, self)",
        f"{_POINTWISE}:addcmul_fma_product_first",
        "torch._inductor.lowering.addcmul, which matches ATen/native/cuda/PointwiseOpsKernel.cu",
    ),
    Kernel(
        "addcmul",
        "bf16",
        "everything in bfloat16 but value",
        "bf16: self + (value*tensor1)*tensor2, inputs and each operation rounded",
        f"{_POINTWISE}:addcmul_bf16",
        "torch._refs.addcmul without its cast to float32",
    ),
)

ADDCDIV = (
    decomposition("addcdiv", "self + (value*tensor1)/tensor2", "torch._refs.addcdiv"),
    Kernel(
        "addcdiv",
        "quotient_first",
        "the tensors divided first, as Inductor does on a CPU",
        "self + value*(tensor1/tensor2)",
        f"{_POINTWISE}:addcdiv_quotient_first",
        "torch._inductor.lowering.addcdiv",
    ),
    Kernel(
        "addcdiv",
        "fma",
        "the tensors divided first, then one rounding, as on CUDA for value != 1",
        "fma(value, tensor1/tensor2, self)",
        f"{_POINTWISE}:addcdiv_fma",
        "torch._inductor.lowering.addcdiv, which matches ATen/native/cuda/PointwiseOpsKernel.cu",
    ),
    Kernel(
        "addcdiv",
        "reciprocal",
        "a product with the rounded reciprocal instead of the quotient",
        "self + (value*tensor1)*(1/tensor2)",
        f"{_POINTWISE}:addcdiv_reciprocal",
        "compilers with -freciprocal-math",
    ),
    Kernel(
        "addcdiv",
        "bf16",
        "everything in bfloat16 but value",
        "bf16: self + (value*tensor1)/tensor2, inputs and each operation rounded",
        f"{_POINTWISE}:addcdiv_bf16",
        "torch._refs.addcdiv without its cast to float32",
    ),
)

LERP = (
    decomposition(
        "lerp",
        "(weight - 1)*(end - start) + end for |weight| >= 0.5, weight*(end - start) + start else",
        "torch._refs.lerp",
    ),
    Kernel(
        "lerp",
        "fma",
        "always from start, the product and the sum with one rounding; end itself may be missed at weight 1",
        "fma(weight, end - start, start)",
        f"{_LERP}:fma",
        "mix() of shading languages, contracted",
        native=True,
    ),
    Kernel(
        "lerp",
        "fma_two_sided",
        "from the nearer end with one rounding at last, what ATen computes where the CPU has FMA",
        "fma(weight - 1, end - start, end) for |weight| >= 0.5, fma(weight, end - start, start) else",
        f"{_LERP}:fma_two_sided",
        "ATen/native/cpu/LerpKernel.cpp lerp_vec",
    ),
    Kernel(
        "lerp",
        "one_sided",
        "always from start",
        "start + weight*(end - start)",
        f"{_LERP}:one_sided",
        "definition of linear interpolation",
    ),
    Kernel(
        "lerp",
        "two_products",
        "sum of two products, exact at both ends, not monotone",
        "(1 - weight)*start + weight*end",
        f"{_LERP}:two_products",
        "exponential moving averages as most optimizers write them",
    ),
    Kernel(
        "lerp",
        "bf16",
        "everything in bfloat16 but a scalar weight",
        "bf16: start + weight*(end - start), inputs and each operation rounded",
        f"{_LERP}:bf16",
        "definition of linear interpolation",
    ),
)
