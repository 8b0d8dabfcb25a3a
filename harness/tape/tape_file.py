"""A tape in one file: tensors as any safetensors reader sees them, the calls as JSON among its facts.

    input 3           the bytes of the storage in slot 3 as it was before the step
    watched 0         the value that the step is compared by, number 0 of the fact `watched`
    drawn 7 1         the second tensor that the call number 7 drew
    generator 2       the state of a generator, number 2

What is read is checked: ops by the dispatcher's own list, views against the storages that they are views of.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple
from pathlib import Path
from typing import Any, get_args

import torch

from ..errors import JournalError
from ..torch_private.taping import registered_operation
from .tape import Call, CompiledNode, Draw, Phase, Slot, Tape, View, Watched, leaves, views_in
from .tape_arguments import Decoder, Encoder, dtype_named, name_of, whole
from .tensor_file import read_tensors, write_tensors

SCHEMA = 1
TAPES = "tapes"
PHASES = get_args(Phase)


def tape_file(folder: Path, step: int) -> Path:
    return folder / f"tape-{step:06d}.safetensors"


def noise_file(folder: Path, step: int) -> Path:
    return folder / f"noise-{step:06d}.json"


def exact_file(tape: Path) -> Path:
    """Where the fp64 referee's values of a tape lie: beside it."""
    return tape.with_name(tape.name.replace("tape-", "exact-", 1))


def write_tape(path: Path, tape: Tape) -> None:
    """Write a tape. Raises OSError (disk full)."""
    write_tensors(path, *described_tape(tape))


def described_tape(tape: Tape) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """The tensors of a tape by their names, and all else that it is as JSON."""
    encoder = Encoder()
    tensors = {f"input {slot}": data for slot, data in tape.inputs.items()}
    tensors |= {f"watched {number}": one.value for number, one in enumerate(tape.watched)}
    calls = []
    for number, call in enumerate(tape.calls):
        described: dict[str, Any] = {
            "op": call.op,
            "arguments": encoder.encode(call.arguments),
            "outputs": encoder.encode(call.outputs),
            "fresh": list(call.fresh),
            "phase": call.phase,
            "grad": call.grad,
        }
        optional = {
            "keywords": {name: encoder.encode(value) for name, value in call.keywords.items()} or None,
            "module": call.module,
            "line": call.line,
            "sequence": call.sequence,
            "owners": list(call.owners) or None,
            "compiled": None if call.compiled is None else list(astuple(call.compiled)),
            "draw": None
            if call.draw is None
            else [len(call.draw.drawn), [encoder.encode(one) for one in call.draw.states]],
        }
        call_to_json = described | {name: value for name, value in optional.items() if value is not None}
        calls.append(call_to_json)
        if call.draw is not None:
            tensors |= {f"drawn {number} {at}": one for at, one in enumerate(call.draw.drawn)}
    facts = {
        "schema": SCHEMA,
        "step": tape.step,
        "torch": torch.__version__,
        "slots": [[slot.size, slot.device, name_of(slot.dtype)] for slot in tape.slots],
        "calls": calls,
        "watched": [[one.position, one.name, encoder.encode(one.view)] for one in tape.watched],
    }
    tensors |= {f"generator {number}": state for number, state in enumerate(encoder.states)}
    return tensors, facts


def read_tape(path: Path) -> Tape:
    """Read a tape. Raises JournalError for a file that is damaged, or that this torch cannot execute."""
    tensors, facts = read_tensors(path)
    if facts.get("schema") != SCHEMA:
        raise JournalError(path, f"is no tape of schema {SCHEMA}")
    try:
        return understood_tape(tensors, facts)
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        complaint = (str(error).splitlines() or [""])[0]
        raise JournalError(path, f"is a damaged tape ({type(error).__name__}: {complaint})") from error


def understood_tape(tensors: Mapping[str, torch.Tensor], facts: Mapping[str, Any]) -> Tape:
    """The tape that `described_tape` has described. Raises ValueError, TypeError, KeyError and
    RecursionError."""
    return _TapeReading(tensors, facts).tape()


