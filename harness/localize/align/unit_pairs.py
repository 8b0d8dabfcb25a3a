"""The pairs of two tapes' units: which op of one side corresponds to which op of the other.

Ops are paired within their place, in order. A firm pair agrees in place, name and look (see `OpUnit`). A loose pair
agrees in place and name, or in name and look but not in place.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace

from .op_units import OpUnit, units_of
from .ordered_pairs import Pairs, by_readers, in_order, paired_by, turned
from .repeats import alike
from .storage_flow import FlowValue, StorageFlow


@dataclass(slots=True)
class PairedUnits:
    """The units of side a (`left`) and of side b (`right`), and their firm and loose pairs."""

    left: list[OpUnit]
    right: list[OpUnit]
    firm: Pairs
    loose: Pairs

    @property
    def pairs(self) -> Pairs:
        return self.firm | self.loose


def paired_units(a: StorageFlow, b: StorageFlow) -> PairedUnits:
    """Return the units of both sides and their pairs."""
    # If one tape lacks modules, use those of neither side.
    modules = all(any(node.call.module for node in flow.nodes) for flow in (a, b))
    left, right = units_of(a, modules=modules), units_of(b, modules=modules)
    firm = in_order(left, right, a, b)
    firm = by_readers(left, right, firm)
    firm = turned(by_readers(right, left, turned(firm)))
    loose = _by_tensors(left, right, firm)
    loose |= paired_by(left, right, firm | loose, lambda unit: unit.place, lambda unit: unit.name)
    forwards = (_forwards(left, a), _forwards(right, b))
    loose |= _by_arguments(left, right, a, b, firm | loose, forwards)
    elsewhere = paired_by(left, right, firm | loose, lambda unit: unit.place[:2], lambda unit: (unit.name, unit.look))
    loose |= _in_other_places(left, right, firm | loose, elsewhere, forwards)
    products, right = _with_products(left, right, b, firm | loose)
    loose |= products
    products, left = _with_products(right, left, a, turned(firm | loose))
    loose |= turned(products)
    pairs, alike_a, alike_b = firm | loose, alike(a), alike(b)
    merged_left = _with_repeats(left, right, pairs, alike_a, alike_b)
    merged_right = _with_repeats(right, left, turned(pairs), alike_b, alike_a)
    return PairedUnits(merged_left, merged_right, firm, loose)


def _by_tensors(left: Sequence[OpUnit], right: Sequence[OpUnit], pairs: Pairs) -> Pairs:
    """Pair units that `pairs` lacks, by the parameters, states or gradients that they involve.

    Two units are a pair if they are the only ones of their side with this place, this op and these tensors. Their
    position in the order does not matter: the sum that is a bias's gradient may precede or follow the weight's.
    """
    sides: list[dict[Hashable, list[int]]] = [{}, {}]
    for units, paired, groups in ((left, pairs.keys(), sides[0]), (right, {*pairs.values()}, sides[1])):
        for number, unit in enumerate(units):
            tensors = tuple(part for part in unit.look if isinstance(part, str))
            if tensors and number not in paired:
                groups.setdefault((unit.place, unit.name, tensors), []).append(number)
    firsts, seconds = sides
    return {firsts[key][0]: seconds[key][0] for key in firsts if len(firsts[key]) == len(seconds.get(key, ())) == 1}


Forwards = Mapping[int, int]
"""The number of each unit of a side that is the backward of a unit, with the number of that unit."""


def _forwards(units: Sequence[OpUnit], flow: StorageFlow) -> Forwards:
    by_sequence: dict[int, int] = {}  # autograd's sequence number, which an op shares with its backward
    forwards: dict[int, int] = {}
    for number, unit in enumerate(units):
        for call in (flow.nodes[node].call for node in unit.nodes):
            if call.phase == "forward" and call.sequence is not None:
                by_sequence.setdefault(call.sequence, number)
            elif call.phase == "backward" and call.sequence in by_sequence:
                forwards.setdefault(number, by_sequence[call.sequence])
    return forwards


def _have_paired_forwards(i: int, j: int, forwards: tuple[Forwards, Forwards], pairs: Pairs) -> bool:
    """Check that two units of different places are not the backwards of two units that are no pair.

    If side b scales a value that a dropout made, the two backwards multiply values of the same shape. Side a's only
    multiplication is the dropout's, in whose place side b has other ops:

        forward     side a    bernoulli, mul    side b    native_dropout             mul (the factor)
        backward    side a    mul               side b    native_dropout_backward    mul (the factor)
    """
    first, second = forwards[0].get(i), forwards[1].get(j)
    return first is None or second is None or pairs.get(first) == second


def _in_other_places(
    left: Sequence[OpUnit],
    right: Sequence[OpUnit],
    pairs: Pairs,
    found: Pairs,
    forwards: tuple[Forwards, Forwards],
) -> Pairs:
    """Return those of the found pairs of units of different places that do not contradict the rest of the step.

    A unit of the forward has no partner elsewhere if its own place contains an unpaired unit of the other side, which
    is then an op in place of it. A unit of the backward has no partner if the forwards of both are no pair.
    """
    paired_b = set(pairs.values())
    free_a = {unit.place for number, unit in enumerate(left) if number not in pairs}
    free_b = {unit.place for number, unit in enumerate(right) if number not in paired_b}

    def is_replaced(i: int, j: int) -> bool:
        return left[i].place[1] == "forward" and (left[i].place in free_b or right[j].place in free_a)

    kept = {i: j for i, j in found.items() if not is_replaced(i, j)}
    together = pairs | kept
    return {i: j for i, j in kept.items() if _have_paired_forwards(i, j, forwards, together)}


def _by_arguments(
    left: Sequence[OpUnit],
    right: Sequence[OpUnit],
    a: StorageFlow,
    b: StorageFlow,
    pairs: Pairs,
    forwards: tuple[Forwards, Forwards],
) -> Pairs:
    """Pair units that `pairs` lacks, by the units whose results they read.

    Two units are a pair if they are the only ones of their side with this op and look that read a result of the same
    paired units. Each new pair may lead to others. Order alone is not enough, as an extra op shifts it. Here, each
    "add" of side a has its counterpart further down, but in order, the first two would be paired with the last two:

        side a    add    add           add
        side b    add    mul    add    add
    """
    new_pairs = Pairs()
    while True:
        paired = pairs | new_pairs
        sides: list[dict[Hashable, list[int]]] = []
        for units, flow, pair_of in ((left, a, {i: i for i in paired}), (right, b, turned(paired))):
            homes = {node: number for number, unit in enumerate(units) for node in unit.nodes}
            groups: dict[Hashable, list[int]] = {}
            for number, unit in enumerate(units):
                if number in pair_of:
                    continue
                makers = (flow.makers.get(use.value) for node in unit.nodes for use in flow.nodes[node].reads)
                for source in {pair_of.get(homes[maker]) for maker in makers if maker is not None} - {None}:
                    groups.setdefault((source, unit.place[:2], unit.name, unit.look), []).append(number)
            sides.append(groups)
        firsts, seconds = sides
        found = Pairs()
        for key, numbers in firsts.items():
            partners = seconds.get(key, ())
            if len(numbers) != 1 or len(partners) != 1 or numbers[0] in found or partners[0] in found.values():
                continue
            i, j = numbers[0], partners[0]
            if left[i].place == right[j].place or _have_paired_forwards(i, j, forwards, paired | found):
                found[i] = j
        if not found:
            return new_pairs
        new_pairs |= found


def _with_products(
    units: Sequence[OpUnit], other_units: Sequence[OpUnit], other_flow: StorageFlow, pairs: Pairs
) -> tuple[Pairs, list[OpUnit]]:
    """Pair each `addmm` with the `mm` and `add` that the other side executes in its place, if none of them is paired.

    Return the new pairs and the other side's units, in which the `mm` and the `add` have become one unit named `addmm`.
    On devices of torch_xla, torch decomposes a linear layer whose input has more than two dimensions.
    """
    waiting: dict[Hashable, list[int]] = {}
    for number, unit in enumerate(units):
        if number not in pairs and unit.name == "addmm":
            waiting.setdefault(unit.place, []).append(number)
    new_pairs, merged, partners = Pairs(), list(other_units), {*pairs.values()}
    products: dict[FlowValue, int] = {}
    for number, unit in enumerate(other_units):
        if number in partners or len(unit.nodes) != 1:
            continue
        node = other_flow.nodes[unit.nodes[0]]
        if unit.name == "mm":
            products |= {use.value: number for use in node.made}
        elif unit.name == "add" and waiting.get(unit.place):
            product = next((products.pop(use.value) for use in node.reads if use.value in products), None)
            if product is not None and merged[product].place == unit.place:
                new_pairs[waiting[unit.place].pop(0)] = product
                nodes = (*merged[product].nodes, *unit.nodes)
                merged[product] = replace(merged[product], name="addmm", nodes=nodes, readers=unit.readers)
                merged[number] = replace(unit, nodes=())
    return new_pairs, merged


def _with_repeats(
    units: Sequence[OpUnit],
    other_units: Sequence[OpUnit],
    pairs: Pairs,
    alike_nodes: Mapping[int, int],
    other_alike_nodes: Mapping[int, int],
) -> list[OpUnit]:
    """Merge each unpaired unit that repeats the computation of a paired unit into the paired unit.

        this side     keys = a * x    queries = a * x        the second product repeats the first: both become one unit
        other side    keys = a * x    queries = keys

    The other side may compute different things for several units that are the same on this side. Then a unit is merged
    into the paired unit that has the same rank among the equal units of its place: keys with keys, and queries with
    queries. `alike_nodes` and `other_alike_nodes` are the results of `alike` for both sides.
    """
    # For each unit that computes only one thing: its rank among the units of its place that compute the same thing
    ranks: dict[int, int] = {}
    counts: dict[Hashable, int] = {}
    homes: dict[int, list[int]] = {}  # the paired units that compute a thing, by the first node that computes it
    for number, unit in enumerate(units):
        first_nodes = {alike_nodes.get(node, -1) for node in unit.nodes}
        if len(first_nodes) != 1 or -1 in first_nodes:
            continue
        (first_node,) = first_nodes
        ranks[number] = counts.get((unit.place, first_node), 0)
        counts[unit.place, first_node] = ranks[number] + 1
        if number in pairs:
            homes.setdefault(first_node, []).append(number)

    def computed_by_partners(candidates: Sequence[int]) -> set[int]:
        nodes = [other_units[pairs[candidate]].nodes[0] for candidate in candidates]
        return {other_alike_nodes.get(node, node) for node in nodes}

    merged = list(units)
    for number in ranks.keys() - pairs.keys():
        candidates = homes.get(alike_nodes[units[number].nodes[0]], [])
        if len(computed_by_partners(candidates)) > 1:
            candidates = [candidate for candidate in candidates if ranks[candidate] == ranks[number]]
        if len(computed_by_partners(candidates)) == 1:
            home = candidates[0]
            merged[home] = replace(merged[home], nodes=tuple(sorted((*merged[home].nodes, *units[number].nodes))))
            merged[number] = replace(units[number], nodes=())
    return merged
