"""The name of the kernel that a side has in a culprit's place, where what is known of the side tells it.

tanh_backward of cpu, whose tape gives its own bits again by torch's kernels      "aten"
tanh_backward of lazy,kernel.tanh_backward=bf16                                   "bf16", as the mode names it
mul, sub, mul of compile, in place of tanh_backward                               "decomposed"
sum of compile, with other bits than torch's kernel gives on the same inputs      "inductor"
sum of a plug-in's mode                                                           None: nobody here knows
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import torch

from numdrift.kernels.swaps.request import SwapRequest, swap_requests

from ..errors import NumdriftError
from ..records.mode_spec import INDUCTOR, OP_BY_OP, ModeSpec, parse_mode
from .alignment import op_name
from .storage_flow import FlowNode
from .verification import Found

ATEN, DECOMPOSED = "aten", "decomposed"

GENERATED = tuple(getattr(torch.Tag, name) for name in ("pointwise", "reduction") if hasattr(torch.Tag, name))
"""What torch says of ops for which Inductor generates code itself; others it may leave to a library, or to
aten."""


def kernel_of(spec: str, nodes: Iterable[tuple[int, FlowNode]], found: Found, *, checked: bool) -> str | None:
    """The one name of these calls' kernels on a side with this mode, None where it is not known or they have
    several.

    `checked` says that the calls which `found` does not list are known to give the bits of torch's kernels.
    """
    try:
        mode = parse_mode(spec)
        swaps = swap_requests(mode.kernel, mode.decompose)
    except NumdriftError:
        return None
    plain = _PLAIN.get(mode.base, _never)
    names = set()
    for number, node in nodes:
        swap = next((one for one in swaps if _may_serve(one, node)), None)
        if swap is None:
            names.add(plain(mode, number, node, found, checked))
        else:
            # a tape does not tell the how-manieth of its step a call was, nor always its module
            sure = swap.occurrence is None and (swap.module is None or node.call.module is not None)
            names.add(swap.kernel if sure else None)
    return names.pop() if len(names) == 1 else None


def _may_serve(swap: SwapRequest, node: FlowNode) -> bool:
    """Whether the mode names a kernel for this call, as far as the call says what and where it is."""
    op, _, overload = swap.op.partition(".")
    module = node.call.module
    inside = swap.module is None or module is None or f"{module}.".startswith(f"{swap.module}.")
    return op == op_name(node) and inside and (not overload or node.call.op.endswith(f".{overload}"))


def _eager(mode: ModeSpec, number: int, node: FlowNode, found: Found, checked: bool) -> str | None:
    # a script may have put a kernel of its own in aten's place: only equal bits tell that it has not
    return ATEN if checked and number not in found.special | found.unknown else None


def _compiled(mode: ModeSpec, number: int, node: FlowNode, found: Found, checked: bool) -> str | None:
    compiled = node.call.compiled
    if compiled is None:
        return _eager(mode, number, node, found, checked)
    if compiled.origin.split(".")[1] != node.call.name:
        return DECOMPOSED
    if mode.backend in OP_BY_OP:
        return _eager(mode, number, node, found, checked)
    generated = not set(GENERATED).isdisjoint(getattr(node.execution.operation, "tags", ()))
    # equal bits tell nothing here: what Inductor generates often gives those of aten
    return INDUCTOR if mode.backend in (None, INDUCTOR) and generated and number in found.special else None


def _never(mode: ModeSpec, number: int, node: FlowNode, found: Found, checked: bool) -> str | None:
    return None


_PLAIN: dict[str, Callable[[ModeSpec, int, FlowNode, Found, bool], str | None]] = {
    "cpu": _eager,
    "lazy": _eager,
    "compile": _compiled,
}
"""How the name follows in the modes whose kernels are torch's; lazy graphs are executed by aten's, unless
they are fused."""
