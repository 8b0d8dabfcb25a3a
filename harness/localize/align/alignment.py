"""The alignment of two tapes of one step: blocks of calls that correspond.

Ops are paired within their place: the pass, the phase and the module, or, for an optimizer's ops, the parameters. So
the ops outside a rewritten module stay paired. If an op has no counterpart in its place, other places are searched for
one, by name and shapes. The ops left between two pairs form an unpaired block: ops of one side in place of ops of the
other.

The elements that are paired are called units. In compiled graphs, all nodes that one op was decomposed into form one
unit, with that op's name. The unit includes the nodes that the backward recomputes. It also includes repeated nodes: a
compiler may compute a node twice from the same values, where the other side computes it once.

The blocks are ordered so that both sides can be executed block by block. Blocks that wait for each other become one
block.

The example uses `recorded_step` from the example in `tape.tape`. The second side writes 3 * weight as a sum, so that
two additions correspond to each product:

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

from collections.abc import Hashable, Sequence

import networkx

from .blocks import Block, cycles, in_executable_order, in_place_of_each_other, waiting
from .op_units import OpUnit
from .ordered_pairs import Pairs
from .storage_flow import StorageFlow
from .unit_pairs import paired_units


def align(a: StorageFlow, b: StorageFlow, *, same_source: bool = True) -> list[Block]:
    """Return the blocks of two tapes; every node is in exactly one block.

    same_source: the lines of both tapes are those of the same files
    """
    units = paired_units(a, b)
    while True:
        blocks = _blocks(units.left, units.right, units.pairs, apart=False)
        blocks = _with_lines_apart(a, b, blocks) if same_source else blocks
        ordered = in_executable_order(a, b, blocks)
        crossed = cycles(waiting(a, b, blocks)) if ordered is None else []
        if crossed:
            apart = _blocks(units.left, units.right, units.pairs, apart=True)
            apart = _with_lines_apart(a, b, apart) if same_source else apart
            blocks, crossed = _less_crossed(a, b, (blocks, crossed), apart)
        # An op of side a and one of side b that follow the same pair need not replace each other. In this example, both
        # follow the pool, but the attention waits for one of them, and the other waits for the attention:
        #   side a    pool           attention    upsample
        #   side b    pool    mul    attention    index
        of_both = {n for cycle in crossed for n in cycle if not blocks[n].paired and blocks[n].a and blocks[n].b}
        if of_both:
            apart = [part for n, block in enumerate(blocks) for part in (_sides(block) if n in of_both else [block])]
            blocks, crossed = _less_crossed(a, b, (blocks, crossed), apart)
        # The copies that a compiled graph makes for its backward are in no order with the rest of the step.
        alone = {number for cycle in crossed for number in cycle if not (blocks[number].a and blocks[number].b)}
        if alone:
            blocks = [part for n, block in enumerate(blocks) for part in (_each_node(block) if n in alone else [block])]
            crossed = cycles(waiting(a, b, blocks))
        # Loose pairs that cross other pairs make blocks wait for each other: undo them.
        crossing = {node for cycle in crossed for number in cycle for node in blocks[number].a}
        undone = {i for i in units.loose if crossing.intersection(units.left[i].nodes)}
        if not undone:
            joined = in_place_of_each_other(a, b, blocks)
            return ordered if ordered is not None and joined == blocks else _ordered(a, b, joined)
        units.loose = {i: j for i, j in units.loose.items() if i not in undone}


def _blocks(left: Sequence[OpUnit], right: Sequence[OpUnit], pairs: Pairs, *, apart: bool) -> list[Block]:
    """Return a block for each pair, and one block for the unpaired units that follow the same pair in the same place.

    With `apart`, a block contains only unpaired units of one visit to the place: a module that is called in a loop is
    visited many times.
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


def _each_node(block: Block) -> list[Block]:
    """Return a block for each node of a block that only one side has."""
    return [
        *(Block((node,), (), paired=False) for node in block.a),
        *(Block((), (node,), paired=False) for node in block.b),
    ]


def _sides(block: Block) -> list[Block]:
    """Return a block for each side of an unpaired block."""
    return [Block(block.a, (), paired=False), Block((), block.b, paired=False)]


def _less_crossed(
    a: StorageFlow, b: StorageFlow, found: tuple[list[Block], list[set[int]]], other_blocks: list[Block]
) -> tuple[list[Block], list[set[int]]]:
    """Return the found blocks or the other ones, whichever have fewer blocks that wait for each other, with these."""
    crossed = cycles(waiting(a, b, other_blocks))
    return (other_blocks, crossed) if sum(map(len, crossed)) < sum(map(len, found[1])) else found


def _with_lines_apart(a: StorageFlow, b: StorageFlow, blocks: Sequence[Block]) -> list[Block]:
    """Split each unpaired block in which only some lines of the script are executed by both sides.

    Torch decomposes some ops before a compiler captures them, without naming the op. If the script multiplies by 2 on
    one side only, and then calls such an op, the factor stays apart from the op's decomposition:

        upsample (line 9)    mul (line 8), iota, mul, index and 25 more (line 9)
    """
    split = list[Block]()
    for block in blocks:
        if block.paired or not (block.a and block.b):
            split.append(block)
            continue
        lines_a, lines_b = ({flow.nodes[n].call.line for n in block.of(side)} for flow, side in ((a, "a"), (b, "b")))
        common = lines_a & lines_b
        if None in lines_a | lines_b or not common or lines_a == lines_b:
            split.append(block)
            continue
        for is_common in (False, True):
            nodes_a, nodes_b = (
                tuple(n for n in block.of(side) if (flow.nodes[n].call.line in common) == is_common)
                for flow, side in ((a, "a"), (b, "b"))
            )
            split.append(Block(nodes_a, nodes_b, paired=False))
    return split


def _ordered(a: StorageFlow, b: StorageFlow, blocks: Sequence[Block]) -> list[Block]:
    """Return the blocks in an order in which both sides can execute them; merge blocks that wait for each other."""
    merged = []
    for members in networkx.strongly_connected_components(waiting(a, b, blocks)):
        together = [blocks[member] for member in members]
        a_nodes, b_nodes = (tuple(sorted(node for block in together for node in block.of(side))) for side in "ab")
        merged.append(together[0] if len(together) == 1 else Block(a_nodes, b_nodes, paired=False))
    ordered = in_executable_order(a, b, merged)
    assert ordered is not None  # blocks that wait for each other are one block now
    return ordered
