"""The storages of both sides during a hybrid, and the conversion of values from one side to the other."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence

import torch

from ...tape.replaying.replay import call_arguments, executed
from ...tape.storages import Held, HeldSlots
from ...tape.tape import NotReplayable, View
from ..align.blocks import Block
from ..align.links import Link, Links
from ..align.storage_flow import SIDES, FlowValue, Side, StorageFlow, Use, is_expanded, layout_of, other

Flows = Mapping[Side, StorageFlow]
FOREVER = 1 << 60

Stand = tuple[Use, Use]
"""A view of one side and the view of the other side that replaces it."""

Moved = Callable[[torch.Tensor, torch.dtype], torch.Tensor]
"""A function that takes the bytes of values of a dtype, and returns the bytes of the changed values."""


class Unbound(NotReplayable):
    """Raised if a call needs a value that nothing has made.

    In that case, two of the hybrid's blocks cannot come from different sides.
    """


class Memory:
    """The contents of storages by side and value.

    A value that its own side has not made is taken from the other side through its link, or made if it is a constant,
    such as the zeros that the backward of every layer reads. Both sides take linked inputs from side `base`, and those
    in `swapped`, which are side a's values, from the other side.
    """

    def __init__(
        self, flows: Flows, links: Links, lifetimes: Lifetimes, base: Side, swapped: Collection[FlowValue] = ()
    ) -> None:
        self._flows = flows
        self._links = links
        self._lifetimes = lifetimes
        self._base = base
        self._swapped = swapped
        self._slots = {side: HeldSlots(flows[side].tape) for side in SIDES}
        self._live: dict[tuple[Side, FlowValue], torch.UntypedStorage] = {}
        self._results: dict[tuple[Side, FlowValue], tuple[View, torch.Tensor]] = {}  # those that own their storages
        self._before: Mapping[tuple[Side, FlowValue], torch.UntypedStorage] = {}
        self._moved: Moved | None = None

    def storage(self, side: Side, value: FlowValue) -> torch.UntypedStorage:
        """Return the content of a value. Raises Unbound."""
        storage = self._live.get((side, value))
        if storage is None:
            storage = self._live[side, value] = self._found(side, value)
        return storage

    def tensor(self, side: Side, use: Use) -> torch.Tensor:
        return self.viewed(side, self.storage(side, use.value), use.view)

    def read(self, side: Side, use: Use) -> torch.Tensor:
        """Return the tensor of a view for a call that does not write to it, perhaps the same one each time."""
        result = self._results.get((side, use.value))
        return result[1] if result is not None and result[0] == use.view else self.tensor(side, use)

    def viewed(self, side: Side, storage: torch.UntypedStorage, view: View) -> torch.Tensor:
        """Return the tensor of a side's view on this storage."""
        return self._slots[side].tensor(storage, view)

    def bind(self, side: Side, use: Use, tensor: torch.Tensor) -> None:
        """Set a value to this tensor, in the recorded layout, whatever strides the kernel returned."""
        key = side, use.value
        if self._slots[side].fits(use.view, tensor):
            self._live[key], self._results[key] = tensor.untyped_storage(), (use.view, tensor)
        else:
            self.put(side, use.value, self._slots[side].bound(use.view, tensor))

    def put(self, side: Side, value: FlowValue, storage: torch.UntypedStorage) -> None:
        self._live[side, value] = storage
        self._results.pop((side, value), None)

    def across(self, side: Side, views: Sequence[Stand], *, alone: bool) -> torch.UntypedStorage:
        """Return the other side's value in the layout of this side's value, which it replaces.

        `views` are the corresponding views of both values. Elements outside of the views keep this side's contents. If
        the value is only read through a single view (`alone`), these elements are undefined.
        """
        links = [Link(own_use.view, far_use.view, far_use.value) for own_use, far_use in views]
        first_use = views[0][0]
        is_same = all(map(has_same_layout, links)) and len({link.value for link in links}) == 1
        if is_same or alone or self._flows[side].is_whole(first_use.view, first_use.value):
            return self._converted(side, first_use.value, links[0], whole=True)
        content: torch.UntypedStorage = self.storage(side, first_use.value).clone()
        for own_use, far_use in views:
            self.viewed(side, content, own_use.view).copy_(self.tensor(other(side), far_use))
        return content

    def fork(self) -> Memory:
        """Return a memory with the same contents. Changes to the copy do not affect this memory."""
        copy = Memory(self._flows, self._links, self._lifetimes, self._base, self._swapped)
        # The contents can be shared: a node writes only to copies (see run_node).
        copy._live, copy._results = dict(self._live), dict(self._results)
        copy._slots, copy._before, copy._moved = self._slots, self._before, self._moved
        return copy

    def held_as(self, held: Held, moved: Moved | None = None) -> Memory:
        """Return a memory with the same contents in other dtypes.

        Each value is converted when it is first read; `moved` changes it before the conversion.
        """
        copy = Memory(self._flows, self._links, self._lifetimes, self._base, self._swapped)
        copy._slots = {side: HeldSlots(self._flows[side].tape, held) for side in SIDES}
        copy._before, copy._moved = dict(self._live), moved
        return copy

    def block_ended(self, number: int) -> None:
        """Release the values that no later block reads."""
        for key in self._lifetimes.ending.get(number, ()):
            self._live.pop(key, None)
            self._results.pop(key, None)

    def _content(self, side: Side, slot: int, data: torch.Tensor) -> torch.UntypedStorage:
        """Return the storage with a slot's recorded content."""
        if self._moved is not None:
            data = self._moved(data, self._flows[side].tape.slots[slot].dtype)
        return self._slots[side].content(slot, data)

    def _found(self, side: Side, value: FlowValue) -> torch.UntypedStorage:
        before = self._before.get((side, value))
        if before is not None:
            as_bytes = torch.empty(0, dtype=torch.uint8, device=before.device)
            return self._content(side, value.slot, as_bytes.set_(before, 0, (before.nbytes(),), (1,)))
        far_side = other(side)
        link = self._links.of[side].get(value)
        data = self._flows[side].input_bytes(value)
        # True if the other side's value is an input, too; its content may be needed
        is_input_there = link is not None and self._flows[far_side].input_bytes(link.value) is not None
        is_own = not is_input_there or self._source(side, value if side == "a" or link is None else link.value) == side
        if data is not None and is_own:
            return self._content(side, value.slot, data)
        if link is None:
            return self._constant(side, value)
        # The other value must exist, or have an origin other than this value. Otherwise, the search would never end for
        # two values that are linked to each other and that nothing has made.
        back = self._links.of[far_side].get(link.value)
        has_origin = (
            is_input_there or (far_side, link.value) in self._live or (back is not None and back.value != value)
        )
        if data is None and not has_origin:
            return self._constant(side, value)
        return self._converted(side, value, link)

    def _source(self, side: Side, value_of_a: FlowValue) -> Side:
        """Return the side from which a side takes a linked input."""
        if value_of_a not in self._links.of["a"]:
            return side
        return other(self._base) if value_of_a in self._swapped else self._base

    def _constant(self, side: Side, value: FlowValue) -> torch.UntypedStorage:
        """Make a constant. Raises Unbound if the value is none."""
        node = self._flows[side].constants.get(value)
        if node is None:
            raise Unbound(f"storage {value.slot} of side {side} is made by a block of the other side")

        def refuse(view: View) -> torch.Tensor:
            raise AssertionError(f"{node.call.op} reads {view}")

        (made,) = node.made
        return self._slots[side].bound(made.view, executed(node.execution, *call_arguments(node.call, refuse))[0])

    def _converted(self, side: Side, value: FlowValue, link: Link, *, whole: bool = False) -> torch.UntypedStorage:
        far_side = other(side)
        far_storage = self.storage(far_side, link.value)
        size, device = self._slots[side].size(value.slot), self._flows[side].tape.slots[value.slot].device
        if has_same_layout(link) and size <= far_storage.nbytes():
            return far_storage if str(far_storage.device) == device else moved_to(far_storage, device)
        whole = whole or self._flows[side].is_whole(link.own_view, value)
        if link.own_view.size != link.far_view.size or not whole or is_expanded(link.own_view):
            raise Unbound(f"storage {value.slot} of side {side} has a different layout on the other side")
        storage = torch.UntypedStorage(size, device=device)
        self.viewed(side, storage, link.own_view).copy_(self.viewed(far_side, far_storage, link.far_view))
        return storage


