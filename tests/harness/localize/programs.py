"""Random small programs on a few registers, and random edits of them: what two tapes may look like, in general.

Registers hold 4 x 4 tensors. The first ones are parameters, which are only ever written in place; the others are bound anew or
written in place, and may be views of each other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from hypothesis import strategies as st
from torch import Tensor

from numdrift.harness.tape.tape import Tape

from ..tape.trainings import Training
from .pairs import taped

PARAMETERS = 2
REGISTERS = 6


@dataclass(frozen=True, slots=True)
class Instruction:
    """`target` is made from, or written with, `first` and `second`; `number` is a constant in it."""

    op: str
    target: int
    first: int
    second: int
    number: float


Program = tuple[Instruction, ...]


def _parts(x: Tensor, y: Tensor, number: float) -> Tensor:
    upper, lower = x.split(2)
    return torch.cat([lower * number, y[:2], upper])[1:5]


MAKING: dict[str, Callable[[Tensor, Tensor, float], Tensor]] = {
    "add": lambda x, y, c: torch.add(x, y, alpha=c),
    "mul": lambda x, y, c: x * y,
    "product": lambda x, y, c: x @ y * 0.25,
    "tanh": lambda x, y, c: torch.tanh(x),
    "scale": lambda x, y, c: x * c,
    "gelu": lambda x, y, c: torch.nn.functional.gelu(x, approximate="tanh" if c > 1 else "none"),
    "softmax": lambda x, y, c: torch.softmax(x, -1),
    "parts": _parts,
    "sums": lambda x, y, c: x.sum(0, keepdim=True) + y.mean(1, keepdim=True),
    "clone": lambda x, y, c: x.clone(),
    "transpose": lambda x, y, c: x.t(),
    "alias": lambda x, y, c: x[:],
    "sorted": lambda x, y, c: x.sort(0).values,
}

WRITING: dict[str, Callable[[Tensor, Tensor, float], object]] = {
    "add_": lambda x, y, c: x.add_(y, alpha=c),
    "copy_": lambda x, y, c: x.copy_(y),
    "row_": lambda x, y, c: x[1].mul_(c),
    "column_": lambda x, y, c: x[:, 2:].add_(y[:, :1]),
    "tanh_": lambda x, y, c: x.tanh_(),
}

DRAWING: dict[str, Callable[[Tensor, Tensor, float], Tensor]] = {
    "noise": lambda x, y, c: x + torch.randn(4, 4),
    "dropout": lambda x, y, c: torch.nn.functional.dropout(x, 0.5),
}


def instructions(*, in_place: bool = True, drawing: bool = False) -> st.SearchStrategy[Instruction]:
    numbers, registers = st.sampled_from([0.5, 1.25, 1.5]), st.integers(0, REGISTERS - 1)
    making = [*MAKING, *(DRAWING if drawing else ())]
    made = st.builds(
        Instruction,
        st.sampled_from(making),
        st.integers(PARAMETERS, REGISTERS - 1),
        registers,
        registers,
        numbers,
    )
    written = st.builds(Instruction, st.sampled_from([*WRITING]), registers, registers, registers, numbers)
    return st.one_of(made, made, written) if in_place else made


def programs(*, in_place: bool = True, drawing: bool = False) -> st.SearchStrategy[Program]:
    found = st.lists(instructions(in_place=in_place, drawing=drawing), min_size=2, max_size=14)
    return found.map(tuple)


@st.composite
def edits(draw: st.DrawFn, *, in_place: bool = True, drawing: bool = False, most: int = 4) -> tuple[Program, Program]:
    """A program, and the same with some instructions removed, inserted, replaced or moved."""
    program = draw(programs(in_place=in_place, drawing=drawing))
    other = list(program)
    for _ in range(draw(st.integers(1, most))):
        kind = draw(st.sampled_from(["insert", "remove", "replace", "move"]))
        place = draw(st.integers(0, max(0, len(other) - 1)))
        if kind == "insert" or not other:
            other.insert(place, draw(instructions(in_place=in_place, drawing=drawing)))
        elif kind == "remove":
            other.pop(place)
        elif kind == "replace":
            other[place] = draw(instructions(in_place=in_place, drawing=drawing))
        else:
            other.insert(draw(st.integers(0, len(other) - 1)), other.pop(place))
    return program, tuple(other)


def start() -> list[Tensor]:
    """The registers at the beginning: the parameters come from before the step."""
    generator = torch.Generator().manual_seed(5)
    return [torch.randn(4, 4, generator=generator) for _ in range(REGISTERS)]


def executed(program: Sequence[Instruction], registers: list[Tensor]) -> list[Tensor]:
    """The registers at the end; those at the beginning are written."""
    held = [*registers]
    for one in program:
        first, second = held[one.first], held[one.second]
        if one.op in WRITING:
            target = held[one.target]
            same = {target.untyped_storage().data_ptr()} & {first.untyped_storage().data_ptr()}
            WRITING[one.op](target, first.clone() if same else first, one.number)
        else:
            function = MAKING[one.op] if one.op in MAKING else DRAWING[one.op]
            held[one.target] = function(first, second, one.number)
    return held


def tape_of(program: Program) -> Tape:
    """The tape of a program that computes without gradients, in the registers' own memory."""
    torch.manual_seed(11)
    registers = start()

    def work(saw: Callable[[str, Tensor], None]) -> None:
        with torch.no_grad():
            for number, value in enumerate(executed(program, registers)):
                kind = "buffer" if number < PARAMETERS else "loss"
                saw(f"{kind} r{number}", value if number < PARAMETERS else value.square())

    return taped(work)


class Machine(torch.nn.Module):
    """A program as a module of modules, every instruction in one of three, with the parameters as its weights."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self.weights = torch.nn.ParameterList([torch.nn.Parameter(one) for one in start()[:PARAMETERS]])
        size = (len(program) + 2) // 3
        self.parts = torch.nn.ModuleList([Part(program[size * n : size * (n + 1)]) for n in range(3)])

    def forward(self, rest: list[Tensor]) -> list[Tensor]:
        registers = [*self.weights, *rest]
        for part in self.parts:
            registers = part(registers)
        return registers


class Part(torch.nn.Module):
    def __init__(self, program: Program) -> None:
        super().__init__()
        self.program = program

    def forward(self, registers: list[Tensor]) -> list[Tensor]:
        return executed(self.program, registers)


class Learning(Training):
    """A program without writes in place as the forward of a step, with a backward and an optimizer."""

    def __init__(self, program: Program) -> None:
        self.machine = Machine(program)
        super().__init__(self.machine, torch.optim.SGD(self.machine.parameters(), lr=0.1, momentum=0.9))

    def work(self) -> None:
        self.optimizer.zero_grad()
        found = self.machine(start()[PARAMETERS:])
        self.backward(torch.stack([one.tanh().mean() for one in found]).sum())
        self.optimizer.step()


def learned(program: Program) -> Tape:
    """The tape of a program as a training step."""
    torch.manual_seed(11)
    return Learning(program).taped()
