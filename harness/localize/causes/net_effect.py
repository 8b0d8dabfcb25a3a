"""The joint effect of the blocks of a site.

The blocks of a rewritten op may each compute something different, although their final results agree up to rounding:

    a: (q k^T) / s    matmul, div    the values between the two ops differ by a factor s,
    b: (q / s) k^T    div, matmul    while the results differ by roundings

If two sides add up the same terms in different orders, each addition is a site of its own. Such sites are measured
together, since the sums of some of the terms have no counterpart:

    a: (p + q) + r    add, add    p + q is compared with r + q,
    b: (r + q) + p    add, add    while the results differ by roundings
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ...tape.replaying.in_double import EXACT_DTYPES, Exact, double_by_default
from ...tape.replaying.replay import set_apart
from ..align.storage_flow import SIDES, FlowValue, Side, Use, other
from ..errors.local_error import ExactResults, LocalError, moved_by_rounding, results_of, seeds_for
from ..errors.result_distances import is_single, largest_distance
from ..execute.hybrid import Hybrid, HybridExecution, Values
from ..execute.prepared_call import Kernels, PreparedCall
from ..execute.step_memory import Memory
from ..execute.tape_pair import END, TapePair
from .block_joining import Groups
from .site_causes import Cause
from .swap_sites import SwapSite, only_puts


@dataclass(frozen=True, slots=True)
class NetEffect:
    """The joint effect of a site's blocks in one phase of the step, on side b's values.

    Side a's blocks are executed in place of side b's. The values that leave them are compared with those that leave
    side b's blocks.

    largest: the largest distance between the two versions of a value that leaves the blocks, as a share of its size.
    roundings: the same distance, in roundings of the value's precision.
    errors: each side's errors against double precision, if they are known.
    blocks: the blocks that compute something. The others only copy: for example, a compiled graph stores running
        statistics with copies that the script does not make.
    single: True if the effect moves a single number.
    like_others: True if the errors were not measured, because other sites of the cause move values about as far.
    """

    largest: float
    roundings: float
    errors: Mapping[Side, LocalError]
    blocks: frozenset[int] = frozenset()
    single: bool = False
    like_others: bool = False


MEASURED = 2
"""The number of sites of a cause whose errors are measured in each phase. A further site is measured only if it moves
values more than 1.5 times as far as each measured site."""

Effects = Mapping[SwapSite, Sequence[NetEffect | None]]
"""The effects of each site, by phase of the step.

An effect is None if no value that leaves the blocks has a counterpart, or if the blocks cannot be executed as a hybrid.
In a later phase, the blocks read the values that side b's earlier phases left."""


@dataclass(frozen=True, slots=True)
class _SiteRegion:
    """The part of a site in one phase of the step.

    span: the site's blocks in this phase, and the blocks between them whose results they read, in order.
    phase: the index of the phase among those of the site.
    blocks: the blocks of the site's cause within the span.
    inside: the blocks of all regions of the cause.
    measured: among the regions of the cause in this phase, the `roundings` of each one whose errors are known.
    """

    span: Sequence[int]
    site: SwapSite
    phase: int
    blocks: frozenset[int]
    inside: frozenset[int]
    measured: list[float]


