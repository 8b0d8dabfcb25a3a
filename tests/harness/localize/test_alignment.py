from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from hypothesis import HealthCheck, given, settings
from torch import Tensor, nn

from numdrift.harness.localize.align.alignment import align
from numdrift.harness.localize.align.argument_differences import FOLDED
from numdrift.harness.localize.align.blocks import Block
from numdrift.harness.localize.align.storage_flow import SIDES, StorageFlow, flow_of
from numdrift.harness.localize.causes.examination import examine
from numdrift.harness.localize.causes.suspects import suspects
from numdrift.harness.localize.execute.hybrid import Hybrid, execute
from numdrift.harness.localize.execute.tape_pair import paired
from numdrift.harness.records.results.culprit import REDRAWN
from numdrift.harness.tape.tape import CompiledNode, Tape

from ..tape.trainings import TRAININGS, Training, started
from .pairs import Plant, Sides, Small, differing, localized, sides, taped
from .programs import Program, edits, learned, tape_of

SLOW = settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])


def aligned(two: Sides) -> tuple[StorageFlow, StorageFlow, list[Block]]:
    a, b = flow_of(two.a), flow_of(two.b)
    blocks = align(a, b)
    check(a, b, blocks)
    return a, b, blocks


def check(a: StorageFlow, b: StorageFlow, blocks: list[Block]) -> None:
    """Every node is in one block, and each side's blocks can be executed in their order."""
    for side, flow in zip(SIDES, (a, b), strict=True):
        order = [node for block in blocks for node in block.of(side)]
        assert sorted(order) == list(range(len(flow.nodes)))
        seen: set[int] = set()
        for node in order:
            seen.add(node)
            makers = {flow.makers.get(use.value) for use in flow.nodes[node].reads}
            assert makers - {None} <= seen


def unpaired(two: Sides) -> list[tuple[list[str], list[str]]]:
    """The ops of each side that have no counterpart, by blocks."""
    a, b, blocks = aligned(two)
    return [
        ([a.nodes[n].call.name for n in block.a], [b.nodes[n].call.name for n in block.b])
        for block in blocks
        if not block.is_pair
    ]


@pytest.mark.parametrize("name", TRAININGS)
def test_equal_steps_pair_fully_and_in_order(name: str) -> None:
    _, _, blocks = aligned(Sides(started(name).taped(1), started(name).taped(1)))
    assert all(block.is_pair and block.a == block.b for block in blocks)
    assert [block.a[0] for block in blocks] == list(range(len(blocks)))


def between(function: Callable[[Tensor], Tensor]) -> Plant:
    def plant(t: Small) -> None:
        t.net.between = function

    return plant


def test_an_inserted_op_and_its_backward_are_all_that_is_unpaired() -> None:
    assert unpaired(sides(Small, between(lambda h: h.sigmoid()))) == [
        ([], ["sigmoid"]),
        ([], ["sigmoid_backward"]),
    ]


class Sum(nn.Module):
    """x + y, as a module of its own."""

    def forward(self, x: Tensor, y: Tensor) -> Tensor:
        return x + y


class Chain(Training):
    """Sums of one another, all of the same shape; `add` adds, and `after` follows the first of them."""

    def __init__(self) -> None:
        self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(4)])
        super().__init__(self.layers, torch.optim.SGD(self.layers.parameters()))
        self.x = torch.randn(4, 8)
        self.add: Callable[[Tensor, Tensor], Tensor] = Sum()
        self.after: Callable[[Tensor], Tensor] = lambda h: h

    def work(self) -> None:
        self.optimizer.zero_grad()
        h = self.x
        for number, layer in enumerate(self.layers):
            h = self.add(h, layer(h))
            h = self.after(h) if number == 0 else h
        self.backward(h.sum())
        self.optimizer.step()


def test_ops_in_other_places_are_paired_by_what_they_read_and_not_by_their_order() -> None:
    # given sums that side b computes outside of a module, with an op between them
    def elsewhere(training: Chain) -> None:
        training.add, training.after = torch.add, lambda h: h.neg()

    assert unpaired(sides(Chain, elsewhere)) == [([], ["neg"]), ([], ["neg"])]


