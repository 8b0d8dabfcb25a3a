"""The suspects that the verification of the sides' kernels adds: blocks whose kernels differ from this process's."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

import torch

from ..align.op_units import op_name
from ..align.storage_flow import SIDES, Side, StorageFlow, Use
from ..execute.late_reads import LateRead
from ..execute.tape_pair import TapePair
from ..execute.verification import Found
from .suspects import UNROUNDED, Suspect, overwritten_before

ASTRAY = "within its compiled graph, it returns values that differ by more than rounding"
"""How the reason begins for a compiled node whose kernel is at fault."""


def with_kernels(pair: TapePair, suspected: Mapping[int, Suspect], kernels: Mapping[Side, Found]) -> dict[int, Suspect]:
    """Return the suspects by block, including the blocks in which a side's kernels differ from this process's."""
    result = dict(suspected)
    for side in SIDES:
        found, flow, home = kernels[side], pair.flows[side], pair.home[side]
        for number in {home[node] for node in found.special}:
            result.setdefault(number, Suspect(number, "kernel", ()))
        for node in found.astray:
            result[home[node]] = Suspect(home[node], "kernel", _astray(flow, node, found))
        for node in sorted(found.in_context - found.astray):
            suspect = result[home[node]]
            reasons = dict.fromkeys((*suspect.reasons, *_unrounded(flow, node)))
            result[home[node]] = replace(suspect, reasons=tuple(reasons))
        for node, late in found.late.items():
            result[home[node]] = Suspect(home[node], "order", _late(flow, late), flow.nodes[late.reader])
    return result


def _astray(flow: StorageFlow, number: int, found: Found) -> tuple[str, ...]:
    """Return the reasons why a compiled node is at fault.

    The values that the node computes within its graph differ from those that it computes alone on the tape's inputs.
    """
    reason = f"{ASTRAY} from those that it returns when it is executed alone on the same inputs"
    # An input may be wrong instead, if its bits are not known.
    makers = [flow.makers.get(use.value) for use in flow.nodes[number].reads]
    unread = dict.fromkeys(
        op_name(flow.nodes[maker]) for maker in makers if maker is not None and maker in found.unknown
    )
    if not unread:
        return (reason,)
    names = " or ".join(unread)
    return reason, f"or the value from {names} is wrong within the graph: reading that value changes the results"


def _late(flow: StorageFlow, late: LateRead) -> tuple[str, ...]:
    """Return the reasons for a read that comes too late: the op that overwrites what is read, and the share of the
    results that come from the later content."""
    writer, reader = flow.nodes[late.writer], flow.nodes[late.reader]
    overwritten = overwritten_before(writer, reader)
    later = f"{100 * late.share:.0f} % of the results come from the later values, bit for bit or within rounding"
    return overwritten, f"{later}, and the others from the earlier ones; executed alone, each op is right"


def _unrounded(flow: StorageFlow, number: int) -> tuple[str, ...]:
    """Name the inputs of a compiled node that may have more digits than their dtype has.

    Inductor rounds between ops only where it has to. It even omits the rounding of a cast that the script requests, if
    the result is cast back within one kernel; PyTorch's maintainers intend that (pytorch#183761).
    """
    node = flow.nodes[number]
    digits = max((_digits(use) for use in node.made), default=0)
    unrounded = dict[str, None]()
    for use in node.reads:
        if use.value not in flow.makers or not 0 < _digits(use) < digits:
            continue
        maker = flow.nodes[flow.makers[use.value]]
        if maker.call.compiled is not None:
            unrounded[op_name(maker)] = None
    return tuple(f"{UNROUNDED} {name}" for name in unrounded)


def _digits(use: Use) -> int:
    """Return the number of binary digits of a floating dtype, 0 for other dtypes."""
    dtype = use.view.dtype
    return 1 - math.frexp(torch.finfo(dtype).eps)[1] if dtype.is_floating_point else 0
