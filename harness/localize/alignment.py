"""Two tapes of one step, side by side: which calls of the one are which of the other.

Ops are paired within their place: the pass, the phase, the module, and for what an optimizer does the
parameters. So a rewritten module leaves all others paired. What has no counterpart within its place is looked
for elsewhere, by its name and shapes, and what is left between two pairs is a block without pairs: ops of one
side in place of ops of the other. In compiled graphs everything that one op was decomposed into is one unit,
with that op's name; so is what the backward computes once more, and what one side computes twice from the same, where
the other side, as compilers do, computes it once.

Blocks come in an order in which both sides can be executed block by block; those that no order can part are one block.

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
    """Pair the nodes of two tapes; every node is in one block."""
    # A tape may know no modules: then neither side's count.
    modules = all(any(node.call.module for node in flow.nodes) for flow in (a, b))
    left, right = units_of(a, modules=modules), units_of(b, modules=modules)
    # Firm is what has the same place, name and look; loose what has the name in its place, or the look elsewhere.
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
            others = cycles(waiting(a, b, apart))
            if sum(map(len, others)) < sum(map(len, crossed)):
                blocks, crossed = apart, others
        # Blocks that wait for each other come of a loose pair across others: such pairs are given up.
        crossing = {node for one in crossed for number in one for node in blocks[number].a}
        unpaired = {i for i in loose if crossing.intersection(left[i].nodes)}
        if not unpaired:
            return _ordered(a, b, in_place_of_each_other(a, b, blocks))
        loose = {i: j for i, j in loose.items() if i not in unpaired}


def _with_repeats(
    units: Sequence[OpUnit],
    pairs: Mapping[int, int],
    others: Sequence[OpUnit],
    same: Mapping[int, int],
    theirs: Mapping[int, int],
) -> list[OpUnit]:
    """The units, where an unpaired one computes the same from the same as a paired one with all its nodes in that one's
    place, and with none itself. Where the other side computes different things for several that are the same here, it
    goes with the one that is the same-manieth of its own place: keys with keys, and queries with queries. `same` and
    `theirs` are what `alike` says of either side."""
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
    found = list(units)
    for number in ranks.keys() - pairs.keys():
        candidates = homes.get(same[units[number].nodes[0]], [])
        firsts = {one: others[pairs[one]].nodes[0] for one in candidates}
        meant = {theirs.get(node, node) for node in firsts.values()}
        if len(meant) > 1:
            candidates = [one for one in candidates if ranks[one] == ranks[number]]
            meant = {theirs.get(firsts[one], firsts[one]) for one in candidates}
        if len(meant) == 1:
            home = candidates[0]
            found[home] = replace(found[home], nodes=tuple(sorted((*found[home].nodes, *units[number].nodes))))
            found[number] = replace(units[number], nodes=())
    return found


def _about_the_same(left: Sequence[OpUnit], right: Sequence[OpUnit], pairs: Mapping[int, int]) -> dict[int, int]:
    """Pair what `pairs` does not, where in one place one op of a name is about the same parameters, states or gradients
    on each side, wherever in the order: the sum that is a bias's gradient, after the weight's or before."""
    found: list[dict[Hashable, list[int]]] = [{}, {}]
    for units, taken, known in ((left, pairs.keys(), found[0]), (right, {*pairs.values()}, found[1])):
        for number, unit in enumerate(units):
            about = tuple(one for one in unit.look if isinstance(one, str))
            if about and number not in taken:
                known.setdefault((unit.place, unit.name, about), []).append(number)
    mine, yours = found
    return {mine[key][0]: yours[key][0] for key in mine if len(mine[key]) == len(yours.get(key, ())) == 1}


def _with_products(
    a: StorageFlow, b: StorageFlow, left: Sequence[OpUnit], right: Sequence[OpUnit], pairs: Mapping[int, int]
) -> tuple[dict[int, int], list[OpUnit], list[OpUnit]]:
    """Pair an `addmm` with the `mm` and the `add` that the other side has in its place, and no op for either: torch
    takes a linear layer of more than two dimensions apart on devices of torch_xla. Those become one unit of that name.
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
                    found = waiting[unit.place].pop(0)
                    joined |= {found: product} if whole == 0 else {product: found}
                    units[product] = replace(
                        units[product], name="addmm", nodes=(*units[product].nodes, *unit.nodes), readers=unit.readers
                    )
                    units[number] = replace(unit, nodes=())
    return joined, sides[0], sides[1]


