"""The partitioner's account of a graph, in the words of the logger `numdrift.partition`."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from ...records.partition_record import GraphPartition

logger = logging.getLogger("numdrift.partition")


def log_graph(partition: GraphPartition) -> None:
    """Log, at INFO, what is supported, what is not, and every subgraph with its operators."""
    if logger.isEnabledFor(logging.INFO):
        for line in lines(partition):
            logger.info(line)


def lines(partition: GraphPartition) -> Iterator[str]:
    yield f"Graph {partition.graph} of {partition.module}, {partition.phase}"
    yield "The following operations are currently supported:"
    yield from dict.fromkeys(row.kind for row in partition.operators if row.supported)
    yield "The following operations are currently not supported:"
    for row in partition.operators:
        if not row.supported:
            yield f"{row.kind}, {row.call}: {row.reason}" if row.call else f"{row.kind}: {row.reason}"
    yield (
        f"{partition.percentage:.2f}% of arithmetic operations ({partition.supported} of "
        f"{partition.total}) are supported"
    )
    yield f"Num Partitions: {len(partition.subgraphs)}"
    for subgraph in partition.subgraphs:
        yield f"Creating Partition #{subgraph.number} for device: {subgraph.device}"
        yield "The following operators will be included in this partition:"
        yield from (f"{kind}:{count}" for kind, count in subgraph.operators.items())
