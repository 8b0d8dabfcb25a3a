"""The causes of a step as culprits, with what is known of each: where it is, its errors, its proof, its kernels."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import torch

from numdrift.kernels.swaps.request import swap_requests

from ..errors import NumdriftError
from ..records.culprit import (
    AGAIN,
    KERNEL,
    LAYOUT,
    STRUCTURE,
    ArgumentLayouts,
    Culprit,
    Proof,
    SwappedIn,
    SwappedOut,
)
from ..records.mode_spec import INDUCTOR, OP_BY_OP, ModeSpec, parse_mode
from ..tape.origin import line_of
from .batch_words import first_reader
from .examination import Examined
from .hybrid import TapePair
from .hybrid_tests import Drift
from .judged_alone import judged_alone
from .layouts import look_at
from .local_error import LocalError
from .net_effect import NetEffect, net_effects
from .op_units import op_name
from .proofs import MeasuredCause, Proofs, is_beyond
from .setting_difference import named_by
from .storage_flow import SIDES, FlowNode, Side
from .suspects import names_of
from .swap_sites import PHASES, Cause, only_puts, phase_of
from .verification import Found

SIGNIFICANT = ("beyond-rounding", "rounding")
WRONG = ("different-setup", "beyond-rounding", None, "rounding")
"""The order in which causes are told."""

MOST_PLACES = 100

MAIN = 0.5
"""The share of an infinite drift from which on a cause is what makes it infinite."""


class Describer:
    """Makes culprits of causes. `kernel` names the kernel that a side has in its nodes of these numbers, if
    it is known."""

    def __init__(
        self,
        pair: TapePair,
        examined: Mapping[int, Examined],
        proofs: Proofs,
        threshold: float,
        kernel: Callable[[Side, Sequence[int]], str | None],
    ) -> None:
        self._pair = pair
        self._examined = examined
        self._proofs = proofs
        self._threshold = threshold
        self._kernel = kernel

    def culprits(self) -> list[tuple[Cause, Culprit]]:
        """Every cause that acts, what is proven first. The significant ones come before the others: of them what is
        wrong by itself before what is not, then by how many floating values they move, then by their scores. Where the
        drift is infinite, so are the scores of all that take part in it: then what makes it so comes first, by its
        share."""
        proofs = self._proofs
        others = [one for one in proofs.others if one.swapped_in is None or not one.swapped_in.is_none]
        causes = [one.cause for one in (*proofs.significant, *others)]
        self._effects = net_effects(
            self._pair, [cause for cause in causes if any(site.is_several for site in cause.sites)]
        )

        def rank(measured: MeasuredCause) -> tuple[float, float, float]:
            came = measured.swapped_in or measured.swapped_out
            share = (measured.share or 0.0) if math.isinf(proofs.whole.score) else 0.0
            if came is None:
                return share, 0.0, 0.0
            return share, float(came.moved(0.0)), came.score if math.isfinite(came.score) else 1e300

        ranked = sorted(proofs.significant, key=rank, reverse=True)
        found = [(one.cause, self._culprit(one, "beyond-rounding")) for one in ranked]
        found += [(one.cause, self._culprit(one, "rounding")) for one in others]
        infinite = math.isinf(proofs.whole.score)

        def order(told: tuple[Cause, Culprit]) -> tuple[bool, int, bool, int]:
            _, one = told
            little = infinite and (one.share_of_drift or 0.0) < MAIN
            wrong = WRONG.index(one.local_significance)
            # Of what is rounding none is wrong, known or not: the larger share comes first.
            wrong = wrong if one.significance == "beyond-rounding" else min(wrong, 2)
            return not one.is_proven, SIGNIFICANT.index(one.significance), little, wrong

        return sorted(found, key=order)

    def _culprit(self, measured: MeasuredCause, significance: str) -> Culprit:
        cause, found = measured.cause, place_of(self._pair, self._examined, measured.cause)
        errors: dict[Side, LocalError] = {}
        for site in cause.sites:
            for side, error in (self._examined[site.lead].errors or {}).items():
                if side not in errors or error.ulp > errors[side].ulp:
                    errors[side] = error
        local, rule = judged_alone(cause, self._examined, errors, self._effects)
        # What the blocks of a site do together is what it does, where that can be had.
        together = [one[0] for site in cause.sites if (one := self._effects.get(site)) and one[0] is not None]
        if together and not errors:
            errors = dict(max(together, key=lambda one: (bool(one.errors), one.roundings)).errors)
        alone = [self._examined[one] for one in cause.blocks if one in self._examined]
        looked: Sequence[NetEffect | Examined] = together or alone
        largest = max((one.largest for one in looked), default=0.0)
        roundings = max((one.roundings for one in looked), default=0.0)
        proof = self._proof(measured, significance)
        # What is wrong by itself is so however noisy the step is. A part of a whole that is the same is not.
        if local in WRONG[:2] and not _takes_part(measured, self._proofs.whole):
            local, rule = None, ""
        elif local in WRONG[:2] and proof.holds:
            significance = "beyond-rounding"
        return replace(
            found,
            status="culprit" if proof.holds else "suspect",
            kernel=self._kernels(cause),
            reasons=cause.reasons,
            ops={side: cause.ops[side] for side in SIDES},
            beside=self._beside(cause),
            phases=self._phases(cause),
            places=self._places(cause),
            sites=len(cause.sites),
            significance=significance,
            local_significance=local,
            local_rule=rule or None,
            error_ulp={side: error.ulp for side, error in errors.items()},
            rho={side: error.rho for side, error in errors.items()},
            bias={side: error.bias for side, error in errors.items()},
            bound={side: error.bound for side, error in errors.items()},
            largest_relative=largest,
            roundings=roundings,
            share_of_drift=measured.share,
            proof=proof,
        )

    def _kernels(self, cause: Cause) -> dict[str, str | None] | None:
        """Each side's, which all sites of the cause have; None for what is not another kernel."""
        if cause.kind != KERNEL:
            return None
        leads = [self._pair.blocks[site.lead] for site in cause.sites]
        return {side: self._kernel(side, [number for one in leads for number in one.of(side)]) for side in SIDES}

    def _beside(self, cause: Cause) -> list[str]:
        """The ops of the reference that are other kernels in this cause and name none of its sites: a backward that
        goes with its forward, as a compiler has it read what only the forward's own code knows."""
        if cause.kind not in (KERNEL, LAYOUT):
            return []
        looked = [one for one in sorted(cause.blocks) if one in self._examined and self._pair.blocks[one].paired]
        others = [one for one in looked if self._examined[one].differs is not False and not only_puts(self._pair, one)]
        others = [one for one in others if self._examined[one].suspect.kind in (KERNEL, LAYOUT)]
        names = dict.fromkeys(name for one in others for name in names_of(self._pair, one, "a"))
        return [name for name in names if name not in cause.ops["a"]]

    def _places(self, cause: Cause) -> list[str]:
        """Where the cause acts: modules, or for an optimizer parameters, each once."""
        found: dict[str, None] = {}
        others = sorted(block for block in cause.blocks if block in self._examined)
        for block in (*(site.lead for site in cause.sites), *others):
            for side in SIDES:
                for number in self._pair.blocks[block].of(side):
                    call = self._pair.flows[side].nodes[number].call
                    # an optimizer's op of many tensors is about many parameters
                    found |= dict.fromkeys(call.owners if call.module is None else (call.module,))
        return list(found)[:MOST_PLACES]

    def _phases(self, cause: Cause) -> list[str] | None:
        """The phases of the step in which calls of the cause are others; None where that is one, or a rewritten op's,
        whose backward is autograd's."""
        if cause.kind == STRUCTURE:
            return None
        looked = [one for one in cause.blocks if one in self._examined and self._examined[one].differs is not False]
        found = sorted({phase_of(self._pair, one) for one in looked}, key=PHASES.index)
        return list(found) if len(found) > 1 else None

    def _proof(self, measured: MeasuredCause, significance: str) -> Proof:
        whole, rest = self._proofs.whole, self._proofs.rest
        beyond = significance == "beyond-rounding"
        came, went = measured.swapped_in, measured.swapped_out
        comes = came is not None and (
            is_beyond(came, self._threshold) or measured.together > 0 if beyond else not came.is_none
        )
        goes = went is not None and (
            rest is not None and (not is_beyond(rest, self._threshold) if beyond else rest.amount < whole.amount)
        )
        return Proof(
            SwappedIn(bool(comes), score_before=0.0, score_after=_score(came)),
            SwappedOut(
                bool(goes), score_before=_score(whole), score_after=_score(went), score_without_all=_score(rest)
            ),
            together_with=measured.together,
            why=measured.why,
        )