def net_effects(pair: TapePair, causes: Collection[Cause]) -> dict[SwapSite, list[NetEffect | None]]:
    """Measure the effects of the sites of these causes.

    In each phase, all blocks between the first and the last block of a site whose results the site reads belong to the
    site. Sites of a single block are measured only if they are wired differently and read each other's results.
    """
    effects: dict[SwapSite, list[NetEffect | None]] = {}
    regions: list[_SiteRegion] = []
    rewired = _joined_rewired(pair, [site for cause in causes for site in cause.sites])
    measured_sites = [cause.sites for cause in causes if any(site.is_several for site in cause.sites)]
    for sites in (*measured_sites, tuple(dict.fromkeys(rewired.values()))):
        spans = {site: _spans(pair, site) for site in sites}
        inside = frozenset(number for phases in spans.values() for span in phases for number in span)
        measured: dict[int, list[float]] = {}
        for site, phases in spans.items():
            effects[site] = [None] * len(phases)
            blocks = frozenset(block for each in sites for block in each.blocks)
            regions += [
                _SiteRegion(span, site, phase, blocks & set(span), inside, measured.setdefault(phase, []))
                for phase, span in enumerate(phases)
            ]
    if not regions:
        return {}
    with set_apart(pair.devices()):
        execution, position = HybridExecution(pair, Hybrid("b")), 0
        for region in sorted(regions, key=lambda region: region.span[0]):
            for number in range(position, region.span[0]):
                execution.run(number)
            position = region.span[0]
            left = _left_behind(pair, region)
            enough = 1.5 * max(region.measured) if len(region.measured) >= MEASURED else -1.0
            with suppress(Exception):  # an op may raise anything on values other than its recorded ones
                effect = _effect(pair, execution.memory, region, left, enough)
                effects[region.site][region.phase] = effect
                if effect is not None and effect.errors:
                    region.measured.append(effect.roundings)
    return effects | {site: effects[joint] for site, joint in rewired.items()}


NEAR = 3
"""The number of ops from a rewired op to the next one up to which both are parts of one formula."""

MOST_READERS = 16
"""A value with more readers than this is no part of a formula."""


def _joined_rewired(pair: TapePair, sites: Sequence[SwapSite]) -> dict[SwapSite, SwapSite]:
    """Return, for each site that is wired differently, the site that it forms together with those nearby.

    Only sites of one block are joined. A site that has no other nearby is not among the keys.
    """
    home = {block: site for site in sites if not site.is_several for block in site.blocks & pair.own_reads}
    groups = Groups(home)
    for block in home:
        reached = {block}
        for _ in range(NEAR):
            made = [(side, use.value) for n in reached for side in SIDES for use in pair.made(n, side)]
            readers = [pair.readers[side].get(value, set()) - {END} for side, value in made]
            reached = {reader for reading in readers if len(reading) <= MOST_READERS for reader in reading}
            for reader in reached & home.keys():
                groups.join(block, reader)
    joined = [members for members in groups.members() if len(members) > 1]
    return {home[block]: SwapSite(frozenset(members), members[0]) for members in joined for block in members}


Left = Mapping[int, Sequence[tuple[Use, Use]]]
"""Pairs of a value of side a and a value of side b, by the block after which both exist."""


def _effect(pair: TapePair, before: Memory, region: _SiteRegion, left: Left, enough: float) -> NetEffect | None:
    """Measure one effect. Measure the errors, too, if the effect moves values by more roundings than `enough`."""
    if not left:
        return None
    blocks = region.blocks
    hybrids: Mapping[Side, Hybrid] = {"a": Hybrid("b", blocks), "b": Hybrid("b")}
    results = {side: _left_values(pair, hybrids[side], before.fork(), region.span, left) for side in SIDES}
    values = list(zip(*(results_of(results[side]) for side in SIDES), strict=True))
    largest, roundings = largest_distance(values)
    computing = frozenset(number for number in blocks if not only_puts(pair, number))
    if roundings <= enough:
        return NetEffect(largest, roundings, {}, computing, is_single(values), like_others=True)
    errors: dict[Side, LocalError] = {}
    # compare with side a's blocks in double, or with side b's if only those can be executed in double
    for side in SIDES:
        with suppress(Exception):  # an op may raise anything on doubles
            exactly = _Doubles()

            def in_double(seed: int | None, hybrid: Hybrid = hybrids[side], doubles: _Doubles = exactly) -> Values:
                moved = None if seed is None else moved_by_rounding(seed)
                memory = before.held_as(lambda recorded: EXACT_DTYPES.get(recorded, recorded), moved)
                return _left_values(pair, hybrid, memory, region.span, left, doubles)

            undisturbed = in_double(None)
            exact = ExactResults(undisturbed, map(in_double, seeds_for(undisturbed)))
            if not exactly.arithmetic.not_exact:
                by_side = {of_side: exact.error(results_of(results[of_side])) for of_side in SIDES}
                errors = {of_side: error for of_side, error in by_side.items() if error is not None}
            break
    return NetEffect(largest, roundings, errors, computing, is_single(values))


