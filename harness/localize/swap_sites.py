"""Sites: the smallest sets of blocks that can be taken from either side, and their causes.

Blocks belong together when one reads what the other makes and no value of the other side stands for that,
when a backward op belongs to the very forward op that is another one, and when they draw random numbers.
Sites that look alike (the same ops, the same difference, in the same phase) have one cause: a kernel that is
another one everywhere is one cause, not fifty.

With `recorded_step` of the tape's example, and another factor on side b: the products of the forward and of
its backward, blocks 0 and 3, go together, and are one cause.

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

from ..records.culprit import AGAIN
from ..tape.replay import bits_of
from ..tape.storages import viewed
from ..tape.tape import Phase
from ..torch_private.operators import view_behind
from .examination import Examined
from .hybrid import END, TapePair
from .setting_difference import SettingDifference
from .storage_flow import SIDES, FlowNode, FlowValue, Side, other
from .suspects import CASTS, READ, UNROUNDED, Kind, names_of

DOMINATES = 64.0
"""A kernel whose results differ by so many times more, relatively, is the one that a site is named by."""

PHASES: tuple[Phase, ...] = ("data", "forward", "backward", "optimizer")


@dataclass(frozen=True, slots=True)
class SwapSite:
    """Blocks that go together; `lead` names the site: the first of them that differs, or where that is a kernel,
    another one that does so by far more."""

    blocks: frozenset[int]
    lead: int

    @property
    def is_several(self) -> bool:
        return len(self.blocks) > 1


@dataclass(frozen=True, slots=True)
class SettingReason:
    """A setting that makes blocks others, and `what` differs by it, in words."""

    difference: SettingDifference
    what: str


@dataclass(frozen=True, slots=True)
class Cause:
    """Sites that look alike. `ops` are each side's, of the leads; of one that a `setting` makes, of all its blocks."""

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
        # each visit halves the way to the root
        while self._parent[member] != member:
            self._parent[member] = self._parent[self._parent[member]]
            member = self._parent[member]
        return member

    def join(self, one: int, other: int) -> None:
        low, high = sorted((self.find(one), self.find(other)))
        self._parent[high] = low

    def members(self) -> list[list[int]]:
        found: dict[int, list[int]] = {}
        for member in sorted(self._parent):
            found.setdefault(self.find(member), []).append(member)
        return list(found.values())


def sites_of(pair: TapePair, examined: Mapping[int, Examined], overridden: Collection[int] = ()) -> list[SwapSite]:
    """The sites of all blocks that differ, or that cannot be told to be equal. In the blocks `overridden` an eager mode
    has other kernels than torch."""
    flagged = sorted(number for number, one in examined.items() if one.differs is not False)
    groups = Groups(range(len(pair.blocks)))
    # A block goes with those that read what only its own side knows.
    for side in SIDES:
        for value, blocks in pair.readers[side].items():
            maker = pair.maker(side, value)
            if maker >= 0 and value not in pair.links.of[side]:
                for reader in blocks - {END}:
                    groups.join(maker, reader)
    # One that gives the very bits of other blocks goes with those: once they are of the other side it does not.
    for number, one in examined.items():
        if one.differs is not False:
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
    # All that draw random numbers go together: one draw moves the generator of all that follow.
    drawing = [number for number in flagged if examined[number].suspect.kind == "setup"]
    for number in drawing[1:]:
        groups.join(drawing[0], number)
    sites = []
    for members in groups.members():
        differing = [one for one in members if one in examined and examined[one].differs is not False]
        if not differing:
            continue
        lead = differing[0]
        # A kernel that is off by rounding does not name one that is wrong, with which it goes only because both are
        # parts of one op: the tanh that a compiled backward executes once more, and its tanh_backward.
        kernels = [one for one in differing if examined[one].suspect.kind in ("kernel", "layout")]
        if lead in kernels:
            worst = max(kernels, key=lambda one: examined[one].largest)
            lead = worst if examined[worst].largest > DOMINATES * examined[lead].largest else lead
            # Where none of them can be tested alone, one that torch does not have of its own is what is other here.
            if examined[lead].differs is None:
                lead = next((one for one in kernels if one in overridden), lead)
            # Nor does a kernel name what the script says otherwise beside it, if it cannot be seen to be the larger.
            limit = DOMINATES * examined[lead].largest
            # What only puts values elsewhere, as a compiled graph its new running statistics, computes nothing.
            told = [one for one in differing if one not in kernels and not only_puts(pair, one)]
            near = [one for one in told if phase_of(pair, one) == phase_of(pair, lead)]
            near = [one for one in near if examined[one].is_entangled or examined[one].largest > limit]
            far = [one for one in told if 0 < limit < examined[one].largest]
            if lead not in overridden and is_no_more_than_rounding(examined[lead]):
                lead = next(iter((*near, *far)), lead)
        sites.append(SwapSite(frozenset(members), lead))
    return sites


