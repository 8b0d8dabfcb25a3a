"""Sites: the smallest sets of blocks that can be taken from either side, and their causes.

Blocks belong to one site if one reads a value of the other that has no counterpart on the other side, if one is the
backward of a forward op that differs, or if they draw random numbers. Sites that look alike (the same ops, the same
difference, the same phase) have one cause: a kernel that differs everywhere is one cause, not fifty.

With `recorded_step` of the tape's example, and another factor on side b: the products of the forward and of its
backward, blocks 0 and 3, are one site with one cause.

    >>> pair = paired(*(flow_of(recorded_step(lambda weight: factor * weight)) for factor in (3.0, 3.5)))
    >>> examined = examine(pair, suspects(pair))
    >>> sites = sites_of(pair, examined)
    >>> [(sorted(site.blocks), site.lead) for site in sites]
    [([0, 3], 0)]
    >>> [(cause.kind, cause.ops["a"], cause.reasons) for cause in causes_of(pair, examined, sites)]
    [('arguments', ('mul',), ('3 against 3.5',))]
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from ...records.results.culprit import AGAIN
from ...tape.replaying.replay import bits_of
from ...tape.storages import viewed
from ...tape.tape import Phase
from ...torch_private.operators import view_behind
from ..align.storage_flow import SIDES, FlowNode, FlowValue, Side, other
from ..execute.hybrid import END, TapePair
from .examination import Examined
from .setting_difference import SettingDifference
from .suspects import CASTS, READ, UNROUNDED, Kind, names_of

DOMINATES = 64.0
"""The factor by which a kernel's results must differ more than others, relatively, for its site to be named after
it."""

PHASES: tuple[Phase, ...] = ("data", "forward", "backward", "optimizer")


@dataclass(frozen=True, slots=True)
class SwapSite:
    """Blocks that can only be swapped together.

    The site is named after its block `lead`. This is the first one that differs, or, if that is a kernel, another one
    that differs by far more.
    """

    blocks: frozenset[int]
    lead: int

    @property
    def is_several(self) -> bool:
        return len(self.blocks) > 1


@dataclass(frozen=True, slots=True)
class SettingReason:
    """A setting that makes blocks differ; `what` names the calls that differ because of it."""

    difference: SettingDifference
    what: str


@dataclass(frozen=True, slots=True)
class Cause:
    """Sites that look alike.

    ops: by side, the ops of the leads; for a cause with a `setting`, the ops of all its blocks.
    inputs: the inputs of the step that differ, by side a's value.
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


class Groups:
    """Numbers that are joined into groups."""

    def __init__(self, members: Iterable[int]) -> None:
        self._parent = {member: member for member in members}

    def find(self, member: int) -> int:
        # each visit halves the path to the root
        while self._parent[member] != member:
            self._parent[member] = self._parent[self._parent[member]]
            member = self._parent[member]
        return member

    def join(self, first: int, second: int) -> None:
        low, high = sorted((self.find(first), self.find(second)))
        self._parent[high] = low

    def members(self) -> list[list[int]]:
        by_root: dict[int, list[int]] = {}
        for member in sorted(self._parent):
            by_root.setdefault(self.find(member), []).append(member)
        return list(by_root.values())


def sites_of(pair: TapePair, examined: Mapping[int, Examined], overridden: Collection[int] = ()) -> list[SwapSite]:
    """Return the sites of all blocks that differ or cannot be shown to be equal.

    `overridden` are the blocks in which an eager mode has other kernels than torch's.
    """
    flagged = sorted(number for number, block in examined.items() if block.differs is not False)
    groups = Groups(range(len(pair.blocks)))
    # Join a block to the readers of its values that have no counterpart on the other side.
    for side in SIDES:
        for value, blocks in pair.readers[side].items():
            maker = pair.maker(side, value)
            if maker >= 0 and value not in pair.links.of[side]:
                for reader in blocks - {END}:
                    groups.join(maker, reader)
    # Join a block that repeats the bits of other blocks to those: it may not repeat them once they are swapped.
    for number, block in examined.items():
        if block.differs is not False:
            continue
        for side in SIDES:
            for node in _nodes(pair, number, side):
                stand = [pair.links.of[side].get(use.value) for use in node.made]
                makers = {pair.maker(other(side), link.value) for link in stand if link is not None}
                if number in pair.own_reads:
                    makers |= {pair.maker(side, use.value) for use in node.reads}
                for maker in makers - {-1, number}:
                    groups.join(number, maker)
    _join_again(pair, examined, flagged, groups)
    _join_casts(pair, examined, groups)
    _join_backward(pair, examined, flagged, groups)
    _join_structures(pair, examined, flagged, groups)
    # Join all blocks that draw random numbers: each draw changes the generator's state for all later ones.
    drawing = [number for number in flagged if examined[number].suspect.kind == "setup"]
    for number in drawing[1:]:
        groups.join(drawing[0], number)
    sites = []
    for members in groups.members():
        differing = [member for member in members if member in examined and examined[member].differs is not False]
        if not differing:
            continue
        lead = differing[0]
        # A kernel that is off by rounding does not name a site that contains a wrong kernel. The two may be joined just
        # because they are parts of one op: the tanh that a compiled backward repeats, and its tanh_backward.
        kernels = [member for member in differing if examined[member].suspect.kind in ("kernel", "layout")]
        if lead in kernels:
            worst = max(kernels, key=lambda member: examined[member].largest)
            lead = worst if examined[worst].largest > DOMINATES * examined[lead].largest else lead
            # If none of them can be tested alone, the site is named after a kernel that is not torch's.
            if examined[lead].differs is None:
                lead = next((member for member in kernels if member in overridden), lead)
            # Nor does a kernel name a site in which the script differs as well, unless the kernel's effect is larger.
            limit = DOMINATES * examined[lead].largest
            # A block that only copies values computes nothing, such as the one that stores new running statistics in a
            # compiled graph.
            stated = [member for member in differing if member not in kernels and not only_puts(pair, member)]
            nearby = [member for member in stated if phase_of(pair, member) == phase_of(pair, lead)]
            nearby = [member for member in nearby if examined[member].is_entangled or examined[member].largest > limit]
            distant = [member for member in stated if 0 < limit < examined[member].largest]
            if lead not in overridden and is_no_more_than_rounding(examined[lead]):
                lead = next(iter((*nearby, *distant)), lead)
        sites.append(SwapSite(frozenset(members), lead))
    return sites


