"""Random training steps in two versions, as a whole localization compares them.

Both versions come from one random program. Each of them is rewritten at random so that it still computes the same: an op
in another way, one more op that does nothing, an op whose result nobody reads. Then a fault may be planted in one op of
version b.

The program works on registers. The first ones are parameters, which only the optimizer writes. The others are made anew
or written in place, and may be views of each other.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import astuple, dataclass, replace
from typing import Any

import torch
from hypothesis import strategies as st
from torch import Tensor, nn

from numdrift.harness.tape.recording.tape_recorder import TapeRecorder
from numdrift.harness.tape.tape import Tape

from ..tape.trainings import Training, nobody
from .random_ops import DRAWING, MAKING, NUMBERED, WRITING, Making

PARAMETERS = 3
REGISTERS = 7
NUMBERS = (0.5, 1.25, 1.5)
OPTIMIZERS: dict[str, Callable[[list[nn.Parameter]], torch.optim.Optimizer]] = {
    "sgd": lambda parameters: torch.optim.SGD(parameters, lr=0.1, foreach=False),
    "momentum on lists": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, foreach=True),
    "momentum": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9, foreach=False),
    "adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, foreach=False),
    "adamw on lists": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, foreach=True),
    "fused adamw": lambda parameters: torch.optim.AdamW(parameters, lr=0.01, fused=True),
}
ALIKE = {"momentum": "momentum on lists", "momentum on lists": "momentum", "adamw": "adamw on lists"}
"""By optimizer, one that computes the same in other ops."""

NOTHING: dict[str, Making] = {
    "clone": lambda m, x, y, c: x.clone(),
    "times one": lambda m, x, y, c: x * 1,
    "alias": lambda m, x, y, c: x.view(x.shape),
    "there and back": lambda m, x, y, c: x.reshape(-1).view(x.shape),
    "wide and back": lambda m, x, y, c: x.double().float(),
    "divided by one": lambda m, x, y, c: x / torch.ones(1),
    "scaled there and back": lambda m, x, y, c: x * 2 * 0.5,
    "stack of one": lambda m, x, y, c: torch.stack([x])[0],
    "first of a pair": lambda m, x, y, c: torch.stack([x, x.detach().tanh()]).unbind()[0],
}
"""Ops that return their argument's values."""

DEAD: dict[str, Making] = {
    "dead tanh": lambda m, x, y, c: torch.tanh(x),
    "dead write": lambda m, x, y, c: x.detach().clone().mul_(c),
    "dead draw": lambda m, x, y, c: torch.rand(3, generator=torch.Generator().manual_seed(1)),
    "dead sort": lambda m, x, y, c: x.sort(0).values if x.dim() else x,
    "dead check": lambda m, x, y, c: torch.isfinite(x.sum()),
    "dead number": lambda m, x, y, c: torch.tensor(float(x.detach().sum())),
}
"""Ops whose results nobody reads."""


LAYOUTS: Sequence[Callable[[list[Tensor]], list[Tensor]]] = (
    lambda data: data,
    lambda data: [one.transpose(0, -1).contiguous().transpose(0, -1) for one in data],
    lambda data: [one.view(shape) for one, shape in zip(
        torch.cat([one.reshape(-1) for one in data]).split([one.numel() for one in data]), [one.shape for one in data], strict=True
    )],
    lambda data: [torch.stack([one, one + 1], -1)[..., 0] for one in data],
)  # fmt: skip
"""The data, with the same values: each in memory of its own, transposed, as parts of one memory, and with gaps."""


@dataclass(frozen=True, slots=True, repr=False)
class Instruction:
    """One op: `target` is made from, or written with, `first` and `second`; `way` chooses among the op's ways.

    key: the name of the instruction's module, the same in both versions
    """

    op: str
    target: int
    first: int
    second: int
    number: float
    way: int = 0
    key: str = ""

    def __repr__(self) -> str:
        return f"Instruction{astuple(self)}"


Program = tuple[Instruction, ...]