def only_puts(pair: TapePair, number: int) -> bool:
    return {*names_of(pair, number, "a"), *names_of(pair, number, "b")} <= {"copy_"}


def _join_again(pair: TapePair, examined: Mapping[int, Examined], flagged: Sequence[int], groups: Groups) -> None:
    """Join what has drawn once more, as it was executed again, to all that read what it gave then, and what was made of
    that: the backward of such a dropout is of another mask, and of the other side there is none."""
    acting = {one for one in flagged if any(why.startswith(AGAIN) for why in examined[one].suspect.reasons)}
    for side in SIDES if acting else ():
        flow = pair.flows[side]
        again: dict[FlowValue, int] = {}
        for number, node in enumerate(flow.nodes):
            home = pair.home[side][number]
            read = [again[use.value] for use in node.reads if use.value in again]
            for block in read:
                groups.join(block, home)
            is_again = node.call.repeats is not None
            if home in acting and is_again and node.call.draw is not None:
                again |= {use.value: home for use in node.made}
            elif read and (is_again or view_behind(node.execution.operation) is not None):
                again |= {use.value: read[0] for use in node.made}


def is_no_more_than_rounding(kernel: Examined) -> bool:
    """Whether a kernel's results are off by roundings, as far as is known, or by those that its graph leaves out."""
    unrounded = any(reason.startswith(UNROUNDED) for reason in kernel.suspect.reasons)
    return unrounded or kernel.roundings <= DOMINATES


def _join_casts(pair: TapePair, examined: Mapping[int, Examined], groups: Groups) -> None:
    """Join a cast that one side alone has to what takes other digits for it: one that takes the cast's own is no other
    without it."""
    casts = {number for number, one in examined.items() if one.suspect.kind == "structure"}
    casts = {one for one in casts if CASTS.issuperset((*names_of(pair, one, "a"), *names_of(pair, one, "b")))}
    for number, one in examined.items():
        if one.suspect.kind == "arguments":
            for side in SIDES:
                makers = {pair.maker(side, use.value) for node in _nodes(pair, number, side) for use in node.reads}
                for maker in makers & casts:
                    groups.join(maker, number)


def _join_backward(pair: TapePair, examined: Mapping[int, Examined], flagged: Sequence[int], groups: Groups) -> None:
    """Join backward ops that are others to the forward ops that are others and made them."""
    for side in SIDES:
        made: dict[int, int] = {}  # by autograd's sequence number, which an op shares with its backward
        for number in flagged:
            if examined[number].suspect.kind not in ("structure", "arguments"):
                continue
            for node in _nodes(pair, number, side):
                sequence = node.call.sequence
                if sequence is None:
                    continue
                if node.call.phase == "forward":
                    made.setdefault(sequence, number)
                elif node.call.phase == "backward" and sequence in made:
                    groups.join(made[sequence], number)


def _join_structures(pair: TapePair, examined: Mapping[int, Examined], flagged: Sequence[int], groups: Groups) -> None:
    structural = [number for number in flagged if examined[number].suspect.kind == "structure"]
    # An op that only the reference executes goes with the same op that only the other mode executes, in one place.
    gone: dict[object, list[int]] = {}
    for number in structural:
        sides = [side for side in SIDES if pair.blocks[number].of(side)]
        if len(sides) != 1:
            continue
        look = (tuple(names_of(pair, number, sides[0])), phase_of(pair, number), module_of(pair, number))
        waiting = gone.setdefault((look, other(sides[0])), [])
        if waiting:
            groups.join(waiting.pop(0), number)
        else:
            gone.setdefault((look, sides[0]), []).append(number)
    # A backward that takes its gradients from elsewhere goes with the rewritten forward of its module that made it so.
    forward = [number for number in structural if phase_of(pair, number) == "forward"]
    for number in structural:
        if phase_of(pair, number) != "backward":
            continue
        # One module is, or is part of, the other; the outermost one, "", has all parts and is no sign of anything.
        own, near = module_of(pair, number), []
        for one in forward:
            shorter, longer = sorted((module_of(pair, one) or "", own or ""), key=len)
            within = bool(shorter) and longer.startswith(f"{shorter}.")
            if module_of(pair, one) == own or within:
                near.append(one)
        # Without one it goes with the only rewritten forward if it does no more than autograd itself does, which adds
        # gradients up: other ops are the script's.
        names = {name for side in SIDES for name in names_of(pair, number, side)}
        lone = len({groups.find(one) for one in forward}) == 1 and (pair.blocks[number].is_pair or names <= {"add"})
        chosen = near or (forward if lone else [])
        if chosen:
            groups.join(chosen[0], number)


