"""Runs of several processes on the command line: how many, how each went, and whether they agree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import click

from ..runs.manifest import RunManifest

nproc_option = click.option(
    "--nproc",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    metavar="N",
    help="Processes of each run, started as torchrun --nproc-per-node N does; the first one's folder holds the others'.",
)


def rank_rows(manifest: RunManifest) -> Iterator[tuple[str, str, str, str]]:
    """Of each rank from 1 on: name, status, steps ended and last loss. Rank 0 is the run itself."""
    for one in manifest.ranks[1:]:
        losses = one["losses"]
        yield (
            f"  rank {one['rank']}",
            str(one["status"]),
            f"{one['steps']:,}",
            f"{losses[-1]:.6g}" if losses else "-",
        )


def rank_facts(manifest: RunManifest) -> dict[str, str]:
    """What `runs show` says of the ranks of a run, or of the rank that it is."""
    if manifest.rank:
        return {"rank": f"{manifest.rank} of {manifest.world_size}"}
    facts = {f"rank {one['rank']}": _rank_in_words(one) for one in manifest.ranks}
    if manifest.agreement is not None:
        facts["agreement"] = str(manifest.agreement["text"])
    return facts


def _rank_in_words(one: Mapping[str, Any]) -> str:
    loss = f", loss {one['losses'][-1]:.9g} last" if one["losses"] else ""
    why = f": {one['message']}" if one["message"] else ""
    return f"{one['status']}{why}; {one['steps']:,} steps{loss}; in {one['path']}"
