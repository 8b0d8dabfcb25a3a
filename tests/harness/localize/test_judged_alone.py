"""What a cause is by itself: whatever noise the step has, another correct formula is rounding, and what computes something
else is not."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from numdrift.harness.localize.align.storage_flow import Side
from numdrift.harness.localize.causes.examination import Examined
from numdrift.harness.localize.causes.judged_alone import judged_alone
from numdrift.harness.localize.causes.net_effect import NetEffect, net_effects
from numdrift.harness.localize.causes.selections import names_other_elements
from numdrift.harness.localize.causes.site_causes import Cause
from numdrift.harness.localize.causes.suspects import UNROUNDED, Kind, Suspect
from numdrift.harness.localize.causes.swap_sites import SwapSite
from numdrift.harness.localize.errors.local_error import LocalError
from numdrift.harness.records.results.culprit import Culprit

from .pairs import Plant, Small, localized, sides, taped

ANY_NOISE = 1e30
"""A threshold that no drift is beyond: then nothing but the cause itself decides."""


def between(function: Any) -> Plant:
    def plant(t: Small) -> None:
        t.net.between = function

    return plant


WEIGHT = torch.randn(8, 8, generator=torch.Generator().manual_seed(1))


def halves(h: Tensor) -> Tensor:
    """Multiples of a half, without a gradient: many lie right between two whole numbers."""
    return (h * 8).round().detach() / 2


def rounded(h: Tensor) -> Tensor:
    return h + torch.round(halves(h)) / 16


def rounded_up(h: Tensor) -> Tensor:
    return h + torch.floor(halves(h) + 0.5) / 16


TABLE = torch.linspace(0.1, 0.8, 8)


def looked_up(which: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """What is looked up in a table of 8 by the places that this gives of multiples of a half: some of them are equal."""
    return lambda h: h + TABLE[which(halves(h))].unsqueeze(-1)


def counted_from_behind(h: Tensor) -> Tensor:
    return 7 - h.flip(-1).argmax(-1)


def one_too_small(h: Tensor) -> Tensor:
    return (h.argmax(-1) - 1).clamp(min=0)


def near_one(h: Tensor) -> Tensor:
    return 1 + h.detach() / 64


def marked(values: Tensor) -> Tensor:
    """Where the three largest of each row are."""
    return torch.zeros(values.shape).scatter(-1, torch.topk(values, 3).indices, 1.0)


def normalized(h: Tensor) -> Tensor:
    return h * torch.rsqrt(h.square().mean(-1, keepdim=True) + 1e-5)


def normalized_low(h: Tensor) -> Tensor:
    return h * (torch.rsqrt(h.square().mean(-1, keepdim=True) + 1e-5) * (1 - 2**-20))


def averaged(h: Tensor) -> Tensor:
    """The average of four slopes, as in a Runge-Kutta method."""
    k1, k2, k3, k4 = h.sin(), h.cos(), h.tanh(), h.sigmoid()
    return (k1 + 2 * k2 + 2 * k3 + k4) / 6


def averaged_from_behind(h: Tensor) -> Tensor:
    k1, k2, k3, k4 = h.sin(), h.cos(), h.tanh(), h.sigmoid()
    return (k4 + 2 * k3 + 2 * k2 + k1) / 6


def averaged_wrongly(h: Tensor) -> Tensor:
    k1, k2, k3, k4 = h.sin(), h.cos(), h.tanh(), h.sigmoid()
    return (k4 + 2 * k3 + 2 * k1 + k2) / 6


NOT_JOINED = pytest.mark.xfail(
    torch.backends.cpu.get_cpu_capability() != "AVX512",
    reason="on an AMD processor with AVX2, the wrong `mul` and the sums are two causes, which are not judged alone",
)


def culprits_of(plain: Any, other: Any, threshold: float = ANY_NOISE) -> list[Culprit]:
    return localized(sides(Small, between(other), between(plain)), threshold).culprits


@pytest.mark.parametrize(
    ("plain", "other", "op", "rule"),
    [
        (rounded, rounded_up, "aten.round", "choice"),
        (lambda h: h * 1.0, lambda h: (h - h.mean(-1, keepdim=True)) * 1.0, "aten.mean", "values"),
        (normalized, normalized_low, "aten.mul", "values"),
        (lambda h: h * 1.0, lambda h: h.bfloat16().float() * 1.0, "aten._to_copy", "values"),
        (lambda h: F.layer_norm(h, (8,), eps=1e-5), lambda h: F.layer_norm(h, (8,), eps=1e-3), "aten.native_layer_norm", "values"),
        (looked_up(lambda h: h.argmax(-1)), looked_up(counted_from_behind), "aten.flip", "values"),
        (looked_up(lambda h: h.argmax(-1)), looked_up(one_too_small), "aten.sub", "values"),
        (lambda h: h + marked(near_one(h)), lambda h: h + marked(near_one(h).bfloat16()), "aten._to_copy", "values"),
        pytest.param(averaged, averaged_wrongly, "aten.add", "values", marks=NOT_JOINED),
    ],
    ids=[
        "halves rounded up", "mean subtracted", "low by a millionth", "rounded to bfloat16", "another eps",
        "the last of equals", "a place too small", "chosen in bfloat16", "another weight",
    ],
)  # fmt: skip
def test_what_computes_something_else_is_beyond_rounding_however_noisy_the_step_is(
    plain: Any, other: Any, op: str, rule: str
) -> None:
    first = culprits_of(plain, other)[0]
    assert (first.op, first.local_significance, first.local_rule) == (op, "beyond-rounding", rule)
    assert first.significance == "beyond-rounding" and first.is_proven


@pytest.mark.parametrize(
    ("plain", "other"),
    [
        (lambda h: F.softmax(h, -1), lambda h: h.exp() / h.exp().sum(-1, keepdim=True)),
        (lambda h: F.layer_norm(h, (8,)), lambda h: (h - h.mean(-1, keepdim=True)) * (h.var(-1, correction=0, keepdim=True) + 1e-5).rsqrt()),
        (lambda h: F.gelu(h), lambda h: 0.5 * h * (1 + torch.erf(h * 0.5**0.5))),
        (lambda h: (h @ WEIGHT) * 0.3, lambda h: (h * 0.3) @ WEIGHT),
        (lambda h: h.double().log_softmax(-1).float(), lambda h: h.log_softmax(-1)),
        (lambda h: h.bfloat16().sigmoid() * h.bfloat16() + h, lambda h: F.silu(h.bfloat16()) + h),
        (lambda h: torch.sigmoid(h), lambda h: 1 - torch.sigmoid(-h)),
        (averaged, averaged_from_behind),
    ],
    ids=["softmax", "layer norm", "gelu", "factor before a product", "in double", "silu in bfloat16", "signs", "order of a sum"],
)  # fmt: skip
def test_another_correct_formula_is_rounding(plain: Any, other: Any) -> None:
    found = culprits_of(plain, other)
    assert found
    assert [one.local_rule for one in found if one.local_significance == "beyond-rounding"] == []
    assert {one.significance for one in found} == {"rounding"}


@pytest.mark.parametrize(("places", "others"), [([[0, 2, 3]], False), ([[0, 3, 2]], False), ([[0, 2, 1]], True)])
def test_of_equal_elements_any_may_be_chosen(places: list[list[int]], others: bool) -> None:
    values = torch.tensor([[4.0, 1.0, 2.0, 2.0]])
    tape = taped(lambda watch: watch("output 0", torch.topk(values, 3).indices))
    assert names_other_elements(tape, [torch.tensor([[0, 2, 3]])], [torch.tensor(places)]) is others


def test_a_kernel_that_chooses_other_elements_is_wrong_however_noisy_the_step_is() -> None:
    cause = kernel(op="topk")
    examined = {0: Examined(Suspect(0, "kernel", ()), True, "", None, largest=0.1, roundings=math.inf, elsewhere=True)}
    assert judged_alone(cause, examined, {}, {}) == ("beyond-rounding", "choice")
    examined = {0: Examined(Suspect(0, "kernel", ()), True, "", None, largest=0.1, roundings=math.inf)}
    assert judged_alone(cause, examined, {}, {}) == (None, "")


def test_a_product_whose_factor_is_applied_elsewhere_is_one_cause_that_only_rounds_differently() -> None:
    found = localized(
        sides(Small, between(lambda h: (h * 0.3) @ WEIGHT), between(lambda h: (h @ WEIGHT) * 0.3)), ANY_NOISE
    )
    (cause,) = found.causes
    assert max(found.examined[number].roundings for number in cause.blocks) < 4
    (site,) = cause.sites
    forward, backward = net_effects(found.pair, [cause])[site]
    assert forward is not None and forward.roundings < 4
    assert max(one.rho for one in forward.errors.values()) < 1
    assert backward is not None and backward.roundings < 4


def kernel(kind: Kind = "kernel", reasons: tuple[str, ...] = (), op: str = "rsqrt") -> Cause:
    return Cause(kind, "forward", {"a": (op,), "b": (op,)}, reasons, (SwapSite(frozenset({0}), 0),))


def judged(a: LocalError, b: LocalError, cause: Cause | None = None, roundings: float = 20.0) -> tuple[str | None, str]:
    cause = cause or kernel()
    suspect = Suspect(0, cause.kind, cause.reasons)
    examined = {0: Examined(suspect, True, "", {"a": a, "b": b}, largest=1e-6, roundings=roundings)}
    return judged_alone(cause, examined, {"a": a, "b": b}, {})


def error(rho: float, bias: float = 0.0, bound: float | None = None, values: int = 256) -> LocalError:
    return LocalError(ulp=1.0, rho=rho, bias=bias, bound=bound, lean=bias / math.sqrt(values))


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (error(0.3), error(130.0), ("beyond-rounding", "error")),
        (error(130.0), error(0.3), ("beyond-rounding", "error")),  # the reference's side may be the one
        (error(130.0), error(200.0), ("rounding", "")),  # both are as far: the op is not what tells them apart
        (error(0.3), error(math.inf), ("beyond-rounding", "error")),
        (error(0.3, bias=1.0), error(8.0, bias=-16.0), ("beyond-rounding", "bias")),
        (error(0.3, bias=-9.0), error(8.0, bias=-16.0), ("rounding", "")),
        (error(0.7, bias=-0.8), error(5.0, bias=-6.9, values=2304), ("rounding", "")),  # a convolution without oneDNN
        (error(0.3, bias=1.0), error(1.0, bias=-16.0), ("rounding", "within")),  # smaller than what its inputs cause
        (error(0.3, bound=0.5), error(0.4, bound=1e9), ("beyond-rounding", "bound")),
        (error(0.3, bound=300.0), error(0.4, bound=500.0), ("rounding", "")),
        (error(0.3, bound=0.9), error(0.4, bound=1.5), ("rounding", "")),
        (error(0.3), error(0.4), ("rounding", "within")),
        (error(0.3), error(5.0), ("rounding", "")),
    ],
)
def test_a_kernel_is_held_against_the_other_side(
    a: LocalError, b: LocalError, expected: tuple[str | None, str]
) -> None:
    assert judged(a, b) == expected


def test_a_product_that_is_not_rounded_before_it_is_added_is_no_fault() -> None:
    assert judged(error(0.14, bound=0.99), error(0.14, bound=81.0), roundings=0.2) == ("rounding", "within")


@pytest.mark.parametrize(
    ("meant", "roundings", "rule"), [(3.0, 3.6, "values"), (0.0, 3.6, ""), (3.0, 0.5, ""), (0.5, 3.6, "")]
)
def test_what_differs_in_exact_arithmetic_is_no_rounding_however_noisy_its_inputs_are(
    meant: float, roundings: float, rule: str
) -> None:
    # given attention in bfloat16 that is told another scale, which moves what it gives by a few roundings
    cause = kernel("arguments", ("only the other mode passes scale (0.26)",), "scaled_dot_product_attention")
    errors: dict[Side, LocalError] = {"a": error(0.15), "b": error(1.2)}
    suspect = Suspect(0, cause.kind, cause.reasons)
    examined = {0: Examined(suspect, True, "", errors, roundings=roundings, meant=meant)}
    # when, then
    assert judged_alone(cause, examined, errors, {}) == (("beyond-rounding", rule) if rule else ("rounding", "within"))


@pytest.mark.parametrize(
    ("ops_a", "rho", "expected"),
    [
        # a cast that both modes execute, but whose rounding the compiled graph omits, is no fault
        (("convert_element_type",), 2000.0, (None, "")),
        # a cast that only one script requests is one by what it does
        ((), 2000.0, ("beyond-rounding", "values")),
        ((), 0.5, ("rounding", "within")),
    ],
)
def test_an_omitted_rounding_excuses_no_cast_of_one_side_alone(
    ops_a: tuple[str, ...], rho: float, expected: tuple[str | None, str]
) -> None:
    reasons = ("only the other mode executes convert_element_type", f"{UNROUNDED} _to_copy")
    site = SwapSite(frozenset({0}), 0)
    cause = Cause("structure", "forward", {"a": ops_a, "b": ("convert_element_type",)}, reasons, (site,))

    assert judged(error(0.0), error(rho), cause, roundings=20.0 if rho > 1 else 0.5) == expected


@pytest.mark.slow
def test_another_scale_of_attention_in_bfloat16_is_beyond_rounding() -> None:
    def attention(h: Tensor, scale: float) -> Tensor:
        wide = h.bfloat16().view(2, 2, 4, 8)
        return h + F.scaled_dot_product_attention(wide, wide, wide, scale=scale).view(16, 8).float()

    first = culprits_of(lambda h: attention(h, 0.36), lambda h: attention(h, 0.35))[0]
    assert (first.local_significance, first.local_rule) == ("beyond-rounding", "values")
    assert culprits_of(lambda h: attention(h, 0.35), lambda h: attention(h, 0.35)) == []


@pytest.mark.parametrize(("left", "rule"), [(0.0, "error"), (0.5, "")])
def test_a_kernel_whose_first_phase_leaves_all_as_it_was_is_judged_by_its_own_errors(left: float, rule: str) -> None:
    # given a forward that only copies what the other side has as a view, and a backward kernel that is wrong
    cause = replace(kernel(op="tanh_backward"), sites=(SwapSite(frozenset({0, 1}), 0),))
    errors: dict[Side, LocalError] = {"a": error(13849.0), "b": error(0.2)}
    examined = {0: Examined(Suspect(0, "kernel", ()), True, "", errors, largest=0.1, roundings=1e6)}
    first = NetEffect(0.0, left, {"a": error(0.2), "b": error(0.2)})
    # when, then
    found = judged_alone(cause, examined, errors, {cause.sites[0]: [first, None]})
    assert found == (("beyond-rounding", rule) if rule else ("rounding", ""))


@pytest.mark.parametrize(("rho", "single", "rule"), [(4.9, True, ""), (4.9, False, "values"), (20.0, True, "values")])
def test_the_error_of_a_single_number_is_not_averaged(rho: float, single: bool, rule: str) -> None:
    # given the norm of all gradients, which one side takes of one long vector
    cause = kernel("structure", ("_foreach_norm, stack against cat",), "_foreach_norm")
    errors: dict[Side, LocalError] = {"a": error(0.01), "b": error(rho)}
    suspect = Suspect(0, cause.kind, cause.reasons)
    alone = Examined(suspect, True, "", errors, roundings=rho, single=single)
    several = replace(cause, sites=(SwapSite(frozenset({0, 1}), 0),))
    effect = NetEffect(1e-7, rho, errors, frozenset({0}), single)
    # when, then
    for judged_as in (
        judged_alone(cause, {0: alone}, errors, {}),
        judged_alone(several, {0: alone}, errors, {several.sites[0]: [effect]}),
    ):
        assert judged_as == ("beyond-rounding" if rule else "rounding", rule)


@pytest.mark.parametrize(("ulp", "once", "rule"), [(16.9, True, "once"), (16.9, False, ""), (6.0, True, "")])
def test_an_op_that_rounds_each_element_once_errs_by_few_roundings(ulp: float, once: bool, rule: str) -> None:
    # given a derivative in bfloat16 that is a sixteenth too large, which rounding of its inputs could make it as well
    cause = kernel(op="silu_backward")
    errors: dict[Side, LocalError] = {"a": error(0.15), "b": replace(error(5.3), ulp=ulp)}
    suspect = Suspect(0, cause.kind, cause.reasons)
    examined = {0: Examined(suspect, True, "", errors, largest=0.06, roundings=16.0, once=once)}
    # when, then
    assert judged_alone(cause, examined, errors, {}) == ("beyond-rounding" if rule else "rounding", rule)


def test_an_op_whose_inputs_are_not_known_is_not_judged() -> None:
    cause = kernel(
        reasons=(
            "gives other values",
            "or the value from add is wrong within the graph: reading that value changes the results",
        )
    )
    assert judged(error(0.3), error(3000.0), cause) == (None, "")


def test_another_layout_is_another_kernel_and_other_arguments_are_something_else() -> None:
    a, b = error(20.0), error(2.8)
    assert judged(a, b, kernel("arguments", ("a different layout", "a different layout or part of a tensor"))) == (
        "rounding",
        "",
    )
    assert judged(a, b, kernel("arguments", ("0.1 against 0.2",))) == ("beyond-rounding", "values")


@pytest.mark.parametrize(("rho", "rule"), [(9.0, ""), (3000.0, "error")])
@pytest.mark.parametrize("several", [False, True])
def test_what_a_setting_has_executed_by_other_ops_is_a_kernel(rho: float, rule: str, several: bool) -> None:
    # given cudnn=off, with which a batch norm is another op that takes other arguments
    cause = kernel("setting", ("cudnn=off",), "cudnn_batch_norm_backward")
    errors: dict[Side, LocalError] = {"a": error(rho), "b": error(0.4)}
    suspect = Suspect(0, "structure", ("cudnn_batch_norm_backward against native_batch_norm_backward",))
    examined = {0: Examined(suspect, True, "", errors, largest=5.7e-6, roundings=95.8)}
    cause = replace(cause, sites=(SwapSite(frozenset({0, 1}), 0),)) if several else cause
    effect = NetEffect(5.7e-6, 95.8, errors, frozenset({0}))
    # when
    found = judged_alone(cause, examined, errors, {cause.sites[0]: [effect]} if several else {})
    # then it is compared with what rounding of its inputs causes, as kernels are
    assert found == ("beyond-rounding" if rule else "rounding", rule)


def of_terms(kind: Kind, a: LocalError, b: LocalError, terms: int, *, several: bool = False) -> tuple[str | None, str]:
    cause = kernel(kind, ("argument 1 (input): contiguous against channels last",), "native_batch_norm")
    errors: dict[Side, LocalError] = {"a": a, "b": b}
    cause = replace(cause, sites=(SwapSite(frozenset({0, 1}), 0),)) if several else cause
    suspect = Suspect(0, "layout" if kind == "layout" else "kernel", cause.reasons)
    examined = {0: Examined(suspect, True, "", errors, largest=1e-6, roundings=20.0, terms=terms)}
    effect = NetEffect(1e-6, 20.0, errors, frozenset({0}))
    return judged_alone(cause, examined, errors, {cause.sites[0]: [effect]} if several else {})


@pytest.mark.parametrize("kind", ["layout", "kernel", "setting"])
@pytest.mark.parametrize("several", [False, True])
def test_a_kernel_that_adds_up_one_by_one_is_no_fault(kind: Kind, several: bool) -> None:
    # Sums of n terms, one added after the other, are up to sqrt(n) times as far off as rounding of the terms takes them
    def of(b: float, terms: int) -> tuple[str | None, str]:
        return of_terms(kind, error(0.55), error(b), terms, several=several)

    assert of(25.0, 2304) == ("rounding", "")
    assert of(25.0, 16) == ("beyond-rounding", "error")
    assert of(8000.0, 2304) == ("beyond-rounding", "error")
    assert judged(error(0.55), error(25.0)) == ("beyond-rounding", "error")


def test_what_is_told_something_else_may_not_err_as_a_sum_does() -> None:
    assert of_terms("arguments", error(0.55), error(25.0), 2304) == ("beyond-rounding", "error")


def test_another_state_of_a_generator_is_another_set_up() -> None:
    cause = kernel("setup", ("draws different random numbers: the generator is in a different state",), "randn")
    assert judged(error(0.0), error(1e9), cause) == ("different-setup", "generator")