@dataclass(frozen=True, slots=True)
class Version:
    """How one version of a step is executed.

    seed: of the random numbers that the step draws
    moved: whether the step's data have another value in one place
    laid_out: in which memory the step's data are (see LAYOUTS)
    """

    program: Program
    optimizer: str | None
    modules: bool = True
    batch: bool = False
    seed: int = 7
    moved: bool = False
    laid_out: int = 0


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault: `key` is the instruction that has it, None for the data and for the seed; `chance` chooses what it is."""

    kind: str
    key: str | None = None
    chance: int = 0

    def planted(self, version: Version) -> Version:
        """Return the version with this fault."""
        if self.kind == "seed":
            return replace(version, seed=version.seed + 1)
        if self.kind == "data":
            return replace(version, moved=True)
        program = [
            one for right in version.program for one in (self._wrong(right) if right.key == self.key else [right])
        ]
        return replace(version, program=tuple(program))

    def _wrong(self, right: Instruction) -> list[Instruction]:
        if self.kind == "number":
            return [replace(right, number=(NUMBERS * 2)[NUMBERS.index(right.number) + 1 + self.chance % 2])]
        if self.kind == "op":
            others = [op for op in ("tanh", "scale", "transpose", "add", "softmax") if op != right.op]
            return [replace(right, op=others[self.chance % len(others)], way=0)]
        if self.kind == "wiring":
            return [replace(right, first=(right.first + 1 + self.chance % (REGISTERS - 1)) % REGISTERS)]
        return [right, Instruction("scale", right.target, right.target, right.target, 1.5, key=f"{right.key}x")]


@dataclass(frozen=True, slots=True)
class Pair:
    """Two versions of a step that compute the same, and the fault that is planted in the second one."""

    a: Version
    b: Version
    fault: Fault | None = None

    @property
    def wrong(self) -> Version:
        """Version b, with the fault."""
        return self.b if self.fault is None else self.fault.planted(self.b)


class Step(Training, nn.Module):
    """One version of a step."""

    mean: Tensor
    spread: Tensor
    count: Tensor

    def __init__(self, version: Version) -> None:
        nn.Module.__init__(self)
        generator = torch.Generator().manual_seed(5)
        self.version = version
        self.weights = nn.ParameterList([torch.randn(*size, generator=generator) for size in ((4, 4), (4, 4), (4,))])
        self.shared = nn.Linear(4, 4)
        with torch.no_grad():
            self.shared.weight.copy_(torch.randn(4, 4, generator=generator) * 0.3)
            self.shared.bias.zero_()
        self.register_buffer("mean", torch.zeros(4))
        self.register_buffer("spread", torch.ones(4))
        self.register_buffer("count", torch.tensor(0))
        self.own = torch.Generator().manual_seed(3)
        sizes = ((4, 4), (2, 3, 4), (4, 4), (8,))
        self.data = [torch.randn(*size, generator=generator) for size in sizes]
        if version.moved:
            self.data[0][1, 1] += 0.5
        self.data = LAYOUTS[version.laid_out](self.data)
        self.parts = nn.ModuleDict({one.key: _Part(one) for one in version.program} if version.modules else {})
        parameters = list(self.parameters())
        self.make = None if version.optimizer is None else OPTIMIZERS[version.optimizer](parameters)
        self.called: Callable[[dict[str, Tensor]], object] = lambda tensors: None
        Training.__init__(self, self, self.make)  # type: ignore[arg-type]

    def forward(self, *data: Tensor) -> list[Tensor]:
        registers = [*self.weights, *data]
        for one in self.version.program:
            if self.version.modules:
                self.parts[one.key](self, registers)
            else:
                executed(self, one, registers)
        return registers

    def work(self) -> None:
        if self.version.batch:
            self.called({f"argument {place}": value for place, value in enumerate(self.data)})
        if self.make is None:
            with torch.no_grad():
                for place, value in enumerate(self(*self.data)[PARAMETERS:]):
                    self.saw(f"loss {place}", value.float())
            return
        self.make.zero_grad()
        found = self(*self.data)
        self.backward(torch.stack([one.float().square().sum() / 16 for one in found]).sum())
        self.make.step()

    def state(self) -> Iterator[tuple[str, Tensor]]:
        if self.make is not None:
            yield from super().state()
        else:
            yield from ((f"buffer {name}", buffer) for name, buffer in self.named_buffers())


class _Part(nn.Module):
    """An instruction as a module."""

    def __init__(self, instruction: Instruction) -> None:
        super().__init__()
        self.instruction = instruction

    def forward(self, step: Step, registers: list[Tensor]) -> None:
        executed(step, self.instruction, registers)


def executed(step: Step, one: Instruction, registers: list[Tensor]) -> None:
    """Execute an instruction on the registers."""
    first, second = registers[one.first], registers[one.second]
    if one.op in WRITING:
        target = registers[one.target]
        if target.untyped_storage().data_ptr() == first.untyped_storage().data_ptr():
            first = first.clone()
        if one.target >= PARAMETERS:
            WRITING[one.op](step, target, first, one.number)
        return
    if one.op in DEAD:
        DEAD[one.op](step, first, second, one.number)
        return
    ways = [NOTHING[one.op]] if one.op in NOTHING else MAKING.get(one.op) or DRAWING[one.op]
    registers[one.target] = ways[one.way % len(ways)](step, first, second, one.number)


def stepped(version: Version) -> tuple[Step, dict[str, Tensor]]:
    """What a version computes without a recorder."""
    step = _started(version)
    return step, step.values()


def taped(version: Version, *, note: Callable[[TapeRecorder], Any] = lambda recorder: None) -> Tape:
    """The tape of a version."""
    step = _started(version)
    recorder = TapeRecorder(0, __file__, modules=True)
    step.called = recorder.called_with
    note(recorder)
    recorder.start()
    try:
        step.step(recorder.watch)
    finally:
        recorder.stop()
    return recorder.tape()


def _started(version: Version) -> Step:
    step = Step(version)
    step.saw = nobody
    torch.manual_seed(version.seed)
    return step


def _makings(draw: st.DrawFn, *, drawing: bool) -> Instruction:
    op = draw(st.sampled_from([*MAKING, *(DRAWING if drawing else ())]))
    registers = st.integers(0, REGISTERS - 1)
    target, first, second = draw(st.integers(PARAMETERS, REGISTERS - 1)), draw(registers), draw(registers)
    return Instruction(op, target, first, second, draw(st.sampled_from(NUMBERS)))


@st.composite
def programs(draw: st.DrawFn, *, most: int = 9) -> Program:
    """A program without decompositions."""
    drawing, writing = draw(st.booleans()), draw(st.booleans())
    program: list[Instruction] = []
    for place in range(draw(st.integers(1, most))):
        one = _makings(draw, drawing=drawing)
        if writing and draw(st.integers(0, 3)) == 0:
            one = replace(one, op=draw(st.sampled_from([*WRITING])))
        program.append(replace(one, key=f"p{place}"))
    return tuple(program)


@st.composite
def rewritten(draw: st.DrawFn, program: Program, *, most: int = 3) -> Program:
    """The program in other words, up to rounding."""
    found = list(program)
    for number in range(draw(st.integers(0, most))):
        place = draw(st.integers(0, len(found) - 1))
        one = found[place]
        kind = draw(st.sampled_from(["way", "way", "nothing", "dead"]))
        if kind == "way":
            found[place] = replace(one, way=draw(st.integers(1, 3)))
            continue
        register = draw(st.integers(PARAMETERS, REGISTERS - 1))
        op = draw(st.sampled_from([*(NOTHING if kind == "nothing" else DEAD)]))
        key = f"{one.key}{kind[0]}{number}"
        found.insert(place, Instruction(op, register, register, register, 1.5, key=key))
    return tuple(found)


FAULTS = ("number", "number", "op", "wiring", "extra", "data", "seed")


@st.composite
def pairs(draw: st.DrawFn, *, faults: Sequence[str] = (), most: int = 9) -> Pair:
    """Two versions of a step that differ in their words and, unless `faults` is empty, in a fault of these kinds."""
    program = draw(programs(most=most))
    optimizer = draw(st.one_of(st.none(), st.sampled_from([*OPTIMIZERS])))
    a = Version(draw(rewritten(program)), optimizer, draw(st.booleans()), draw(st.booleans()))
    other = ALIKE.get(optimizer or "", optimizer) if draw(st.booleans()) else optimizer
    a = replace(a, laid_out=draw(st.sampled_from([0, 0, *range(len(LAYOUTS))])))
    laid_out = draw(st.sampled_from([a.laid_out, a.laid_out, *range(len(LAYOUTS))]))
    b = replace(a, program=draw(rewritten(program)), optimizer=other, laid_out=laid_out)
    if not faults:
        return Pair(a, b)
    kind = draw(st.sampled_from(faults))
    keys = [one.key for one in program if one.op not in WRITING and (kind != "number" or one.op in NUMBERED)]
    if kind in ("seed", "data") or not keys:
        return Pair(a, b, Fault("seed" if kind == "seed" else "data"))
    return Pair(a, b, Fault(kind, draw(st.sampled_from(keys)), draw(st.integers(0, 11))))
