"""What a cause of several blocks changes in all: the blocks of a rewritten op may each compute something else, and what
leaves them is the same.

    q k^T / s        a: matmul, div        b: mul, matmul        each block differs by s, and what is read after them
    (q / s) k^T                                                  differs by roundings
"""

from __future__ import annotations

from collections.abc import Collection

from ..tape.replay import set_apart
from .examination import precision, relative
from .hybrid import Mixture, MixtureExecution, TapePair
from .storage_flow import SIDES, FlowValue, Use


def net_roundings(pair: TapePair, blocks: Collection[int]) -> float | None:
    """How far what these blocks of side b make, and others read, is moved where side a's are in their place: at most,
    in roundings of its own precision. None where nothing that they make has a counterpart, or they cannot be mixed."""
    left = _left_behind(pair, blocks)
    if not left:
        return None
    first, found = min(blocks), 0.0
    try:
        with set_apart(pair.devices()):
            own = MixtureExecution(pair, Mixture("b"))
            for number in range(first):
                own.run(number)
            swapped = MixtureExecution(pair, Mixture("b", frozenset(blocks)))
            swapped.memory = own.memory.fork()
            for number in range(first, max(left) + 1):
                for one in (own, swapped):
                    one.run_as(one.mixture.side(number), number, one.memory)
                for mine, theirs in left.get(number, ()):
                    a, b = swapped.memory.tensor("a", mine), own.memory.tensor("b", theirs)
                    found = max(found, relative(a, b) / precision(a, b))
                for one in (own, swapped):
                    one.memory.block_ended(number)
    except Exception:  # noqa: BLE001, an op may raise anything on values that are not its own
        return None
    return found


def _left_behind(pair: TapePair, blocks: Collection[int]) -> dict[int, list[tuple[Use, Use]]]:
    """By the block after which both are there, what both sides make in these blocks that stands for each other, and is
    read elsewhere."""
    found: dict[int, dict[tuple[FlowValue, FlowValue], tuple[Use, Use]]] = {}
    for side in SIDES:
        for number in blocks:
            for node in pair.blocks[number].of(side):
                for use in pair.flows[side].nodes[node].made:
                    link = pair.links.of[side].get(use.value)
                    if link is None:
                        continue
                    mine, theirs = Use(link.mine, use.value), Use(link.theirs, link.value)
                    a, b = (mine, theirs) if side == "a" else (theirs, mine)
                    readers = pair.readers["a"].get(a.value, set()) | pair.readers["b"].get(b.value, set())
                    makers = {pair.maker("a", a.value), pair.maker("b", b.value)}
                    if makers <= set(blocks) and readers - set(blocks):
                        found.setdefault(max(makers), {})[a.value, b.value] = (a, b)
    return {number: list(uses.values()) for number, uses in found.items()}
