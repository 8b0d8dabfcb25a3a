"""The reasons for which blocks can only be swapped together."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ...records.results.culprit import AGAIN
from ...torch_private.operators import view_behind
from ..align.storage_flow import SIDES, FlowValue, Side, other
from ..execute.tape_pair import END, TapePair
from .examination import Examined, flagged
from .suspects import CASTS


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


class Joining:
    """The groups of blocks that can only be swapped together, and the reasons to join blocks."""

    def __init__(self, pair: TapePair, examined: Mapping[int, Examined]) -> None:
        self.groups = Groups(range(len(pair.blocks)))
        self._pair = pair
        self._examined = examined
        self._flagged = flagged(examined, examined)
        self._structures = [number for number in self._flagged if examined[number].suspect.kind == "structure"]

    def readers_without_counterpart(self) -> None:
        """Join a block that makes a value without a counterpart on the other side to the blocks reading the value.

        Constants do not count, because a hybrid makes them where it needs them. A compiled backward reads the same
        zeros in all layers.
        """
        for side in SIDES:
            constants = self._pair.flows[side].constants
            for value, blocks in self._pair.readers[side].items():
                maker = self._pair.maker(side, value)
                if maker >= 0 and value not in self._pair.links.of[side] and value not in constants:
                    for reader in blocks - {END}:
                        self.groups.join(maker, reader)

    def parts_of_backwards(self) -> set[int]:
        """Join a block of one side that only the backward reads to the rewritten ops that read it; return such blocks.

        A compiled forward computes parts of the backward's formulas. They look like changes to a value that both sides
        have, but the other side's formula has no place for them:

            side a                                     side b
            rstd = native_layer_norm(x)                rstd = rsqrt(...); part = rstd / 256
            native_layer_norm_backward(g, x, rstd)     part * (256 g - ...)
        """
        parts = set[int]()
        for number in self._structures:
            block = self._pair.blocks[number]
            if (block.a and block.b) or self._pair.phase(number) != "forward" or not self._is_for_backward(number):
                continue
            for reader in self._pair.readers_of(number) - {number}:
                if self._pair.blocks[reader].paired and not self._pair.is_same_op(reader):
                    self.groups.join(number, reader)
                    parts.add(number)
        return parts

    def sums_of_gradients(self) -> None:
        """Join the additions of gradients in the backward that add the same terms on both sides, in another order.

        Swapped alone, an addition would add a term twice or not at all:

            side a                  side b
            s = residual + value    s = value + key
            s = s + key             s = s + query
            s = s + query           s = s + residual
        """
        pair = self._pair
        adding = {
            number
            for number in range(len(pair.blocks))
            if pair.phase(number) == "backward" and pair.all_names(number) <= {"add"}
        }
        sums = Groups(adding)
        terms: dict[Side, dict[int, list[int]]] = {side: {number: [] for number in adding} for side in SIDES}
        for number in adding:
            for side in SIDES:
                for use in (use for node in pair.nodes(number, side) for use in node.reads):
                    maker = pair.maker(side, use.value)
                    if maker in adding:
                        sums.join(number, maker)
                    else:
                        terms[side][number].append(maker)
        for members in sums.members():
            by_side = [sorted(maker for number in members for maker in terms[side][number]) for side in SIDES]
            if by_side[0] == by_side[1] and any(number in self._structures for number in members):
                for number in members[1:]:
                    self.groups.join(members[0], number)

    def repeated_bits(self) -> None:
        """Join a block to the blocks whose bits it repeats: once they are swapped, it may no longer repeat the bits."""
        pair = self._pair
        for number, block in self._examined.items():
            if block.differs is not False:
                continue
            for side in SIDES:
                for node in pair.nodes(number, side):
                    links = [pair.links.of[side].get(use.value) for use in node.made]
                    makers = {pair.maker(other(side), link.value) for link in links if link is not None}
                    if number in pair.own_reads:
                        makers |= {pair.maker(side, use.value) for use in node.reads}
                    for maker in makers - {-1, number}:
                        self.groups.join(number, maker)

    def repeated_draws(self) -> None:
        """If a repeated call of a block drew random numbers again, join the block to all readers of the new values.

        The values that repeated calls and views make from the new values count as well. If the mask of a dropout is
        drawn again, its backward uses the new mask, which has no counterpart on the other side.
        """
        acting = {
            number
            for number in self._flagged
            if any(reason.startswith(AGAIN) for reason in self._examined[number].suspect.reasons)
        }
        for side in SIDES if acting else ():
            repeated: dict[FlowValue, int] = {}
            for number, node in enumerate(self._pair.flows[side].nodes):
                home = self._pair.home[side][number]
                read = [repeated[use.value] for use in node.reads if use.value in repeated]
                for block in read:
                    self.groups.join(block, home)
                is_again = node.call.repeats is not None
                if home in acting and is_again and node.call.draw is not None:
                    repeated |= {use.value: home for use in node.made}
                elif read and (is_again or view_behind(node.execution.operation) is not None):
                    repeated |= {use.value: read[0] for use in node.made}

    def casts(self) -> None:
        """Join a one-sided cast to the calls that read its result and whose arguments differ.

        Without the cast, these calls do not differ.
        """
        pair = self._pair
        casts = {
            number
            for number, block in self._examined.items()
            if block.suspect.kind == "structure" and pair.all_names(number) <= CASTS
        }
        for number, block in self._examined.items():
            for side in SIDES if block.suspect.kind == "arguments" else ():
                makers = {pair.maker(side, use.value) for node in pair.nodes(number, side) for use in node.reads}
                for maker in makers & casts:
                    self.groups.join(maker, number)

    def backwards(self) -> None:
        """Join each differing backward op to its forward op, if the forward op differs as well."""
        kinds = ("structure", "arguments")
        differing = [number for number in self._flagged if self._examined[number].suspect.kind in kinds]
        for side in SIDES:
            forwards: dict[int, int] = {}  # by autograd's sequence number, which an op shares with its backward
            for number in differing:
                for node in self._pair.nodes(number, side):
                    sequence = node.call.sequence
                    if sequence is None:
                        continue
                    if node.call.phase == "forward":
                        forwards.setdefault(sequence, number)
                    elif node.call.phase == "backward" and sequence in forwards:
                        self.groups.join(forwards[sequence], number)

    def rewritten_ops(self) -> None:
        """Join a block that only the reference executes to one that only the other mode executes, if they have the same
        ops, phase and module."""
        pair = self._pair
        unmatched: dict[tuple[object, Side], list[int]] = {}
        for number in self._structures:
            sides = [side for side in SIDES if pair.blocks[number].of(side)]
            if len(sides) != 1:
                continue
            look = (tuple(pair.names(number, sides[0])), pair.phase(number), pair.module(number))
            waiting = unmatched.get((look, other(sides[0])))
            if waiting:
                self.groups.join(waiting.pop(0), number)
            else:
                unmatched.setdefault((look, sides[0]), []).append(number)

    def rewritten_backwards(self) -> None:
        """If a backward takes its gradients from elsewhere, join it to the cause: its module's rewritten forward.

        The outermost module is that of the sums of gradients too, so it says nothing of a block that is already joined
        to a block of another module. A block that only the backward reads is no rewritten forward: a compiled forward
        computes the mask of a ReLU for the backward.
        """
        pair = self._pair
        in_forward = (number for number in self._structures if pair.phase(number) == "forward")
        forwards = [number for number in in_forward if not self._is_for_backward(number)]
        placed = {self.groups.find(number) for number in self._structures if pair.module(number)}
        elsewhere = {number for number in self._structures if self.groups.find(number) in placed}
        for number in self._structures:
            if pair.phase(number) != "backward" or (not pair.module(number) and number in elsewhere):
                continue
            related = [forward for forward in forwards if _is_within(pair.module(number), pair.module(forward))]
            # If there is none, and all rewritten forwards are in one group, join the backward to that group, provided
            # that it does only what autograd does: add gradients. Other ops come from the script.
            is_autograd = pair.blocks[number].is_pair or pair.all_names(number) <= {"add"}
            if not related and is_autograd and len({self.groups.find(forward) for forward in forwards}) == 1:
                related = forwards
            if related:
                self.groups.join(related[0], number)

    def _is_for_backward(self, number: int) -> bool:
        """Check whether only blocks of the backward read the results of a block."""
        readers = self._pair.readers_of(number) - {number}
        return END not in readers and {self._pair.phase(reader) for reader in readers} == {"backward"}

    def draws(self) -> None:
        """Join all blocks that draw random numbers: each draw changes the generator's state for all later draws."""
        drawing = [number for number in self._flagged if self._examined[number].suspect.kind == "setup"]
        for number in drawing[1:]:
            self.groups.join(drawing[0], number)


def _is_within(module: str | None, other_module: str | None) -> bool:
    """Check whether two modules are the same or one contains the other.

    The outermost module, "", does not count, since it contains all others.
    """
    shorter, longer = sorted((module or "", other_module or ""), key=len)
    return module == other_module or (bool(shorter) and longer.startswith(f"{shorter}."))
