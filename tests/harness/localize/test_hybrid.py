"""Hybrids of two tapes against steps that plain PyTorch took with just these changes."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from numdrift.harness.localize.align.storage_flow import SIDES, FlowValue, flow_of, other
from numdrift.harness.localize.causes.examination import examine
from numdrift.harness.localize.causes.suspects import suspects
from numdrift.harness.localize.causes.swap_sites import SwapSite, sites_of
from numdrift.harness.localize.execute.hybrid import Hybrid, Values, execute
from numdrift.harness.localize.execute.step_memory import Unbound
from numdrift.harness.localize.execute.tape_pair import TapePair, paired
from numdrift.harness.tape.tape import CompiledNode, Tape

from ..tape.trainings import TRAININGS, started
from .pairs import Plant, Sides, Small, differing, nothing, real, sides, taped
from .programs import Instruction, Program, edits, learned, tape_of

SLOW = settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def sites(pair: TapePair) -> list[SwapSite]:
    return sites_of(pair, examine(pair, suspects(pair), errors=False))


def blocks(chosen: Iterable[SwapSite]) -> frozenset[int]:
    return frozenset(block for site in chosen for block in site.blocks)


def own_bits(pair: TapePair, a: Tape, b: Tape) -> None:
    """Assert that no swap gives each side's own bits, and swapping everything the other's."""
    expected = {"a": a.expected(), "b": b.expected()}
    everything = frozenset(range(len(pair.blocks)))
    inputs: frozenset[FlowValue] = frozenset(pair.links.of["a"])
    for side in SIDES:
        assert not differing(execute(pair, Hybrid(side)), expected[side])
        assert not differing(execute(pair, Hybrid(side, everything, inputs)), expected[other(side)])


@pytest.mark.parametrize("name", TRAININGS)
def test_a_pair_of_equal_steps_has_no_sites_and_gives_its_bits(name: str) -> None:
    two = Sides(started(name, 1).taped(1), started(name, 1).taped(1))
    pair = two.pair()
    own_bits(pair, two.a, two.b)
    assert sites(pair) == []


def eps(layer: int) -> Plant:
    def plant(t: Small) -> None:
        t.net.layers[layer].norm.eps = 1e-3  # type: ignore[union-attr]

    return plant


def tanh(layer: int) -> Plant:
    def plant(t: Small) -> None:
        t.net.layers[layer].act = torch.nn.GELU(approximate="tanh")

    return plant


def hooked(t: Small) -> None:
    def between(h: Tensor) -> Tensor:
        h.register_hook(lambda gradient: gradient * 1.01)
        return h

    t.net.between = between


def clipped(t: Small) -> None:
    t.clipped = True


def louder(t: Small) -> None:
    plain = t.loss
    t.loss = lambda logits: plain(logits) + 0.01 * logits.norm()


def wired(t: Small) -> None:
    t.net.layers[1].adds_normed = True  # type: ignore[assignment]


FAULTS: dict[str, tuple[Plant, str | None, str]] = {
    "gelu of layer 0": (tanh(0), "layers.0.act", "forward"),
    "gelu of layer 1": (tanh(1), "layers.1.act", "forward"),
    "eps of layer 0": (eps(0), "layers.0.norm", "forward"),
    "eps of layer 1": (eps(1), "layers.1.norm", "forward"),
    "gradient scaled by a hook": (hooked, "layers.0", "backward"),
    "another loss": (louder, None, "forward"),
}


def all_of(names: Iterable[str]) -> Plant:
    def plant(t: Small) -> None:
        for name in names:
            FAULTS[name][0](t)

    return plant


def test_each_site_swapped_is_a_real_step_with_that_one_change() -> None:
    # given side b with all changes at once
    two = sides(Small, all_of(FAULTS))
    pair = two.pair()
    found = sites(pair)
    assert len(found) == len(FAULTS)
    for name, (plant, module, phase) in FAULTS.items():
        site = next(one for one in found if pair.module(one.lead) == module and pair.phase(one.lead) == phase)
        # when
        alone = execute(pair, Hybrid("a", site.blocks))
        without = execute(pair, Hybrid("b", site.blocks))
        # then, bit for bit
        assert not differing(alone, real(Small, plant)), name
        assert not differing(without, real(Small, all_of(one for one in FAULTS if one != name))), name


@pytest.mark.parametrize("plant", [wired, clipped, louder], ids=lambda one: one.__name__)
def test_a_structural_change_comes_and_goes_as_a_whole(plant: Plant) -> None:
    two = sides(Small, plant)
    pair = two.pair()
    own_bits(pair, two.a, two.b)
    chosen = blocks(sites(pair))
    assert not differing(execute(pair, Hybrid("a", chosen)), real(Small, plant))
    assert not differing(execute(pair, Hybrid("b", chosen)), real(Small, nothing))


def gelu_of_a_sum(watch: Callable[[str, Tensor], None], *, scale: float | None, in_ops: bool) -> None:
    """The gelu of a sum that may be scaled before, and its derivative, which as ops does not read the sum again."""
    h = torch.linspace(-1, 1, 7).sin() + torch.linspace(0, 1, 7).cos()
    h = h if scale is None else h * scale
    if not in_ops:
        out = h + torch.nn.functional.gelu(h)
        watch("loss 0", out)
        watch("gradient 0 h", torch.ops.aten.gelu_backward(out, h))
        return
    root = h * 0.5**0.5
    twice = root.erf() + 1
    out = h + (h * 0.5) * twice
    watch("loss 0", out)
    density = (root * -root).exp() * root
    watch("gradient 0 h", out * (twice * 0.5 + density * torch.pi**-0.5))


def with_groups(tape: Tape) -> Tape:
    """A tape whose ops a compiler has put in place of a gelu and of its backward, and did so in this order."""
    groups = {"aten.gelu.default": range(6, 11), "aten.gelu_backward.default": range(12, 20)}
    calls = list(tape.calls)
    for group, (origin, numbers) in enumerate(groups.items()):
        for number in numbers:
            node = CompiledNode("0 forward", f"node_{number}", origin, group)
            calls[number] = replace(calls[number], compiled=node)
    return replace(tape, calls=tuple(calls))


def test_a_value_that_one_side_changes_is_read_changed_by_ops_of_another_kind() -> None:
    # given a sum that only side b scales, and whose gelu both sides compute by other ops
    def side(*, scale: float | None, in_ops: bool) -> Tape:
        return taped(partial(gelu_of_a_sum, scale=scale, in_ops=in_ops))

    a, b = side(scale=None, in_ops=False), with_groups(side(scale=1.01, in_ops=True))
    pair = paired(flow_of(a), flow_of(b))
    scaling = {n for n in range(len(pair.blocks)) if not pair.names(n, "a")}
    assert [pair.names(number, "b") for number in scaling] == [["mul"]]
    # then with and without the scaling alone, both have the bits of that step
    scaled = side(scale=1.01, in_ops=False).expected()
    assert not differing(execute(pair, Hybrid("a", scaling)), scaled)
    assert not differing(execute(pair, Hybrid("b", scaling)), side(scale=None, in_ops=True).expected())


def test_what_other_ops_make_of_a_value_ends_with_their_block() -> None:
    # given two ops that only side b has, in one block: the second reads what the first has made of the value
    value, counterpart, changed, further = (FlowValue(slot, 0) for slot in range(4))
    first, second = (SimpleNamespace(made=[SimpleNamespace(value=made)]) for made in (changed, further))
    link: Any = SimpleNamespace(value=value)
    pair: Any = SimpleNamespace(
        readers={"b": {counterpart: {0}, changed: {0}}},
        blocks=[SimpleNamespace(of=lambda side: (0, 1) if side == "b" else ())],
        flows={"b": SimpleNamespace(nodes=[first, second])},
        links=SimpleNamespace(again={"b": frozenset()}, of={"b": {changed: link}}),
    )
    # then what the first has made corresponds to the value, and the search for it ends
    assert TapePair._changed_by_others(pair, "a", value, counterpart) == (changed, link)


def swapped(a: Callable[[Tensor], Tensor], b: Callable[[Tensor], Tensor]) -> tuple[Values, ...]:
    """What both sides give, and what b gives with every site from a, of a function of one tensor made in the step."""

    def side(function: Callable[[Tensor], Tensor]) -> Tape:
        def work(saw: Callable[[str, Tensor], None]) -> None:
            saw("loss 0", function(torch.arange(64.0).view(8, 8).sin()).square())

        return taped(work)

    two = Sides(side(a), side(b))
    pair = two.pair()
    chosen = blocks(sites(pair))
    return (
        two.a.expected(),
        two.b.expected(),
        execute(pair, Hybrid("b", chosen)),
        execute(pair, Hybrid("a", chosen)),
    )


@pytest.mark.parametrize(
    "other_view",
    [
        lambda x: x.t(),
        lambda x: x.flip(0),
        lambda x: x.clone().t(),
        lambda x: x.view(4, 16)[:, ::2].reshape(8, 4),
    ],
)
def test_reading_a_tensor_otherwise_is_a_difference(other_view: Callable[[Tensor], Tensor]) -> None:
    shape = other_view(torch.ones(8, 8)).shape
    a, b, out, into = swapped(lambda x: x[:, : shape[1]].tanh().sum(0), lambda x: other_view(x).tanh().sum(0))
    assert differing(a, b)
    assert not differing(out, a) and not differing(into, b)


def test_parts_of_one_tensor_exchanged_are_a_difference() -> None:
    def attention(order: str) -> Callable[[Tensor], Tensor]:
        def function(x: Tensor) -> Tensor:
            parts = dict(zip(order, x.chunk(4, -1), strict=True))
            return torch.softmax(parts["q"] @ parts["k"].t(), -1) @ parts["v"]

        return function

    a, b, out, into = swapped(attention("qkvx"), attention("kqvx"))
    assert differing(a, b)
    assert not differing(out, a) and not differing(into, b)


def test_a_tensor_that_only_one_side_writes_is_the_other_sides_untouched_one() -> None:
    memory = {}
    for side, scale in (("a", False), ("b", True)):
        average = torch.ones(4)

        def work(saw: Callable[[str, Tensor], None], average: Tensor = average, scale: bool = scale) -> None:
            if scale:
                average.mul_(0.5)
            saw("loss 0", average * 2)
            saw("average 0", average)

        memory[side] = taped(work)
    pair = Sides(memory["a"], memory["b"]).pair()
    chosen = blocks(sites(pair))
    assert not differing(execute(pair, Hybrid("b", chosen)), memory["a"].expected())
    assert not differing(execute(pair, Hybrid("a", chosen)), memory["b"].expected())


def test_the_wrong_one_of_two_inputs_is_wiring_and_no_other_data() -> None:
    x, y = torch.ones(4), torch.arange(4.0)
    tapes = {}
    for side, second in (("a", y), ("b", x)):

        def work(saw: Callable[[str, Tensor], None], second: Tensor = second) -> None:
            saw("loss 0", (x * second) + y)

        tapes[side] = taped(work)
    pair = Sides(tapes["a"], tapes["b"]).pair()
    found = suspects(pair)
    assert [one.reasons for one in found.values()] == [("reads a different tensor",)]
    assert not differing(execute(pair, Hybrid("b", {*found})), tapes["a"].expected())
    assert not differing(execute(pair, Hybrid("a", {*found})), tapes["b"].expected())


@SLOW
@given(edits())
def test_both_ends_of_programs_in_place_have_their_own_bits(two: tuple[Program, Program]) -> None:
    a, b = map(tape_of, two)
    own_bits(Sides(a, b).pair(), a, b)


@SLOW
@given(edits(in_place=False, drawing=True))
def test_both_ends_of_learning_programs_have_their_own_bits(two: tuple[Program, Program]) -> None:
    a, b = map(learned, two)
    own_bits(Sides(a, b).pair(), a, b)


def swap_sites(pair: TapePair, seed: int) -> None:
    """Assert that subsets of the sites can be swapped, or are told not to be."""
    found, chance = sites(pair), random.Random(seed)
    for _ in range(3):
        chosen = blocks(site for site in found if chance.random() < 0.5)
        for side in SIDES:
            try:
                execute(pair, Hybrid(side, chosen))
            except Unbound as error:
                assert "other side" in str(error)


@SLOW
@given(edits(), st.integers(0, 99))
def test_any_sites_of_programs_in_place_can_be_swapped(two: tuple[Program, Program], seed: int) -> None:
    a, b = map(tape_of, two)
    swap_sites(Sides(a, b).pair(), seed)


@SLOW
@given(edits(in_place=False, drawing=True), st.integers(0, 99))
def test_any_sites_of_learning_programs_can_be_swapped(two: tuple[Program, Program], seed: int) -> None:
    a, b = map(learned, two)
    swap_sites(Sides(a, b).pair(), seed)


def program(*instructions: tuple[str, int, int, int, float]) -> Program:
    return tuple(Instruction(*one) for one in instructions)


EXPANDED = "what an expanded tensor stands for cannot be laid out as it"


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ([("product", 2, 4, 1, 1.5)], []),
        ([("clone", 3, 0, 3, 1.25)], [("clone", 2, 3, 2, 1.25)]),
        ([("add", 2, 1, 1, 0.5), ("tanh", 4, 2, 1, 1.25)], [("add", 2, 1, 1, 0.5)]),
        ([], [("mul", 5, 0, 1, 1.5)]),
        ([("sorted", 2, 1, 3, 0.5)], [("clone", 3, 0, 1, 0.5)]),
        ([], [("transpose", 4, 4, 1, 0.5)]),
        ([("scale", 2, 5, 3, 1.25)], [("parts", 5, 3, 0, 1.25)]),
        ([("product", 3, 1, 4, 1.25)], [("parts", 5, 4, 3, 1.5), ("parts", 4, 5, 1, 1.5)]),
        (
            [("gelu", 5, 0, 2, 1.5), ("sums", 2, 5, 0, 1.5)],
            [("alias", 3, 0, 3, 1.5), ("gelu", 5, 0, 2, 1.5)],
        ),
        pytest.param(
            [("add", 3, 5, 1, 1.5)],
            [("sums", 3, 1, 5, 0.5)],
            marks=pytest.mark.xfail(strict=True, raises=Unbound, reason=EXPANDED),
        ),
    ],
)
def test_all_sites_of_a_learning_program_are_the_whole_difference(
    a: list[tuple[str, int, int, int, float]], b: list[tuple[str, int, int, int, float]]
) -> None:
    two = Sides(learned(program(*a)), learned(program(*b)))
    pair = two.pair()
    chosen = blocks(sites(pair))
    assert not differing(execute(pair, Hybrid("b", chosen)), two.a.expected())
    assert not differing(execute(pair, Hybrid("a", chosen)), two.b.expected())


RELAID = "a pair of other layouts is equal on one side's values by chance, and other in the last bit on the others'"


def clamped_and_added_up(limit: float, *, by_columns: bool) -> Tape:
    """The sum of four values after a clamp: within 1 it is exact in any order, and without a limit it tells the order.

    Memory is added up as it lies, neighbours first or halves first, whatever a machine's vectors are like. Row by row
    the large values are neighbours, column by column they are not, so the two layouts never give the same sum.
    """
    values = torch.tensor([[2.0**26, -(2.0**26)], [1.0, 1.0]])
    laid_out = values.t().contiguous().t() if by_columns else values
    return taped(lambda saw: saw("loss", laid_out.clamp(-limit, limit).sum()))


@pytest.mark.parametrize(
    ("of_a", "of_b"),
    [
        (1.0, 2.0**27),
        # The examination executes both layouts on side b's values: these are exact in any order, so they tell nothing.
        pytest.param(
            *(2.0**27, 1.0),
            marks=pytest.mark.xfail(strict=True, raises=AssertionError, reason=RELAID),
        ),
    ],
)
def test_a_kernel_that_adds_in_another_layout_is_part_of_the_difference(of_a: float, of_b: float) -> None:
    a, b = clamped_and_added_up(of_a, by_columns=False), clamped_and_added_up(of_b, by_columns=True)
    pair = Sides(a, b).pair()
    chosen = blocks(sites(pair))
    assert not differing(execute(pair, Hybrid("b", chosen)), a.expected())
    assert not differing(execute(pair, Hybrid("a", chosen)), b.expected())
