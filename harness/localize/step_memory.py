"""The storages of both sides while blocks of either are executed, and the way of a value from one side to the
other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import torch

from ..tape.storages import Held, HeldSlots
from ..tape.tape import NotReplayable, View
from .blocks import Block
from .storage_flow import SIDES, FlowValue, Side, StorageFlow, Use, layout_of, other
from .value_links import Link, Links

Flows = Mapping[Side, StorageFlow]
FOREVER = 1 << 60

Stand = tuple[Use, Use]
"""A view of one side, and the view of the other side that stands for it."""

Moved = Callable[[torch.Tensor, torch.dtype], torch.Tensor]
"""Gives the bytes of values of a dtype as they are to be taken."""


class Unbound(NotReplayable):
    """A call needs what nothing has made: these two blocks cannot come from different sides."""


class Memory:
    """Contents of storages by side and value. A value that its own side has not made is taken from the other,
    by its link.

    Of inputs that are linked both sides take their own, but those among `taken_from` (by side a's value) the
    one of that side.
    """

    def __init__(self, flows: Flows, links: Links, lifetimes: Lifetimes, taken_from: Mapping[FlowValue, Side]) -> None:
        self._flows = flows
        self._links = links
        self._lifetimes = lifetimes
        self._taken_from = taken_from
        self._slots = {side: HeldSlots(flows[side].tape) for side in SIDES}
        self._live: dict[tuple[Side, FlowValue], torch.UntypedStorage] = {}
        self._before: Mapping[tuple[Side, FlowValue], torch.UntypedStorage] = {}
        self._moved: Moved | None = None

    def storage(self, side: Side, value: FlowValue) -> torch.UntypedStorage:
        """The content of a value. Raises Unbound."""
        found = self._live.get((side, value))
        if found is None:
            found = self._live[side, value] = self._found(side, value)
        return found

    def tensor(self, side: Side, use: Use) -> torch.Tensor:
        return self.viewed(side, self.storage(side, use.value), use.view)

    def viewed(self, side: Side, storage: torch.UntypedStorage, view: View) -> torch.Tensor:
        """The tensor that a side's view stands for, on this storage."""
        return self._slots[side].tensor(storage, view)

    def bind(self, side: Side, use: Use, tensor: torch.Tensor) -> None:
        """Let a value be this tensor, laid out as it was recorded, whatever strides its kernel gave it."""
        self._live[side, use.value] = self._slots[side].bound(use.view, tensor)

    def put(self, side: Side, value: FlowValue, storage: torch.UntypedStorage) -> None:
        self._live[side, value] = storage

    def across(self, side: Side, views: Sequence[Stand], *, alone: bool) -> torch.UntypedStorage:
        """The other side's value in place of this one, laid out as this one is, by the views of both that stand for
        each other; what these leave out stays this one's, or is anything where one view is looked at `alone`."""
        links = [Link(mine.view, theirs.view, theirs.value) for mine, theirs in views]
        mine = views[0][0]
        is_same = all(map(is_one, links)) and len({link.value for link in links}) == 1
        if is_same or alone or self._flows[side].is_whole(mine.view, mine.value):
            return self._converted(side, mine.value, links[0], whole=True)
        made: torch.UntypedStorage = self.storage(side, mine.value).clone()
        for ours, theirs in views:
            self.viewed(side, made, ours.view).copy_(self.tensor(other(side), theirs))
        return made

    def fork(self) -> Memory:
        """The same contents; what is put into the fork is not put in here."""
        copy = Memory(self._flows, self._links, self._lifetimes, self._taken_from)
        # Contents are shared: a node that writes is given a copy (see run_node), so none of them changes.
        copy._live = dict(self._live)
        copy._slots, copy._before, copy._moved = self._slots, self._before, self._moved
        return copy

    def held_as(self, held: Held, moved: Moved | None = None) -> Memory:
        """The same contents in other dtypes, converted when they are first read; `moved` changes them before."""
        copy = Memory(self._flows, self._links, self._lifetimes, self._taken_from)
        copy._slots = {side: HeldSlots(self._flows[side].tape, held) for side in SIDES}
        copy._before, copy._moved = dict(self._live), moved
        return copy

    def block_ended(self, number: int) -> None:
        """Let go what no later block reads."""
        for key in self._lifetimes.ending.get(number, ()):
            self._live.pop(key, None)

    def _taken(self, side: Side, slot: int, data: torch.Tensor) -> torch.UntypedStorage:
        """What holds a slot's recorded content."""
        if self._moved is not None:
            data = self._moved(data, self._flows[side].tape.slots[slot].dtype)
        return self._slots[side].content(slot, data)

    def _found(self, side: Side, value: FlowValue) -> torch.UntypedStorage:
        before = self._before.get((side, value))
        if before is not None:
            whole = torch.empty(0, dtype=torch.uint8, device=before.device)
            return self._taken(side, value.slot, whole.set_(before, 0, (before.nbytes(),), (1,)))
        far = other(side)
        link = self._links.of[side].get(value)
        data = self._flows[side].tape.inputs.get(value.slot) if value.version == 0 else None
        # the other side's value is an input as well, and its content is to be taken
        from_far = link is not None and self._is_input(far, link.value)
        if data is not None:
            taken = link is not None and self._taken_from.get(value if side == "a" else link.value, side) != side
            if not (from_far and taken):
                return self._taken(side, value.slot, data)
        if link is None:
            raise Unbound(f"storage {value.slot} of side {side} is made by a block of the other side")
        # It is there, or comes from where this one does not: two values that stand for each other, neither of them
        # made, would be looked for without end.
        back = self._links.of[far].get(link.value)
        comes = from_far or (far, link.value) in self._live or (back is not None and back.value != value)
        if data is None and not comes:
            raise Unbound(f"storage {value.slot} of side {side} is made by a block of the other side")
        return self._converted(side, value, link)

    def _is_input(self, side: Side, value: FlowValue) -> bool:
        return value.version == 0 and value.slot in self._flows[side].tape.inputs

    def _converted(self, side: Side, value: FlowValue, link: Link, *, whole: bool = False) -> torch.UntypedStorage:
        far = other(side)
        theirs = self.storage(far, link.value)
        size, device = self._slots[side].size(value.slot), self._flows[side].tape.slots[value.slot].device
        if is_one(link) and size <= theirs.nbytes():
            return theirs if str(theirs.device) == device else moved_to(theirs, device)
        whole = whole or self._flows[side].is_whole(link.mine, value)
        # an expanded view shows one element more than once, and cannot be written
        overlaps = any(not step and size > 1 for size, step in zip(link.mine.size, link.mine.stride, strict=True))
        if link.mine.size != link.theirs.size or not whole or overlaps:
            raise Unbound(f"storage {value.slot} of side {side} is laid out otherwise on the other side")
        made = torch.UntypedStorage(size, device=device)
        self.viewed(side, made, link.mine).copy_(self.viewed(far, theirs, link.theirs))
        return made


def moved_to(storage: torch.UntypedStorage, device: str) -> torch.UntypedStorage:
    """Copy a storage to another device, byte by byte."""
    whole = torch.empty(0, dtype=torch.uint8, device=storage.device)
    return whole.set_(storage, 0, (storage.nbytes(),), (1,)).to(device).untyped_storage()


class Lifetimes:
    """Until which block each value may be read, its linked ones included."""

    def __init__(self, flows: Flows, links: Links, blocks: Sequence[Block]) -> None:
        last: dict[tuple[Side, FlowValue], int] = {}
        for side in SIDES:
            flow = flows[side]
            for number, block in enumerate(blocks):
                for node in block.of(side):
                    for use in (*flow.nodes[node].reads, *flow.nodes[node].made):
                        last[side, use.value] = number
            last |= {(side, use.value): FOREVER for use in (*flow.watched.values(), *flow.given.values())}
        for _ in range(3):  # a chain of links is short: y of one side, x of the other, x of the first
            for side in SIDES:
                for value, link in links.of[side].items():
                    mine, theirs = (side, value), (other(side), link.value)
                    last[theirs] = max(last.get(theirs, 0), last.get(mine, 0))
        self.ending: dict[int, list[tuple[Side, FlowValue]]] = {}
        for key, number in last.items():
            self.ending.setdefault(number, []).append(key)


def is_one(link: Link) -> bool:
    """Whether both views lie alike in their storages."""
    return link.mine.dtype == link.theirs.dtype and layout_of(link.mine) == layout_of(link.theirs)
