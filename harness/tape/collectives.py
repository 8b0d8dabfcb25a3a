"""Collectives among the ops of a step: what they are called, and that a step with one is not replayed."""

from __future__ import annotations

NAMESPACES = ("c10d", "_c10d_functional", "c10d_functional", "_c10d_functional_autograd")
"""Of the ops by which torch's process groups speak to one another."""

UNREPLAYED = "ops of several ranks are not replayed; the verdict stands on the rank-by-rank comparison"


def unreplayed(op: str) -> str:
    """Why a step has no tape, for the name of its first collective, as `c10d::allreduce_`."""
    return f"the step calls {op.partition('::')[2].rstrip('_') or op}: {UNREPLAYED}"


SHARDED = f"the step computes with sharded tensors: {UNREPLAYED}"
