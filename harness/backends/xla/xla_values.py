"""Which value of the script each value of torch_xla's IR is, by the calls that made its nodes and by what they were
called with.

Nodes take their operands in torch_xla's own order, and with numbers, casts and copies between: a value is known by the
calls that take it, and by its shape.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from ...records.graph_record import Value
from ..followed_calls import FollowedCall, Operand
from ..followed_graph import Identified, MadeNodes, Output
from .xla_ir import ExecutedIr

RETURNED = {"native_batch_norm": (0, 1, 3)}
"""Which outputs of a node an op returns, where they are not its first ones: the fourth is one over the deviation."""


AVERAGE = "moving_average"
"""What `native_batch_norm` does to the running statistics, besides what it returns: the tensor has the same number
before and after."""

NUMBER = -1
"""What stands for a number where torch_xla's number of a value stands otherwise: those begin with 1."""


def by_value(made: MadeNodes) -> Identified:
    """See `Identified`."""
    numbers = {value: number for number, value in returned(made).items()}
    given = _given(made, set(numbers.values()))
    for at, node in made.nodes.items():
        if node.op == AVERAGE:
            before = node.operands[-1]
            number = given[before[0]].tensor if before[0] in given else numbers.get(before)
            if number is not None:
                numbers[at, 0] = number
    names: dict[int, tuple[str, ...]] = {}
    for at in made.main.values():
        node, call = made.nodes[at], made.calls[at]
        taken = [
            numbers.get(one) if not made.nodes[one[0]].is_given else given[one[0]].tensor if one[0] in given else NUMBER
            for one in node.operands
        ]
        names[at] = _names(taken, call.operands)
    return Identified(names, given, numbers)


def returned(made: MadeNodes) -> dict[int, Output]:
    """The values that the calls returned, by torch_xla's numbers of them: those of the last node of each call that no
    other of its nodes takes."""
    inside: dict[int, set[int]] = {}
    last: dict[int, int] = {}
    for at, call in made.calls.items():
        if not made.nodes[at].is_given:
            last[call.number] = at
            inside.setdefault(call.number, set()).update(number for number, _ in made.nodes[at].operands)
    found: dict[int, Output] = {}
    for at in last.values():
        node, call = made.nodes[at], made.calls[at]
        if at in inside[call.number]:
            continue
        # An op leaves out what nobody wants, as the gradient of a batch: each is the next of its shape.
        places = list(RETURNED.get(node.op, range(len(node.outputs))))
        for number, result in zip(call.made, call.results, strict=True):
            which = next((one for one in places if node.outputs[one] == result), None)
            if which is not None:
                del places[: places.index(which) + 1]
                found.setdefault(number, (at, which))
    return found


def outputs_of(
    executed: ExecutedIr, numbers: Mapping[int, Output], shapes: Sequence[Value] = ()
) -> list[Output | None]:
    """The values that a graph was executed for, None where that cannot be told. `shapes` are theirs, if they are known.

    Of a value that two tensors have the dump says the latter's place. Values of one hash may be such, or the same op on
    others: where as many are untold as are told, these are told twice, in their order. Of a node that gives several
    values it says one place, of it or of another of its values. torch_xla has them in the order of its numbers, so what
    lies between two that are known is told by these.
    """
    roots = executed.roots
    outputs: list[Output | None] = [None] * len(roots)
    nodes = {node.number: node for node in executed.nodes}
    several = {node.number for node in executed.nodes if node.root is not None and len(node.outputs) > 1}
    for node in executed.nodes:
        if node.root is not None and node.number not in several and node.root < len(roots):
            outputs[node.root] = (node.number, 0)
    for root in set(roots):
        twice = [one for one, of in zip(outputs, roots, strict=True) if of == root and one is not None]
        untold = [place for place, one in enumerate(outputs) if roots[place] == root and one is None]
        if len(twice) == len(untold):
            for place, output in zip(untold, twice, strict=True):
                outputs[place] = output
    of_value = {value: number for number, value in numbers.items() if outputs.count(value) < 2}
    waiting = sorted((number, value) for number, value in numbers.items() if value[0] in several)
    for gap in _gaps(outputs):
        before = [of_value[one] for one in outputs[: gap[0]] if one in of_value]
        after = [of_value[one] for one in outputs[gap[-1] + 1 :] if one in of_value]
        low, high = max(before, default=-1), min(after, default=None)
        fitting = [value for number, value in waiting if low < number and (high is None or number < high)]
        if len(shapes) == len(roots):  # a value that nobody holds any more is none of them
            left = iter(fitting)
            fitting = [
                found
                for place in gap
                if (found := next((at for at in left if nodes[at[0]].outputs[at[1]] == shapes[place]), None))
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


def _given(made: MadeNodes, here: set[int]) -> dict[int, Operand]:
    """What each given value is: of the tensors of its shape that every call was given that takes it, and that nothing
    in the graph has made (`here`), the one that is no other given value."""
    takers: dict[int, dict[int, FollowedCall]] = {at: {} for at, node in made.nodes.items() if node.op == "device_data"}
    for at, call in made.calls.items():
        for taken, _ in made.nodes[at].operands:
            if taken in takers:
                takers[taken][call.number] = call
    found: dict[int, Operand] = {}
    possible: dict[int, dict[int, Operand]] = {}
    for at, calls in takers.items():
        value, own = made.nodes[at].outputs[0], made.calls.get(at)
        fitting = [
            {one.tensor: one for one in call.operands if one.tensor is not None and one.value == value}
            for call in calls.values()
        ]
        if own is not None:  # which has taken it first, or has brought it to the device
            brought = {number: Operand("", number, value) for number in own.made}
            of_own = {one.tensor: one for one in own.operands if one.tensor is not None and one.value == value}
            fitting.append({**brought, **of_own})
        common = {
            number: one
            for number, one in (fitting[0] if fitting else {}).items()
            if number not in here and all(number in other for other in fitting)
        }
        if common:
            possible[at] = common
    # What is certain is no other's. Of what is told by nothing the first given is the first taken: in the dump the last
    # operand of a node comes first.
    for at in reversed(list(possible)):
        certain = next((one for one in reversed(possible) if len(possible[one]) == 1), at if at in possible else None)
        while certain is not None:
            number, found[certain] = next(iter(possible.pop(certain).items()))
            for other in list(possible):
                possible[other].pop(number, None)
                if not possible[other]:
                    del possible[other]
            certain = next((one for one in reversed(possible) if len(possible[one]) == 1), None)
    return found


def _names(taken: Sequence[int | None], operands: Sequence[Operand]) -> tuple[str, ...]:
    """What the operands of a node are called, by their numbers, `NUMBER` for a number; nothing unless it is known of
    each."""
    left = list(operands)
    names: list[str] = []
    for number in taken:
        match = next((one for one in left if (NUMBER if one.is_number else one.tensor) == number), None)
        if match is None or number is None:
            return ()
        left.remove(match)
        names.append(match.name)
    return tuple(names)
