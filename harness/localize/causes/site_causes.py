"""Causes: sites that look alike.

Sites with the same ops, the same difference and the same phase have one cause: a kernel that differs everywhere is one
cause, not fifty.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ...records.results.culprit import AGAIN
from ...tape.replaying.replay import bits_of
from ...tape.storages import viewed
from ...tape.tape import Phase
from ..align.op_units import state_slots
from ..align.storage_flow import SIDES, FlowValue, Side
from ..execute.layout_words import both_in_words, looks_of
from ..execute.tape_pair import TapePair
from .examination import Examined, flagged
from .setting_difference import SettingDifference
from .suspects import READ, Kind
from .swap_sites import SwapSite

ROUNDINGS_UNKNOWN = 64.0
"""More than a kernel that only rounds differently moves its results by, and less than most faults do."""

PHASES: tuple[Phase, ...] = ("data", "forward", "backward", "optimizer")


@dataclass(frozen=True, slots=True)
class SettingReason:
    """A setting that makes blocks differ; `what` names the calls that differ because of the setting."""

    difference: SettingDifference
    what: str


@dataclass(frozen=True, slots=True)
class Cause:
    """Sites that look alike.

    ops: by side, the ops of the sites' leads; for a cause with a `setting`, the ops of all its blocks.
    inputs: the inputs of the step that differ, as side a's values.
    setting: the setting that makes the blocks differ, if there is one.
    """

    kind: Kind
    phase: Phase
    ops: Mapping[Side, tuple[str, ...]]
    reasons: tuple[str, ...]
    sites: tuple[SwapSite, ...]
    inputs: tuple[FlowValue, ...] = ()
    setting: SettingReason | None = None

    @property
    def blocks(self) -> frozenset[int]:
        return frozenset(block for site in self.sites for block in site.blocks)


def causes_of(pair: TapePair, examined: Mapping[int, Examined], sites: Iterable[SwapSite]) -> list[Cause]:
    """Return the causes: sites grouped by kind, phase, ops and reasons, in the order of the step."""
    causes: dict[object, Cause] = {}
    for site in sites:
        suspect, phase = examined[site.lead].suspect, pair.phase(site.lead)
        ops = {side: tuple(pair.names(site.lead, side)) for side in SIDES}
        # For the kind `structure`, the reasons add nothing to the ops.
        look: object = (suspect.kind, phase, *ops.values(), suspect.reasons if suspect.kind != "structure" else ())
        if suspect.kind == "arguments" and not any(
            reason in READ or reason.startswith("shape ") for reason in suspect.reasons
        ):
            # A wrong number is one cause, whichever ops receive it: the forward op and its backward count as one op.
            look = (suspect.kind, phase == "optimizer", op_of_both(ops["a"]), op_of_both(ops["b"]), suspect.reasons)
        if look in causes:
            causes[look] = replace(causes[look], sites=(*causes[look].sites, site))
        else:
            reasons = (
                *suspect.reasons,
                *_not_tested_apart(pair, examined, site),
                *_again_as_well(pair, examined, site),
            )
            causes[look] = Cause(suspect.kind, phase, ops, reasons, (site,))
    return list(causes.values())


def _not_tested_apart(pair: TapePair, examined: Mapping[int, Examined], site: SwapSite) -> tuple[str, ...]:
    """Name the kernels that cannot be tested without the site's lead. Any of them may be at fault instead."""
    if examined[site.lead].suspect.kind != "kernel" or examined[site.lead].differs is not None:
        return ()
    entangled = [
        number
        for number in sorted(site.blocks - {site.lead})
        if number in examined and examined[number].differs is None and examined[number].suspect.kind == "kernel"
    ]
    names = dict.fromkeys(name for number in entangled for name in pair.names(number, "a"))
    return (f"cannot be distinguished from {', '.join(names)} in the same graph",) if entangled else ()


