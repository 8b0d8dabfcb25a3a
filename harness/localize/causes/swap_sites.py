"""Sites: the smallest sets of blocks that can be taken from either side.

The main reasons why two blocks belong to one site: one reads a value of the other that exists on one side only; both
differ, and one is the backward of the other; or both draw random numbers.

In this example, `recorded_step` is from the example in the tape module, and the sides multiply by different factors.
The products in the forward and in its backward, blocks 0 and 3, are one site, which is named after the forward product.

    >>> pair = paired(*(flow_of(recorded_step(lambda weight: factor * weight)) for factor in (3.0, 3.5)))
    >>> examined = examine(pair, suspects(pair))
    >>> sites = sites_of(pair, examined)
    >>> [(sorted(site.blocks), site.lead) for site in sites]
    [([0, 3], 0)]
    >>> [(cause.kind, cause.ops["a"], cause.reasons) for cause in causes_of(pair, examined, sites)]
    [('arguments', ('mul',), ('3 against 3.5',))]
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from ...records.results.culprit import ORDER
from ..align.storage_flow import SIDES
from ..execute.tape_pair import END, TapePair
from .block_joining import Joining
from .examination import Examined, flagged
from .suspects import UNROUNDED

DOMINATES = 64.0
"""The factor by which a kernel's relative difference must exceed that of others for the site to be named after the
kernel."""


@dataclass(frozen=True, slots=True)
class SwapSite:
    """Blocks that can only be swapped together.

    The site is named after its block `lead`. This is the first block that differs or, if only that block's kernel
    differs, another block that differs by far more.
    """

    blocks: frozenset[int]
    lead: int

    @property
    def is_several(self) -> bool:
        return len(self.blocks) > 1


def sites_of(pair: TapePair, examined: Mapping[int, Examined], overridden: Collection[int] = ()) -> list[SwapSite]:
    """Return the sites of all blocks that differ or cannot be shown to be equal.

    `overridden` are the blocks in which an eager mode's kernels are not torch's.
    """
    joining = Joining(pair, examined)
    joining.readers_without_counterpart()
    parts = joining.parts_of_backwards()
    joining.sums_of_gradients()
    joining.repeated_bits()
    joining.repeated_draws()
    joining.casts()
    joining.backwards()
    joining.rewritten_ops()
    joining.rewritten_backwards()
    joining.draws()
    sites = []
    for members in joining.groups.members():
        differing = flagged(examined, members)
        if differing and not all(_makes_only_constants(pair, number) for number in members):
            naming = [number for number in differing if number not in parts] or differing
            sites.append(SwapSite(frozenset(members), _lead(pair, examined, naming, overridden)))
    return sites


def _makes_only_constants(pair: TapePair, number: int) -> bool:
    """Check whether a block only makes constants of one side alone, which every hybrid makes where it needs them."""
    made = [(side, use.value) for side in SIDES for use in pair.made(number, side)]
    return all(
        value in pair.flows[side].constants
        and value not in pair.links.of[side]
        and END not in pair.readers[side].get(value, ())
        for side, value in made
    )


def _lead(
    pair: TapePair, examined: Mapping[int, Examined], differing: Sequence[int], overridden: Collection[int]
) -> int:
    """Return the block after which a site is named, among those that differ."""
    late = next((number for number in differing if examined[number].suspect.kind == ORDER), None)
    if late is not None:
        return late
    lead = differing[0]
    kernels = [number for number in differing if examined[number].suspect.kind in ("kernel", "layout")]
    if lead not in kernels:
        return _far_from(pair, examined, differing)
    # A kernel that is off by rounding does not name a site that contains a wrong kernel. The two may be joined just
    # because they are parts of one op, such as the tanh that a compiled backward repeats and its tanh_backward.
    worst = max(kernels, key=lambda number: examined[number].largest)
    if examined[worst].largest > DOMINATES * examined[lead].largest:
        lead = worst
    # If the lead cannot be tested alone, the site is named after a kernel that is not torch's, if there is one.
    if examined[lead].differs is None:
        lead = next((number for number in kernels if number in overridden), lead)
    if lead in overridden or not _is_no_more_than_rounding(examined[lead]):
        return lead
    # Nor does a kernel name a site in which the script differs as well, unless the kernel's effect is larger. Blocks
    # that only copy values do not count: a compiled graph stores new running statistics with such a block.
    scripts = [number for number in differing if number not in kernels and not only_puts(pair, number)]
    limit = DOMINATES * examined[lead].largest
    nearby = (
        number
        for number in scripts
        if pair.phase(number) == pair.phase(lead)
        and (examined[number].is_entangled or examined[number].largest > limit)
    )
    distant = (number for number in scripts if 0 < limit < examined[number].largest)
    return next(nearby, next(distant, lead))


def _far_from(pair: TapePair, examined: Mapping[int, Examined], differing: Sequence[int]) -> int:
    """Return the first block that differs, or the one that is wrong if the first only rounds differently, or may do so.

    In the phase of the first block, any wrong block will do. In another phase, and if it is not known how far the first
    block is off, the wrong block must be an op that only one side executes.
    """
    lead, limit = differing[0], DOMINATES * examined[differing[0]].largest
    if not _is_no_more_than_rounding(examined[lead]):
        return lead
    far = [
        number
        for number in differing
        if limit < examined[number].largest and not _is_no_more_than_rounding(examined[number])
    ]
    alone = [number for number in far if not (pair.blocks[number].a and pair.blocks[number].b)]
    nearby = [number for number in far if pair.phase(number) == pair.phase(lead)]
    return next(iter([*(nearby if examined[lead].differs else ()), *alone]), lead)


def _is_no_more_than_rounding(kernel: Examined) -> bool:
    """Check whether a kernel's results differ by no more than rounding, or by roundings that its graph omits."""
    unrounded = any(reason.startswith(UNROUNDED) for reason in kernel.suspect.reasons)
    return unrounded or kernel.roundings <= DOMINATES


def only_puts(pair: TapePair, number: int) -> bool:
    """Check whether a block only copies values in place."""
    return pair.all_names(number) <= {"copy_"}
