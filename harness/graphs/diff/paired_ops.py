"""One side as a list of ops: what each is, where it is, and what it takes from which other op."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from ...records.graph_record import Node, Value
from .difference_record import MINOR_ROLES, GraphPlace
from .op_kinds import kind_of, role_of
from .step_pairing import Executed

NAMED = ("parameter", "buffer", "gradient", "loss")

Source = int | str
"""Where a value comes from: an op, by its number, or the name that the script has for it."""


@dataclass(frozen=True, slots=True)
class TakenPair:
    """An input of an op: where it comes from, and the how-manieth it is."""

    source: Source
    slot: int


@dataclass(frozen=True, slots=True)
class Op:
    """One op of a step. A node that was executed twice is two, and each tensor of a `_foreach_` node is one.

    `turn` counts the forwards before it. `takes` are its inputs, without those that nothing is known about.
    `gives` are the names that the script has for its outputs. `dtypes` are the dtypes of its inputs. `call`
    is the same for all ops of one node that is executed once."""

    number: int
    call: int
    place: GraphPlace
    node: Node
    kind: str
    phase: str
    turn: int
    group: tuple[int, str] | None
    takes: tuple[TakenPair, ...]
    gives: tuple[str, ...]
    value: Value
    dtypes: tuple[str, ...]


def computing(ops: Sequence[Op]) -> tuple[Op, ...]:
    """Those that are not only views, fills or bookkeeping."""
    return tuple(op for op in ops if role_of(op.kind) not in MINOR_ROLES)


class _PairReading:
    """The ops read so far, and which of them made a value last, in the graph that is being read and before
    it."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self._earlier: dict[str, int] = {}
        self._here: dict[str, int] = {}
        self._calls = 0
        self._instances = 0
        self._seen: set[str] = set()

    def read(self, executed: Executed) -> None:
        given = set(executed.graph.inputs)
        for node in executed.graph.nodes:
            self._calls += 1
            for part in _parts(node):
                taken = tuple(self._taken(part, executed, given))
                op = _op(len(self.ops), self._calls, part, node, executed, taken, self._instances)
                makers = (self.ops[one.source] for one in taken if isinstance(one.source, int))
                turn = max([op.turn, *(_turn_after(maker, op) for maker in makers)])
                self.ops.append(replace(op, turn=turn))
                self._here.update(dict.fromkeys(part.outputs, op.number))
        self._earlier.update(self._here)
        self._here = {}
        self._instances += 1
        self._seen.add(executed.graph.name)

    def _taken(self, part: Node, executed: Executed, given: set[str]) -> Iterator[TakenPair]:
        for slot, name in enumerate(part.inputs):
            here = self._here.get(name)
            source = here if here is not None else self._given(executed, name) if name in given else None
            if source is not None:
                yield TakenPair(source, slot)

    def _given(self, executed: Executed, name: str) -> Source | None:
        """Where an input of a graph comes from: what the script calls it, else the op of an earlier graph.

        A graph that is executed again is written down with the names of its first time, so that a forward value
        may be of the wrong turn; then nothing is known about it.
        """
        graph = executed.graph
        binding = graph.values[name].binding if name in graph.values else ""
        if _is_name(binding):
            return binding
        if binding and not binding.startswith("saved "):
            return None
        found = self._earlier.get(binding.removeprefix("saved ") or name)
        if found is None or graph.name not in self._seen:
            return found
        maker = self.ops[found]
        return None if maker.phase == "forward" and maker.turn != executed.turn else found


def ops_of(step: Sequence[Executed]) -> list[Op]:
    """The ops of a step in the order of their execution."""
    reading = _PairReading()
    for executed in step:
        reading.read(executed)
    return reading.ops


def _turn_after(maker: Op, op: Op) -> int:
    return maker.turn + (op.phase == "forward" and maker.phase in ("backward", "optimizer"))


def _op(
    number: int,
    call: int,
    part: Node,
    node: Node,
    executed: Executed,
    taken: tuple[TakenPair, ...],
    instance: int,
) -> Op:
    graph = executed.graph
    bindings = [graph.values[one].binding for one in part.outputs if one in graph.values]
    return Op(
        number=number,
        call=call,
        place=GraphPlace(graph.name, node.name),
        node=node,
        kind=kind_of(node.domain, node.op),
        phase=node.phase or (graph.phase if len(graph.phases) == 1 else ""),
        turn=executed.turn,
        group=(instance, node.group) if node.group else None,
        takes=taken,
        gives=tuple(one for one in bindings if _is_name(one)),
        value=next((graph.values[one] for one in part.outputs if one in graph.values), Value()),
        dtypes=tuple(graph.values[one].dtype for one in part.inputs if one in graph.values),
    )


def _is_name(binding: str) -> bool:
    first, _, rest = binding.partition(" ")
    return first in NAMED and not rest.startswith("output ")


def _parts(node: Node) -> Iterator[Node]:
    """A `_foreach_` node as one node for each tensor of its lists; any other node as it is. What is written
    in place counts as made, also where the op's schema returns nothing."""
    if not node.op.startswith("_foreach_"):
        yield _writing(node)
        return
    lists: dict[str, list[str]] = {}
    for position, name in enumerate(node.inputs):
        what = node.input_names[position] if position < len(node.input_names) else "self"
        lists.setdefault(what, []).append(name)
    size = len(next(iter(lists.values()), ()))
    if not size or len(node.outputs) not in (0, size):
        yield _writing(node)
        return
    for number in range(size):
        taken = {
            what: names[number] if len(names) == size else names[0]
            for what, names in lists.items()
            if len(names) in (1, size)
        }
        outputs = node.outputs[number : number + 1]
        yield _writing(replace(node, inputs=tuple(taken.values()), input_names=tuple(taken), outputs=outputs))


def _writing(node: Node) -> Node:
    in_place = node.op.endswith("_") and not node.op.endswith("__")
    return replace(node, outputs=node.inputs[:1]) if in_place and not node.outputs else node
