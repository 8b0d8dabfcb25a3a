"""Calls that carry the same wrong thing are one cause: of a forward and its backward, in many places, in several ops."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from numdrift.harness.localize.causes.localized_step import LocalizedStep
from numdrift.harness.localize.joint_causes.same_number import have_same_source
from numdrift.harness.records.results.culprit import Culprit

from ...faults.optimizers import AdamW
from ..tape.trainings import Training
from .pairs import Plant, Small, localized, sides


class Factor(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return x * factor

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return gradient * ctx.factor, None


def fused(x: Tensor, scale: float) -> Tensor:  # [B, T, 3 D], two heads
    b, t, d = x.shape
    q, k, v = x.view(b, t, 3, 2, d // 6).permute(2, 0, 3, 1, 4)
    return F.scaled_dot_product_attention(q, k, v, scale=scale).transpose(1, 2).reshape(b, t, d // 3)


def with_factor(x: Tensor, factor: float) -> Tensor:
    out: Tensor = Factor.apply(x, factor)  # type: ignore[no-untyped-call]
    return out.tanh()


class Net(nn.Module):
    """Two layers that are given a number each."""

    def __init__(self, work: Callable[[Tensor, float], Tensor], wide: int) -> None:
        super().__init__()
        self.inner = nn.ModuleList(nn.Linear(6, 6 * wide) for _ in range(2))
        self.norms = nn.ModuleList(nn.LayerNorm(6) for _ in range(2))
        self.numbers = [0.5, 0.5]
        self.work = work

    def forward(self, x: Tensor) -> Tensor:  # [B, T, 6] -> the same
        for inner, norm, number in zip(self.inner, self.norms, self.numbers, strict=True):
            x = x + self.work(inner(norm(x)), number)
        return x


class Numbered(Training):
    def __init__(self) -> None:
        self.net = self.made()
        super().__init__(self.net, torch.optim.SGD(self.net.parameters(), lr=0.1))
        self.x = torch.randn(4, 5, 6)

    def made(self) -> Net:
        return Net(fused, 3)

    def work(self) -> None:
        self.optimizer.zero_grad()
        self.backward(self.net(self.x).square().mean())
        self.optimizer.step()


class WithFunction(Numbered):
    def made(self) -> Net:
        return Net(with_factor, 1)


class WithSlope(Numbered):
    def made(self) -> Net:
        return Net(F.leaky_relu, 1)


def one(t: Numbered) -> None:
    t.net.numbers[1] = 0.52


def all_of_them(t: Numbered) -> None:
    t.net.numbers = [0.52, 0.52]


def the_only(found: LocalizedStep) -> Culprit:
    (culprit,) = found.culprits
    assert culprit.is_proven and culprit.share_of_drift == 1.0
    assert found.left.explained == 1.0 and not found.left.score
    return culprit


@pytest.mark.parametrize("make", [Numbered, WithFunction, WithSlope])
@pytest.mark.parametrize(("plant", "places"), [(one, ["inner.1"]), (all_of_them, ["inner.0", "inner.1"])])
def test_a_forward_and_its_backward_are_one_culprit(
    make: Callable[[], Numbered], plant: Plant, places: list[str]
) -> None:
    culprit = the_only(localized(sides(make, plant)))

    # an op's own argument has a name, that of a product has none
    name = {Numbered: "scale: ", WithFunction: "", WithSlope: "negative_slope: "}[make]  # type: ignore[index]
    assert culprit.kind == "arguments" and list(culprit.reasons) == [f"{name}0.5 against 0.52"]
    assert culprit.phases == ["forward", "backward"]
    assert culprit.sites == (2 if make is WithFunction else 1) * len(places)


def test_one_eps_in_many_norms_is_one_culprit() -> None:
    def eps(t: Numbered) -> None:
        for norm in t.net.norms:
            norm.eps = 1e-3  # type: ignore[assignment]

    culprit = the_only(localized(sides(Numbered, eps)))

    assert culprit.places == ["norms.0", "norms.1"] and culprit.phases is None


class ByHand(Small):
    """With an optimizer whose updates are written out."""

    def __init__(self) -> None:
        super().__init__()
        self.optimizer = AdamW(self.net.parameters(), lr=1e-2, weight_decay=0.1)


@pytest.mark.parametrize("make", [Small, ByHand])
@pytest.mark.parametrize(
    ("key", "value", "ops"),
    [("lr", 1.5e-2, 2), ("betas", (0.8, 0.999), 2), ("betas", (0.9, 0.99), 3)],
)
def test_one_hyper_parameter_is_one_culprit_whatever_ops_it_stands_in(
    make: Callable[[], Small], key: str, value: object, ops: int
) -> None:
    def changed(t: Small) -> None:
        t.optimizer.param_groups[0][key] = value

    culprit = the_only(localized(sides(make, changed)))

    assert culprit.phase == "optimizer" and len(culprit.ops["a"]) >= ops
    assert culprit.reasons[0].startswith("one differing number, used in several ops: ")
    assert len(culprit.places) == len(list(make().net.parameters()))


def test_two_hyper_parameters_stay_two_culprits() -> None:
    def both(t: Small) -> None:
        t.optimizer.param_groups[0]["lr"] = 1.5e-2
        t.optimizer.param_groups[0]["eps"] = 1e-4

    assert len(localized(sides(Small, both)).culprits) == 2


def test_numbers_of_one_are_share_between_how_they_change() -> None:
    rate = (0.01, 0.015)

    assert have_same_source(rate, (-0.01, -0.015), 5)
    assert have_same_source(rate, (1 - 0.01 * 0.1, 1 - 0.015 * 0.1), 5)
    assert have_same_source((0.9, 0.8), (0.1, 0.2), 5)
    assert have_same_source((0.9, 0.8), (1 - 0.9**5, 1 - 0.8**5), 5)
    assert have_same_source((0.001, 0.01), ((1 - 0.999**5) ** 0.5, (1 - 0.99**5) ** 0.5), 5)
    assert not have_same_source((0.9, 0.8), (1 - 0.9**5, 1 - 0.8**5), 6)
    assert not have_same_source(rate, (1e-8, 1e-4), 5)