class _TapeReading:
    """Understands one file. Raises ValueError, TypeError and KeyError."""

    def __init__(self, tensors: Mapping[str, torch.Tensor], facts: Mapping[str, Any]) -> None:
        self._tensors = tensors
        self._facts = facts
        self._decoder = Decoder(lambda number: self._bytes(f"generator {number}"))
        self._slots: tuple[Slot, ...] = ()

    def tape(self) -> Tape:
        self._slots = tuple(
            Slot(whole(size), _text(device), dtype_named(dtype)) for size, device, dtype in self._facts["slots"]
        )
        calls = tuple(self._call(number, one) for number, one in enumerate(self._facts["calls"]))
        watched = tuple(self._watched(number, one) for number, one in enumerate(self._facts["watched"]))
        if any(one.position > len(calls) for one in watched):
            raise ValueError("a watched value after the end")
        inputs = {
            whole(int(name.partition(" ")[2])): self._bytes(name) for name in self._tensors if name.startswith("input ")
        }
        for slot, data in inputs.items():
            if slot >= len(self._slots) or data.numel() > self._slots[slot].size:
                raise ValueError(f"input {slot} is larger than its storage")
            inputs[slot] = data.to(self._slots[slot].device)
        return Tape(whole(self._facts["step"]), self._slots, inputs, calls, watched)

    def _call(self, number: int, described: Mapping[str, Any]) -> Call:
        outputs = self._decoder.decode(described["outputs"])
        fresh = described["fresh"]
        if not isinstance(outputs, tuple) or not isinstance(fresh, list) or len(fresh) != len(outputs):
            raise ValueError(f"call {number} without its outputs")
        arguments, keywords = self._decoder.decode(described["arguments"]), described.get("keywords", {})
        if not isinstance(arguments, tuple) or not isinstance(keywords, dict):
            raise TypeError(f"call {number} without its arguments")
        if described["phase"] not in PHASES:
            raise ValueError(f"call {number} is of the phase {described['phase']!r}")
        if registered_operation(_text(described["op"])) is None:
            raise ValueError(f"torch {torch.__version__} has no op {described['op']!r} here")
        call = Call(
            op=described["op"],
            arguments=arguments,
            keywords={_text(name): self._decoder.decode(value) for name, value in keywords.items()},
            outputs=outputs,
            fresh=tuple(one is True for one in fresh),
            phase=described["phase"],
            module=_text_or_none(described.get("module")),
            line=_text_or_none(described.get("line")),
            sequence=_sequence(described.get("sequence")),
            grad=described["grad"] is True,
            draw=self._draw(number, described.get("draw")),
            owners=tuple(_text(one) for one in described.get("owners", ())),
            compiled=_compiled(described.get("compiled")),
        )
        for view in (*views_in(call), *(one for one in leaves(outputs) if isinstance(one, View))):
            self._require_inside(view)
        if any(new and not isinstance(one, View) for new, one in zip(call.fresh, outputs, strict=True)):
            raise ValueError(f"call {number} gives a storage that is no tensor's")
        return call

    def _draw(self, number: int, described: Any) -> Draw | None:
        if described is None:
            return None
        count, states = described
        return Draw(
            tuple(self._decoder.generator(one["generator"]) for one in states),
            tuple(self._tensors[f"drawn {number} {at}"] for at in range(whole(count))),
        )

    def _watched(self, number: int, described: Any) -> Watched:
        position, name, view = described
        read = self._decoder.view(view["view"])
        self._require_inside(read)
        return Watched(whole(position), _text(name), read, self._tensors[f"watched {number}"])

    def _require_inside(self, view: View) -> None:
        if view.slot >= len(self._slots):
            raise ValueError(f"a view of slot {view.slot}, which there is not")
        if view.extent * view.dtype.itemsize > self._slots[view.slot].size:
            raise ValueError(f"a view that ends behind its storage {view.slot}")

    def _bytes(self, name: str) -> torch.Tensor:
        data = self._tensors[name]
        if data.dtype != torch.uint8 or data.dim() != 1:
            raise ValueError(f"{name} is no row of bytes")
        return data


def _sequence(value: Any) -> int | None:
    if value is None:
        return None
    return -whole(-value) if type(value) is int and value < 0 else whole(value)


def _compiled(described: Any) -> CompiledNode | None:
    if described is None:
        return None
    graph, name, origin, group = described
    return CompiledNode(_text(graph), _text(name), _text(origin), whole(group))


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} where a name belongs")
    return value


def _text_or_none(value: Any) -> str | None:
    return None if value is None else _text(value)
