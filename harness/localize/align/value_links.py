"""The linking of two tapes' values: which value of one side corresponds to which of the other.

The first link of a value stays, so the surest links are made first:

    1  the initial parameters, buffers and optimizer states, by their names
    2  the copies of views, if the copies have a name at the end of the step, and the values that they copy
    3  the arguments of the first model that no call of the step makes, if `own_batch`
    4  the inputs that calls of a pair read at the same place, if their contents are equal
    5  block by block, the values that the calls of a pair read at the same place, and their results
    6  the result of an op that one side executes in addition, to the counterpart of what the op reads
    7  the other arguments of the first model, and all other values that have a name on both sides
    8  repeated computations, to the counterpart of the first one

The example uses `recorded_step` from the example in `tape.tape`. The second side writes 3 * weight as a sum. The result
of its first addition has no counterpart, since no call of the first side computes it. The result of the second addition
corresponds to the product.

    >>> first = flow_of(recorded_step(lambda weight: 3 * weight))
    >>> second = flow_of(recorded_step(lambda weight: weight + weight + weight))
    >>> links = linked(first, second, align(first, second))
    >>> for node in second.nodes:
    ...     link = links.of["b"].get(node.made[0].value)
    ...     print(op_name(node), "-", "nothing" if link is None else op_name(first.nodes[first.makers[link.value]]))
    add - nothing
    add - mul
    sum - sum
    ones_like - ones_like
    add - nothing
    add - mul
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence

from .blocks import Block
from .links import Link, Links, is_turned_product, transposed
from .repeats import again_within
from .storage_flow import SIDES, FlowNode, FlowValue, Side, StorageFlow, Use, common_reads, layout_of, other, readers_of
from .view_copies import before_expansion, link_copies, view_copies


def linked(a: StorageFlow, b: StorageFlow, blocks: Sequence[Block], *, own_batch: bool = True) -> Links:
    """Return the links of all values that have a counterpart.

    With `own_batch`, the batches of both scripts are linked even if the reference's batch replaced the other one.
    """
    linking = _Linking(a, b, blocks)
    linking.initial_values()
    linking.named_copies()
    linking.copies()
    if own_batch:
        # This comes before equal contents: a replaced batch has the reference's content.
        linking.batches(made_outside=True)
    linking.equal_inputs()
    linking.blocks()
    linking.additional_ops()
    linking.batches(made_outside=False)
    linking.names()
    linking.repeats()
    linking.copies()
    return linking.links


class _Linking:
    """The links of two tapes, and the passes that make them."""

    def __init__(self, a: StorageFlow, b: StorageFlow, blocks: Sequence[Block]) -> None:
        self._flows: Mapping[Side, StorageFlow] = {"a": a, "b": b}
        self._names = [name for name in a.watched if name in b.watched]
        self._copies = {side: view_copies(flow) for side, flow in self._flows.items()}
        self._copied = {side: {copy.copy.value for copy in copies} for side, copies in self._copies.items()}
        paired = [block for block in blocks if block.paired]
        again = {side: again_within(flow, [block.of(side) for block in paired]) for side, flow in self._flows.items()}
        self.links = Links(again=again)
        self._blocks = blocks
        self._ways = [
            [[node for node in block.of(side) if node not in again[side]] for side in SIDES] for block in paired
        ]
        """For each paired block, the nodes of each side that compute its op, without those that repeat others."""
        self._loose: dict[Side, set[int]] = {
            side: {node for block in blocks if not block.is_pair for node in block.of(side)} for side in SIDES
        }
        """The nodes of each side that belong to no pair, that is, to no block with one call on each side."""

    def initial_values(self) -> None:
        """Link the initial values of the step, by their names at its end."""
        for name in self._names:
            if name.startswith(("parameter ", "buffer ", "state ")):
                starts = [flow.tape.starts.get(name, flow.watched[name].view) for flow in self._flows.values()]
                uses = [Use(start, FlowValue(start.slot, 0)) for start in starts]
                if all(
                    use.value.slot in flow.tape.inputs for use, flow in zip(uses, self._flows.values(), strict=True)
                ):
                    self.links.connect(*uses)

    def named_copies(self) -> None:
        """Link those copies of views which themselves have a name at the end of the step."""
        for name in self._names:
            uses = [flow.watched[name] for flow in self._flows.values()]
            if any(use.value in copied for use, copied in zip(uses, self._copied.values(), strict=True)):
                self.links.connect(*uses)

    def copies(self) -> None:
        """Link the copies of views by their sources, and the sources by their copies."""
        for side in SIDES:
            link_copies(self.links, side, self._copies[side])

    def batches(self, *, made_outside: bool) -> None:
        """Link the arguments of the first model; with `made_outside` only those that no call of the step makes."""
        a, b = self._flows["a"], self._flows["b"]
        for name, use_a in a.batch.items():
            use_b = b.batch.get(name)
            if use_b is not None and not (made_outside and (use_a.value in a.makers or use_b.value in b.makers)):
                self.links.connect(use_a, use_b)

    def equal_inputs(self) -> None:
        """Link the inputs of the step that pairs read at the same place and whose contents are equal."""
        for use_a, use_b in self._common_reads():
            bytes_a, bytes_b = self._flows["a"].input_bytes(use_a.value), self._flows["b"].input_bytes(use_b.value)
            if bytes_a is None or bytes_b is None or self.links.has_either(use_a, use_b):
                continue
            same_layout = layout_of(use_a.view) == layout_of(use_b.view)
            if same_layout and bytes_a.numel() == bytes_b.numel() and bool((bytes_a == bytes_b).all()):
                self.links.connect(use_a, use_b)

    def _common_reads(self) -> list[tuple[Use, Use]]:
        """Return the views that the calls of all pairs read at the same places."""
        nodes_a, nodes_b = self._flows["a"].nodes, self._flows["b"].nodes
        pairs = ((way_a[0], way_b[0]) for way_a, way_b in self._ways if len(way_a) == len(way_b) == 1)
        return [uses for a, b in pairs for uses in common_reads(nodes_a[a], nodes_b[b])]

    def blocks(self) -> None:
        """Link the values that paired blocks read and make, block by block."""
        expanded = {
            copy.copy.value: copy.source for copy in self._copies["b"] if copy.copy.view.size != copy.source.view.size
        }
        readers = {side: readers_of(flow) for side, flow in self._flows.items()}
        for side, flow in self._flows.items():
            for watched in flow.watched.values():  # the end of the step reads it
                readers[side].setdefault(watched.value, []).append(len(flow.nodes))
        read_alike = {(use_a.value, use_b.value) for use_a, use_b in self._common_reads()}
        for way_a, way_b in self._ways:
            if len(way_a) == len(way_b) == 1:
                node_a, node_b = self._flows["a"].nodes[way_a[0]], self._flows["b"].nodes[way_b[0]]
                self._reads(node_a, node_b, expanded)
                self._results(node_a, node_b)
            else:
                self._decomposed({"a": way_a, "b": way_b}, readers, read_alike)

    def _reads(self, node_a: FlowNode, node_b: FlowNode, expanded: Mapping[FlowValue, Use]) -> None:
        """Link the values that two calls read at the same places, unless a pair makes them."""
        makers_a, makers_b = self._flows["a"].makers, self._flows["b"].makers
        for use_a, use_b in common_reads(node_a, node_b):
            makers = makers_a.get(use_a.value), makers_b.get(use_b.value)
            is_loose = makers[0] in self._loose["a"] or makers[1] in self._loose["b"]
            is_input = makers == (None, None) and not self.links.has_either(use_a, use_b)
            if not is_loose and not is_input:
                continue
            use_a, use_b = before_expansion(use_a, use_b, expanded)
            # a copy of a view is linked through its source
            if use_a.value not in self._copied["a"] and use_b.value not in self._copied["b"]:
                self.links.connect(use_a, use_b)

    def _results(self, node_a: FlowNode, node_b: FlowNode) -> None:
        """Link the values that two calls make and write."""
        results: list[tuple[Sequence[Use | None], Sequence[Use | None]]]
        results = [(node_a.makes, node_b.makes), (node_a.writes, node_b.writes)]
        if bool(node_a.writes) != bool(node_b.writes):  # in place on one side only
            results.append((node_a.made, node_b.made))
        turned = is_turned_product(node_a, node_b, self.links)
        for use_a, use_b in (uses for made in results for uses in zip(*made, strict=False)):
            if use_a is None or use_b is None:
                continue
            # Integers of different dtypes differ in meaning: a compiler's offsets within a window are not indices.
            dtypes = {use_a.view.dtype, use_b.view.dtype}
            if len(dtypes) == 1 or any(dtype.is_floating_point or dtype.is_complex for dtype in dtypes):
                self.links.connect(use_a, transposed(use_b) if turned else use_b)

    def _decomposed(
        self,
        ways: Mapping[Side, Sequence[int]],
        readers: Mapping[Side, Mapping[FlowValue, Sequence[int]]],
        read_alike: set[tuple[FlowValue, FlowValue]],
    ) -> None:
        """Link the inputs and the results of an op that a side computes with several nodes.

        An input is linked if it is the only one of its side that has no counterpart among the other side's inputs. For
        each number of elements and dtype, the last results that are used elsewhere are linked. No results are linked
        if pairs read results of both sides at the same places (`read_alike`): such links are surer.
        """
        self._inputs(ways)
        made = {side: [use for number in ways[side] for use in self._flows[side].nodes[number].made] for side in SIDES}
        if any((use_a.value, use_b.value) in read_alike for use_a in made["a"] for use_b in made["b"]):
            return
        last_uses: dict[Side, dict[Hashable, Use]] = {
            side: {
                (math.prod(use.view.size), use.view.dtype): use
                for use in made[side]
                if any(reader not in ways[side] for reader in readers[side].get(use.value, ()))
            }
            for side in SIDES
        }
        for key in last_uses["a"].keys() & last_uses["b"].keys():
            self.links.connect(last_uses["a"][key], last_uses["b"][key])

    def _inputs(self, ways: Mapping[Side, Sequence[int]]) -> None:
        """Link the one input of each side that has no counterpart among the other side's inputs."""
        inputs: dict[Side, dict[FlowValue, Use]] = {}
        for side in SIDES:
            nodes = [self._flows[side].nodes[number] for number in ways[side]]
            made = {use.value for node in nodes for use in node.made}
            inputs[side] = {use.value: use for node in nodes for use in node.reads if use.value not in made}
        alone = {
            side: [
                use
                for value, use in inputs[side].items()
                if not any(self.links.are_linked(*pair) for pair in _sorted_pairs(side, value, inputs[other(side)]))
            ]
            for side in SIDES
        }
        if len(alone["a"]) == len(alone["b"]) == 1:
            (use_a,), (use_b,) = alone["a"], alone["b"]
            makers = self._flows["a"].makers.get(use_a.value), self._flows["b"].makers.get(use_b.value)
            if use_a.view.dtype == use_b.view.dtype and (
                makers[0] in self._loose["a"] or makers[1] in self._loose["b"]
            ):
                self.links.connect(use_a, use_b)

    def additional_ops(self) -> None:
        """Link the result of an op that only one side executes to the counterpart of what the op reads.

        This is done if ops that replace each other read the two. A pair of one op on both sides links what it reads.

            side a    relu           upsample (reads relu)
            side b    relu    mul    iota, index, ... in place of upsample (read mul): mul is linked to side a's relu
        """
        replacing: dict[Side, dict[FlowValue, set[int]]] = {side: {} for side in SIDES}
        for number, block in enumerate(self._blocks):
            for side in SIDES if block.a and block.b and not block.is_pair else ():
                for place in block.of(side):
                    for use in self._flows[side].nodes[place].reads:
                        replacing[side].setdefault(use.value, set()).add(number)
        for block in self._blocks:
            extra: Side = "a" if block.a else "b"
            own, far = self.links.of[extra], other(extra)
            node = self._flows[extra].nodes[block.of(extra)[0]]
            if block.of(far) or len(block.of(extra)) > 1 or len(node.made) != 1 or node.made[0].value in own:
                continue
            result, *_ = node.made
            readers = replacing[extra].get(result.value, set())
            for use in node.reads:
                link = own.get(use.value)
                if link is None or (use.view.size, use.view.dtype) != (result.view.size, result.view.dtype):
                    continue
                if link.own_view == use.view and readers & replacing[far].get(link.value, set()):
                    own[result.value] = Link(result.view, link.far_view, link.value)
                    break

    def names(self) -> None:
        """Link the values that have a name on both sides."""
        for name in self._names:
            self.links.connect(self._flows["a"].watched[name], self._flows["b"].watched[name])

    def repeats(self) -> None:
        """Link a repeated computation to the counterpart of the first one."""
        for side, flow in self._flows.items():
            own_links = self.links.of[side]
            for number, first in self.links.again[side].items():
                for repeated, earlier in zip(flow.nodes[number].makes, flow.nodes[first].makes, strict=False):
                    link = None if earlier is None else own_links.get(earlier.value)
                    if repeated is not None and link is not None and repeated.view.size == link.own_view.size:
                        own_links.setdefault(repeated.value, Link(repeated.view, link.far_view, link.value))


def _sorted_pairs(side: Side, value: FlowValue, others: Iterable[FlowValue]) -> Iterator[tuple[FlowValue, FlowValue]]:
    """Yield the pairs of a value of a side with values of the other side, side a's value first."""
    for far in others:
        yield (value, far) if side == "a" else (far, value)
