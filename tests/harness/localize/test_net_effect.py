"""The joint effects of a site's blocks."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest
import torch
from torch import Tensor

from numdrift.harness.localize.align.storage_flow import flow_of
from numdrift.harness.localize.causes.net_effect import net_effects
from numdrift.harness.localize.causes.site_causes import Cause
from numdrift.harness.localize.causes.swap_sites import SwapSite
from numdrift.harness.localize.execute.tape_pair import paired

from .pairs import taped


def step(watch: Callable[[str, Tensor], None], factor: float) -> None:
    """A product, a function that magnifies its rounding by about 80, and a sum that reads neither."""
    x = torch.linspace(0.1, 1, 64)
    product = x * factor
    watch("product", product + 1)
    watch("magnified", (80 * product).exp())
    watch("sum", x.sum())


@pytest.mark.parametrize(("last", "least", "most"), [("sum", 0.5, 8), ("exp", 20, 500)])
def test_of_the_ops_between_its_blocks_a_site_has_those_that_it_reads(last: str, least: float, most: float) -> None:
    # given two factors that are one unit in the last place apart
    pair = paired(*(flow_of(taped(partial(step, factor=factor))) for factor in (1.1, 1.1 * (1 + 2**-23))))
    blocks = {op: number for number in reversed(range(len(pair.blocks))) for op in pair.all_names(number)}
    site = SwapSite(frozenset((blocks["mul"], blocks[last])), blocks["mul"])

    (effect,) = net_effects(pair, [Cause("arguments", "forward", {"a": ("mul",), "b": ("mul",)}, (), (site,))])[site]

    assert effect is not None and least < effect.roundings < most
