"""Sites taken apart: kernels that blocks between them have joined, and that can be exchanged one by one all the same.

What joins blocks (see `sites`) is caution: one that moves data gives the very bits of what it reads, and may not once only one of
them is of the other side. Where several kernels are other ones, that hides which of them matters.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from .examination import Examined
from .hybrid import Pair
from .hybrid_tests import HybridTests, Infeasible
from .swap_sites import Site, causes_of


def taken_apart(tests: HybridTests, examined: Mapping[int, Examined], sites: Sequence[Site]) -> list[Site]:
    """The sites, each that can be in parts: every kernel for itself, and what differs otherwise with what lies between."""
    found: list[Site] = []
    for site in sites:
        parts = _parts(tests.pair, examined, site)
        found += parts if len(parts) > 1 and _stand_for(tests, examined, parts, site) else [site]
    return sorted(found, key=lambda site: site.lead)


def _parts(pair: Pair, examined: Mapping[int, Examined], site: Site) -> list[Site]:
    differing = [one for one in sorted(site.blocks) if one in examined and examined[one].differs is not False]
    kernels = [one for one in differing if _is_kernel(pair, examined[one])]
    others = [one for one in differing if one not in kernels]
    rest = [Site(site.blocks.difference(kernels), others[0])] if others else []
    return [*(Site(frozenset([one]), one) for one in kernels), *rest]


def _is_kernel(pair: Pair, examined: Examined) -> bool:
    """Whether the block is one op on both sides and was seen to compute other bits."""
    suspect = examined.suspect
    return examined.differs is True and suspect.kind == "kernel" and pair.blocks[suspect.block].paired


def _stand_for(
    tests: HybridTests, examined: Mapping[int, Examined], parts: Sequence[Site], site: Site
) -> bool:
    """Whether the parts together make and take away the very drift of the site, and each can be exchanged alone."""
    causes = causes_of(tests.pair, examined, parts)
    whole = causes_of(tests.pair, examined, [site])
    try:
        for cause in causes:
            tests.swapped_in([cause])
            tests.swapped_out([cause])
        return tests.swapped_out(causes) == tests.swapped_out(whole) and (
            tests.swapped_in(causes) == tests.swapped_in(whole)
        )
    except Infeasible:
        return False