def module_of(pair: TapePair, number: int) -> str | None:
    return next(node.call.module for side in SIDES for node in _nodes(pair, number, side))


def _nodes(pair: TapePair, number: int, side: Side) -> list[FlowNode]:
    return [pair.flows[side].nodes[node] for node in pair.blocks[number].of(side)]


def causes_of(pair: TapePair, examined: Mapping[int, Examined], sites: Iterable[SwapSite]) -> list[Cause]:
    """Group the sites by what they look like, in the order of the step."""
    found: dict[object, Cause] = {}
    alike: dict[object, list[SwapSite]] = {}
    for site in sites:
        suspect = examined[site.lead].suspect
        phase = phase_of(pair, site.lead)
        ops = {side: tuple(names_of(pair, site.lead, side)) for side in SIDES}
        # The reasons of a structure say no more than its ops do.
        look: object = (suspect.kind, phase, *ops.values(), suspect.reasons if suspect.kind != "structure" else ())
        if suspect.kind == "arguments" and not any(one in READ or one.startswith("shape ") for one in suspect.reasons):
            # One wrong number, wherever it is told: to the ops of a forward, to those of its backward as well.
            look = (suspect.kind, phase == "optimizer", op_of_both(ops["a"]), op_of_both(ops["b"]), suspect.reasons)
        # Kernels of which none can be tested without the others: the lead names them, and may be innocent.
        untold = [one for one in sorted(site.blocks - {site.lead}) if one in examined and examined[one].differs is None]
        untold = [one for one in untold if examined[one].suspect.kind == "kernel" == suspect.kind]
        reasons = suspect.reasons
        if untold and examined[site.lead].differs is None:
            others = dict.fromkeys(name for one in untold for name in names_of(pair, one, "a"))
            reasons += (f"cannot be told from {', '.join(others)}, with which it goes in one graph",)
        found.setdefault(look, Cause(suspect.kind, phase, ops, reasons, ()))
        alike.setdefault(look, []).append(site)
    return [replace(cause, sites=tuple(alike[look])) for look, cause in found.items()]


def joined_causes(causes: Sequence[Cause], reasons: tuple[str, ...]) -> Cause:
    """Several causes as the one that they are."""
    ops = {side: tuple(dict.fromkeys(op for one in causes for op in one.ops[side])) for side in SIDES}
    return replace(causes[0], ops=ops, reasons=reasons, sites=tuple(site for one in causes for site in one.sites))


def op_of_both(ops: Sequence[str]) -> tuple[str, ...]:
    """The ops, of a backward those whose backward they are: ("gelu",) of `gelu_backward`."""
    return tuple(re.sub(r"_backward(_data)?$", "", one) for one in ops)


def phase_of(pair: TapePair, number: int) -> Phase:
    return next(node.call.phase for side in SIDES for node in _nodes(pair, number, side))


def differing_inputs(pair: TapePair) -> list[FlowValue]:
    """What both sides start from and is not the same, by side a's value."""
    found = []
    for value, link in pair.links.of["a"].items():
        mine = pair.flows["a"].tape.inputs.get(value.slot) if value.version == 0 else None
        theirs = pair.flows["b"].tape.inputs.get(link.value.slot) if link.value.version == 0 else None
        if mine is None or theirs is None or pair.maker("a", value) >= 0:
            continue
        flows = pair.flows
        if flows["a"].is_whole(link.mine, value) and flows["b"].is_whole(link.theirs, link.value):
            # one of them may be a part of a storage of which the step sees nothing else
            mine = bits_of(viewed(mine.untyped_storage(), link.mine))
            theirs = bits_of(viewed(theirs.untyped_storage(), link.theirs))
        if mine.numel() != theirs.numel() or not bool((mine == theirs).all()):
            found.append(value)
    return found
