"""What a cause of several blocks changes in all: the blocks of a rewritten op may each compute something else, and what
leaves them is the same.

    (q k^T) / s    a: matmul, div    b: div, matmul    what is between them differs by s, and what is read after them
    (q / s) k^T                                        by roundings
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress

from ..tape.replay import set_apart
from .examination import precision, relative
from .hybrid import Mixture, MixtureExecution, TapePair
from .storage_flow import SIDES, FlowValue, Side, Use
from .swap_sites import Cause, SwapSite


def net_roundings(pair: TapePair, cause: Cause) -> float | None:
    """How far what leaves the blocks of a cause is moved where side a's are in side b's place: at most, in roundings of
    its own precision. Between the first and the last block of a site in one phase of the step all belongs together. The
    first phase of a site counts, on side b's values: what follows in the backward reads what it has left. None where
    nothing that leaves them has a counterpart, or they cannot be mixed."""
    found: list[float] = []
    phases = [_regions(pair, site) for site in cause.sites]
    regions = sorted((site[0] for site in phases), key=lambda one: one.start)
    inside = {number for site in phases for region in site for number in region}
    with set_apart(pair.devices()):
        own = MixtureExecution(pair, Mixture("b"))
        at = 0
        for region in regions:
            for number in range(at, region.start):
                own.run(number)
            at = max(at, region.start)
            if at == region.start:  # else it is in the one before
                blocks = cause.blocks & set(region)
                with suppress(Exception):  # an op may raise anything on values that are not its own
                    found += _moved(pair, own, blocks, _left_behind(pair, region, inside))
    return max(found, default=None)


def _moved(
    pair: TapePair, before: MixtureExecution, blocks: frozenset[int], left: Mapping[int, Sequence[tuple[Use, Use]]]
) -> list[float]:
    """How far each of the values that are left behind is moved."""
    own, swapped = MixtureExecution(pair, Mixture("b")), MixtureExecution(pair, Mixture("b", blocks))
    found = []
    for one in (own, swapped):
        one.memory = before.memory.fork()
    for number in range(min(blocks), max(left, default=-1) + 1):
        for one in (own, swapped):
            one.run_as(one.mixture.side(number), number, one.memory)
        for mine, theirs in left.get(number, ()):
            side: Side = "a" if pair.maker("a", mine.value) in blocks else "b"
            a = swapped.memory.tensor(side, mine if side == "a" else theirs)
            b = own.memory.tensor("b", theirs)
            found.append(relative(a, b) / precision(a, b))
        for one in (own, swapped):
            one.memory.block_ended(number)
    return found


def _regions(pair: TapePair, site: SwapSite) -> list[range]:
    """The blocks from the first to the last of a site, phase by phase."""
    phases: dict[str, list[int]] = {}
    for number in site.blocks:
        nodes = [pair.flows[side].nodes[node] for side in SIDES for node in pair.blocks[number].of(side)]
        phases.setdefault(nodes[0].call.phase, []).append(number)
    return sorted((range(min(one), max(one) + 1) for one in phases.values()), key=lambda one: one.start)


def _left_behind(pair: TapePair, region: range, inside: Collection[int]) -> dict[int, list[tuple[Use, Use]]]:
    """By the block at whose end both are there, what either side makes in this region and others read than what is
    `inside` of all, as side a and as side b have it."""
    found: dict[int, dict[tuple[FlowValue, FlowValue], tuple[Use, Use]]] = {}
    for side in SIDES:
        for number in region:
            for node in pair.blocks[number].of(side):
                for use in pair.flows[side].nodes[node].made:
                    link = pair.links.of[side].get(use.value)
                    if link is None:
                        continue
                    mine, theirs = Use(link.mine, use.value), Use(link.theirs, link.value)
                    a, b = (mine, theirs) if side == "a" else (theirs, mine)
                    # One value may stand for several of the other side: that which others read there counts.
                    readers = (pair.readers["a"].get(a.value, set()), pair.readers["b"].get(b.value, set()))
                    if all(one.difference(inside) for one in readers):
                        last = max(pair.maker("a", a.value), pair.maker("b", b.value))
                        found.setdefault(last, {})[a.value, b.value] = (a, b)
    return {number: list(uses.values()) for number, uses in found.items()}