def _takes_part(measured: MeasuredCause, whole: Drift) -> bool:
    """Whether a cause makes no more drift than there is: of two that undo one another each alone makes more."""
    found = [one.amount for one in (measured.swapped_in, measured.swapped_out) if one is not None]
    return all(amount <= 2 * whole.amount for amount in found)


def place_of(pair: TapePair, examined: Mapping[int, Examined], cause: Cause) -> Culprit:
    """A cause as a culprit of which nothing is proven yet: what it is and where."""
    # The block with the largest error on side b leads, which the script shows; none where only data differ.
    tested = [site.lead for site in cause.sites if examined[site.lead].differs]
    first = cause.sites[0].lead if cause.sites else None
    lead = max(tested, key=lambda one: _largest(examined[one]), default=first)
    numbers = {side: pair.blocks[lead].of(side) if lead is not None else () for side in SIDES}
    nodes = [pair.flows[side].nodes[number] for side in SIDES for number in numbers[side]]
    node, op = nodes[0] if nodes else None, None
    # what the step starts from is found where it is read first
    readers = [one for value in cause.inputs if not nodes and (one := first_reader(pair, value)) is not None]
    frames = next((one.call.frames for one in (*nodes, *readers) if one.call.frames), ())
    if node is not None:
        # what was executed again is named as the mode that did it knows it
        names = (
            cause.ops["b"] if any(one.startswith(AGAIN) for one in cause.reasons) else cause.ops["a"] or cause.ops["b"]
        )
        paired = pair.blocks[cause.sites[0].lead].paired
        op = f"{node.call.op.split('.')[0]}.{op_name(node) if paired else names[0]}"
    found = Culprit(
        kind=cause.kind,
        phase=cause.phase,
        module=next((name for one in nodes if (name := _module(one)) is not None), None),
        op=op,
        step=pair.flows["a"].tape.step,
        source=line_of(frames[0]) if frames else None,
        frames=frames,
        lead=lead,
        layouts=[
            ArgumentLayouts(
                one.number,
                one.name,
                look={side: look_at(one.lies[side]) for side in SIDES},
                stride={side: one.lies[side].stride for side in SIDES},
                start={side: one.lies[side].start for side in SIDES},
            )
            for one in (examined[first].relaid if first is not None else ())
        ],
    )
    return found if cause.setting is None else named_by(found, cause.setting.difference, cause.setting.what)