@pytest.mark.parametrize("faulty", range(5))
def test_an_additional_op_in_a_loop_shifts_none_of_the_other_passes(faulty: int) -> None:
    """Each pass of an integrator multiplies its slopes by numbers, and one pass multiplies its last slope as well."""
    weight = torch.linspace(-1, 1, 8, requires_grad=True)

    def integrated(watch: Callable[[str, Tensor], None], extra: int) -> None:
        state = weight
        for number in range(5):
            k1 = state.sin()
            k2 = (state + 0.05 * k1).sin()
            k3 = (state + 0.05 * k2).sin()
            k4 = (state + 0.1 * k3).sin()
            k4 = k4 * 1.02 if number == extra else k4
            state = state + 0.1 / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        watch("loss", state)
        watch("gradient", torch.autograd.grad(state.sum(), weight)[0])

    def numbers(flow: StorageFlow, nodes: Sequence[int]) -> list[object]:
        return [
            argument for n in nodes for argument in flow.nodes[n].call.arguments if isinstance(argument, int | float)
        ]

    one, other = (flow_of(taped(partial(integrated, extra=extra))) for extra in (-1, faulty))
    blocks = align(one, other)

    assert [numbers(other, block.b) for block in blocks if not block.is_pair] == [[1.02], [1.02]]
    assert [block for block in blocks if block.is_pair and numbers(one, block.a) != numbers(other, block.b)] == []


def test_a_removed_op_and_its_backward_are_all_that_is_unpaired() -> None:
    two = sides(Small, between(lambda h: h), before=between(lambda h: h * 2))
    assert unpaired(two) == [(["mul"], []), (["mul"], [])]


def test_a_replaced_op_stands_against_what_it_was_replaced_by() -> None:
    two = sides(Small, between(lambda h: h.sigmoid()), before=between(torch.tanh))
    assert unpaired(two) == [(["tanh"], ["sigmoid"]), (["tanh_backward"], ["sigmoid_backward"])]


