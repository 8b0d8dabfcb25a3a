"""The causes of a step as culprits, with what is known of each."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from ..records.culprit import KERNEL, Culprit, Proof, SwappedIn, SwappedOut
from .alignment import op_name
from .examination import Examined
from .hybrid import TapePair
from .hybrid_scores import Drift
from .local_error import LocalError
from .proofs import MeasuredCause, Proofs, is_beyond
from .storage_flow import SIDES, FlowNode, Side
from .swap_sites import Cause

LOCAL_FAULT = 16.0
"""rho from which on a kernel is at fault by itself, whatever the step around it does."""

MOST_PLACES = 12


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

    def culprits(self) -> list[Culprit]:
        """Every cause that acts, the significant ones first, in the order of their shares."""
        proofs = self._proofs
        ranked = sorted(proofs.significant, key=_rank, reverse=True)
        found = [self._culprit(one, "beyond-rounding") for one in ranked]
        others = (one for one in proofs.others if one.swapped_in is None or not one.swapped_in.is_none)
        return [*found, *(self._culprit(one, "rounding") for one in others)]

    def _culprit(self, measured: MeasuredCause, significance: str) -> Culprit:
        cause = measured.cause
        lead = self._lead(cause)
        nodes = {side: self._nodes(lead, side) for side in SIDES}
        node = next((one[0] for one in (nodes["a"], nodes["b"]) if one), None)
        errors = self._errors(cause)
        proof = self._proof(measured, significance)
        return Culprit(
            status="culprit" if proof.holds else "suspect",
            phase=cause.phase,
            module=None if node is None else self._module(node),
            op=None if node is None else self._op(cause, node),
            step=self._pair.flows["a"].tape.step,
            source=next((one.call.line for side in SIDES for one in nodes[side] if one.call.line), None),
            kind=cause.kind,
            kernel=self._kernels(cause),
            reasons=cause.reasons,
            ops={side: cause.ops[side] for side in SIDES},
            places=self._places(cause),
            sites=len(cause.sites),
            significance=significance,
            local_significance=self._local(cause, errors),
            error_ulp={side: error.ulp for side, error in errors.items()},
            rho={side: error.rho for side, error in errors.items()},
            bias={side: error.bias for side, error in errors.items()},
            bound={side: error.bound for side, error in errors.items()},
            largest_relative=max(
                (self._examined[one].largest for one in cause.blocks if one in self._examined), default=0.0
            ),
            share_of_drift=measured.share,
            proof=proof,
            lead=lead,
        )

    def _lead(self, cause: Cause) -> int | None:
        """The block with the largest error on side b, which the standalone script shows; None where only data
        differ."""
        tested = [site.lead for site in cause.sites if self._examined[site.lead].differs]
        first = cause.sites[0].lead if cause.sites else None
        return max(tested, key=lambda one: _largest(self._examined[one]), default=first)

    def _nodes(self, lead: int | None, side: Side) -> list[FlowNode]:
        if lead is None:
            return []
        flow = self._pair.flows[side]
        return [flow.nodes[number] for number in self._pair.blocks[lead].of(side)]

    def _kernels(self, cause: Cause) -> dict[str, str | None] | None:
        """Each side's, which all sites of the cause have; None for what is not another kernel."""
        if cause.kind != KERNEL:
            return None
        leads = [self._pair.blocks[site.lead] for site in cause.sites]
        return {side: self._kernel(side, [number for one in leads for number in one.of(side)]) for side in SIDES}

    def _op(self, cause: Cause, node: FlowNode) -> str:
        names = cause.ops["a"] or cause.ops["b"]
        namespace = node.call.op.split(".")[0]
        paired = self._pair.blocks[cause.sites[0].lead].paired
        return f"{namespace}.{op_name(node) if paired else names[0]}"

    def _module(self, node: FlowNode) -> str | None:
        return node.call.module if node.call.module is not None else ", ".join(node.call.owners) or None

    def _places(self, cause: Cause) -> list[str]:
        """Where the cause acts: modules, or for an optimizer parameters, each once."""
        found: dict[str, None] = {}
        others = sorted(block for block in cause.blocks if block in self._examined)
        for block in (*(site.lead for site in cause.sites), *others):
            for side in SIDES:
                for number in self._pair.blocks[block].of(side):
                    place = self._module(self._pair.flows[side].nodes[number])
                    if place is not None:
                        found[place] = None
        return list(found)[:MOST_PLACES]

    def _errors(self, cause: Cause) -> dict[Side, LocalError]:
        found: dict[Side, LocalError] = {}
        for site in cause.sites:
            for side, error in (self._examined[site.lead].errors or {}).items():
                if side not in found or error.ulp > found[side].ulp:
                    found[side] = error
        return found

    def _local(self, cause: Cause, errors: Mapping[Side, LocalError]) -> str | None:
        """What the kernel itself says: an error that rounding of its inputs does not explain, on either
        side."""
        if cause.kind != "kernel" or not errors:
            return None
        return "beyond-rounding" if any(error.rho > LOCAL_FAULT for error in errors.values()) else "rounding"

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
                bool(goes),
                score_before=_score(whole),
                score_after=_score(went),
                score_without_all=_score(rest),
            ),
            together_with=measured.together,
            why=measured.why,
        )


def _rank(measured: MeasuredCause) -> tuple[float, float]:
    """By how many floating values it moves, then by its score."""
    came = measured.swapped_in or measured.swapped_out
    if came is None:
        return 0.0, 0.0
    return float(came.moved(0.0)), came.score if math.isfinite(came.score) else 1e300


def _largest(examined: Examined) -> float:
    errors: Sequence[LocalError] = list((examined.errors or {}).values())
    return max((one.ulp for one in errors), default=examined.largest)


def _score(drift: Drift | None) -> float | None:
    return None if drift is None else drift.score