def _module(node: FlowNode) -> str | None:
    return node.call.module if node.call.module is not None else ", ".join(node.call.owners) or None


def _largest(examined: Examined) -> float:
    errors: Sequence[LocalError] = list((examined.errors or {}).values())
    return max((one.ulp for one in errors), default=examined.largest)


def _score(drift: Drift | None) -> float | None:
    return None if drift is None else drift.score


# The name of the kernel that a side has in a culprit's place, where what is known of the side tells it.
#
# tanh_backward of cpu, whose tape gives its own bits again by torch's kernels      "aten"
# tanh_backward of lazy,kernel.tanh_backward=bf16                                   "bf16", as the mode names it
# mul, sub, mul of compile, in place of tanh_backward                               "decomposed"
# sum of compile, with other bits than torch's kernel gives on the same inputs      "inductor"
# sum of xla, with other bits than torch's kernel                                   "xla"
# sum of a plug-in's mode                                                           None: nobody here knows

ATEN, DECOMPOSED, XLA = "aten", "decomposed", "xla"

GENERATED = tuple(getattr(torch.Tag, name) for name in ("pointwise", "reduction") if hasattr(torch.Tag, name))
"""What torch says of ops for which Inductor generates code itself; others it may leave to a library, or to aten."""


def kernel_of(spec: str, nodes: Iterable[tuple[int, FlowNode]], found: Found, *, checked: bool) -> str | None:
    """The one name of these calls' kernels on a side with this mode, None where it is not known or they have several.

    `checked` says that the calls which `found` does not list are known to give the bits of torch's kernels.
    """
    try:
        mode = parse_mode(spec)
        swaps = swap_requests(mode.kernel, mode.decompose)
    except NumdriftError:
        return None
    names = set()
    for number, node in nodes:
        swap, op, module = None, op_name(node), node.call.module
        for one in swaps:  # whether it names a kernel for this call, as far as the call says what and where it is
            name, _, overload = one.op.partition(".")
            inside = one.module is None or module is None or f"{module}.".startswith(f"{one.module}.")
            if name == op and inside and (not overload or node.call.op.endswith(f".{overload}")):
                swap = one
                break
        if swap is None:
            names.add(_plain(mode, number, node, found, checked))
        else:
            # a tape does not tell the how-manieth of its step a call was, nor always its module
            sure = swap.occurrence is None and (swap.module is None or node.call.module is not None)
            names.add(swap.kernel if sure else None)
    return names.pop() if len(names) == 1 else None


def _plain(mode: ModeSpec, number: int, node: FlowNode, found: Found, checked: bool) -> str | None:
    """The name of a kernel that the mode does not swap, in the modes whose kernels are torch's; lazy graphs are
    executed by aten's, unless they are fused, and those of xla by what XLA makes of each op."""
    if mode.base == "xla":
        # An op that torch_xla falls back for, and one on the CPU, give the bits of aten.
        return (XLA if number in found.special else ATEN) if checked and number not in found.unknown else None
    compiled = node.call.compiled if mode.base == "compile" else None
    if compiled is not None and compiled.origin.split(".")[1] != node.call.name:
        return DECOMPOSED
    if compiled is not None and mode.backend not in OP_BY_OP:
        generated = not set(GENERATED).isdisjoint(getattr(node.execution.operation, "tags", ()))
        # equal bits tell nothing here: what Inductor generates often gives those of aten
        return INDUCTOR if mode.backend in (None, INDUCTOR) and generated and number in found.special else None
    # a script may have put a kernel of its own in aten's place: only equal bits tell that it has not
    known = mode.base in ("cpu", "lazy", "compile") and checked and number not in found.special | found.unknown
    return ATEN if known else None