def moved_to(storage: torch.UntypedStorage, device: str) -> torch.UntypedStorage:
    """Copy a storage to another device, byte by byte."""
    as_bytes = torch.empty(0, dtype=torch.uint8, device=storage.device)
    return as_bytes.set_(storage, 0, (storage.nbytes(),), (1,)).to(device).untyped_storage()


class Lifetimes:
    """The last block that may read each value or a value linked to it."""

    def __init__(self, flows: Flows, links: Links, blocks: Sequence[Block]) -> None:
        last: dict[tuple[Side, FlowValue], int] = {}
        for side in SIDES:
            flow = flows[side]
            for number, block in enumerate(blocks):
                for node in block.of(side):
                    for use in (*flow.nodes[node].reads, *flow.nodes[node].made):
                        last[side, use.value] = number
            last |= {(side, use.value): FOREVER for use in (*flow.watched.values(), *flow.batch.values())}
        for _ in range(3):  # chains of links are short: y of one side, x of the other, x of the first
            for side in SIDES:
                for value, link in links.of[side].items():
                    keys = (side, value), (other(side), link.value)
                    # Each may be read in place of the other: see `TapePair.reads_for`.
                    last |= dict.fromkeys(keys, max(last.get(key, 0) for key in keys))
        self.ending: dict[int, list[tuple[Side, FlowValue]]] = {}
        for key, number in last.items():
            self.ending.setdefault(number, []).append(key)


def has_same_layout(link: Link) -> bool:
    """Check whether both views have the same layout in their storages."""
    return link.own_view.dtype == link.far_view.dtype and layout_of(link.own_view) == layout_of(link.far_view)
