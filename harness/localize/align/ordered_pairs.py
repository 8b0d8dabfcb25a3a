"""The pairs of two tapes' units that follow from their order.

An op of one side alone must not shift the ops around it, and two sides may execute ops that look the same in different
orders.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence

from .common_subsequence import common_subsequence
from .op_units import OpUnit
from .storage_flow import StorageFlow

Pairs = dict[int, int]
"""The number of each paired unit of side a, with the number of its partner on side b."""


def turned(pairs: Pairs) -> Pairs:
    return {j: i for i, j in pairs.items()}


def in_order(left: Sequence[OpUnit], right: Sequence[OpUnit], a: StorageFlow, b: StorageFlow) -> Pairs:
    """Pair units that agree in place, name and look, in their order.

    Units whose surroundings agree as well are paired first. The other units are then paired between two of those, so
    that an additional op shifts no op of the same name and look:

        side a    mul (x, 2)                 add    mul (y, 2)    add
        side b    mul (x, 2)    mul (1.02)   add    mul (y, 2)    add
    """
    surroundings_a, surroundings_b = _surroundings(left, a), _surroundings(right, b)
    parts: dict[Hashable, tuple[list[int], list[int]]] = {}
    for side, units in enumerate((left, right)):
        for number, unit in enumerate(units):
            parts.setdefault(unit.place[:2], ([], []))[side].append(number)

    def look(unit: OpUnit) -> Hashable:
        return unit.place, unit.name, unit.look

    pairs = Pairs()
    for numbers_a, numbers_b in parts.values():
        alike_around = common_subsequence(
            [(look(left[n]), surroundings_a[n]) for n in numbers_a],
            [(look(right[n]), surroundings_b[n]) for n in numbers_b],
        )
        pairs |= {numbers_a[i]: numbers_b[j] for i, j in alike_around}
        begin_a = begin_b = 0
        for i, j in (*alike_around, (len(numbers_a), len(numbers_b))):
            between_a, between_b = numbers_a[begin_a:i], numbers_b[begin_b:j]
            common = common_subsequence([look(left[n]) for n in between_a], [look(right[n]) for n in between_b])
            pairs |= {between_a[m]: between_b[n] for m, n in common}
            begin_a, begin_b = i + 1, j + 1
    return pairs | paired_by(left, right, pairs, lambda unit: unit.place[:2], look)


def _surroundings(units: Sequence[OpUnit], flow: StorageFlow) -> list[Hashable]:
    """Return each unit's name and numbers, those of the units whose results it reads, and the names of its readers."""
    home = {node: number for number, unit in enumerate(units) for node in unit.nodes}
    own, sources = list[Hashable](), list[list[int | None]]()
    for unit in units:
        arguments = [argument for node in unit.nodes for argument in flow.nodes[node].arguments]
        own.append(
            (unit.name, *(str(leaf) for leaf, use in arguments if use is None and isinstance(leaf, int | float)))
        )
        makers = (flow.makers.get(use.value) for _, use in arguments if use is not None)
        sources.append([None if maker is None else home[maker] for maker in makers])
    return [
        (own[number], *(None if source is None else own[source] for source in sources[number]), unit.readers)
        for number, unit in enumerate(units)
    ]


def paired_by(
    left: Sequence[OpUnit],
    right: Sequence[OpUnit],
    pairs: Pairs,
    within: Callable[[OpUnit], Hashable],
    key: Callable[[OpUnit], Hashable],
) -> Pairs:
    """Pair units that `pairs` lacks and whose keys are equal, in order, within the same part of the step."""
    parts: dict[Hashable, tuple[list[int], list[int]]] = {}
    for units, paired, side in ((left, pairs.keys(), 0), (right, set(pairs.values()), 1)):
        for number, unit in enumerate(units):
            if number not in paired:
                parts.setdefault(within(unit), ([], []))[side].append(number)
    matched = Pairs()
    for numbers_a, numbers_b in parts.values():
        common = common_subsequence([key(left[n]) for n in numbers_a], [key(right[n]) for n in numbers_b])
        matched |= {numbers_a[i]: numbers_b[j] for i, j in common}
    return matched


def by_readers(units: Sequence[OpUnit], other_units: Sequence[OpUnit], pairs: Pairs) -> Pairs:
    """Correct each pair whose results are read by different ops on the two sides. The partner is paired instead with an
    unpaired unit that looks like the first unit and whose results are read by the same ops as the partner's.

    If one side has more units of a look than the other, the first of them was paired, and it may be the wrong one. For
    example, the backward of a normalization divides x by its norm, and then the quotient by the norm again. A compiler
    has the quotient from the forward and divides only once: its division corresponds to the second one.
    """
    free: dict[Hashable, list[int]] = {}
    for number, unit in enumerate(units):
        if number not in pairs:
            free.setdefault((unit.place, unit.name, unit.look, unit.readers), []).append(number)
    result = dict(pairs)
    for number, partner in pairs.items():
        unit, readers = units[number], other_units[partner].readers
        better = free.get((unit.place, unit.name, unit.look, readers))
        if unit.readers != readers and better:
            del result[number]
            result[better.pop(0)] = partner
    return result
