"""One side as a list of ops, each with its kind, its place, and the ops that its inputs come from."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ...records.tools.graph_record import Node, Value
from .difference_record import MINOR_ROLES, Cast, GraphPlace, OpCount, phase_place
from .op_kinds import kind_of, kind_of_name, role_of, spelled
from .step_pairing import Executed

NAMED = ("parameter", "buffer", "gradient", "loss")

Source = int | str
"""The origin of a value: the number of an op, or the script's name for the value."""


@dataclass(frozen=True, slots=True)
class TakenPair:
    """An input of an op: its origin, and its position among the inputs."""

    source: Source
    slot: int


@dataclass(frozen=True, slots=True)
class Op:
    """One op of a step. A node that was executed twice is two ops, and so is a `_foreach_` node with two tensors.

    call: the same number for all ops of one execution of a node
    turn: the number of forwards before the op
    takes: its inputs whose origin is known
    gives: the script's names for its outputs
    dtypes: the dtypes of its inputs
    """

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
    """Return the ops that are not mere views, fills or bookkeeping."""
    return tuple(op for op in ops if role_of(op.kind) not in MINOR_ROLES)


class _PairReading:
    """The ops read so far, and the last op that made each value, both in the current graph and in earlier graphs."""

    def __init__(self) -> None:
        self.ops: list[Op] = []
        self._earlier: dict[str, int] = {}
        self._current: dict[str, int] = {}
        self._calls = 0
        self._instances = 0
        self._seen: set[str] = set()

    def read(self, executed: Executed) -> None:
        graph = executed.graph
        graph_inputs = set(graph.inputs)
        for node in graph.nodes:
            self._calls += 1
            for part in _parts(node):
                inputs = []
                for slot, name in enumerate(part.inputs):
                    source: Source | None = self._current.get(name)
                    if source is None and name in graph_inputs:
                        source = self._origin_of_input(executed, name)
                    if source is not None:
                        inputs.append(TakenPair(source, slot))
                phase = node.phase or (graph.phase if len(graph.phases) == 1 else "")
                # A forward op that reads from a backward or an optimizer step belongs to a later turn than these,
                # whatever the order of the graphs.
                makers = [self.ops[op_input.source] for op_input in inputs if isinstance(op_input.source, int)]
                turns = [
                    maker.turn + (phase == "forward" and maker.phase in ("backward", "optimizer")) for maker in makers
                ]
                bindings = [graph.values[output].binding for output in part.outputs if output in graph.values]
                op = Op(
                    number=len(self.ops),
                    call=self._calls,
                    place=GraphPlace(graph.name, node.name),
                    node=node,
                    kind=_kind(node),
                    phase=phase,
                    turn=max([executed.turn, *turns]),
                    group=(self._instances, node.group) if node.group else None,
                    takes=tuple(inputs),
                    gives=tuple(binding for binding in bindings if _is_name(binding)),
                    value=next((graph.values[output] for output in part.outputs if output in graph.values), Value()),
                    dtypes=tuple(graph.values[tensor].dtype for tensor in part.inputs if tensor in graph.values),
                )
                self.ops.append(op)
                self._current.update(dict.fromkeys(part.outputs, op.number))
        # While a graph is read, its names apply only within it. Afterwards they replace equal names of earlier graphs.
        self._earlier.update(self._current)
        self._current = {}
        self._instances += 1
        self._seen.add(graph.name)

    def _origin_of_input(self, executed: Executed, name: str) -> Source | None:
        """Return the origin of a graph's input: the script's name for it, else the op of an earlier graph.

        A graph that is executed again is recorded with the names of its first execution. A forward value of the wrong
        turn therefore has no known origin.
        """
        graph = executed.graph
        binding = graph.values[name].binding if name in graph.values else ""
        if _is_name(binding):
            return binding
        if binding and not binding.startswith("saved "):
            return None
        maker_number = self._earlier.get(binding.removeprefix("saved ") or name)
        if maker_number is None or graph.name not in self._seen:
            return maker_number
        maker = self.ops[maker_number]
        return None if maker.phase == "forward" and maker.turn != executed.turn else maker_number


def ops_of(step: Sequence[Executed]) -> list[Op]:
    """Return the ops of a step in the order of their execution."""
    reading = _PairReading()
    for executed in step:
        reading.read(executed)
    return reading.ops


