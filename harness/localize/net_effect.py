"""What a cause of several blocks changes in all: the blocks of a rewritten op may each compute something else, and what
leaves them is the same.

    (q k^T) / s    a: matmul, div    b: div, matmul    what is between them differs by s, and what is read after them
    (q / s) k^T                                        by roundings
"""

from __future__ import annotations

from collections.abc import Iterable

from ..tape.replay import set_apart
from .examination import precision, relative
from .hybrid import Mixture, MixtureExecution, TapePair
from .storage_flow import SIDES, FlowValue, Side, Use
from .swap_sites import Cause


def net_roundings(pair: TapePair, cause: Cause) -> float | None:
    """How far what leaves the blocks of a cause is moved where side a's are in side b's place: at most, in roundings of
    its own precision. Between the first and the last block of a site in one phase of the step all belongs together.
    None where nothing that leaves them has a counterpart, or they cannot be mixed."""
    left = _left_behind(pair, _regions(pair, cause))
    if not left:
        return None
    first, found = min(cause.blocks), 0.0
    try:
        with set_apart(pair.devices()):
            own = MixtureExecution(pair, Mixture("b"))
            for number in range(first):
                own.run(number)
            swapped = MixtureExecution(pair, Mixture("b", cause.blocks))
            swapped.memory = own.memory.fork()
            for number in range(first, max(left) + 1):
                for one in (own, swapped):
                    one.run_as(one.mixture.side(number), number, one.memory)
                for mine, theirs in left.get(number, ()):
                    side: Side = "a" if pair.maker("a", mine.value) in cause.blocks else "b"
                    a = swapped.memory.tensor(side, mine if side == "a" else theirs)
                    b = own.memory.tensor("b", theirs)
                    found = max(found, relative(a, b) / precision(a, b))
                for one in (own, swapped):
                    one.memory.block_ended(number)
    except Exception:  # noqa: BLE001, an op may raise anything on values that are not its own
        return None
    return found


def _regions(pair: TapePair, cause: Cause) -> list[range]:
    """The blocks from the first to the last of each site, phase by phase."""
    found = []
    for site in cause.sites:
        phases: dict[str, list[int]] = {}
        for number in site.blocks:
            for side in SIDES:
                for node in pair.blocks[number].of(side)[:1]:
                    phases.setdefault(pair.flows[side].nodes[node].call.phase, []).append(number)
        found += [range(min(numbers), max(numbers) + 1) for numbers in phases.values()]
    return found


def _left_behind(pair: TapePair, regions: Iterable[range]) -> dict[int, list[tuple[Use, Use]]]:
    """By the block at whose end both are there, what either side makes in these blocks and is read elsewhere, as side a
    and as side b have it."""
    inside = {number for one in regions for number in one}
    found: dict[int, dict[tuple[FlowValue, FlowValue], tuple[Use, Use]]] = {}
    for side in SIDES:
        for number in inside:
            for node in pair.blocks[number].of(side):
                for use in pair.flows[side].nodes[node].made:
                    link = pair.links.of[side].get(use.value)
                    if link is None:
                        continue
                    mine, theirs = Use(link.mine, use.value), Use(link.theirs, link.value)
                    a, b = (mine, theirs) if side == "a" else (theirs, mine)
                    # One value may stand for several of the other side: that which others read there counts.
                    outside = (
                        pair.readers["a"].get(a.value, set()) - inside,
                        pair.readers["b"].get(b.value, set()) - inside,
                    )
                    if all(outside):
                        last = max(pair.maker("a", a.value), pair.maker("b", b.value))
                        found.setdefault(last, {})[a.value, b.value] = (a, b)
    return {number: list(uses.values()) for number, uses in found.items()}