def only_puts(pair: TapePair, number: int) -> bool:
    return {*names_of(pair, number, "a"), *names_of(pair, number, "b")} <= {"copy_"}


def _join_again(pair: TapePair, examined: Mapping[int, Examined], flagged: Sequence[int], groups: Groups) -> None:
    """Join a block whose repeated call drew random numbers again to all readers of the repeated values.

    Values made from these by repeated calls and views count as well. The backward of such a dropout uses another mask,
    which has no counterpart on the other side.
    """
    acting = {member for member in flagged if any(why.startswith(AGAIN) for why in examined[member].suspect.reasons)}
    for side in SIDES if acting else ():
        flow = pair.flows[side]
        repeated: dict[FlowValue, int] = {}
        for number, node in enumerate(flow.nodes):
            home = pair.home[side][number]
            read = [repeated[use.value] for use in node.reads if use.value in repeated]
            for block in read:
                groups.join(block, home)
            is_again = node.call.repeats is not None
            if home in acting and is_again and node.call.draw is not None:
                repeated |= {use.value: home for use in node.made}
            elif read and (is_again or view_behind(node.execution.operation) is not None):
                repeated |= {use.value: read[0] for use in node.made}


def is_no_more_than_rounding(kernel: Examined) -> bool:
    """Check whether a kernel's results differ by no more than rounding, or by roundings that its graph omits."""
    unrounded = any(reason.startswith(UNROUNDED) for reason in kernel.suspect.reasons)
    return unrounded or kernel.roundings <= DOMINATES


def _join_casts(pair: TapePair, examined: Mapping[int, Examined], groups: Groups) -> None:
    """Join a cast that only one side has to the calls whose arguments differ and that read its result.

    Without the cast these calls do not differ.
    """
    casts = {number for number, block in examined.items() if block.suspect.kind == "structure"}
    casts = {cast for cast in casts if CASTS.issuperset((*names_of(pair, cast, "a"), *names_of(pair, cast, "b")))}
    for number, block in examined.items():
        if block.suspect.kind == "arguments":
            for side in SIDES:
                makers = {pair.maker(side, use.value) for node in _nodes(pair, number, side) for use in node.reads}
                for maker in makers & casts:
                    groups.join(maker, number)


def _join_backward(pair: TapePair, examined: Mapping[int, Examined], flagged: Sequence[int], groups: Groups) -> None:
    """Join each differing backward op to its forward op, if that differs as well."""
    for side in SIDES:
        forwards: dict[int, int] = {}  # by autograd's sequence number, which an op shares with its backward
        for number in flagged:
            if examined[number].suspect.kind not in ("structure", "arguments"):
                continue
            for node in _nodes(pair, number, side):
                sequence = node.call.sequence
                if sequence is None:
                    continue
                if node.call.phase == "forward":
                    forwards.setdefault(sequence, number)
                elif node.call.phase == "backward" and sequence in forwards:
                    groups.join(forwards[sequence], number)