def _again_as_well(pair: TapePair, examined: Mapping[int, Examined], site: SwapSite) -> tuple[str, ...]:
    """Name the other ops of a site that draw or update a state again, if its lead is an op that a mode executes again.

    Each of them may be a cause of its own, such as a batch normalization beside a dropout.
    """
    if not any(reason.startswith(AGAIN) for reason in examined[site.lead].suspect.reasons):
        return ()
    states = {side: state_slots(pair.flows[side]) for side in SIDES}
    lead, ops = pair.all_names(site.lead), dict[str, dict[str, None]]()
    for number in flagged(examined, site.blocks - {site.lead}):
        names = pair.all_names(number)
        repeated = [
            (side, node) for side in SIDES for node in pair.nodes(number, side) if node.call.repeats is not None
        ]
        acts = any(
            node.call.draw is not None or any(use.value.slot in states[side] for use in node.made)
            for side, node in repeated
        )
        if acts and names.isdisjoint(lead):
            ops.setdefault(", ".join(sorted(names)), {})[pair.module(number) or ""] = None
    where = [
        f"{op}{' in ' if any(modules) else ''}{', '.join(module for module in modules if module)}"
        for op, modules in ops.items()
    ]
    return (f"also {AGAIN}: {'; '.join(where)}",) if where else ()


def joined_causes(causes: Sequence[Cause], reasons: tuple[str, ...]) -> Cause:
    """Join several causes into one."""
    ops = {side: tuple(dict.fromkeys(op for cause in causes for op in cause.ops[side])) for side in SIDES}
    return replace(causes[0], ops=ops, reasons=reasons, sites=tuple(site for cause in causes for site in cause.sites))


def farthest_move(examined: Mapping[int, Examined], cause: Cause) -> float:
    """Return by how many roundings a cause moves its own results.

    It is infinite if the inputs of the step differ, and ROUNDINGS_UNKNOWN for a block that cannot be tested alone.
    """
    blocks = [examined[number] for number in flagged(examined, cause.blocks)]
    moves = [ROUNDINGS_UNKNOWN if block.differs is None else block.roundings for block in blocks]
    return math.inf if cause.inputs else max(moves, default=0.0)


def op_of_both(ops: Sequence[str]) -> tuple[str, ...]:
    """Return the ops, with a backward op replaced by its forward op: `gelu_backward` by `gelu`."""
    return tuple(re.sub(r"_backward(_data)?$", "", op) for op in ops)


def with_layouts(causes: Sequence[Cause], examined: Mapping[int, Examined], labels: Mapping[Side, str]) -> list[Cause]:
    """Return the causes. If layouts matter to a cause, its reasons describe the layouts at its first site, with the
    modes' labels."""
    described = []
    for cause in causes:
        arguments = examined[cause.sites[0].lead].relaid if cause.sites else ()
        looks = looks_of(arguments)
        reasons = [reason for reason in cause.reasons if reason not in looks]
        reasons += [both_in_words(argument, labels) for argument in arguments]
        described.append(replace(cause, reasons=tuple(reasons)))
    return described


def differing_inputs(pair: TapePair) -> list[FlowValue]:
    """Return the inputs of the step that differ between the sides, as side a's values."""
    differing = []
    flows = pair.flows
    for value, link in pair.links.of["a"].items():
        bytes_a, bytes_b = flows["a"].input_bytes(value), flows["b"].input_bytes(link.value)
        if bytes_a is None or bytes_b is None or pair.maker("a", value) >= 0:
            continue
        if flows["a"].is_whole(link.own_view, value) and flows["b"].is_whole(link.far_view, link.value):
            # one of the two may be part of a larger storage; the step reads nothing else in that storage
            bytes_a = bits_of(viewed(bytes_a.untyped_storage(), link.own_view))
            bytes_b = bits_of(viewed(bytes_b.untyped_storage(), link.far_view))
        if bytes_a.numel() != bytes_b.numel() or not bool((bytes_a == bytes_b).all()):
            differing.append(value)
    return differing
