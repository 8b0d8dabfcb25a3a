"""What a site of several blocks changes in all: the blocks of a rewritten op may each compute something else, and what
leaves them is the same.

    (q k^T) / s    a: matmul, div    b: div, matmul    what is between them differs by s, and what is read after them
    (q / s) k^T                                        by roundings
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import torch

from ..tape.in_double import EXACT_DTYPES, Exact
from ..tape.replay import set_apart
from .examination import in_roundings, is_single, precision, relative
from .hybrid import Kernels, Mixture, MixtureExecution, TapePair, Values
from .local_error import SAMPLES, ExactResults, LocalError, moved_by_rounding, results_of
from .step_memory import Memory
from .storage_flow import SIDES, FlowNode, FlowValue, Side, Use
from .swap_sites import Cause, SwapSite, only_puts


@dataclass(frozen=True, slots=True)
class NetEffect:
    """What the blocks of a site in one phase of the step do together, on side b's values: what leaves them is moved,
    where side a's are in their place, by at most this share of its size and so many `roundings` of its own precision.
    `errors` are each side's against double precision, where that is known. `blocks` are those that compute something:
    a compiled graph puts its running statistics where they belong by copies that the script does not have. What it
    moves is a single number where `single`. One that is `like_others` moves no more than other sites of its cause do,
    and their errors stand for its own."""

    largest: float
    roundings: float
    errors: Mapping[Side, LocalError]
    blocks: frozenset[int] = frozenset()
    single: bool = False
    like_others: bool = False


MEASURED = 2
"""Of so many sites of a cause errors are known in each phase; of others where they move more than these by half."""

Effects = Mapping[SwapSite, Sequence[NetEffect | None]]
"""Phase by phase of the step. None where nothing that leaves them has a counterpart, or they cannot be mixed. What
follows in the backward reads what the first phase has left."""


def net_effects(pair: TapePair, causes: Collection[Cause]) -> dict[SwapSite, list[NetEffect | None]]:
    """Of the sites of these causes. Between the first and the last block of a site in one phase all belongs
    together."""
    found: dict[SwapSite, list[NetEffect | None]] = {}
    waiting: list[tuple[range, SwapSite, int, frozenset[int], Collection[int], list[float]]] = []
    for cause in causes:
        regions = {site: _regions(pair, site) for site in cause.sites}
        inside: Collection[int] = {number for phases in regions.values() for one in phases for number in one}
        measured: dict[int, list[float]] = {}  # by phase, the roundings of those sites whose errors are known
        for site, phases in regions.items():
            found[site] = [None] * len(phases)
            waiting += [
                (one, site, place, cause.blocks & set(one), inside, measured.setdefault(place, []))
                for place, one in enumerate(phases)
            ]
    with set_apart(pair.devices()):
        own, at = MixtureExecution(pair, Mixture("b")), 0
        for region, site, place, blocks, inside, alike in sorted(waiting, key=lambda one: one[0].start):
            for number in range(at, region.start):
                own.run(number)
            at = region.start
            left = _left_behind(pair, region, inside)
            enough = 1.5 * max(alike) if len(alike) >= MEASURED else -1.0
            with suppress(Exception):  # an op may raise anything on values that are not its own
                found[site][place] = effect = _effect(pair, own.memory, blocks, left, enough)
                if effect is not None and effect.errors:
                    alike.append(effect.roundings)
    return found


Left = Mapping[int, Sequence[tuple[Use, Use]]]
"""By the block at whose end both are there, values as side a and as side b have them."""


def _effect(pair: TapePair, before: Memory, blocks: frozenset[int], left: Left, enough: float) -> NetEffect | None:
    """Its errors are measured where it moves values by more roundings than are `enough`."""
    if not left:
        return None
    mixtures: Mapping[Side, Mixture] = {"a": Mixture("b", blocks), "b": Mixture("b")}
    results = {side: _left_values(pair, mixtures[side], before.fork(), min(blocks), left) for side in SIDES}
    values = list(zip(*(results_of(results[side]) for side in SIDES), strict=True))
    apart = [(relative(a, b), precision(a, b)) for a, b in values]
    largest, roundings = max(one for one, _ in apart), max(in_roundings(*one) for one in apart)
    computing = frozenset(number for number in blocks if not only_puts(pair, number))
    if roundings <= enough:
        return NetEffect(largest, roundings, {}, computing, is_single(values), like_others=True)
    errors: dict[Side, LocalError] = {}
    for side in SIDES:  # against side a's blocks in double; against side b's where only those can be executed so
        with suppress(Exception):  # an op may raise anything on doubles
            exactly = _Doubles()

            def in_double(seed: int | None, mixture: Mixture = mixtures[side], doubles: _Doubles = exactly) -> Values:
                moved = None if seed is None else moved_by_rounding(seed)
                memory = before.held_as(lambda recorded: EXACT_DTYPES.get(recorded, recorded), moved)
                return _left_values(pair, mixture, memory, min(blocks), left, doubles)

            exact = ExactResults(in_double(None), map(in_double, range(SAMPLES)))
            if not exactly.arithmetic.not_exact:
                known = {one: exact.error(results_of(results[one])) for one in SIDES}
                errors = {one: error for one, error in known.items() if error is not None}
            break
    return NetEffect(largest, roundings, errors, computing, is_single(values))


class _Doubles:
    """Executes every call in double."""

    def __init__(self) -> None:
        self.arithmetic = Exact()

    def execute(
        self, number: int, node: FlowNode, arguments: tuple[Any, ...], keywords: Mapping[str, Any]
    ) -> list[Any]:
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.float64)  # of what an op makes of integers and numbers
        try:
            return self.arithmetic.execute(node.execution, arguments, keywords)
        finally:
            torch.set_default_dtype(before)


def _left_values(
    pair: TapePair, mixture: Mixture, memory: Memory, first: int, left: Left, kernels: Kernels | None = None
) -> Values:
    """What is left behind by the blocks from the `first` on, executed so in this memory."""
    one = MixtureExecution(pair, mixture, None if kernels is None else {"a": kernels, "b": kernels})
    found: Values = {}
    for number in range(first, max(left) + 1):
        one.run_as(mixture.side(number), number, memory)
        for mine, theirs in left.get(number, ()):
            is_mine = mixture.blocks and pair.maker("a", mine.value) in mixture.blocks
            tensor = memory.tensor("a", mine) if is_mine else memory.tensor("b", theirs)
            home = pair.flows["a"].tape.slots[mine.value.slot].device  # what is compared lies on one device
            found[f"output {len(found)}"] = tensor.to(home, copy=True)
        memory.block_ended(number)
    return found


def _regions(pair: TapePair, site: SwapSite) -> list[range]:
    """The blocks from the first to the last of a site, phase by phase.

    What a compiled forward computes at its end for nobody but the site's own backward is left out: between that and the
    op lies all of the model.
    """
    phases: dict[str, list[int]] = {}
    for number in sorted(site.blocks):
        nodes = [pair.flows[side].nodes[node] for side in SIDES for node in pair.blocks[number].of(side)]
        phases.setdefault(nodes[0].call.phase, []).append(number)

    own = set(site.blocks)

    def is_for_itself(number: int) -> bool:
        made = [
            (side, use.value)
            for side in SIDES
            for node in pair.blocks[number].of(side)
            for use in pair.flows[side].nodes[node].made
        ]
        return all(pair.readers[side].get(value, set()) <= own for side, value in made)

    for numbers in phases.values():
        while len(numbers) > 1 and is_for_itself(numbers[-1]):
            numbers.pop()
    return sorted((range(min(one), max(one) + 1) for one in phases.values()), key=lambda one: one.start)


def _left_behind(pair: TapePair, region: range, inside: Collection[int]) -> Left:
    """What either side makes in this region and others read than what is `inside` of all."""
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
                    last = max(pair.maker("a", a.value), pair.maker("b", b.value))
                    # What either side makes in a later phase only is left behind there.
                    if last < region.stop and all(one.difference(inside) for one in readers):
                        found.setdefault(last, {})[a.value, b.value] = (a, b)
    return {number: list(uses.values()) for number, uses in found.items()}
