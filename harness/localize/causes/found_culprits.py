"""The causes of a step described as culprits, each with its place, its errors, its proof and its kernels."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from ...records.results.culprit import (
    AGAIN,
    KERNEL,
    LAYOUT,
    ORDER,
    REDRAWN,
    STRUCTURE,
    ArgumentLayouts,
    Culprit,
    Proof,
    SwappedIn,
    SwappedOut,
)
from ...tape.origin import line_of
from ..align.op_units import op_name
from ..align.storage_flow import SIDES, FlowNode, Side
from ..errors.local_error import LocalError
from ..execute.layout_words import look_at
from ..execute.tape_pair import TapePair
from .batch_words import first_reader
from .examination import Examined, flagged
from .hybrid_tests import Drift
from .judged_alone import errors_of, judged_alone
from .net_effect import Effects, NetEffect
from .proofs import MeasuredCause, Proofs, is_beyond, least_share
from .setting_difference import named_by
from .site_causes import PHASES, Cause
from .suspects import computing
from .swap_sites import only_puts

SIGNIFICANT = ("beyond-rounding", "rounding")
WRONG = ("different-setup", "beyond-rounding", None, "rounding")
"""The order in which causes are reported, by the verdict on each cause taken by itself (None: unknown)."""

MOST_PLACES = 100

MAIN = 0.5
"""The smallest share of an infinite drift at which a cause counts as the reason for the infinity."""


class Describer:
    """The description of causes as culprits.

    `kernel` takes a side and the numbers of some of its nodes. It returns the name of their kernel, None if it is not
    known. `effects` are the joint effects of the causes' sites.
    """

    def __init__(
        self,
        pair: TapePair,
        examined: Mapping[int, Examined],
        proofs: Proofs,
        threshold: float,
        kernel: Callable[[Side, Sequence[int]], str | None],
        effects: Effects,
    ) -> None:
        self._pair = pair
        self._examined = examined
        self._proofs = proofs
        self._threshold = threshold
        self._kernel = kernel
        self._effects = effects

    def culprits(self) -> list[tuple[Cause, Culprit]]:
        """Return every cause that has an effect, the proven ones first.

        Significant causes come before the others. Among the significant ones, the causes that are wrong by themselves
        come first, then those that move more floating values, then those with higher scores. If the drift is infinite,
        so are the scores of all causes that contribute to it. In that case, the causes that make it infinite come
        first, by their share.

        Causes without a proof are in the order of the drift that they explain. Calls that only one side executes, and
        whose results nothing reads, come last.
        """
        proofs = self._proofs

        def rank(measured: MeasuredCause) -> tuple[float, float, float]:
            came = measured.swapped_in or measured.swapped_out
            share = (measured.share or 0.0) if math.isinf(proofs.whole.score) else 0.0
            if came is None:
                return share, 0.0, 0.0
            return share, float(came.moved(0.0)), came.score if math.isfinite(came.score) else 1e300

        ranked = sorted(proofs.significant, key=rank, reverse=True)
        described = [(measured, self._culprit(measured, "beyond-rounding")) for measured in ranked]
        described += [(measured, self._culprit(measured, "rounding")) for measured in proofs.others_with_effect]
        infinite = math.isinf(proofs.whole.score)

        def order(entry: tuple[MeasuredCause, Culprit]) -> tuple[bool, bool, float, int, bool, int]:
            measured, culprit = entry
            little = infinite and (culprit.share_of_drift or 0.0) < MAIN
            wrong = WRONG.index(culprit.local_significance)
            # Rounding is not wrong, whether its error is known or not: such causes stay in the order of their shares.
            wrong = wrong if culprit.significance == "beyond-rounding" else min(wrong, 2)
            significant = SIGNIFICANT.index(culprit.significance)
            if culprit.is_proven:
                return False, False, 0.0, significant, little, wrong
            return (
                True,
                self._is_unread(measured.cause),
                -least_share(measured, proofs.whole),
                significant,
                little,
                wrong,
            )

        return [(measured.cause, culprit) for measured, culprit in sorted(described, key=order)]

    def _is_unread(self, cause: Cause) -> bool:
        """Check whether only one side executes the cause's calls, and nothing outside the cause reads their results."""
        sides = [side for side in SIDES if any(self._pair.blocks[block].of(side) for block in cause.blocks)]
        if cause.kind != STRUCTURE or len(sides) != 1:
            return False
        return all(self._pair.readers_of(block) <= cause.blocks for block in cause.blocks)

    def _culprit(self, measured: MeasuredCause, significance: str) -> Culprit:
        cause, placed = measured.cause, place_of(self._pair, self._examined, measured.cause)
        errors = errors_of(cause, self._examined)
        local, rule = judged_alone(cause, self._examined, errors, self._effects)
        # If the joint effect of a site's blocks is available, use it as the site's effect.
        together = [net[0] for site in cause.sites if (net := self._effects.get(site)) and net[0] is not None]
        if together and not errors:
            errors = dict(max(together, key=lambda effect: (bool(effect.errors), effect.roundings)).errors)
        alone = [self._examined[block] for block in cause.blocks if block in self._examined]
        results: Sequence[NetEffect | Examined] = together or alone
        largest = max((result.largest for result in results), default=0.0)
        roundings = max((result.roundings for result in results), default=0.0)
        proof = self._proof(measured, significance)
        # A cause that is wrong by itself is wrong however noisy the step is. A cause that others cancel is not wrong.
        if local in WRONG[:2] and not _takes_part(measured, self._proofs.whole):
            local, rule = None, ""
        elif local in WRONG[:2] and proof.holds:
            significance = "beyond-rounding"
        return replace(
            placed,
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
        """Return each side's kernel, shared by all sites of the cause; None if the cause is not a different kernel."""
        if cause.kind not in (KERNEL, ORDER):
            return None
        leads = [self._pair.blocks[site.lead] for site in cause.sites]
        return {side: self._kernel(side, [number for block in leads for number in block.of(side)]) for side in SIDES}

    def _beside(self, cause: Cause) -> list[str]:
        """Return further ops of the reference that have different kernels in this cause, but lead none of its sites.

        An example is a backward that is joined with its forward, because in the compiled graph it reads values that
        only the forward's own code computes.
        """
        if cause.kind not in (KERNEL, LAYOUT):
            return []
        others = [
            number
            for number in flagged(self._examined, cause.blocks)
            if self._examined[number].suspect.kind in (KERNEL, LAYOUT)
            and self._pair.blocks[number].paired
            and not only_puts(self._pair, number)
        ]
        names = dict.fromkeys(name for number in others for name in self._pair.names(number, "a"))
        return [name for name in names if name not in cause.ops["a"]]

    def _places(self, cause: Cause) -> list[str]:
        """Return the modules in which the cause acts, or the parameters for an optimizer, each once."""
        places: dict[str, None] = {}
        others = sorted(block for block in cause.blocks if block in self._examined)
        for block in (*(site.lead for site in cause.sites), *others):
            for node in self._pair.all_nodes(block):
                # an optimizer's op on a list of tensors concerns many parameters
                places |= dict.fromkeys(node.call.owners if node.call.module is None else (node.call.module,))
        return list(places)[:MOST_PLACES]

    def _phases(self, cause: Cause) -> list[str] | None:
        """Return the phases of the step in which calls of the cause differ.

        Return None for a single phase, and for a rewritten op, because autograd derives the backward of such an op.
        """
        if cause.kind == STRUCTURE:
            return None
        phases = {self._pair.phase(block) for block in flagged(self._examined, cause.blocks)}
        return sorted(phases, key=PHASES.index) if len(phases) > 1 else None

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
            swapped_with=measured.beside or None,
        )


