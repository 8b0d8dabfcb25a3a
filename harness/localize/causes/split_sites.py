"""Split a site into its kernels, if it turns out that its blocks need not be joined.

Joining blocks (see `swap_sites`) is a precaution: a block that only moves data repeats the bits of its inputs, and may
no longer do so if only it is swapped. But if several kernels differ, joining them hides which one matters.

Beside a fault, the kernels of a site that only rounds differently do not matter. To split it would take two executions
of the step for each of them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from ...records.results.culprit import AGAIN
from .examination import Examined, flagged
from .hybrid_tests import HybridTests, Infeasible
from .judged_alone import verdict_alone
from .net_effect import Effects
from .site_causes import Cause, causes_of
from .swap_sites import SwapSite

FOR_THE_PROOFS = 8
"""The number of executions that are left for the proofs if time is short. The cause of most faults is proven with 4."""


def split_sites(
    tests: HybridTests, examined: Mapping[int, Examined], sites: Sequence[SwapSite], whole: Collection[SwapSite] = ()
) -> list[SwapSite]:
    """Return the sites. A site that can be split is replaced by a site for each kernel and one for all other blocks.

    The sites in `whole` are not split.
    """
    split = list[SwapSite]()
    for site in sites:
        parts = [] if site in whole else parts_of(tests, examined, site)
        # each part is swapped in and out, and so are all parts together, and the site
        can_be_tested = len(parts) > 1 and tests.have_time_for(2 * len(parts) + 4 + FOR_THE_PROOFS)
        split += parts if can_be_tested and _are_equal(tests, examined, site, parts) else [site]
    return sorted(split, key=lambda site: site.lead)


def only_rounding(causes: Sequence[Cause], examined: Mapping[int, Examined], effects: Effects) -> set[SwapSite]:
    """Return the sites that only round differently, if another one is at fault; the empty set if none is."""
    verdicts = [verdict_alone(cause, examined, effects) for cause in causes]
    if "beyond-rounding" not in verdicts:
        return set()
    rounding = [cause for cause, verdict in zip(causes, verdicts, strict=True) if verdict == "rounding"]
    return {site for cause in rounding for site in cause.sites}


def parts_of(tests: HybridTests, examined: Mapping[int, Examined], site: SwapSite) -> list[SwapSite]:
    """Return a site for each kernel, and one site for all other blocks if any of them differs."""
    differing = flagged(examined, site.blocks)
    # The site's blocks read results of a repeated execution, which seem wrong when compared with the first execution.
    if any(why.startswith(AGAIN) for number in differing for why in examined[number].suspect.reasons):
        return [site]
    # blocks of one op on both sides, for which the examination found different bits
    kernels = [
        number
        for number in differing
        if examined[number].differs
        and examined[number].suspect.kind in ("kernel", "layout")
        and tests.pair.blocks[number].paired
    ]
    others = [number for number in differing if number not in kernels]
    rest = [SwapSite(site.blocks.difference(kernels), others[0])] if others else []
    return [*(SwapSite(frozenset([number]), number) for number in kernels), *rest]


def _are_equal(tests: HybridTests, examined: Mapping[int, Examined], site: SwapSite, parts: Sequence[SwapSite]) -> bool:
    """Check whether swapping all parts has exactly the effect of swapping the site, and each can be swapped alone."""
    causes, whole = causes_of(tests.pair, examined, parts), causes_of(tests.pair, examined, [site])
    try:
        for cause in causes:
            # swap out first: that is where an infeasible part usually fails
            tests.swapped_out([cause])
            tests.swapped_in([cause])
        is_out = tests.swapped_out(causes) == tests.swapped_out(whole)
        return is_out and tests.swapped_in(causes) == tests.swapped_in(whole)
    except Infeasible:
        return False
