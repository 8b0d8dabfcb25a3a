from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor

from numdrift.harness.localize.align.argument_differences import LAYOUT, argument_differences, draws_differ
from numdrift.harness.localize.align.links import are_folded
from numdrift.harness.localize.align.storage_flow import FlowNode
from numdrift.harness.localize.causes.examination import examine
from numdrift.harness.localize.causes.suspects import suspects
from numdrift.harness.localize.causes.swap_sites import sites_of
from numdrift.harness.localize.execute.tape_pair import TapePair
from numdrift.harness.tape.tape import View

from .pairs import Sides, taped

Made = Callable[[Tensor, Tensor], Tensor]


def start(seed: int = 0) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(4, 4, generator=generator) for _ in range(2)]


def pair_of(a: Made, b: Made) -> TapePair:
    def side(function: Made) -> Callable[[Callable[[str, Tensor], None]], None]:
        x, y = start()

        def work(saw: Callable[[str, Tensor], None]) -> None:
            saw("both", x.square() + y.square())
            torch.manual_seed(1)
            saw("loss 0", function(x, y))

        return work

    return Sides(taped(side(a)), taped(side(b))).pair()


def low_memory_max_pool() -> Any:
    from torch._inductor import inductor_prims  # noqa: F401, registers the op

    return torch.ops.prims._low_memory_max_pool_with_offsets


def nodes(pair: TapePair, op: str) -> tuple[FlowNode, FlowNode]:
    """The last paired calls of one op."""
    for block in reversed(pair.blocks):
        if block.is_pair:
            left, right = pair.flows["a"].nodes[block.a[0]], pair.flows["b"].nodes[block.b[0]]
            if left.call.name.removesuffix("_") == op:
                return left, right
    raise LookupError(op)


def told(op: str, a: Made, b: Made) -> list[str]:
    pair = pair_of(a, b)
    return argument_differences(*nodes(pair, op), pair.links)


@pytest.mark.parametrize(
    ("op", "a", "b", "expected"),
    [
        ("mul", lambda x, y: x * 2.0, lambda x, y: x * 2.5, ["2 against 2.5"]),
        ("mul", lambda x, y: x * 2.0, lambda x, y: x * 2.0, []),
        ("mul", lambda x, y: x * float("nan"), lambda x, y: x * float("nan"), []),
        ("mul", lambda x, y: x * 1.0, lambda x, y: x * (1.0 + 1e-12), ["1 against 1"]),
        ("gelu", lambda x, y: F.gelu(x), lambda x, y: F.gelu(x, approximate="tanh"),
         ["only the other mode passes approximate (tanh)"]),
        ("add", lambda x, y: torch.add(x, y, alpha=2), lambda x, y: torch.add(x, y),
         ["only the reference passes alpha (2)"]),
        ("cat", lambda x, y: torch.cat([x, y, x]), lambda x, y: torch.cat([x, y]),
         ["3 arguments against 2"]),
        ("sum", lambda x, y: x.sum(0), lambda x, y: x.sum(1), ["dim: 0 against 1"]),
        ("exp", lambda x, y: x.exp(), lambda x, y: x[:2].exp(), ["shape [4, 4] against [2, 4]"]),
        ("exp", lambda x, y: x.exp(), lambda x, y: x.t().exp(), ["a different layout or part of a tensor"]),
        ("exp", lambda x, y: x[:2].exp(), lambda x, y: x[2:].exp(), ["a different layout or part of a tensor"]),
        ("exp", lambda x, y: x.exp(), lambda x, y: y.exp(), ["reads a different tensor"]),
        ("exp", lambda x, y: x.exp(), lambda x, y: x.clone().exp_(), []),
        ("sin", lambda x, y: x.exp().sin(), lambda x, y: x.double().exp().float().sin(), []),
        ("exp", lambda x, y: x.exp(), lambda x, y: x.double().exp(), ["float32 against float64"]),
        ("cat", lambda x, y: torch.cat([x, y]), lambda x, y: torch.cat([y, x]), ["reads a different tensor"]),
    ],
)  # fmt: skip
def test_what_is_said(op: str, a: Made, b: Made, expected: Sequence[str]) -> None:
    assert told(op, a, b) == list(expected)


def pooled(op: Any, *arguments: Any) -> Made:
    return lambda x, y: op(torch.stack([x, y])[None], *arguments)[0].sum()


@pytest.mark.parametrize(
    ("padding", "expected"), [([0, 0], []), ([1, 1], ["padding: [0, 0] against [1, 1]"])], ids=["same", "padding"]
)
def test_of_another_op_for_the_same_what_is_told_is_compared_by_its_names(
    padding: list[int], expected: list[str]
) -> None:
    # given pooling, and a compiler's op for it, which has no defaults and gives other whole numbers
    plain, lowered = torch.ops.aten.max_pool2d_with_indices, low_memory_max_pool()
    made = pooled(plain, [2, 2], [2, 2]), pooled(lowered, [2, 2], [2, 2], padding, [1, 1], False)
    pair = pair_of(*made)
    pairs = [block for block in pair.blocks if block.is_pair]
    flows = pair.flows
    (found,) = [
        (flows["a"].nodes[block.a[0]], flows["b"].nodes[block.b[0]])
        for block in pairs
        if flows["a"].nodes[block.a[0]].call.name == "max_pool2d_with_indices"
    ]
    # when, then
    assert argument_differences(*found, pair.links) == expected
    values, indices = found[0].made
    assert (values.value in pair.links.of["a"]) == (not expected)  # else they are of other shapes
    assert indices.value not in pair.links.of["a"]


