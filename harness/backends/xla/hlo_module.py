"""An HLO module's text as data, and as a graph of the record: what XLA executes, each fusion with the ops in it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from ...records.graph_record import PHASES, Graph, Node, Value

DTYPES = {
    "pred": "bool",
    "s8": "int8",
    "s16": "int16",
    "s32": "int32",
    "s64": "int64",
    "u8": "uint8",
    "u16": "uint16",
    "u32": "uint32",
    "u64": "uint64",
    "f16": "float16",
    "bf16": "bfloat16",
    "f32": "float32",
    "f64": "float64",
    "c64": "complex64",
    "c128": "complex128",
}

GIVEN = ("parameter", "constant")
PASSED = ("tuple", "get-tuple-element")
"""Opcodes that compute nothing: a value from outside, and one that is handed on."""

_HEAD = re.compile(r"^(ENTRY )?%?([\w.-]+) \(.*\) -> .* \{$")
_LINE = re.compile(r"^\s+(ROOT )?%?([\w.-]+) = (\(.*?\)|\S+) ([\w-]+)\((.*)$")
_SHAPE = re.compile(r"\b([a-z]+\d*)\[([\d,<=]*)\]")
_OPERAND = re.compile(r"%([\w.-]+)")
_CALLED = re.compile(r"\b(?:calls|to_apply)=%?([\w.-]+)")
CALLING = ("fusion", "call")
"""Opcodes whose computation is what they compute; with `call` XLA shares a fusion out among threads."""

_OP = re.compile(r'op_type="(\w+?)__(\w+)"')
_METADATA = re.compile(r", metadata=\{.*?\}")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction. `made_of` is the op of torch that it was lowered from (`aten.addmm`), "" where that is not
    known; `calls` the computation of a fusion."""

    name: str
    opcode: str
    shapes: tuple[Value, ...]
    operands: tuple[str, ...]
    attributes: str
    made_of: str
    calls: str
    is_root: bool
    text: str


@dataclass(frozen=True, slots=True)
class HloModule:
    """The computations of a module by their names, each a list of instructions; `entry` is the one that is run."""

    computations: Mapping[str, Sequence[Instruction]]
    entry: str

    def fused(self, instruction: Instruction) -> Iterator[Instruction]:
        """The instructions in a fusion, those of fusions in it as well."""
        for inner in self.computations.get(instruction.calls, ()):
            yield inner
            yield from self.fused(inner)


def read_hlo(text: str) -> HloModule:
    """Read a module's text, as `--xla_dump_hlo_as_text` writes it."""
    computations: dict[str, list[Instruction]] = {}
    entry, into = "", list[Instruction]()
    for line in text.splitlines():
        head = _HEAD.match(line)
        if head is not None:
            into = computations.setdefault(head[2], [])
            entry = head[2] if head[1] else entry
            continue
        found = _LINE.match(line)
        if found is not None:
            root, name, shape, opcode, rest = found.groups()
            into.append(_instruction(root, name, shape, opcode, rest, line.strip()))
    return HloModule(computations, entry or next(reversed(computations), ""))


def _instruction(root: str | None, name: str, shape: str, opcode: str, rest: str, text: str) -> Instruction:
    operands, attributes = _arguments(rest)
    of, called = _OP.search(attributes), _CALLED.search(attributes)
    return Instruction(
        name=name,
        opcode=opcode,
        shapes=tuple(values_in(shape)),
        operands=tuple(_OPERAND.findall(operands)),
        attributes=_METADATA.sub("", attributes).lstrip(", "),
        made_of="" if of is None or of[1] not in ("aten", "prims") else f"{of[1]}.{of[2]}",
        calls="" if called is None or opcode not in CALLING else called[1],
        is_root=bool(root),
        text=_METADATA.sub("", text),
    )


def _arguments(rest: str) -> tuple[str, str]:
    """What stands between the brackets of an instruction, and what comes after."""
    depth = 1
    for at, character in enumerate(rest):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if not depth:
            return rest[:at], rest[at + 1 :]
    return rest, ""