def _takes_part(measured: MeasuredCause, whole: Drift) -> bool:
    """Check whether a cause alone creates at most twice the whole drift. Each of two causes that cancel each other
    creates more."""
    amounts = [drift.amount for drift in (measured.swapped_in, measured.swapped_out) if drift is not None]
    return all(amount <= 2 * whole.amount for amount in amounts)


def place_of(pair: TapePair, examined: Mapping[int, Examined], cause: Cause) -> Culprit:
    """Describe a cause by its kind and place, as a culprit without proof."""
    # The block with the largest error leads, and the standalone script shows this block. If only data differ, no
    # block leads.
    tested = [site.lead for site in cause.sites if examined[site.lead].differs]
    first = cause.sites[0].lead if cause.sites else None
    lead = max(tested, key=lambda number: _largest(examined[number]), default=first)
    nodes = computing(pair.all_nodes(lead)) if lead is not None else []
    reader = examined[lead].suspect.reader if lead is not None and cause.kind == ORDER else None
    nodes = [reader] if reader is not None else nodes
    node, op = nodes[0] if nodes else None, None
    # the place of an input of the step is its first reader
    readers = [op_node for value in cause.inputs if not nodes and (op_node := first_reader(pair, value)) is not None]
    frames = next((op_node.call.frames for op_node in (*nodes, *readers) if op_node.call.frames), ())
    if node is not None:
        # a repeated op has the name that its mode uses
        names = (
            cause.ops["b"]
            if any(reason.startswith((AGAIN, REDRAWN)) for reason in cause.reasons)
            else cause.ops["a"] or cause.ops["b"]
        )
        paired = pair.blocks[cause.sites[0].lead].paired or reader is not None
        compiled = None if reader is None else reader.call.compiled
        namespace = (node.call.op if compiled is None else compiled.origin).split(".")[0]
        led = pair.all_nodes(cause.sites[0].lead)
        copies = {led_node.call.name for led_node in led} - {led_node.call.name for led_node in computing(led)}
        named = next((name for name in names if name not in copies), names[0])
        op = f"{namespace}.{op_name(node) if paired else named}"
    culprit = Culprit(
        kind=cause.kind,
        phase=cause.phase,
        module=next((name for op_node in nodes if (name := _module(op_node)) is not None), None),
        op=op,
        step=pair.flows["a"].tape.step,
        source=line_of(frames[0]) if frames else None,
        frames=frames,
        lead=lead,
        layouts=[
            ArgumentLayouts(
                relaid.number,
                relaid.name,
                look={side: look_at(relaid.lies[side]) for side in SIDES},
                stride={side: relaid.lies[side].stride for side in SIDES},
                start={side: relaid.lies[side].start for side in SIDES},
            )
            for relaid in (examined[first].relaid if first is not None else ())
        ],
    )
    return culprit if cause.setting is None else named_by(culprit, cause.setting.difference, cause.setting.what)


def _module(node: FlowNode) -> str | None:
    return node.call.module if node.call.module is not None else ", ".join(node.call.owners) or None


def _largest(examined: Examined) -> float:
    errors: Sequence[LocalError] = list((examined.errors or {}).values())
    return max((error.ulp for error in errors), default=examined.largest)


def _score(drift: Drift | None) -> float | None:
    return None if drift is None else drift.score
