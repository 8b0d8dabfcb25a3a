"""An HLO module's text as data."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...records.graph_record import Value
from ...tape.origin import CALLED_FROM
from ..followed_calls import call_on

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
"""Opcodes whose computation is what they compute; with `call` XLA shares a fusion out among threads."""

_OP = re.compile(r'op_type="(\w+?)__(\w+)"')
_LINE_OF_CALL = re.compile(rf'source_file="{CALLED_FROM}" source_line=(\d+)')
_METADATA = re.compile(r", metadata=\{.*?\}")


@dataclass(frozen=True, slots=True)
class Instruction:
    """One instruction. `made_of` is the op of torch or of torch_xla that it was lowered from (`aten.addmm`), "" where
    that is not known, and `call` the number of the kernel call in which that was made; `calls` is the computation of a
    fusion."""

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
    of, called, line = _OP.search(attributes), _CALLED.search(attributes), _LINE_OF_CALL.search(attributes)
    is_op = of is not None and of[1] in ("aten", "prims", "xla") and of[2] != "device_data"
    return Instruction(
        name=name,
        opcode=opcode,
        shapes=tuple(values_in(shape)),
        operands=tuple(_OPERAND.findall(operands)),
        attributes=_METADATA.sub("", attributes).lstrip(", "),
        made_of=f"{of[1]}.{of[2]}" if of is not None and is_op else "",
        call=None if line is None else call_on(int(line[1])),
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
