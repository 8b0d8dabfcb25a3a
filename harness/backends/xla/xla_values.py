"""Identify the values of torch_xla's IR with those of the script, by the calls that made the IR's nodes.

The operands of a node are in torch_xla's own order, mixed with numbers, casts and copies. A value is therefore
identified by the calls that take it and by its shape.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ...records.tools.graph_record import Value
from ..deferred_calls import FollowedCall, Operand
from ..followed_graph import Identified, MadeNodes, Output
from .xla_ir import ExecutedIr

RETURNED = {"native_batch_norm": (0, 1, 3)}
"""The indices of the node outputs that an op returns, for ops that do not return the first outputs.

Output 3 is 1 divided by the standard deviation.
"""


AVERAGE = "moving_average"
"""The op with which `native_batch_norm` updates the running statistics, without returning them.

An update does not change torch_xla's number for the tensor of a statistic.
"""

NUMBER = -1
"""Marks a scalar operand in a list of torch_xla's numbers for values. torch_xla's numbers start at 1."""


def by_value(made: MadeNodes) -> Identified:
    """Identify the values of a graph (see `Identified`)."""
    numbers = {value: number for number, value in returned(made).items()}
    input_operands = _input_operands(made, set(numbers.values()))
    for node_number, node in made.nodes.items():
        if node.op == AVERAGE:
            before = node.operands[-1]
            number = input_operands[before[0]].tensor if before[0] in input_operands else numbers.get(before)
            if number is not None:
                numbers[node_number, 0] = number
    names: dict[int, tuple[str, ...]] = {}
    for node_number in made.main.values():
        node, call = made.nodes[node_number], made.calls[node_number]
        operand_numbers = [
            numbers.get(value)
            if not made.nodes[value[0]].is_input
            else input_operands[value[0]].tensor
            if value[0] in input_operands
            else NUMBER
            for value in node.operands
        ]
        names[node_number] = _names(operand_numbers, call.operands)
    return Identified(names, input_operands, numbers)


def returned(made: MadeNodes) -> dict[int, Output]:
    """Return the values that the calls returned, by torch_xla's numbers for them.

    A call returned the outputs of its last node, unless another node of the call takes them.
    """
    inside: dict[int, set[int]] = {}
    last: dict[int, int] = {}
    for node_number, call in made.calls.items():
        if not made.nodes[node_number].is_input:
            last[call.number] = node_number
            inside.setdefault(call.number, set()).update(number for number, _ in made.nodes[node_number].operands)
    outputs: dict[int, Output] = {}
    for node_number in last.values():
        node, call = made.nodes[node_number], made.calls[node_number]
        if node_number in inside[call.number]:
            continue
        # An op omits results that are not wanted, such as the gradient of a batch. Each result is therefore matched
        # with the next output that has the same dtype and shape.
        places = list(RETURNED.get(node.op, range(len(node.outputs))))
        for number, result in zip(call.made, call.results, strict=True):
            which = next((place for place in places if node.outputs[place] == result), None)
            if which is not None:
                del places[: places.index(which) + 1]
                outputs.setdefault(number, (node_number, which))
    return outputs


def outputs_of(
    executed: ExecutedIr, numbers: Mapping[int, Output], shapes: Sequence[Value] = ()
) -> list[Output | None]:
    """Return the values that a graph was executed for, None for an unknown one. `shapes` are their shapes, if known.

    For a node that is an output of the graph, the dump states its position among the outputs. For a value that two
    tensors share, the dump states only the position of the second tensor. Positions with the same hash may hold one
    shared value, or the results of the same op on different operands. If a hash has as many unnamed positions as named
    ones, each named value is assumed to be shared by two tensors: the unnamed positions get the named values in order.
    For a node with several outputs, the dump states only one position, which may belong to any of these outputs.
    torch_xla orders the outputs by its numbers for the values, so the numbers of two known values limit the candidates
    for the positions between them.
    """
    roots = executed.roots
    outputs: list[Output | None] = [None] * len(roots)
    nodes = {node.number: node for node in executed.nodes}
    several = {node.number for node in executed.nodes if node.root is not None and len(node.outputs) > 1}
    for node in executed.nodes:
        if node.root is not None and node.number not in several and node.root < len(roots):
            outputs[node.root] = (node.number, 0)
    for root in set(roots):
        named = [
            output for output, own_root in zip(outputs, roots, strict=True) if own_root == root and output is not None
        ]
        unnamed = [place for place, output in enumerate(outputs) if roots[place] == root and output is None]
        if len(named) == len(unnamed):
            for place, output in zip(unnamed, named, strict=True):
                outputs[place] = output
    number_of = {value: number for number, value in numbers.items() if outputs.count(value) < 2}
    waiting = sorted((number, value) for number, value in numbers.items() if value[0] in several)
    for gap in _gaps(outputs):
        before = [number_of[output] for output in outputs[: gap[0]] if output in number_of]
        after = [number_of[output] for output in outputs[gap[-1] + 1 :] if output in number_of]
        low, high = max(before, default=-1), min(after, default=None)
        fitting = [value for number, value in waiting if low < number and (high is None or number < high)]
        if len(shapes) == len(roots):  # skip values that no tensor refers to any more
            left = iter(fitting)
            fitting = [
                fit
                for place in gap
                if (fit := next((value for value in left if nodes[value[0]].outputs[value[1]] == shapes[place]), None))
            ]
        if len(fitting) == len(gap):
            outputs[gap[0] : gap[-1] + 1] = fitting
    return outputs


def _gaps(outputs: Sequence[Output | None]) -> Iterator[list[int]]:
    gap: list[int] = []
    for place, output in enumerate([*outputs, (-1, 0)]):
        if output is None:
            gap.append(place)
        elif gap:
            yield gap
            gap = []


def _input_operands(made: MadeNodes, made_numbers: set[int]) -> dict[int, Operand]:
    """Return the operand for each value that the graph takes as input, by the number of the value's node.

    The candidates for a value are the tensors of its dtype and shape that were operands of every call that takes it,
    except for those that the graph itself made (`made_numbers`). `_assigned` chooses among the candidates.
    """
    takers: dict[int, dict[int, FollowedCall]] = {
        node_number: {} for node_number, node in made.nodes.items() if node.op == "device_data"
    }
    for node_number, call in made.calls.items():
        for taken_node, _ in made.nodes[node_number].operands:
            if taken_node in takers:
                takers[taken_node][call.number] = call
    possible: dict[int, dict[int, Operand]] = {}
    for node_number, calls in takers.items():
        value, own = made.nodes[node_number].outputs[0], made.calls.get(node_number)
        fitting = [
            {
                operand.tensor: operand
                for operand in call.operands
                if operand.tensor is not None and operand.value == value
            }
            for call in calls.values()
        ]
        if own is not None:  # the call that took the value first, or moved it to the device
            brought = {number: Operand("", number, value) for number in own.made}
            of_own = {
                operand.tensor: operand
                for operand in own.operands
                if operand.tensor is not None and operand.value == value
            }
            fitting.append({**brought, **of_own})
        common = {
            number: operand
            for number, operand in (fitting[0] if fitting else {}).items()
            if number not in made_numbers and all(number in fit for fit in fitting)
        }
        if common:
            possible[node_number] = common
    return _assigned(possible)


def _assigned(possible: dict[int, dict[int, Operand]]) -> dict[int, Operand]:
    """Choose one of the `possible` operands for each node, and use no operand twice. A node may get none.

    A node with a single candidate gets this operand, which is removed from the candidates of the other nodes. If every
    node has several candidates, one node gets its first candidate. Nodes are taken from the end of the dump backwards,
    since the dump lists a node's last operand first.
    """
    identified: dict[int, Operand] = {}
    for node_number in reversed(list(possible)):
        certain = next(
            (candidate for candidate in reversed(possible) if len(possible[candidate]) == 1),
            node_number if node_number in possible else None,
        )
        while certain is not None:
            number, identified[certain] = next(iter(possible.pop(certain).items()))
            for rival in list(possible):
                possible[rival].pop(number, None)
                if not possible[rival]:
                    del possible[rival]
            certain = next((candidate for candidate in reversed(possible) if len(possible[candidate]) == 1), None)
    return identified


def _names(numbers: Sequence[int | None], operands: Sequence[Operand]) -> tuple[str, ...]:
    """Return the names of a node's operands, given their `numbers` (`NUMBER` for a scalar); () if one is unknown."""
    left = list(operands)
    names: list[str] = []
    for number in numbers:
        match = next((operand for operand in left if (NUMBER if operand.is_number else operand.tensor) == number), None)
        if match is None or number is None:
            return ()
        left.remove(match)
        names.append(match.name)
    return tuple(names)
