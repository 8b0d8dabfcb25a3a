"""The sites that are left whole: those that only round differently, beside a fault."""

from __future__ import annotations

from typing import cast

import pytest

from numdrift.harness.localize.causes.examination import examine
from numdrift.harness.localize.causes.hybrid_tests import HybridTests
from numdrift.harness.localize.causes.net_effect import net_effects
from numdrift.harness.localize.causes.site_causes import causes_of
from numdrift.harness.localize.causes.split_sites import only_rounding, split_sites
from numdrift.harness.localize.causes.suspects import suspects
from numdrift.harness.localize.causes.swap_sites import sites_of

from .pairs import Plant, Small, sides
from .test_localize_step import benign, hooked


def both(training: Small) -> None:
    benign(training)
    hooked(training)


@pytest.mark.parametrize(("plant", "whole"), [(both, {"_softmax"}), (benign, set()), (hooked, set())])
def test_what_only_rounds_stays_whole_beside_a_fault(plant: Plant, whole: set[str]) -> None:
    pair = sides(Small, plant).pair()
    examined = examine(pair, suspects(pair))
    sites = sites_of(pair, examined)
    causes = causes_of(pair, examined, sites)
    found = only_rounding(causes, examined, net_effects(pair, causes))
    assert {name for site in found for name in pair.names(site.lead, "a")} == whole


def test_a_whole_site_is_not_even_tried() -> None:
    pair = sides(Small, benign).pair()
    examined = examine(pair, suspects(pair))
    sites = sites_of(pair, examined)
    nothing = cast(HybridTests, None)  # any use of it would raise
    assert split_sites(nothing, examined, sites, sites) == sites