def _by_readers(left: Sequence[OpUnit], right: Sequence[OpUnit], pairs: dict[int, int]) -> dict[int, int]:
    """The pairs, where of several units that look alike one side has more: then the one is paired whose results are
    read by the same ops, and not the first. A normalization's backward divides x by its norm and that once more, where
    a compiler, which has x over its norm from the forward, divides once: that is the second division."""
    found = dict(pairs)
    for units, others, turned in ((left, right, False), (right, left, True)):
        known = {j: i for i, j in found.items()} if turned else dict(found)
        free: dict[Hashable, list[int]] = {}
        for number, unit in enumerate(units):
            if number not in known:
                free.setdefault((unit.place, unit.name, unit.look, unit.readers), []).append(number)
        for mine, yours in known.items():
            unit, wanted = units[mine], others[yours].readers
            if unit.readers != wanted and (better := free.get((unit.place, unit.name, unit.look, wanted))):
                one = better.pop(0)
                found = {i: j for i, j in found.items() if (j if turned else i) != mine}
                found[yours if turned else one] = one if turned else yours
    return found


def _blocks(left: Sequence[OpUnit], right: Sequence[OpUnit], pairs: dict[int, int], *, apart: bool) -> list[Block]:
    """The pairs, and what lies, unpaired, behind the same pair of one place, as one block; with `apart` only what lies
    in the same visit of it: a module that is called in a loop is visited many times."""
    found: dict[Hashable, tuple[list[int], list[int]]] = {}
    back = {j: i for i, j in pairs.items()}
    for units, known, side in ((left, {i: i for i in pairs}, 0), (right, back, 1)):
        before: dict[Hashable, int] = {}
        visits: dict[Hashable, int] = {}
        here = None
        for number, unit in enumerate(units):
            if unit.place != here:
                here = unit.place
                visits[here] = visits.get(here, -1) + 1
            if number in known:
                before[here] = known[number]
            elif unit.nodes:
                key = (here, before.get(here), visits[here] if apart else 0)
                found.setdefault(key, ([], []))[side].extend(unit.nodes)
    blocks = [Block(left[i].nodes, right[j].nodes, left[i].name == right[j].name) for i, j in pairs.items()]
    return [*blocks, *(Block(tuple(sorted(a)), tuple(sorted(b)), paired=False) for a, b in found.values())]


def _paired(
    left: Sequence[OpUnit],
    right: Sequence[OpUnit],
    known: dict[int, int],
    within: Callable[[OpUnit], Hashable],
    key: Callable[[OpUnit], Hashable],
) -> dict[int, int]:
    """Pair what `known` does not, within the same part of the step, in order, where the keys are equal."""
    parts: dict[Hashable, tuple[list[int], list[int]]] = {}
    for units, taken, side in ((left, known.keys(), 0), (right, set(known.values()), 1)):
        for number, unit in enumerate(units):
            if number not in taken:
                parts.setdefault(within(unit), ([], []))[side].append(number)
    found: dict[int, int] = {}
    for mine, yours in parts.values():
        a, b = [key(left[n]) for n in mine], [key(right[n]) for n in yours]
        if a == b:
            found |= zip(mine, yours, strict=True)
            continue
        # autojunk takes what is frequent for noise, and fifty equal layers are frequent
        matcher = difflib.SequenceMatcher(None, a, b, autojunk=False)
        for match in matcher.get_matching_blocks():
            found |= {mine[match.a + k]: yours[match.b + k] for k in range(match.size)}
    return found


def _ordered(a: StorageFlow, b: StorageFlow, blocks: Sequence[Block]) -> list[Block]:
    """The blocks in an order that both sides' data allow; blocks that wait for each other become one."""
    condensed = networkx.condensation(waiting(a, b, blocks))
    merged = {}
    for number in condensed:
        members = [blocks[one] for one in condensed.nodes[number]["members"]]
        ours, theirs = (tuple(sorted(node for one in members for node in one.of(side))) for side in "ab")
        merged[number] = members[0] if len(members) == 1 else Block(ours, theirs, paired=False)

    # For each node of side b the place on side a of what comes last before it and is there
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