def _join_structures(pair: TapePair, examined: Mapping[int, Examined], flagged: Sequence[int], groups: Groups) -> None:
    structural = [number for number in flagged if examined[number].suspect.kind == "structure"]
    # Join an op that only the reference executes to the same op, in the same module, that only the other mode executes.
    unmatched: dict[object, list[int]] = {}
    for number in structural:
        sides = [side for side in SIDES if pair.blocks[number].of(side)]
        if len(sides) != 1:
            continue
        look = (tuple(names_of(pair, number, sides[0])), phase_of(pair, number), module_of(pair, number))
        waiting = unmatched.setdefault((look, other(sides[0])), [])
        if waiting:
            groups.join(waiting.pop(0), number)
        else:
            unmatched.setdefault((look, sides[0]), []).append(number)
    # Join a backward that takes its gradients from elsewhere to its module's rewritten forward, which is the reason.
    forward = [number for number in structural if phase_of(pair, number) == "forward"]
    for number in structural:
        if phase_of(pair, number) != "backward":
            continue
        # Either the modules are the same or one contains the other. The outermost one, "", contains all modules, so it
        # shows nothing.
        module, related = module_of(pair, number), []
        for rewritten in forward:
            shorter, longer = sorted((module_of(pair, rewritten) or "", module or ""), key=len)
            is_within = bool(shorter) and longer.startswith(f"{shorter}.")
            if module_of(pair, rewritten) == module or is_within:
                related.append(rewritten)
        # Without such a forward, join the only rewritten one if the backward does no more than autograd, which adds
        # gradients. Other ops come from the script.
        names = {name for side in SIDES for name in names_of(pair, number, side)}
        lone = len({groups.find(rewritten) for rewritten in forward}) == 1 and (
            pair.blocks[number].is_pair or names <= {"add"}
        )
        chosen = related or (forward if lone else [])
        if chosen:
            groups.join(chosen[0], number)


def module_of(pair: TapePair, number: int) -> str | None:
    return next(node.call.module for side in SIDES for node in _nodes(pair, number, side))


def _nodes(pair: TapePair, number: int, side: Side) -> list[FlowNode]:
    return [pair.flows[side].nodes[node] for node in pair.blocks[number].of(side)]


def causes_of(pair: TapePair, examined: Mapping[int, Examined], sites: Iterable[SwapSite]) -> list[Cause]:
    """Return the causes: sites grouped by kind, phase, ops and reasons, in the order of the step."""
    causes: dict[object, Cause] = {}
    sites_of_look: dict[object, list[SwapSite]] = {}
    for site in sites:
        suspect = examined[site.lead].suspect
        phase = phase_of(pair, site.lead)
        ops = {side: tuple(names_of(pair, site.lead, side)) for side in SIDES}
        # The reasons of a structure add nothing to its ops.
        look: object = (suspect.kind, phase, *ops.values(), suspect.reasons if suspect.kind != "structure" else ())
        if suspect.kind == "arguments" and not any(
            reason in READ or reason.startswith("shape ") for reason in suspect.reasons
        ):
            # One wrong number is one cause in all ops that receive it: those of a forward and of its backward.
            look = (suspect.kind, phase == "optimizer", op_of_both(ops["a"]), op_of_both(ops["b"]), suspect.reasons)
        # None of these kernels can be tested without the others: they are named after the lead, which may be innocent.
        untold = [
            number
            for number in sorted(site.blocks - {site.lead})
            if number in examined and examined[number].differs is None
        ]
        untold = [number for number in untold if examined[number].suspect.kind == "kernel" == suspect.kind]
        reasons = suspect.reasons
        if untold and examined[site.lead].differs is None:
            names = dict.fromkeys(name for number in untold for name in names_of(pair, number, "a"))
            reasons += (f"cannot be told from {', '.join(names)}, with which it goes in one graph",)
        causes.setdefault(look, Cause(suspect.kind, phase, ops, reasons, ()))
        sites_of_look.setdefault(look, []).append(site)
    return [replace(cause, sites=tuple(sites_of_look[look])) for look, cause in causes.items()]


def joined_causes(causes: Sequence[Cause], reasons: tuple[str, ...]) -> Cause:
    """Join several causes into one."""
    ops = {side: tuple(dict.fromkeys(op for cause in causes for op in cause.ops[side])) for side in SIDES}
    return replace(causes[0], ops=ops, reasons=reasons, sites=tuple(site for cause in causes for site in cause.sites))


def op_of_both(ops: Sequence[str]) -> tuple[str, ...]:
    """Return the ops, with a backward op replaced by its forward op: `gelu_backward` by `gelu`."""
    return tuple(re.sub(r"_backward(_data)?$", "", op) for op in ops)


def phase_of(pair: TapePair, number: int) -> Phase:
    return next(node.call.phase for side in SIDES for node in _nodes(pair, number, side))


def differing_inputs(pair: TapePair) -> list[FlowValue]:
    """Return the inputs of the step that differ between the sides, by side a's value."""
    differing = []
    flows = pair.flows
    for value, link in pair.links.of["a"].items():
        bytes_a, bytes_b = flows["a"].input_bytes(value), flows["b"].input_bytes(link.value)
        if bytes_a is None or bytes_b is None or pair.maker("a", value) >= 0:
            continue
        if flows["a"].is_whole(link.own_view, value) and flows["b"].is_whole(link.far_view, link.value):
            # one of them may be a part of a larger storage that the step does not read otherwise
            bytes_a = bits_of(viewed(bytes_a.untyped_storage(), link.own_view))
            bytes_b = bits_of(viewed(bytes_b.untyped_storage(), link.far_view))
        if bytes_a.numel() != bytes_b.numel() or not bool((bytes_a == bytes_b).all()):
            differing.append(value)
    return differing
