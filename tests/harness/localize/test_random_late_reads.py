"""Late reads in random graphs with random results, some of which are not known: an answer or none, but no exception."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import pytest
import torch
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st
from torch import Tensor

from numdrift.harness.localize.align.storage_flow import flow_of
from numdrift.harness.localize.execute.late_reads import late_read

from .random_steps import Program, Version, programs, taped
from .test_late_reads import as_graph, results_of

WRONG: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "rolled": lambda own, later: own.roll(1, 0) if own.dim() else own + 1,
    "later": lambda own, later: later,
    "half later": lambda own, later: torch.where(torch.arange(own.numel()).view(own.shape) % 2 == 0, own, later),
    "huge": lambda own, later: torch.full_like(own, 100 if own.dtype == torch.uint8 else 1000),
}
"""What a node may have returned, from its own result and one of a later node of the same size and dtype."""


def check(program: Program, chance: int, unknown: Collection[int], wrong: str) -> None:
    """Look for late reads in every node of a program whose results are wrong."""
    version = Version(program, None)
    try:
        tape = taped(version)
    except (RuntimeError, IndexError, ValueError):
        assume(False)
        raise
    flow = flow_of(as_graph(tape))
    results = results_of(flow)
    for number, own in enumerate(results):
        later = [value for values in results[number + 1 :] for value in values]

        def changed(value: Tensor, later: Sequence[Tensor] = later) -> Tensor:
            alike = [one for one in later if one.shape == value.shape and one.dtype == value.dtype]
            return WRONG[wrong](value, alike[chance % len(alike)] if alike else value)

        real = [changed(value) for value in own]

        def recorded(node: int, number: int = number, real: Sequence[Tensor] = real) -> Sequence[Tensor] | None:
            return real if node == number else None if node in unknown else results[node]

        found = late_read(flow, number, recorded)
        # then a late read is one of another content
        assert found is None or (found.share > 0 and found.reader <= number)


@settings(max_examples=25, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(programs(), st.integers(0, 5), st.sets(st.integers(0, 20)), st.sampled_from([*WRONG]))
def test_no_results_end_the_search_for_late_reads(program: Program, chance: int, unknown: set[int], wrong: str) -> None:
    check(program, chance, unknown, wrong)


@pytest.mark.exhaustive
@settings(max_examples=2000, deadline=None, suppress_health_check=list(HealthCheck), print_blob=True)
@given(programs(), st.integers(0, 5), st.sets(st.integers(0, 20)), st.sampled_from([*WRONG]))
def test_no_results_of_many_end_the_search_for_late_reads(
    program: Program, chance: int, unknown: set[int], wrong: str
) -> None:
    check(program, chance, unknown, wrong)
