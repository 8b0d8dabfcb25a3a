"""The alignment of two tapes of one step: blocks of calls that correspond.

Ops are paired within their place: the pass, the phase, the module, and for an optimizer's ops the parameters. So a
rewritten module leaves all others paired. An op without a counterpart in its place is searched for elsewhere, by its
name and shapes. The ops left between two pairs form an unpaired block: ops of one side in place of ops of the other.

The elements that are paired are units. In compiled graphs all nodes that one op was decomposed into form one unit, with
that op's name. The unit includes the nodes that the backward recomputes. It also includes those that one side computes
twice from the same values, where the other side computes them once, as compilers do.

The blocks are ordered so that both sides can be executed block by block. Blocks that wait for each other become one
block.

With `recorded_step` of the tape's example, and 3 * weight written as a sum on the second side:

    >>> first = flow_of(recorded_step(lambda weight: 3 * weight))
    >>> second = flow_of(recorded_step(lambda weight: weight + weight + weight))
    >>> for block in align(first, second):
    ...     names = [[op_name(flow.nodes[n]) for n in block.of(side)] for flow, side in ((first, "a"), (second, "b"))]
    ...     print(*names, "paired" if block.paired else "others")
    ['mul'] ['add', 'add'] others
    ['sum'] ['sum'] paired
    ['ones_like'] ['ones_like'] paired
    ['mul'] ['add', 'add'] others
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Hashable, Mapping, Sequence
from dataclasses import replace

import networkx

from .blocks import Block, cycles, in_place_of_each_other, waiting
from .op_units import OpUnit, units_of
from .repeats import alike
from .storage_flow import FlowValue, StorageFlow


def align(a: StorageFlow, b: StorageFlow) -> list[Block]:
    """Return the blocks of two tapes; every node is in exactly one block."""
    # If one tape lacks modules, use those of neither side.
    modules = all(any(node.call.module for node in flow.nodes) for flow in (a, b))
    left, right = units_of(a, modules=modules), units_of(b, modules=modules)
    # A firm pair agrees in place, name and look; a loose one in place and name, or in name and look elsewhere.
    firm = _paired(left, right, {}, lambda unit: unit.place[:2], lambda unit: (unit.place, unit.name, unit.look))
    firm = _by_readers(left, right, firm)
    loose = _about_the_same(left, right, firm)
    loose |= _paired(left, right, firm | loose, lambda unit: unit.place, lambda unit: unit.name)
    loose |= _paired(left, right, firm | loose, lambda unit: unit.place[:2], lambda unit: (unit.name, unit.look))
    pairs = firm | loose
    joined, left, right = _with_products(a, b, left, right, pairs)
    loose |= joined
    pairs |= joined
    back = {j: i for i, j in pairs.items()}
    same = alike(a), alike(b)
    left, right = _with_repeats(left, pairs, right, *same), _with_repeats(right, back, left, *same[::-1])
    while True:
        blocks = _blocks(left, right, firm | loose, apart=False)
        crossed = cycles(waiting(a, b, blocks))
        if crossed:
            apart = _blocks(left, right, firm | loose, apart=True)
            still_crossed = cycles(waiting(a, b, apart))
            if sum(map(len, still_crossed)) < sum(map(len, crossed)):
                blocks, crossed = apart, still_crossed
        # Loose pairs that cross other pairs make blocks wait for each other: undo them.
        crossing = {node for cycle in crossed for number in cycle for node in blocks[number].a}
        unpaired = {i for i in loose if crossing.intersection(left[i].nodes)}
        if not unpaired:
            return _ordered(a, b, in_place_of_each_other(a, b, blocks))
        loose = {i: j for i, j in loose.items() if i not in unpaired}


def _with_repeats(
    units: Sequence[OpUnit],
    pairs: Mapping[int, int],
    other_units: Sequence[OpUnit],
    same: Mapping[int, int],
    other_same: Mapping[int, int],
) -> list[OpUnit]:
    """Merge each repeated computation into the paired unit that computes the same.

    If an unpaired unit computes the same from the same values as a paired one, its nodes move to the paired unit. The
    other side may compute different things for several units that are the same on this side. Then a unit is merged into
    the one of equal rank in its own place: keys with keys, and queries with queries.

    `same` and `other_same` are the results of `alike` for this side and the other one.
    """
    ranks: dict[int, int] = {}
    seen: dict[Hashable, int] = {}
    homes: dict[int, list[int]] = {}
    for number, unit in enumerate(units):
        kinds = {same.get(node, -1) for node in unit.nodes}
        if len(kinds) == 1 and -1 not in kinds:
            (kind,) = kinds
            ranks[number] = seen[unit.place, kind] = seen.get((unit.place, kind), -1) + 1
            if number in pairs:
                homes.setdefault(kind, []).append(number)
    merged = list(units)
    for number in ranks.keys() - pairs.keys():
        candidates = homes.get(same[units[number].nodes[0]], [])
        firsts = {candidate: other_units[pairs[candidate]].nodes[0] for candidate in candidates}
        counterparts = {other_same.get(node, node) for node in firsts.values()}
        if len(counterparts) > 1:
            candidates = [candidate for candidate in candidates if ranks[candidate] == ranks[number]]
            counterparts = {other_same.get(firsts[candidate], firsts[candidate]) for candidate in candidates}
        if len(counterparts) == 1:
            home = candidates[0]
            merged[home] = replace(merged[home], nodes=tuple(sorted((*merged[home].nodes, *units[number].nodes))))
            merged[number] = replace(units[number], nodes=())
    return merged


def _about_the_same(left: Sequence[OpUnit], right: Sequence[OpUnit], pairs: Mapping[int, int]) -> dict[int, int]:
    """Pair units that `pairs` lacks, by the parameters, states or gradients that they involve.

    Two units are a pair if they are the only ones of their side with this place, this op and these tensors. Their
    position in the order does not matter: the sum that is a bias's gradient may precede or follow the weight's.
    """
    sides: list[dict[Hashable, list[int]]] = [{}, {}]
    for units, paired, groups in ((left, pairs.keys(), sides[0]), (right, {*pairs.values()}, sides[1])):
        for number, unit in enumerate(units):
            about = tuple(part for part in unit.look if isinstance(part, str))
            if about and number not in paired:
                groups.setdefault((unit.place, unit.name, about), []).append(number)
    firsts, seconds = sides
    return {firsts[key][0]: seconds[key][0] for key in firsts if len(firsts[key]) == len(seconds.get(key, ())) == 1}


def _with_products(
    a: StorageFlow, b: StorageFlow, left: Sequence[OpUnit], right: Sequence[OpUnit], pairs: Mapping[int, int]
) -> tuple[dict[int, int], list[OpUnit], list[OpUnit]]:
    """Pair an `addmm` with the `mm` and `add` that the other side executes in its place, where none of them is paired.

    The `mm` and the `add` become one unit named `addmm`. On devices of torch_xla, torch decomposes a linear layer whose
    input has more than two dimensions.
    """
    sides, joined = [list(left), list(right)], dict[int, int]()
    free = [[n for n in range(len(left)) if n not in pairs], sorted({*range(len(right))} - {*pairs.values()})]
    for whole, parts, flow in ((0, 1, b), (1, 0, a)):
        waiting: dict[Hashable, list[int]] = {}
        for number in free[whole]:
            if sides[whole][number].name == "addmm":
                waiting.setdefault(sides[whole][number].place, []).append(number)
        units = sides[parts]
        products: dict[FlowValue, int] = {}
        for number in free[parts]:
            unit = units[number]
            node = flow.nodes[unit.nodes[0]]
            if unit.name == "mm" and len(unit.nodes) == 1:
                products |= {use.value: number for use in node.made}
            elif unit.name == "add" and len(unit.nodes) == 1 and waiting.get(unit.place):
                product = next((products.pop(use.value) for use in node.reads if use.value in products), None)
                if product is not None and units[product].place == unit.place:
                    addmm = waiting[unit.place].pop(0)
                    joined |= {addmm: product} if whole == 0 else {product: addmm}
                    units[product] = replace(
                        units[product], name="addmm", nodes=(*units[product].nodes, *unit.nodes), readers=unit.readers
                    )
                    units[number] = replace(unit, nodes=())
    return joined, sides[0], sides[1]


def _by_readers(left: Sequence[OpUnit], right: Sequence[OpUnit], pairs: dict[int, int]) -> dict[int, int]:
    """Re-pair units with an unpaired one that looks alike and whose results are read by the same ops.

    One side may have more units that look alike; the first of them was paired, which may be the wrong one. For example,
    the backward of a normalization divides x by its norm, and the quotient by the norm again. A compiler has the
    quotient from the forward and divides once: its division corresponds to the second one.
    """
    result = dict(pairs)
    for units, other_units, turned in ((left, right, False), (right, left, True)):
        partners = {j: i for i, j in result.items()} if turned else dict(result)
        free: dict[Hashable, list[int]] = {}
        for number, unit in enumerate(units):
            if number not in partners:
                free.setdefault((unit.place, unit.name, unit.look, unit.readers), []).append(number)
        for paired, partner in partners.items():
            unit, wanted_readers = units[paired], other_units[partner].readers
            if unit.readers != wanted_readers and (
                better := free.get((unit.place, unit.name, unit.look, wanted_readers))
            ):
                better_match = better.pop(0)
                result = {i: j for i, j in result.items() if (j if turned else i) != paired}
                result[partner if turned else better_match] = better_match if turned else partner
    return result


def _blocks(left: Sequence[OpUnit], right: Sequence[OpUnit], pairs: dict[int, int], *, apart: bool) -> list[Block]:
    """Return the pairs as blocks, and the unpaired units that follow the same pair in one place as one block.

    With `apart` a block holds only unpaired units of one visit: a module that is called in a loop is visited many
    times.
    """
    unpaired: dict[Hashable, tuple[list[int], list[int]]] = {}
    back = {j: i for i, j in pairs.items()}
    for units, pair_of, side in ((left, {i: i for i in pairs}, 0), (right, back, 1)):
        before: dict[Hashable, int] = {}
        visits: dict[Hashable, int] = {}
        place = None
        for number, unit in enumerate(units):
            if unit.place != place:
                place = unit.place
                visits[place] = visits.get(place, -1) + 1
            if number in pair_of:
                before[place] = pair_of[number]
            elif unit.nodes:
                key = (place, before.get(place), visits[place] if apart else 0)
                unpaired.setdefault(key, ([], []))[side].extend(unit.nodes)
    blocks = [Block(left[i].nodes, right[j].nodes, left[i].name == right[j].name) for i, j in pairs.items()]
    return [*blocks, *(Block(tuple(sorted(a)), tuple(sorted(b)), paired=False) for a, b in unpaired.values())]


def _paired(
    left: Sequence[OpUnit],
    right: Sequence[OpUnit],
    pairs: dict[int, int],
    within: Callable[[OpUnit], Hashable],
    key: Callable[[OpUnit], Hashable],
) -> dict[int, int]:
    """Pair units that `pairs` lacks and whose keys are equal, in order, within the same part of the step."""
    parts: dict[Hashable, tuple[list[int], list[int]]] = {}
    for units, paired, side in ((left, pairs.keys(), 0), (right, set(pairs.values()), 1)):
        for number, unit in enumerate(units):
            if number not in paired:
                parts.setdefault(within(unit), ([], []))[side].append(number)
    matched: dict[int, int] = {}
    for numbers_a, numbers_b in parts.values():
        a, b = [key(left[n]) for n in numbers_a], [key(right[n]) for n in numbers_b]
        if a == b:
            matched |= zip(numbers_a, numbers_b, strict=True)
            continue
        # autojunk ignores frequent elements as noise, and fifty equal layers are frequent
        matcher = difflib.SequenceMatcher(None, a, b, autojunk=False)
        for match in matcher.get_matching_blocks():
            matched |= {numbers_a[match.a + k]: numbers_b[match.b + k] for k in range(match.size)}
    return matched


def _ordered(a: StorageFlow, b: StorageFlow, blocks: Sequence[Block]) -> list[Block]:
    """Return the blocks in an order in which both sides can execute them; merge blocks that wait for each other."""
    condensed = networkx.condensation(waiting(a, b, blocks))
    merged = {}
    for number in condensed:
        members = [blocks[member] for member in condensed.nodes[number]["members"]]
        a_nodes, b_nodes = (tuple(sorted(node for member in members for node in member.of(side))) for side in "ab")
        merged[number] = members[0] if len(members) == 1 else Block(a_nodes, b_nodes, paired=False)

    # For each node of side b: the first node of side a in the last preceding block that has nodes of side a
    starts = {node: block.a[0] for block in merged.values() for node in block.b if block.a}
    before, last = [], -1
    for node in range(len(b.nodes)):
        last = starts.get(node, last)
        before.append(last)

    def place(number: int) -> tuple[int, int]:
        block = merged[number]
        return (block.a[0] if block.a else before[block.b[0]]), (block.b[0] if block.b else -1)

    order = networkx.lexicographical_topological_sort(condensed, key=place)
    return [merged[number] for number in order]
