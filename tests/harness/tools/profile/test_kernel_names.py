"""Names of kernels as a table has them."""

from __future__ import annotations

import pytest

from numdrift.harness.tools.profile.kernel_names import LONGEST, short_kernel

LAMBDA = "at::native::tanh_kernel_cuda(at::TensorIteratorBase&)::{lambda()#2}::operator()() const::{lambda(float)#1}"


@pytest.mark.parametrize(
    ("name", "short"),
    [
        ("ampere_sgemm_32x32_sliced1x4_tn", "ampere_sgemm_32x32_sliced1x4_tn"),
        ("triton_poi_fused_add_tanh_0", "triton_poi_fused_add_tanh_0"),
        (
            (
                "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> "
                ">(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)"
            ),
            "vectorized_elementwise_kernel<CUDAFunctor_add>",
        ),
        (
            f"void at::native::vectorized_elementwise_kernel<4, {LAMBDA}, at::detail::Array<char*, 2> >(int, {LAMBDA})",
            "vectorized_elementwise_kernel<tanh_kernel_cuda>",
        ),
        (
            (
                "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float, float>, 4> "
                ">(at::native::ReduceOp<float, at::native::MeanOps<float, float>, 4>)"
            ),
            "reduce_kernel<MeanOps>",
        ),
        (
            (
                "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::(anonymous namespace)::"
                "FusedOptimizerTensorListMetadata<4>, at::native::(anonymous namespace)::FusedAdamMathFunctor<float> >(x)"
            ),
            "multi_tensor_apply_kernel<FusedAdamMathFunctor>",
        ),
        (
            "void cutlass::Kernel2<cutlass_80_wmma_tensorop_f16_s161616gemm_f16_16x16_128x2_tn_align8>(x)",
            "Kernel2<cutlass_80_wmma_tensorop_f16_s161616gemm_f16_16x16_128x2_tn_align8>",
        ),
        ("void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64> >(x)", "flash_fwd_kernel"),
        ("std::enable_if<!(false), void>::type internal::gemvx::kernel<int, int, float>(x)", "gemvx::kernel"),
        ("aten::addmm.out", "addmm.out"),
        ("", ""),
    ],
)
def test_a_name_keeps_what_tells_it_apart(name: str, short: str) -> None:
    assert short_kernel(name) == short


def test_a_name_is_never_longer_than_a_table_has_room_for() -> None:
    assert len(short_kernel("a" * 300)) == LONGEST


@pytest.mark.parametrize("name", ["<", ">>", "a<b", "f(", "void ", "operator<", "a<b<c>::d", "(anonymous namespace)::"])
def test_any_text_has_a_name(name: str) -> None:
    assert isinstance(short_kernel(name), str)