def values_in(shape: str) -> Iterator[Value]:
    """The values of a shape, which may be a tuple's."""
    for dtype, sizes in _SHAPE.findall(shape):
        yield Value(DTYPES.get(dtype, dtype), tuple(int(re.sub(r"\D", "", size)) for size in sizes.split(",") if size))


def post_graph(module: HloModule, pre: Graph) -> Graph:
    """What XLA has made of a graph: its entry computation, each fusion a node whose `body` is what it computes.

    `covers` are the nodes of `pre` that a node was lowered from, as far as the op, or the op with the shape of its
    result, tells them apart.
    """
    known: dict[tuple[str, tuple[int | str, ...] | None], list[str]] = defaultdict(list)
    for node in pre.nodes:
        for shape in (None, pre.values[node.outputs[0]].shape):
            known[f"{node.domain}.{node.op}", shape].append(node.name)

    def covered(instructions: Sequence[Instruction]) -> tuple[str, ...]:
        found: dict[str, None] = {}
        for one in instructions:
            shape = one.shapes[0].shape if one.shapes else None
            for names in (known[one.made_of, None], known[one.made_of, shape]):
                if len(names) == 1:
                    found[names[0]] = None
        return tuple(found)

    entry = module.computations.get(module.entry, ())
    same = {one.name: one.operands[0] for one in entry if one.opcode == "get-tuple-element" and one.operands}

    def named(name: str) -> str:
        return named(same[name]) if name in same else name

    phases = {node.name: node.phase for node in pre.nodes}

    def phase_in(instructions: Sequence[Instruction]) -> str:
        """The latest phase of what the instructions were lowered from, as far as an op is of one phase alone."""
        found = {phases[name] for name in covered(instructions)}
        for one in instructions:
            possible = {phases[name] for name in known[one.made_of, None]}
            found |= possible if len(possible) == 1 else set()
        return max(found, key=lambda phase: PHASES.index(phase) if phase in PHASES else -1, default="")

    constants = {one.name for one in entry if one.opcode == "constant"}
    nodes: list[Node] = []
    values: dict[str, Value] = {}
    for one in entry:
        values[one.name] = one.shapes[0] if one.shapes else Value()
        if one.opcode in (*GIVEN, *PASSED):
            continue
        inside = [inner for inner in module.fused(one) if inner.opcode not in (*GIVEN, *PASSED)]
        covers = covered([one, *inside])
        body = tuple(
            Node(
                name=inner.name,
                op=inner.opcode,
                domain="hlo",
                inputs=inner.operands,
                outputs=(inner.name,),
                attributes={"hlo": inner.attributes} if inner.attributes else {},
                original=inner.made_of,
            )
            for inner in inside
        )
        nodes.append(
            Node(
                name=one.name,
                op=one.opcode,
                domain="hlo",
                phase=phase_in([one, *inside]),
                inputs=tuple(named(name) for name in one.operands if name not in constants),
                outputs=(one.name,),
                attributes={"hlo": one.attributes} if one.attributes else {},
                original=one.made_of,
                covers=covers,
                body=body,
                code="\n".join((one.text, *(f"  {inner.text}" for inner in module.fused(one)))) if body else "",
            )
        )
    root = next((one for one in reversed(entry) if one.is_root), None)
    outputs: tuple[str, ...] = ()
    if root is not None:
        outputs = tuple(named(name) for name in root.operands) if root.opcode == "tuple" else (root.name,)
    inputs = tuple(one.name for one in entry if one.opcode == "parameter")
    used = {name for node in nodes for name in (*node.inputs, *node.outputs)} | set(inputs) | set(outputs)
    for place, name in enumerate(inputs):
        values[name] = replace(values[name], binding=f"input {place}")
    return Graph(
        name="",
        mode="",
        stage="post",
        phase=pre.phase,
        step=pre.step,
        nodes=tuple(nodes),
        values={name: value for name, value in values.items() if name in used},
        inputs=inputs,
        outputs=tuple(dict.fromkeys(outputs)),
    )
