"""Parse the text of an HLO module."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...records.tools.graph_record import Value
from ...tape.origin import CALLED_FROM
from ..followed_kernels import call_on

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

_HEAD = re.compile(r"^(ENTRY )?%?([\w.-]+) \(.*\) -> .* \{$")
_LINE = re.compile(r"^\s+(ROOT )?%?([\w.-]+) = (\(.*?\)|\S+) ([\w-]+)\((.*)$")
_SHAPE = re.compile(r"\b([a-z]+\d*)\[([\d,<=]*)\]")
_OPERAND = re.compile(r"%([\w.-]+)")
_CALLED = re.compile(r"\b(?:calls|to_apply)=%?([\w.-]+)")
CALLING = ("fusion", "call")
"""Opcodes whose result is that of the computation they call. XLA uses `call` to distribute a fusion among threads."""

_OP = re.compile(r'op_type="(\w+?)__(\w+)"')
_LINE_OF_CALL = re.compile(rf'source_file="{CALLED_FROM}" source_line=(\d+)')
_METADATA = re.compile(r", metadata=\{.*?\}")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction.

    made_of: the op of torch or torch_xla that it was lowered from (`aten.addmm`), "" if unknown.
    call: the number of the kernel call that made the op's node.
    calls: the name of the computation that a fusion calls.
    """

    name: str
    opcode: str
    shapes: tuple[Value, ...]
    operands: tuple[str, ...]
    attributes: str
    made_of: str
    call: int | None
    calls: str
    is_root: bool
    text: str


@dataclass(frozen=True, slots=True)
class HloModule:
    """The computations of a module by name, each a list of instructions. `entry` names the one that is executed."""

    computations: Mapping[str, Sequence[Instruction]]
    entry: str

    def fused(self, instruction: Instruction) -> Iterator[Instruction]:
        """Yield the instructions in a fusion, including those of nested fusions."""
        for inner in self.computations.get(instruction.calls, ()):
            yield inner
            yield from self.fused(inner)


def read_hlo(text: str) -> HloModule:
    """Parse a module's text in the form that `--xla_dump_hlo_as_text` writes."""
    computations: dict[str, list[Instruction]] = {}
    entry, instructions = "", list[Instruction]()
    for line in text.splitlines():
        head = _HEAD.match(line)
        if head is not None:
            instructions = computations.setdefault(head[2], [])
            entry = head[2] if head[1] else entry
            continue
        match = _LINE.match(line)
        if match is not None:
            root, name, shape, opcode, rest = match.groups()
            instructions.append(_instruction(root, name, shape, opcode, rest, line.strip()))
    return HloModule(computations, entry or next(reversed(computations), ""))


def _instruction(root: str | None, name: str, shape: str, opcode: str, rest: str, text: str) -> Instruction:
    operands, attributes = _arguments(rest)
    op, called, line = _OP.search(attributes), _CALLED.search(attributes), _LINE_OF_CALL.search(attributes)
    is_op = op is not None and op[1] in ("aten", "prims", "xla") and op[2] != "device_data"
    return Instruction(
        name=name,
        opcode=opcode,
        shapes=tuple(values_in(shape)),
        operands=tuple(_OPERAND.findall(operands)),
        attributes=_METADATA.sub("", attributes).lstrip(", "),
        made_of=f"{op[1]}.{op[2]}" if op is not None and is_op else "",
        call=None if line is None else call_on(int(line[1])),
        calls="" if called is None or opcode not in CALLING else called[1],
        is_root=bool(root),
        text=_METADATA.sub("", text),
    )


def _arguments(rest: str) -> tuple[str, str]:
    """Split the text after an instruction's opening bracket. Return the text within the brackets, and the rest."""
    depth = 1
    for index, character in enumerate(rest):
        depth += {"(": 1, ")": -1}.get(character, 0)
        if not depth:
            return rest[:index], rest[index + 1 :]
    return rest, ""


def values_in(shape: str) -> Iterator[Value]:
    """Yield the values of a shape, which may be a tuple's."""
    for dtype, sizes in _SHAPE.findall(shape):
        yield Value(DTYPES.get(dtype, dtype), tuple(int(re.sub(r"\D", "", size)) for size in sizes.split(",") if size))