class Around(Training):
    """A linear layer with a function before it and one after it, in the outermost module."""

    class Net(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.middle, self.last = nn.Linear(6, 8), nn.Linear(8, 8), nn.Linear(8, 4)
            self.before: Callable[[Tensor], Tensor] = lambda h: h
            self.after: Callable[[Tensor], Tensor] = torch.tanh

        def forward(self, x: Tensor) -> Tensor:  # [B, 6] -> [B, 4]
            out: Tensor = self.last(self.after(self.middle(self.before(self.first(x.sin())))))
            return out

    def __init__(self) -> None:
        self.net = self.Net()
        super().__init__(self.net, torch.optim.SGD(self.net.parameters()))
        self.x, self.y = torch.randn(16, 6), torch.randint(0, 4, (16,))

    def work(self) -> None:
        self.optimizer.zero_grad()
        self.backward(F.cross_entropy(self.net(self.x), self.y))
        self.optimizer.step()


def test_an_op_before_a_module_does_not_stand_against_one_after_it() -> None:
    def plant(training: Around) -> None:
        training.net.before, training.net.after = lambda h: h * 2, lambda h: h.sigmoid()

    assert unpaired(sides(Around, plant)) == [
        ([], ["mul"]),
        (["tanh"], ["sigmoid"]),
        (["tanh_backward"], ["sigmoid_backward"]),
        ([], ["mul"]),
    ]


def soft(h: Tensor, *, decomposed: bool) -> Tensor:
    if decomposed:
        h = h * 2
    return (1 + (-h).exp()).reciprocal() if decomposed else h.sigmoid()


def test_an_op_that_one_side_adds_is_apart_from_another_that_it_decomposes_in_the_next_line() -> None:
    eager, changed = (between(partial(soft, decomposed=decomposed)) for decomposed in (False, True))
    two = sides(Small, changed, eager)
    forward = [block for block in unpaired(two) if "neg" in block[1] or "mul" in block[1]]
    assert forward[:2] == [([], ["mul"]), (["sigmoid"], ["neg", "exp", "add", "reciprocal"])]


def test_a_module_made_where_it_is_called_stands_against_the_one_in_its_place() -> None:
    # such a module is called by nobody, so its place is its class's name
    def pooled(kind: type[nn.Module]) -> Callable[[Tensor], Tensor]:
        return lambda h: h + kind(3, stride=1, padding=1)(h.unsqueeze(1)).squeeze(1)

    two = sides(Small, between(pooled(nn.AvgPool1d)), before=between(pooled(nn.MaxPool1d)))
    forward, backward = unpaired(two)
    assert "avg_pool2d" in forward[1] and any(name.startswith("max_pool2d") for name in forward[0])
    assert "avg_pool2d_backward" in backward[1] and "max_pool2d_with_indices_backward" in backward[0]


def test_a_rewritten_module_leaves_all_others_paired() -> None:
    class Written(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return x * torch.sigmoid(1.702 * x)

    def plant(t: Small) -> None:
        t.net.layers[0].act = Written()

    a, b, blocks = aligned(sides(Small, plant))
    for block in blocks:
        if not block.is_pair:
            modules = {a.nodes[n].call.module for n in block.a} | {b.nodes[n].call.module for n in block.b}
            assert modules == {"layers.0.act"}
    assert sum(not block.is_pair for block in blocks) == 2


class Moving(nn.Module):
    """An op before or behind another module's."""

    late = False

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(6, 6), nn.Linear(6, 6)

    def forward(self, x: Tensor) -> Tensor:
        h = self.first(x)
        h = self.second(h).exp() if self.late else self.second(h.exp())
        return F.softmax(h, -1)


class Moved(Training):
    def __init__(self) -> None:
        self.net = Moving()
        super().__init__(self.net, torch.optim.SGD(self.net.parameters(), lr=0.1))
        self.x = torch.randn(8, 6)

    def work(self) -> None:
        self.optimizer.zero_grad()
        self.backward(self.net(self.x)[:, 0].log().mean())
        self.optimizer.step()


def test_an_op_that_changes_places_with_another_breaks_no_pair_of_the_others() -> None:
    def late(t: Any) -> None:
        t.net.late = True

    a, b, blocks = aligned(sides(Moved, late))
    for block in blocks:
        calls = [*(a.nodes[n].call for n in block.a), *(b.nodes[n].call for n in block.b)]
        assert block.is_pair or all(call.module == "second" or call.name in ("exp", "mul") for call in calls)


class Cell(nn.Module):
    """A recurrent cell whose gates may be computed in another order."""

    swapped = False

    def __init__(self) -> None:
        super().__init__()
        self.reset, self.update, self.new = nn.Linear(8, 5), nn.Linear(8, 5), nn.Linear(8, 5)

    def forward(self, x: Tensor, h: Tensor) -> Tensor:
        joint = torch.cat([x, h], -1)
        if self.swapped:
            z = torch.sigmoid(self.update(joint))
            r = torch.sigmoid(self.reset(joint))
        else:
            r = torch.sigmoid(self.reset(joint))
            z = torch.sigmoid(self.update(joint))
        n = torch.tanh(self.new(torch.cat([x, r * h], -1)))
        return (1 - z) * n + z * h


class Unrolled(Training):
    def __init__(self) -> None:
        self.cell = Cell()
        super().__init__(self.cell, torch.optim.SGD(self.cell.parameters(), lr=0.1))
        self.x = torch.randn(4, 6, 3)

    def work(self) -> None:
        self.optimizer.zero_grad()
        h = torch.zeros(4, 5)
        for time in range(6):
            h = self.cell(self.x[:, time], h)
        self.backward(h.square().mean())
        self.optimizer.step()


def test_a_cell_called_many_times_stays_aligned_when_its_gates_change_order() -> None:
    def swapped(t: Any) -> None:
        t.cell.swapped = True

    a, b, blocks = aligned(sides(Unrolled, swapped))
    times: dict[str, list[tuple[int, int]]] = {}
    for block in blocks:
        if block.is_pair and a.nodes[block.a[0]].call.module in ("reset", "update", "new"):
            left, right = a.nodes[block.a[0]].call, b.nodes[block.b[0]].call
            if left.name == "addmm":
                assert left.module is not None and left.module == right.module
                times.setdefault(left.module, []).append(block.a + block.b)  # type: ignore[arg-type]
    # each gate's calls are paired with the calls of the same time, in the order of time
    for gate in ("reset", "update", "new"):
        pairs = times[gate]
        assert len(pairs) == 6
        assert sorted(pairs) == pairs and sorted(j for _, j in pairs) == [j for _, j in pairs]


def test_two_passes_of_a_step_are_not_mixed_up() -> None:
    def rewritten(t: Training) -> None:
        class Twice(nn.Module):
            def forward(self, x: Tensor) -> Tensor:
                return torch.tanh(x) * 1.0

        t.model[1] = Twice()  # type: ignore[operator]

    a, b, blocks = aligned(sides(TRAININGS["sam"], rewritten))
    both = [block for block in blocks if block.a and block.b]
    assert all(a.nodes[i].iteration == b.nodes[j].iteration for block in both for i in block.a for j in block.b)
    ops = [[b.nodes[n].call.name for n in block.b] for block in blocks if not block.is_pair]
    assert ops == [["mul"]] * 4


def test_ops_of_an_optimizer_are_paired_by_their_parameters() -> None:
    def other_order(t: Small) -> None:
        group = t.optimizer.param_groups[0]
        group["params"] = list(reversed(group["params"]))

    a, b, blocks = aligned(sides(Small, other_order))
    assert all(block.is_pair for block in blocks)
    assert all(a.nodes[block.a[0]].call.owners == b.nodes[block.b[0]].call.owners for block in blocks)


def test_an_op_in_place_is_the_op() -> None:
    def side(in_place: bool) -> Callable[[Callable[[str, Tensor], None]], None]:
        def work(saw: Callable[[str, Tensor], None]) -> None:
            x = torch.ones(3) * 2
            saw("loss 0", x.exp_() if in_place else x.exp())

        return work

    assert unpaired(Sides(taped(side(False)), taped(side(True)))) == []


@SLOW
@given(edits(drawing=True))
def test_blocks_of_programs_in_place_are_a_partition_in_an_order(two: tuple[Program, Program]) -> None:
    aligned(Sides(*map(tape_of, two)))


@SLOW
@given(edits(in_place=False))
def test_blocks_of_learning_programs_are_a_partition_in_an_order(two: tuple[Program, Program]) -> None:
    aligned(Sides(*map(learned, two)))


def test_what_a_backward_computes_once_more_belongs_to_its_forward() -> None:
    """A compiler's partitioner executes cheap ops again in the backward graph, under their names."""
    x = torch.linspace(-1, 1, 5)

    def saved(watch: Callable[[str, Tensor], None]) -> None:
        s = x.sin()
        watch("loss", s * 3)
        watch("gradient", s + 1)

    def again(watch: Callable[[str, Tensor], None]) -> None:
        watch("loss", x.sin() * 3)
        watch("gradient", x.sin() + 1)

    one, other = taped(saved), taped(again)
    nodes = [
        ("0 forward", "sin", -1),
        ("0 forward", "mul", -2),
        ("0 backward", "sin", -1),
        ("0 backward", "add", -3),
    ]
    calls = [
        replace(call, compiled=CompiledNode(graph, name, call.op, number), sequence=sequence)
        for number, (call, (graph, name, sequence)) in enumerate(zip(other.calls, nodes, strict=True))
    ]
    pair = paired(flow_of(one), flow_of(replace(other, calls=tuple(calls))))
    assert [(block.a, block.b, block.paired) for block in pair.blocks] == [
        ((0,), (0, 2), True),
        ((1,), (1,), True),
        ((2,), (3,), True),
    ]
    (suspect,) = suspects(pair).values()
    assert (suspect.kind, suspect.reasons) == ("kernel", ("executed once more in the backward",))
    for base in SIDES:
        for blocks in ([], [0], [1], [2], [0, 1, 2]):
            assert not differing(execute(pair, Hybrid(base, frozenset(blocks))), one.expected())


def test_copies_that_a_graph_makes_for_its_backward_do_not_join_what_they_copy() -> None:
    """A copy of the first value, which the backward computes with again, is made together with one of the last value."""
    x = torch.linspace(-1, 1, 8)

    def saved(watch: Callable[[str, Tensor], None]) -> None:
        sine = x.sin()
        watch("loss", (sine * 3).exp())
        watch("gradient", sine + 1)

    def again(watch: Callable[[str, Tensor], None]) -> None:
        last = x.sin() * 3
        copies = x.clone(), last.clone()
        watch("loss", copies[1].exp())
        watch("gradient", copies[0].sin() + 1)

    one, other = taped(saved), taped(again)
    ops = {"sin": -1, "mul": -2, "exp": -3, "add": -4}
    graphs = iter(["0 forward"] * 3 + ["0 backward"] * 2)
    calls = [
        call
        if call.name == "clone"
        else replace(call, compiled=CompiledNode(next(graphs), call.name, call.op, number), sequence=ops[call.name])
        for number, call in enumerate(other.calls)
    ]
    pair = paired(flow_of(one), flow_of(replace(other, calls=tuple(calls))))
    assert [pair.names(number, "a") for number, block in enumerate(pair.blocks) if block.paired] == [
        ["sin"], ["mul"], ["exp"], ["add"],
    ]  # fmt: skip


def test_what_a_backward_draws_once_more_is_drawn_anew() -> None:
    """A partitioner that recomputes a dropout to save memory draws another mask (pytorch#190758)."""
    odds = torch.full((64,), 0.5)

    def saved(watch: Callable[[str, Tensor], None]) -> None:
        mask = torch.bernoulli(odds)
        watch("loss", mask * 3)
        watch("gradient", mask + 1)

    def again(watch: Callable[[str, Tensor], None]) -> None:
        watch("loss", torch.bernoulli(odds) * 3)
        watch("gradient", torch.bernoulli(odds) + 1)

    torch.manual_seed(0)
    one = taped(saved)
    torch.manual_seed(0)
    other = taped(again)
    nodes = [
        ("0 forward", "bernoulli", -1),
        ("0 forward", "mul", -2),
        ("0 backward", "bernoulli", -1),
        ("0 backward", "add", -3),
    ]
    calls = [
        replace(call, compiled=CompiledNode(graph, name, call.op, number), sequence=sequence)
        for number, (call, (graph, name, sequence)) in enumerate(zip(other.calls, nodes, strict=True))
    ]
    pair = paired(flow_of(one), flow_of(replace(other, calls=tuple(calls))))
    (suspect,) = suspects(pair).values()
    assert (suspect.kind, suspect.reasons) == ("structure", (REDRAWN,))


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("base", [100.0, 101.0])
def test_what_one_side_computes_twice_from_the_same_is_one_op(base: float, turned: bool) -> None:
    """A compiler computes the angles once, by which a script turns queries and, computed anew, keys."""
    x = torch.linspace(-1, 1, 8)

    def angles(base: float) -> Tensor:
        return base ** (torch.arange(8) / 8)

    def anew(watch: Callable[[str, Tensor], None]) -> None:
        watch("loss 0", x * angles(100.0).cos())
        watch("loss 1", x + angles(100.0).cos())

    def once(watch: Callable[[str, Tensor], None]) -> None:
        turn = angles(base).cos()
        watch("loss 0", x * turn)
        watch("loss 1", x + turn)

    two = (taped(once), taped(anew)) if turned else (taped(anew), taped(once))
    pair = paired(*map(flow_of, two))
    # then every op has its counterpart, and what differs is what is told otherwise
    assert all(block.paired for block in pair.blocks)
    examined = examine(pair, suspects(pair))
    differing_ones = [one.suspect for one in examined.values() if one.differs is not False]
    told = "101 against 100" if turned else "100 against 101"
    assert [(one.kind, one.reasons) for one in differing_ones] == ([] if base == 100 else [("arguments", (told,))])


def test_what_is_the_same_on_one_side_only_goes_with_what_is_called_at_the_same_place() -> None:
    """Two layers turn queries and keys by the same angles; the other side shifts those of the keys, and computes the angles
    of both layers once."""
    x, places = torch.linspace(-1, 1, 8), torch.arange(8.0)

    def anew(watch: Callable[[str, Tensor], None]) -> None:
        for layer in range(2):
            watch(f"query {layer}", x * places.sin())
            watch(f"key {layer}", x + places.sin())

    def once(watch: Callable[[str, Tensor], None]) -> None:
        query, key = places.sin(), (places + 1).sin()
        for layer in range(2):
            watch(f"query {layer}", x * query)
            watch(f"key {layer}", x + key)

    def in_layers(tape: Tape, names: Sequence[str]) -> Tape:
        calls = [call for call in tape.calls if call.name in ("sin", "mul", "add")]
        named = dict(zip(map(id, calls), names, strict=True))
        return replace(tape, calls=tuple(replace(call, module=named.get(id(call), "")) for call in tape.calls))

    a = in_layers(taped(anew), ["0", "0", "0", "0", "1", "1", "1", "1"])
    b = in_layers(taped(once), ["0", "0", "0", "0", "0", "1", "1"])
    pair = paired(flow_of(a), flow_of(b))
    examined = examine(pair, suspects(pair))
    # then only the shift is another op, and no sine errs
    names = [one.suspect.reasons for one in examined.values() if one.differs is not False]
    assert ("only the other mode executes add",) in names
    nodes = pair.flows["a"].nodes
    sines = [block for block in pair.blocks if block.paired and nodes[block.a[0]].call.name == "sin"]
    assert [(len(block.a), len(block.b)) for block in sines] == [(2, 1), (2, 1)]


def test_of_ops_that_look_alike_those_are_paired_whose_results_are_read_alike() -> None:
    # given a normalization's backward, which divides by the norm anew on one side, and takes what it has on the other
    x, same, norm = torch.arange(1.0, 4.0), torch.arange(1.0, 4.0), torch.tensor(2.0)

    def side(*, anew: bool) -> Callable[[Callable[[str, Tensor], None]], None]:
        def work(saw: Callable[[str, Tensor], None]) -> None:
            divided = x / norm
            saw("loss 0", divided.sum())
            again = same / norm if anew else divided
            saw("loss 1", (again / norm * 3).sum())

        return work

    for turned in (False, True):
        a, b, blocks = aligned(Sides(taped(side(anew=not turned)), taped(side(anew=turned))))
        (alone,) = [block for block in blocks if not (block.a and block.b)]
        flow, nodes = (b, alone.b) if turned else (a, alone.a)
        divisions = [number for number, node in enumerate(flow.nodes) if node.call.name == "div"]
        assert nodes == (divisions[1],)


class Heads(Training):
    """A layer norm and three linear layers of as many features as samples, of three dimensions: what each is of, sizes do
    not tell. `linear` is how a layer is executed."""

    def __init__(self) -> None:
        self.norm, self.layers = nn.LayerNorm(8), [nn.Linear(8, 8) for _ in range(3)]
        whole = nn.ModuleList([self.norm, *self.layers])
        super().__init__(whole, torch.optim.SGD(whole.parameters()))
        self.x = torch.randn(2, 4, 8)
        self.linear: Callable[[Tensor, Tensor, Tensor], Tensor] = F.linear

    def work(self) -> None:
        self.optimizer.zero_grad()
        h = self.norm(self.x)
        one, two, three = (self.linear(h, each.weight, each.bias) for each in self.layers)
        self.backward((one.tanh() * two.sigmoid() * three).sum())
        self.optimizer.step()


def taken_apart(training: Heads) -> None:
    """As torch executes a linear layer on devices of torch_xla."""
    training.linear = lambda x, weight, bias: torch.add(torch.matmul(x, weight.t()), bias)


def test_a_linear_layer_that_one_side_takes_apart_is_one_op() -> None:
    two = sides(Heads, taken_apart)
    a, b, blocks = aligned(two)
    several = [block for block in blocks if not block.is_pair]
    assert len(several) == 3 and all(block.paired for block in several)
    for block in several:
        assert [a.nodes[n].call.name for n in block.a] == ["addmm"]
        assert [b.nodes[n].call.name for n in block.b] == ["mm", "add"]
    # The sums that are the gradients of its biases are over other dimensions, and of the same elements.
    found = suspects(two.pair())
    assert {one.kind for one in found.values()} == {"kernel"}
    assert sum(FOLDED in one.reasons for one in found.values()) == 3
    # Each side's way can be put into the other, and all of the difference goes with them.
    step = localized(two)
    assert all(step.controls.values()) and not step.left.blocks
    assert all(score == 0.0 for score in step.control_scores.values())
    assert step.proofs.rest is None or step.proofs.rest.is_none


def test_both_ways_around() -> None:
    _, _, blocks = aligned(sides(Heads, lambda t: setattr(t, "linear", F.linear), before=taken_apart))
    assert sum(len(block.a) == 2 and len(block.b) == 1 and block.paired for block in blocks) == 3


def test_a_product_without_the_sum_is_no_linear_layer() -> None:
    def without_bias(training: Heads) -> None:
        training.linear = lambda x, weight, bias: torch.matmul(x, weight.t())

    _, _, blocks = aligned(sides(Heads, without_bias))
    assert not any(block.paired and not block.is_pair for block in blocks)
