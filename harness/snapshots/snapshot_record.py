"""One execution as a snapshot holds it: a tape of its calls, and what its inputs and outputs are to the script."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Literal

import torch

from ..records.execution_facts import INPUTS, OUTPUTS, Execution
from ..tape.tape import Call, Tape, View, Watched, leaves, views_in

Reason = Literal["chosen", "nonfinite", "error", "drift"]
"""The reason for a snapshot: a user chose it, or an event happened."""

INDUCTOR_RANDOM = "inductor_rand"
"""In the names of the ops that draw by Inductor's own generator, which only Inductor has: `prims.inductor_random`,
`prims.inductor_randint`."""

AFTERWARDS = " afterwards"
"""The suffix of the names of inputs that the execution has written, as outputs."""

CHANGING = ("parameter", "buffer", "state")
"""The kinds of tensors that a training changes: where such a tensor is pending, its name also means a value from
before."""

SENSITIVE = {
    "parameter": "parameters",
    "buffer": "buffers",
    "state": "parts of the optimizer's state",
    "gradient": "gradients",
    "input": "inputs of the script, its batch",
    "saved": "what the forward kept, activations or parts of the batch",
}
"""The meaning of the first word of a port's name, for values that may be confidential."""


@dataclass(frozen=True, slots=True)
class Port:
    """An input or an output. `name` is its role in the script, as `parameter net.0.weight`, `gradient net.0.weight`,
    `input 0`, `loss`, or else the op that made it; `view` is its place on the tape."""

    name: str
    view: View

    @property
    def kind(self) -> str:
        return self.name.partition(" ")[0]


@dataclass(frozen=True, slots=True, eq=False)
class Hlo:
    """The module that XLA received, as `text` and, serialized, as an HloModuleProto. Its `parameters` are inputs of the
    snapshot, its results the outputs, in their order."""

    text: str
    proto: bytes
    parameters: tuple[View, ...]


@dataclass(frozen=True, slots=True)
class Circumstances:
    """The circumstances of an execution: the mode's name and specification, the process, and the facts that decide its
    bits.

    `script` is the training script, `devices` are those of the execution's storages.
    """

    mode: str
    spec: str
    rank: int
    world_size: int
    torch: str
    threads: int
    script: str
    devices: tuple[str, ...] = ("cpu",)


@dataclass(frozen=True, slots=True, eq=False)
class Snapshot:
    """One execution. `tape` has its calls; `held` says whether inputs, outputs or both have values.

    `outputs` belong to the tape's watched values, in their order. `unplayable` says why the calls are not the whole
    execution, "" where they are; `hlo`, where there is one, is the whole execution. `error` is the error that the
    execution raised. `dynamic` marks a graph that was compiled for any size.
    """

    execution: Execution
    around: Circumstances
    reason: Reason
    held: tuple[str, ...]
    inputs: tuple[Port, ...]
    outputs: tuple[Port, ...]
    tape: Tape
    unplayable: str = ""
    error: str = ""
    dynamic: bool = False
    notes: tuple[str, ...] = field(default=())
    hlo: Hlo | None = None

    @property
    def bytes(self) -> int:
        """The size of its values on disk."""
        # Inputs are storages, kept as bytes.
        input_bytes = sum(storage.numel() for storage in self.tape.inputs.values()) if INPUTS in self.held else 0
        output_bytes = bytes_of_tensors([watched.value for watched in self.tape.watched]) if OUTPUTS in self.held else 0
        drawn = [tensor for call in self.tape.calls if call.draw is not None for tensor in call.draw.drawn]
        hlo = len(self.hlo.proto) + len(self.hlo.text) if self.hlo is not None else 0
        return input_bytes + output_bytes + bytes_of_tensors(drawn) + hlo

    def value_of(self, port: Port) -> torch.Tensor | None:
        """The value of an input, None where it is not held."""
        data = self.tape.inputs.get(port.view.slot)
        if data is None:
            return None
        empty = torch.empty(0, dtype=port.view.dtype, device=data.device)
        return empty.set_(data.untyped_storage(), port.view.offset, port.view.size, port.view.stride)

    def given(self) -> list[torch.Tensor | None]:
        """The values of the outputs, None where they are not held."""
        return [watched.value if OUTPUTS in self.held else None for watched in self.tape.watched]

    def sensitive(self) -> dict[str, int]:
        """Count what may be confidential in it, by kind."""
        ports = [
            *(self.inputs if INPUTS in self.held else ()),
            *(self.outputs if OUTPUTS in self.held else ()),
        ]
        kinds = [name.partition(" ")[0] for name in {port.name.removesuffix(AFTERWARDS) for port in ports}]
        return {words: kinds.count(kind) for kind, words in SENSITIVE.items() if kind in kinds}


def bytes_of_tensors(values: Sequence[object]) -> int:
    """Count the bytes of the tensors among these."""
    return sum(value.numel() * value.element_size() for value in values if isinstance(value, torch.Tensor))


def watched_output(number: int, position: int, view: View, value: torch.Tensor) -> Watched:
    """An output as the tape compares it."""
    return Watched(position, f"output {number}", view, value)


def draws_own(call: Call) -> bool:
    return INDUCTOR_RANDOM in call.op


def outputs_of_own_draws(tape: Tape) -> frozenset[str]:
    """Return the names of the watched values that a draw of Inductor's own reaches, through whatever storage."""

    def slots(values: Iterable[object]) -> Iterator[int]:
        return (leaf.slot for value in values for leaf in leaves(value) if isinstance(leaf, View))

    reached: set[int] = set()
    for call in tape.calls:
        if draws_own(call) or any(view.slot in reached for view in views_in(call)):
            reached.update(slots(call.outputs))
            if call.name.endswith("_"):  # what an in-place op writes, without giving it
                reached.update(slots(call.arguments[:1]))
    return frozenset(watched.name for watched in tape.watched if watched.view.slot in reached)
