from __future__ import annotations

import pytest
import torch

from numdrift.harness.errors import KernelNotFound, UsageError
from numdrift.harness.torch_private.operators import find_overload
from numdrift.kernels.lab import arguments
from numdrift.kernels.lab.arguments import ELEMENTWISE, generated, refusal
from numdrift.kernels.lab.calls import LabCall
from numdrift.kernels.lab.input_sets import INPUT_SETS
from numdrift.kernels.lab.inputs import source
from numdrift.kernels.lab.recipes import RECIPES
from numdrift.kernels.registry import built_in

from ...row_by_row import table

REGISTERED = [operation.name for operation in built_in().operations()]
UNREGISTERED = ["exp", "sqrt", "erfinv", "mul", "atan2", "hypot", "softplus", "cumsum", "add_", "var_mean"]


def bits(tensor: torch.Tensor) -> list[int]:
    return tensor.contiguous().view(torch.uint8).flatten().tolist()


@table("op", dict.fromkeys([*REGISTERED, *ELEMENTWISE, *RECIPES, *UNREGISTERED]))
@table("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_every_op_takes_the_arguments_that_are_made_for_it(op: str, dtype: torch.dtype) -> None:
    # given
    cases = generated(op, tuple(INPUT_SETS), dtype, 64, 0)
    assert {case.inputs for case in cases} == set(INPUT_SETS)
    for case in cases:
        for call in case.calls:
            # when
            own = call.copy()
            find_overload(op, own.args, own.kwargs)(*own.args, **own.kwargs)
            # then it was the dtype that was asked for
            assert dtype in {tensor.dtype for tensor in call.tensors()}


def test_a_set_is_the_same_whatever_else_is_asked_for() -> None:
    alone = generated("mm", ("ties",), torch.float32, 100, 5)[0]
    among = generated("mm", tuple(INPUT_SETS), torch.float32, 100, 5)[-1]
    assert alone.inputs == among.inputs == "ties"
    for one, other in zip(alone.calls, among.calls, strict=True):
        assert [bits(tensor) for tensor in one.tensors()] == [bits(tensor) for tensor in other.tensors()]


def test_elementwise_calls_have_odd_sizes_and_one_is_strided() -> None:
    calls = generated("tanh_backward", ("random",), torch.float32, 1000, 0)[0].calls
    assert [call.args[0].numel() % 2 for call in calls] == [1, 1, 1]
    assert [call.args[0].is_contiguous() for call in calls] == [True, False, True]


def test_foreach_ops_get_lists() -> None:
    call = generated("_foreach_addcmul", ("random",), torch.float32, 100, 0)[0].calls[0]
    assert [len(one) for one in call.args[:3]] == [3, 3, 3]


@pytest.mark.parametrize("op", ["gelu", "native_batch_norm"])
def test_kinds_of_calls_are_told_apart(op: str) -> None:
    variants = {case.variant for case in generated(op, ("random",), torch.float32, 100, 0)}
    assert len(variants) == 2


def test_backward_of_a_norm_gets_what_its_forward_saved() -> None:
    call = generated("native_layer_norm_backward", ("random",), torch.float32, 300, 0)[0].calls[0]
    _, x, _, mean, rstd, *_ = call.args
    assert torch.allclose(mean[:, 0], x.mean(1), atol=1e-6)
    assert torch.allclose(rstd[:, 0], (x.var(1, correction=0) + 1e-5).rsqrt())


@pytest.mark.parametrize(
    ("op", "why"),
    [("embedding", "'weight' must be 2-D"), ("where", "boolean"), ("convolution", "neither tensors nor numbers")],
)
def test_an_op_whose_arguments_cannot_be_guessed_asks_for_captured_ones(op: str, why: str) -> None:
    with pytest.raises(UsageError, match=f"for op {op}: .*{why}.*; record some with .*--trace-kernel {op}, then"):
        generated(op, ("random",), torch.float32, 100, 0)


@pytest.mark.parametrize("op", ["bernoulli", "bernoulli_", "native_dropout"])
def test_an_op_that_draws_says_so_before_what_its_schema_asks_for(op: str) -> None:
    with pytest.raises(UsageError, match=f"op {op} draws random numbers") as raised:
        generated(op, ("random",), torch.float32, 100, 0)
    assert "schema" not in str(raised.value) and "PyTorch" not in str(raised.value)


def test_an_unknown_op_names_the_nearest() -> None:
    with pytest.raises(KernelNotFound, match="did you mean 'tanh_backward'"):
        generated("tanh_backwards", ("random",), torch.float32, 100, 0)


def test_a_backward_is_given_what_the_forward_of_its_device_leaves() -> None:
    # given a forward that leaves statistics in float32, and writes to its argument
    def forward(x: torch.Tensor, eps: float) -> tuple[torch.Tensor, torch.Tensor]:
        return x.mul_(2), x.float().mean(1)

    drawn, x = source("random", "native_layer_norm", torch.bfloat16, 64, 0), torch.ones(2, 3, dtype=torch.bfloat16)
    # when
    _, mean = drawn.saved(forward, (x, 1e-5))
    # then
    assert mean.tolist() == [2.0, 2.0] and mean.dtype == torch.float32
    assert x.tolist() == [[1.0] * 3] * 2


def test_an_op_without_a_kernel_for_the_device_keeps_the_arguments_that_the_cpu_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # given a device that refuses what the CPU takes, as CUDA does an op of the CPU's own
    def refused_on_meta(op: str, call: LabCall) -> str:
        return f"no kernel of {op} for meta" if any(tensor.is_meta for tensor in call.tensors()) else refusal(op, call)

    monkeypatch.setattr(arguments, "refusal", refused_on_meta)
    # when
    cases = generated("_scaled_dot_product_flash_attention_for_cpu", ("random",), torch.float32, 64, 0, "meta")
    # then
    assert refusal("_scaled_dot_product_flash_attention_for_cpu", cases[0].calls[0]) == ""
