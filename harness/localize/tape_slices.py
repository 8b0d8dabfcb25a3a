"""One block as a tape of its own: its calls, on the inputs that it had."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch

from ..tape.tape import Tape, Watched
from .hybrid import storage_read
from .step_memory import Memory
from .storage_flow import Flow, Side, Use, Value


def slice_of(
    flow: Flow,
    side: Side,
    nodes: Sequence[int],
    memory: Memory,
    outputs: Sequence[Use],
    instead: Mapping[int, Use],
) -> Tape:
    """The nodes with what they read of earlier ones as inputs. Watched are `outputs`, named by their order.

    `instead` are, by slot, what a paired call reads of the other side. `memory` is that of before the nodes.
    Raises Unbound where it has not what they read.
    """
    made: set[Value] = set()
    inputs: dict[int, torch.Tensor] = {}
    for number in nodes:
        node = flow.nodes[number]
        for use in node.reads:
            if use.value not in made and use.value.slot not in inputs:
                far = instead.get(use.value.slot)
                inputs[use.value.slot] = _bytes(storage_read(memory, side, use, far, node))
        made |= {use.value for use in node.made}
    calls = tuple(flow.nodes[number].call for number in nodes)
    watched = tuple(
        Watched(len(calls), f"output {number}", use.view, torch.empty(0))
        for number, use in enumerate(outputs)
    )
    return Tape(flow.tape.step, flow.tape.slots, inputs, calls, watched)


def _bytes(storage: torch.UntypedStorage) -> torch.Tensor:
    whole = torch.empty(0, dtype=torch.uint8, device=storage.device)
    return whole.set_(storage, 0, (storage.nbytes(),), (1,)).clone()
