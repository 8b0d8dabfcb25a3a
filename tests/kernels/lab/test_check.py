from __future__ import annotations

import pytest
import torch

from numdrift.harness.errors import NotAvailable
from numdrift.kernels.lab.arguments import generated
from numdrift.kernels.lab.check import CheckRow, Subjects, check
from numdrift.kernels.registry import Kernel, built_in

from .lab_kernels import kernel_of

REGISTRY = built_in()


def rows(
    op: str, kernels: list[Kernel | str], inputs: str = "random", dtype: torch.dtype = torch.float32
) -> list[CheckRow]:
    found = [REGISTRY.kernel(op, one) if isinstance(one, str) else one for one in kernels]
    cases = generated(op, tuple(inputs.split(",")), dtype, 2048, 0)
    return check(REGISTRY.operation(op), Subjects(found), cases)


def row(op: str, kernel: Kernel | str, inputs: str = "random", dtype: torch.dtype = torch.float32) -> CheckRow:
    (found,) = rows(op, [kernel], inputs, dtype)
    return found


@pytest.mark.parametrize("op", ["tanh_backward", "addcmul", "exp", "mul", "_softmax", "native_layer_norm", "mm", "sum"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_replay_in_float64_is_rounded_once(op: str, dtype: torch.dtype) -> None:
    found = row(op, "fp64", dtype=dtype)
    assert found.status == "measured"
    for one in found.measures:
        assert 0.25 < one.error(1.0) <= 0.5001
        assert one.rho is not None and one.rho < 1
        assert one.mismatches == {}


def test_the_founding_case_has_the_errors_that_were_measured_for_it() -> None:
    # given saturated outputs of tanh, of which a third is within 1e-3 of 1
    aten, decomposed, low = rows("tanh_backward", ["aten", "decomposed", "bf16"], "saturated")
    # then ATen's 1 - y*y is off by a gap where its vector code contracts it, and the decomposed one by a thousand
    is_contracted = torch.backends.cpu.get_cpu_capability() != "DEFAULT"  # plain C++ for any x86 has no fused op
    assert (0.9 < aten.worst.error(1.0) < 1.6) == is_contracted
    assert 1000 < decomposed.worst.error(1.0) < 1500
    assert 800 < decomposed.worst.error(0.99) < 1100
    assert decomposed.worst.away.z > 6, "y*y rounds down just below 1"
    # but both are as good as their inputs, and bfloat16 is not
    assert aten.worst.rho is not None and aten.worst.rho < 1
    assert decomposed.worst.rho is not None and decomposed.worst.rho < 1
    assert low.worst.rho is not None and low.worst.rho > 1000
    assert 1e5 < low.worst.error(0.5) < 1e7
    # and the share of elements that differ
    assert aten.worst.differs == 0
    assert decomposed.worst.differs is not None
    assert 0.3 < decomposed.worst.differs < 0.9 if is_contracted else decomposed.worst.differs == 0


def test_a_bfloat16_kernel_is_off_by_2_to_the_16_gaps_of_float32() -> None:
    def through_bfloat16(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x * y).bfloat16().float()

    error = row("mul", kernel_of("mul", through_bfloat16)).worst.error(1.0)
    # half a gap of a format with 16 bits less
    assert 2.0**14.9 < error <= 2.0**15


def test_one_pass_variance_is_a_fault_on_offset_inputs_and_only_there() -> None:
    def one_pass(x, shape, weight, bias, eps):  # type: ignore[no-untyped-def]
        mean = x.mean(-1, keepdim=True)
        rstd = ((x * x).mean(-1, keepdim=True) - mean * mean + eps).rsqrt()
        y = (x - mean) * rstd
        return (y if weight is None else y * weight + bias), mean, rstd

    kernel = kernel_of("native_layer_norm", one_pass)
    plain, offset, aten_plain, aten_offset = rows("native_layer_norm", [kernel, "aten"], "random,offset")
    for good in (plain, aten_plain, aten_offset):
        assert all(one.rho is not None and one.rho < 4 for one in good.measures)
    assert max(one.rho or 0 for one in offset.measures) > 500


def test_a_truncating_kernel_is_seen_to_be_biased() -> None:
    def towards_zero(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        exact = x.double() * y.double()
        nearest = exact.float()
        beyond = nearest.double().abs() > exact.abs()
        return torch.where(beyond, torch.nextafter(nearest, torch.zeros(())), nearest)

    one, aten = rows("mul", [kernel_of("mul", towards_zero), "aten"])
    assert one.worst.bias.towards == "to 0" and one.worst.bias.z < -30
    assert one.worst.bias.ulp == pytest.approx(-0.5, abs=0.05)
    assert abs(aten.worst.bias.z) < 6


def test_attention_is_held_against_its_formula_where_the_blockwise_kernel_hides_nan() -> None:
    # given queries with infinities, of which short sequences lose the NaN that they lead to
    op = "scaled_dot_product_attention"
    cases = generated(op, ("special",), torch.float32, 64, 0)
    kernels = [REGISTRY.kernel(op, name) for name in ("fp64", "flash")]
    fp64, flash = check(REGISTRY.operation(op), Subjects(kernels), cases)
    assert fp64.worst.mismatches == {}
    assert flash.worst.mismatches["finite where nan"] > 0


def test_what_is_not_finite_is_told() -> None:
    def without_specials(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return (x * y).nan_to_num(0.0, 1.0, -1.0)

    one, aten = rows("mul", [kernel_of("mul", without_specials), "aten"], "special")
    assert set(one.worst.mismatches) == {"finite where nan", "finite where inf", "finite where -inf"}
    assert aten.worst.mismatches == {}


def raising(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    raise ValueError("no idea\nhow")


def shorter(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return (x * y)[..., :-1]


def wider(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.double() * y


def twice(x: torch.Tensor, y: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    return x, y


def greedy(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    return x.mul_(y)


def elsewhere(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    raise NotAvailable("this kernel", "its moon is not up")


@pytest.mark.parametrize(
    ("function", "why"),
    [
        (raising, "raised ValueError: no idea"),
        (shorter, "returned shape [2048], but the op returns [2049]"),
        (wider, "returned float64, but the op returns float32"),
        (twice, "returned 2 tensors, but the op returns 1"),
        (greedy, "wrote to its argument 'self', which the op leaves unchanged"),
    ],
)
def test_a_kernel_that_fails_is_a_row_and_the_others_go_on(function: object, why: str) -> None:
    assert callable(function)
    bad, good = rows("mul", [kernel_of("mul", function), "aten"])
    assert (bad.status, bad.why, bad.measures) == ("failed", why, ())
    assert good.status == "measured"


def test_what_is_not_available_is_a_row_too() -> None:
    here = row("mul", kernel_of("mul", elsewhere))
    assert (here.status, here.why) == ("not available", "its moon is not up")
    other = row("mul", kernel_of("mul", greedy, dtypes=("bfloat16",), devices=("cuda",)))
    assert (other.status, other.why) == ("not available", "it computes bfloat16 on devices of type cuda")
    assert row("argmax", "decomposed").status == "not available"


def test_every_output_of_an_op_is_measured() -> None:
    (found,) = rows("native_batch_norm", ["aten"])[:1]
    assert [one.output for one in found.measures] == [
        "output 0", "output 1", "output 2", "running_mean", "running_var"
    ]  # fmt: skip


def test_a_kernel_that_forgets_a_hidden_write_is_seen() -> None:
    def forgetful(x, weight, bias, mean, var, training, momentum, eps):  # type: ignore[no-untyped-def]
        return torch.ops.aten.native_batch_norm(x, weight, bias, mean.clone(), var.clone(), training, momentum, eps)

    training = rows("native_batch_norm", [kernel_of("native_batch_norm", forgetful)])[0]
    errors = {one.output: one.error(1.0) for one in training.measures}
    assert errors["output 0"] < 1e4 and errors["running_mean"] > 1e5


def test_rows_are_reproducible() -> None:
    assert rows("gelu", ["aten", "decomposed"]) == rows("gelu", ["aten", "decomposed"])


def test_progress_is_told_for_every_piece() -> None:
    told: list[tuple[int, int]] = []
    cases = generated("mul", ("random", "ties"), torch.float32, 64, 0)
    check(
        REGISTRY.operation("mul"),
        Subjects([REGISTRY.kernel("mul", name) for name in ("aten", "decomposed", "fp64")]),
        cases,
        progress=lambda done, total, what: told.append((done, total)),
    )
    assert told == [(done, 8) for done in range(9)]