class _Doubles:
    """Kernels that execute every call in double."""

    def __init__(self) -> None:
        self.arithmetic = Exact()

    def execute(self, call: PreparedCall) -> list[Any]:
        with double_by_default():
            return self.arithmetic.execute(call.node.execution, call.arguments, call.keywords)


def _left_values(
    pair: TapePair, hybrid: Hybrid, memory: Memory, span: Sequence[int], left: Left, kernels: Kernels | None = None
) -> Values:
    """Execute the blocks of the span as in the hybrid, in this memory, and return the values in `left`."""
    execution = HybridExecution(pair, hybrid, None if kernels is None else {"a": kernels, "b": kernels})
    values: Values = {}
    last = max(left)
    for number in (number for number in span if number <= last):
        execution.run_as(hybrid.side(number), number, memory)
        for use_a, use_b in left.get(number, ()):
            is_from_a = hybrid.blocks and pair.maker("a", use_a.value) in hybrid.blocks
            tensor = memory.tensor("a", use_a) if is_from_a else memory.tensor("b", use_b)
            home = pair.flows["a"].tape.slots[use_a.value.slot].device  # compare on one device
            values[f"output {len(values)}"] = tensor.to(home, copy=True)
        memory.block_ended(number)
    return values


def _spans(pair: TapePair, site: SwapSite) -> list[list[int]]:
    """Return, for each phase, a site's blocks and the blocks between its first and last one whose results they read.

    The results may be read indirectly. The other blocks between them do not belong to the site: a bias's gradient may
    be summed up long after the convolution's backward that it is part of.

    A compiled forward may compute a value at its end that only the site's backward reads. The block that computes it is
    left out, because the rest of the model is between that block and the op.
    """
    phases: dict[str, list[int]] = {}
    for number in sorted(site.blocks):
        phases.setdefault(pair.phase(number), []).append(number)

    spans = []
    for numbers in phases.values():
        while len(numbers) > 1 and pair.readers_of(numbers[-1]) <= site.blocks:
            numbers.pop()
        span, reached = set[int](), set(numbers)
        while reached:
            span |= reached
            before = {maker for number in reached for maker in _makers(pair, number)}
            reached = {maker for maker in before - span if numbers[0] < maker < numbers[-1]}
        spans.append(sorted(span))
    return sorted(spans)


def _makers(pair: TapePair, number: int) -> Iterator[int]:
    """Yield the blocks that make the values that a block reads, and the counterparts of what it reads and makes."""
    for side in SIDES:
        for node in pair.nodes(number, side):
            yield from (pair.maker(side, use.value) for use in node.reads)
            for use in (*node.reads, *node.made):
                link = pair.links.of[side].get(use.value)
                if link is not None:
                    yield pair.maker(other(side), link.value)


def _left_behind(pair: TapePair, region: _SiteRegion) -> Left:
    """Return the values that either side makes in this region and that blocks outside of the cause's regions read."""
    left: dict[int, dict[tuple[FlowValue, FlowValue], tuple[Use, Use]]] = {}
    made = ((side, use) for side in SIDES for n in region.span for use in pair.made(n, side))
    for side, use in made:
        uses = pair.counterparts(side, use)
        if uses is None:
            continue
        a, b = uses
        # One value may be linked to several values of the other side. A pair of linked values counts if both of them
        # have readers outside of the regions.
        readers = (pair.readers["a"].get(a.value, set()), pair.readers["b"].get(b.value, set()))
        last = max(pair.maker("a", a.value), pair.maker("b", b.value))
        # If one side makes its value only in a later phase, the pair belongs to that phase.
        if last <= region.span[-1] and all(reading.difference(region.inside) for reading in readers):
            left.setdefault(last, {})[a.value, b.value] = uses
    return {number: list(pairs.values()) for number, pairs in left.items()}