def test_the_same_values_laid_out_otherwise_are_a_matter_of_the_kernel() -> None:
    pair = pair_of(
        lambda x, y: (x + y).exp(),
        lambda x, y: torch.add(x, y, out=torch.empty(4, 4).t()).exp(),
    )
    [found] = [one for one in suspects(pair).values() if pair.blocks[one.block].is_pair and one.reasons == (LAYOUT,)]
    assert found.kind == "kernel"
    turned = pair_of(lambda x, y: (x + y).exp(), lambda x, y: (x + y).t().exp())
    assert [one.kind for one in suspects(turned).values()] == ["arguments"]


def test_draws_differ_by_the_state_of_the_generator() -> None:
    def one_more(x: Tensor, y: Tensor) -> Tensor:
        torch.randn(1)
        return torch.rand(4, 4)

    same = pair_of(lambda x, y: torch.rand(4, 4), lambda x, y: torch.rand(4, 4))
    assert not draws_differ(*nodes(same, "rand"))
    reseeded = pair_of(lambda x, y: torch.rand(4, 4), lambda x, y: (torch.manual_seed(2), torch.rand(4, 4))[1])
    assert draws_differ(*nodes(reseeded, "rand"))
    found = suspects(pair_of(lambda x, y: torch.rand(4, 4), one_more))
    assert "setup" in {one.kind for one in found.values()}


@pytest.mark.parametrize(
    ("op", "name", "reason", "kind", "differs"),
    [
        (torch.rand_like, "rand_like",
         "draws into different elements: its input has strides (1, 4), the reference's (4, 1)", "arguments", True),
        (lambda one: one.bernoulli_(0.5), "bernoulli_",
         "draws into different elements: its input has strides (1, 4), the reference's (4, 1)", "arguments", True),
        (torch.exp, "exp", LAYOUT, "kernel", False),
    ],
)  # fmt: skip
def test_what_is_drawn_for_another_layout_comes_into_other_elements(
    op: Callable[[Tensor], Tensor], name: str, reason: str, kind: str, differs: bool
) -> None:
    pair = pair_of(lambda x, y: op(x + y), lambda x, y: op(torch.add(x, y, out=torch.empty(4, 4).t())))
    found = suspects(pair)
    drawn = next(number for number in reversed(range(len(pair.blocks))) if pair.names(number, "b") == [name])
    assert (found[drawn].reasons, found[drawn].kind) == ((reason,), kind)
    assert examine(pair, found)[drawn].differs is differs


def test_a_generator_of_the_scripts_own_is_share_between_its_state() -> None:
    def seeded(seed: int) -> Made:
        return lambda x, y: torch.rand(4, 4, generator=torch.Generator().manual_seed(seed))

    assert told("rand", seeded(3), seeded(3)) == []
    assert told("rand", seeded(3), seeded(4)) == ["the generator is in a different state"]


@pytest.mark.parametrize(
    ("one", "another", "folded"),
    [
        ((4, 16, 32), (64, 32), True),
        ((64, 32), (4, 16, 32), True),
        ((4, 16, 1), (64,), True),
        ((64, 32), (32, 64), False),
        ((4, 16, 32), (4, 32, 16), False),
        ((4, 16), (63,), False),
    ],
)
def test_dimensions_are_folded_where_elements_keep_their_order(
    one: tuple[int, ...], another: tuple[int, ...], folded: bool
) -> None:
    views = [View(0, torch.float32, 0, size, torch.empty(size, device="meta").stride()) for size in (one, another)]
    assert are_folded(*views) == folded
    if folded:
        order = torch.arange(math.prod(one))
        assert torch.equal(order.view(one).flatten(), order.view(another).flatten())


def test_a_transpose_is_not_folded() -> None:
    assert not are_folded(View(0, torch.float32, 0, (4, 6), (1, 4)), View(0, torch.float32, 0, (2, 2, 6), (12, 6, 1)))


def activated(x: Tensor, *, other: bool) -> Tensor:
    h = x.tanh()
    h = h * 1.02 if other else h
    return (0.5 * h * (1 + torch.erf(h * 0.5**0.5)) if other else F.gelu(h)).sum()


def test_an_additional_op_before_ops_in_place_of_another_is_the_cause() -> None:
    # given a factor that only side b has, read by what computes gelu there, which only rounds differently
    pair = pair_of(lambda x, y: activated(x, other=False), lambda x, y: activated(x, other=True))
    examined = examine(pair, suspects(pair))
    (factor,) = [
        number for number, block in enumerate(pair.blocks) if not block.a and pair.names(number, "b") == ["mul"]
    ]
    (gelu,) = [number for number in examined if pair.names(number, "a") == ["gelu"]]
    assert examined[factor].largest == pytest.approx(0.02, rel=1e-3)
    assert 0 < examined[gelu].largest < 1e-6
    leads = {site.lead for site in sites_of(pair, examined)}
    assert leads == {factor, gelu}


def mixed(x: Tensor, *, other: bool) -> Tensor:
    h = x.tanh()
    first = 0.5 * h * (part := 1 + torch.erf(h * 0.5**0.5)) if other else F.gelu(h)
    second = h.sin()
    second = second * 1.02 + 0 * part if other else second
    return (first + second).sum()


def test_a_site_is_not_named_after_ops_that_only_round_differently() -> None:
    # given a site that begins with the ops in place of gelu, as a wrong op reads an intermediate result of theirs
    pair = pair_of(lambda x, y: mixed(x, other=False), lambda x, y: mixed(x, other=True))
    examined = examine(pair, suspects(pair))
    (site,) = sites_of(pair, examined)
    assert examined[min(site.blocks)].differs and examined[min(site.blocks)].largest < 1e-6
    assert pair.names(site.lead, "b") == ["mul", "mul", "add"]
