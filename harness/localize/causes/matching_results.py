"""The results of a block that two sides compute with different ops: which results of the two sides correspond.

Results of the same size are linked by their order in the step, which may be different in a decomposition:

    mkldnn_rnn_layer    hy, cy
    its decomposition   c, h       linked: hy with c, cy with h; by their values: hy with h, cy with c
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence

import torch

from ..align.storage_flow import Use
from ..errors.result_distances import relative, unit_roundoff_of
from ..execute.tape_pair import TapePair
from ..execute.unwritten_results import Results

MOST_ALIKE = 4
"""The largest number of results of one size whose orders are tried."""

FAR, NEAR = 0.1, 256
"""A different order of results is accepted if, as linked, a pair is further apart than FAR of its size, and in the
new order all pairs are at most NEAR unit roundoffs apart, and at most FAR / 4 of their size."""


def in_matching_order(
    pair: TapePair, compared: Sequence[tuple[Use, Use]], results: Results
) -> tuple[list[tuple[Use, Use]], Results]:
    """Return the compared results of a block in the order in which the values of both sides match.

    The links are kept unless a different order of results of one size turns a far pair into a near one. Then they are
    corrected.
    """
    order = list(range(len(compared)))
    groups: dict[tuple[torch.Size, torch.dtype], list[int]] = {}
    for at, (a, b) in enumerate(zip(results["a"], results["b"], strict=True)):
        if a.shape == b.shape and a.is_floating_point() and a.dtype == b.dtype:
            groups.setdefault((a.shape, a.dtype), []).append(at)
    for group in groups.values():
        if not 1 < len(group) <= MOST_ALIKE:
            continue
        apart = {(left, right): relative(results["a"][left], results["b"][right]) for left in group for right in group}
        if max(apart[at, at] for at in group) < FAR:
            continue
        orders = itertools.permutations(group)
        best = min(orders, key=lambda rights: max(apart[both] for both in zip(group, rights, strict=True)))
        near = min(NEAR * unit_roundoff_of(results["a"][group[0]].dtype), FAR / 4)
        if max(apart[both] for both in zip(group, best, strict=True)) <= near:
            for left, right in zip(group, best, strict=True):
                order[left] = right
    pairs = [(compared[at][0], compared[right][1]) for at, right in enumerate(order)]
    for at, right in enumerate(order):
        if at != right:
            pair.links.correct(*pairs[at])
    return pairs, {"a": results["a"], "b": [results["b"][right] for right in order]}
