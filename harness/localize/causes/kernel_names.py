"""The name of a side's kernel at a culprit, if it can be determined.

tanh_backward of cpu, whose tape gives the same bits with torch's kernels      "aten"
tanh_backward of lazy,kernel.tanh_backward=bf16                                "bf16", as the mode names it
mul, sub, mul of compile, in place of tanh_backward                            "decomposed"
sum of compile, whose bits differ from those of torch's kernel                 "inductor"
sum of xla, whose bits differ from those of torch's kernel                     "xla"
sum of a plug-in's mode                                                        None: not known
"""

from __future__ import annotations

from collections.abc import Iterable

import torch

from numdrift.kernels.swaps.request import swap_requests

from ...errors import NumdriftError
from ...records.modes.mode_registry import DEVICES_OF_THE_CPU, registry
from ...records.modes.mode_spec import INDUCTOR, OP_BY_OP, ModeSpec, parse_mode
from ..align.op_units import op_name
from ..align.storage_flow import FlowNode
from ..execute.verification import Found

ATEN, DECOMPOSED = "aten", "decomposed"

GENERATED = frozenset(getattr(torch.Tag, name) for name in ("pointwise", "reduction") if hasattr(torch.Tag, name))
"""torch's tags of the ops for which Inductor itself generates code. Inductor may leave others to a library or aten."""


def is_generated(node: FlowNode) -> bool:
    """Check whether Inductor generates code itself for a node's op."""
    return not GENERATED.isdisjoint(getattr(node.execution.operation, "tags", ()))


def kernel_of(spec: str, nodes: Iterable[tuple[int, FlowNode]], verified: Found, *, checked: bool) -> str | None:
    """Return the name of the kernel that executed these calls of a side with the mode `spec`.

    Return None if it is not known, or if the calls have several kernels. `checked` says whether all calls outside of
    `verified` are known to compute the same bits as torch's kernels.
    """
    try:
        mode = parse_mode(spec)
        swaps = swap_requests(mode.kernel, mode.decompose)
    except NumdriftError:
        return None
    names = set()
    for number, node in nodes:
        swap, op, module = None, op_name(node), node.call.module
        for request in swaps:  # does the swap apply to this call, judging by the call's op and module?
            name, _, overload = request.op.partition(".")
            inside = request.module is None or module is None or f"{module}.".startswith(f"{request.module}.")
            if name == op and inside and (not overload or node.call.op.endswith(f".{overload}")):
                swap = request
                break
        if swap is None:
            names.add(_plain(mode, number, node, verified, checked))
        else:
            # a tape does not record a call's index among the op's calls in the step, and may lack the call's module
            sure = swap.occurrence is None and (swap.module is None or node.call.module is not None)
            names.add(swap.kernel if sure else None)
    return names.pop() if len(names) == 1 else None


def _plain(mode: ModeSpec, number: int, node: FlowNode, verified: Found, checked: bool) -> str | None:
    """Return the name of the kernel of a call that no swap applies to; None if it is not known.

    Aten's kernels execute the graphs of lazy, unless the graphs are fused. The graphs of xla are executed by the code
    that XLA generates for each op.
    """
    facts = mode.capabilities
    if facts.own_kernels:
        # An op that torch_xla executes through its fallback, or on the CPU, computes the same bits as aten.
        if not checked or number in verified.unknown:
            return None
        return facts.own_kernels if number in verified.special else ATEN
    compiled = node.call.compiled if facts.compiles else None
    if compiled is not None and compiled.origin.split(".")[1] != node.call.name:
        return DECOMPOSED
    if compiled is not None and mode.backend not in OP_BY_OP:
        # equal bits do not prove that the kernel is aten's: Inductor's code often computes the same bits
        is_own = mode.backend in (None, INDUCTOR) and is_generated(node) and number in verified.special
        return INDUCTOR if is_own else None
    # a script may have replaced aten's kernel with its own: only equal bits show that it has not
    torchs_own = facts.aten_kernels and registry.device(mode.base) in DEVICES_OF_THE_CPU
    is_aten = torchs_own and checked and number not in verified.special | verified.unknown
    return ATEN if is_aten else None