def _kind(node: Node) -> str:
    """Return the kind of a node's op.

    If a backend has another name for the op, return the kind of the op that was called (torch_xla has `matmul` where
    `bmm` was called).
    """
    return kind_of_name(node.original) if node.original and not node.group else kind_of(node.domain, node.op)


def _is_name(binding: str) -> bool:
    first, _, rest = binding.partition(" ")
    return first in NAMED and not rest.startswith("output ")


def _parts(node: Node) -> Iterator[Node]:
    """Yield one node for each tensor of a `_foreach_` node's lists, and any other node unchanged.

    A tensor that is written in place counts as an output, even if the op's schema returns nothing.
    """
    if not node.op.startswith("_foreach_"):
        yield _writing(node)
        return
    lists: dict[str, list[str]] = {}
    for position, name in enumerate(node.inputs):
        argument_name = node.input_names[position] if position < len(node.input_names) else "self"
        lists.setdefault(argument_name, []).append(name)
    # `_foreach_mul([a, b], [c, d])` is `mul(a, c)` and `mul(b, d)`. An argument that is one tensor instead of a list is
    # read by each of these ops.
    size = len(next(iter(lists.values()), ()))
    if not size or len(node.outputs) not in (0, size):
        yield _writing(node)
        return
    for number in range(size):
        inputs = {
            argument: names[number] if len(names) == size else names[0]
            for argument, names in lists.items()
            if len(names) in (1, size)
        }
        outputs = node.outputs[number : number + 1]
        yield _writing(replace(node, inputs=tuple(inputs.values()), input_names=tuple(inputs), outputs=outputs))


def _writing(node: Node) -> Node:
    # `add_` writes to its first input; `__and__` also ends in an underscore, but writes to nothing.
    in_place = node.op.endswith("_") and not node.op.endswith("__")
    return replace(node, outputs=node.inputs[:1]) if in_place and not node.outputs else node


# The count of each op on each side, and the dtype casts that only one side has.

FLOATS = ("float16", "bfloat16", "float32", "float64", "float8_e4m3fn", "float8_e5m2")

CastKey = tuple[str, str, str]
"""Phase, dtype before, dtype after."""


def count_ops(a: Sequence[Op], b: Sequence[Op]) -> list[OpCount]:
    """Return the counts of every op of either side, by phase, the largest differences first."""
    counted = [Counter((op.phase, op.kind) for op in ops) for ops in (a, b)]
    keys = sorted(
        counted[0] | counted[1],
        key=lambda key: (phase_place(key[0]), -abs(counted[0][key] - counted[1][key]), key[1]),
    )
    return [
        OpCount(phase, spelled(kind), counted[0][phase, kind], counted[1][phase, kind], role_of(kind))
        for phase, kind in keys
    ]


def casts_on_one_side(a: Sequence[Op], b: Sequence[Op], alone: Collection[int]) -> list[Cast]:
    """Return the casts that one side has more often than the other.

    `alone` contains the `id`s of ops without a partner. Among casts of one kind, the result names these ops first.
    """
    casts_of_sides = (_casts(a), _casts(b))
    casts = []
    for side, ops_by_key, others in (
        ("a", casts_of_sides[0], casts_of_sides[1]),
        ("b", casts_of_sides[1], casts_of_sides[0]),
    ):
        for key, ops in ops_by_key.items():
            more = len(ops) - len(others.get(key, ()))
            if more > 0:
                named = sorted(ops, key=lambda op: (id(op) not in alone, op.number))[:more]
                places: tuple[GraphPlace, ...] = tuple(op.place for op in named)
                casts.append(Cast(side, *key, more, places))
    return sorted(casts, key=lambda cast: (phase_place(cast.phase), cast.side, cast.from_dtype, cast.to_dtype))


def _casts(ops: Sequence[Op]) -> Mapping[CastKey, list[Op]]:
    """Return the ops that cast, by phase and dtypes.

    A cast counts whatever its dtypes are. Any other op counts only if it turns one float dtype into another.
    """
    ops_by_key: dict[CastKey, list[Op]] = defaultdict(list)
    for op in ops:
        after, floats = op.value.dtype, [dtype for dtype in op.dtypes if dtype in FLOATS]
        if role_of(op.kind) == "cast":
            before = op.dtypes[0] if op.dtypes else ""
        else:  # `mul` of float32 and bfloat16 casts nothing if its result has the dtype of one of them
            before = floats[0] if floats and after in FLOATS and after not in floats else ""
        if before and after and after != before:
            ops_by_key[op.phase, before, after].append(op)
    return ops_by_key
