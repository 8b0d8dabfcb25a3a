"""A snapshot in one file, which any safetensors reader opens.

    input 3           the storage in slot 3 as it was before the execution, in the shape of the input that it is
    output 0          what the execution gave
    drawn 7 1         the second tensor that the call number 7 drew
    generator 2       the state of a generator, number 2

The fact `snapshot` has everything else as JSON, the calls as those of a tape, and the SHA-256 of each tensor;
the fact `sha256` is that of `snapshot`. Nothing in the file is ever evaluated, and of ops only those of `OPS`
are executed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import torch

from ...errors import JournalError, SnapshotError
from ...records.execution_facts import INPUTS, KEYWORDS, OUTPUTS, Execution
from ...tape.journal_writing import bytes_of
from ...tape.tape import Tape, View
from ...tape.tape_arguments import Decoder, Encoder, whole
from ...tape.tape_file import described_tape, understood_tape
from ...tape.tensor_file import CODES, read_tensors, write_tensors
from ...torch_private.taping import bare_execution
from .snapshot_record import Circumstances, Port, Reason, Snapshot

SCHEMA = 1

OPS = ("aten", "prims")
"""The namespaces whose ops a snapshot may hold: other ops belong to a library that this machine need not
have."""

OUTSIDE = ("from_file",)
"""Ops of these namespaces that reach beyond the process's memory."""


def write_snapshot(path: Path, snapshot: Snapshot) -> None:
    """Write a snapshot, all of it or nothing. Raises OSError (disk full)."""
    tensors, tape = described_tape(snapshot.tape)
    tensors = _as_kept(tensors, snapshot)
    facts = {
        "schema": SCHEMA,
        "execution": asdict(snapshot.execution),
        "around": asdict(snapshot.around),
        "reason": snapshot.reason,
        "held": list(snapshot.held),
        "inputs": _ports_to_json(snapshot.inputs),
        "outputs": _ports_to_json(snapshot.outputs),
        "unplayable": snapshot.unplayable,
        "error": snapshot.error,
        "dynamic": snapshot.dynamic,
        "notes": list(snapshot.notes),
        "tape": tape,
        "sha256": {name: digest_of(tensor) for name, tensor in sorted(tensors.items())},
    }
    write_tensors(path, tensors, {"snapshot": facts, "sha256": _digest_of_text(facts)})


def read_snapshot(path: Path) -> Snapshot:
    """Read a snapshot; its tensors are on the CPU, whatever device they come from.

    Raises SnapshotError for a file that is none, is damaged, or holds an op that this torch does not have.
    """
    try:
        tensors, outer = read_tensors(path)
    except JournalError as error:
        raise SnapshotError(path, str(error).removeprefix(f"{path}: ")) from error
    facts = outer.get("snapshot")
    if not isinstance(facts, dict):
        raise SnapshotError(path, "is no snapshot; `numdrift snapshot list` shows those of a run")
    if _digest_of_text(facts) != outer.get("sha256"):
        raise SnapshotError(path, "is damaged: its description is not the one that was written")
    if facts.get("schema") != SCHEMA:
        raise SnapshotError(path, f"is a snapshot of schema {facts.get('schema')!r}; this numdrift reads {SCHEMA}")
    try:
        _require_same_tensors(tensors, facts["sha256"])
        return _SnapshotReading(tensors, facts).snapshot()
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, RuntimeError) as error:
        complaint = (str(error).splitlines() or [""])[0]
        raise SnapshotError(path, f"cannot be understood: {complaint}") from error


def digest_of(tensor: torch.Tensor) -> str:
    """SHA-256 of a tensor's dtype, shape and elements in row-major order."""
    with bare_execution(), torch.no_grad():
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        data = flat.view(torch.uint8) if flat.numel() else flat
    text = hashlib.sha256(f"{tensor.dtype} {tuple(tensor.shape)} ".encode())
    text.update(bytes_of(data))
    return text.hexdigest()


def _digest_of_text(facts: Any) -> str:
    text = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def _as_kept(tensors: Mapping[str, torch.Tensor], snapshot: Snapshot) -> dict[str, torch.Tensor]:
    """The tensors of the file: inputs in the shape that they have for the script, as far as they are held."""
    kept = {}
    for name, tensor in tensors.items():
        kind, _, number = name.partition(" ")
        if kind == "input" and INPUTS in snapshot.held:
            kept[name] = _shaped(int(number), tensor, snapshot.inputs)
        elif kind == "watched" and OUTPUTS in snapshot.held:
            kept[f"output {number}"] = tensor
        elif kind not in ("input", "watched"):
            kept[name] = tensor
    return kept


def _shaped(slot: int, data: torch.Tensor, ports: Sequence[Port]) -> torch.Tensor:
    """The bytes of a storage as the input that fills it, as bytes where none does."""
    view = next((one.view for one in ports if one.view.slot == slot), None)
    if view is None or view.dtype not in CODES:
        return data
    count = 1
    for size in view.size:
        count *= size
    if view.offset or count * view.dtype.itemsize != data.numel() or not count:
        return data
    if view.stride != _row_major(view.size):
        return data
    with bare_execution(), torch.no_grad():
        return data.view(view.dtype).view(view.size)


def _row_major(size: Sequence[int]) -> tuple[int, ...]:
    strides = [1]
    for one in reversed(size[1:]):
        strides.append(strides[-1] * one)
    return tuple(reversed(strides[: len(size)]))


def _ports_to_json(ports: Sequence[Port]) -> list[Any]:
    encoder = Encoder()
    return [[one.name, encoder.encode(one.view)["view"]] for one in ports]


def _require_same_tensors(tensors: Mapping[str, torch.Tensor], digests: Mapping[str, str]) -> None:
    if sorted(tensors) != sorted(digests):
        raise ValueError("a tensor is missing, or there is one too many")
    for name, tensor in tensors.items():
        if digest_of(tensor) != digests[name]:
            raise ValueError(f"the tensor {name!r} is not the one that was written")


class _SnapshotReading:
    """Understands one file. Raises ValueError, TypeError, KeyError and AttributeError."""

    def __init__(self, tensors: Mapping[str, torch.Tensor], facts: Mapping[str, Any]) -> None:
        self._tensors = tensors
        self._facts = facts
        self._held = tuple(one for one in KEYWORDS if one in facts["held"])

    def snapshot(self) -> Snapshot:
        facts, tape = self._facts, self._tape()
        if facts["reason"] not in get_args(Reason):
            raise ValueError(f"a reason {facts['reason']!r}")
        outputs = self._ports(facts["outputs"], tape)
        if len(outputs) != len(tape.watched):
            raise ValueError(f"{len(outputs)} outputs have names and {len(tape.watched)} have a place")
        return Snapshot(
            execution=self._execution(facts["execution"]),
            around=_around(facts["around"]),
            reason=facts["reason"],
            held=self._held,
            inputs=self._ports(facts["inputs"], tape),
            outputs=outputs,
            tape=tape,
            unplayable=_text(facts["unplayable"]),
            error=_text(facts["error"]),
            dynamic=facts["dynamic"] is True,
            notes=tuple(map(_text, facts["notes"])),
        )

    def _tape(self) -> Tape:
        facts = dict(self._facts["tape"])
        facts["slots"] = [[size, "cpu", dtype] for size, _, dtype in facts["slots"]]
        for call in facts["calls"]:
            _require_allowed(_text(call["op"]))
        tensors = dict(self._tensors)
        for name in self._tensors:
            if name.startswith("input "):
                tensors[name] = _bytes(tensors[name])
        for number in range(len(facts["watched"])):
            given = tensors.pop(f"output {number}", None)
            if given is None and OUTPUTS in self._held:
                raise ValueError(f"output {number} is missing")
            tensors[f"watched {number}"] = torch.empty(0) if given is None else given
        return understood_tape(tensors, facts)

    def _ports(self, described: Any, tape: Tape) -> tuple[Port, ...]:
        decoder = Decoder(lambda number: torch.empty(0))
        found = tuple(Port(_text(name), decoder.view(view)) for name, view in described)
        for port in found:
            _require_inside(port.view, tape)
        return found

    def _execution(self, described: Mapping[str, Any]) -> Execution:
        return Execution(
            _text(described["name"]),
            _text(described["phase"]),
            whole(described["step"]),
            whole(described["count"]),
            whole(described["device_index"]),
        )


def _require_allowed(op: str) -> None:
    namespace, _, rest = op.partition(".")
    if namespace not in OPS or rest.partition(".")[0] in OUTSIDE:
        raise ValueError(f"it holds the op {op}, which is none that a snapshot executes (of {' and '.join(OPS)})")


def _require_inside(view: View, tape: Tape) -> None:
    if view.slot >= len(tape.slots) or view.extent * view.dtype.itemsize > tape.slots[view.slot].size:
        raise ValueError("an input or output lies outside of its storage")


def _around(described: Mapping[str, Any]) -> Circumstances:
    return Circumstances(
        mode=_text(described["mode"]),
        spec=_text(described["spec"]),
        rank=whole(described["rank"]),
        world_size=whole(described["world_size"]),
        torch=_text(described["torch"]),
        threads=whole(described["threads"]),
        script=_text(described["script"]),
        devices=tuple(map(_text, described["devices"])),
    )


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    with bare_execution(), torch.no_grad():
        flat = tensor.contiguous().reshape(-1)
        return flat.view(torch.uint8) if flat.numel() else torch.empty(0, dtype=torch.uint8)


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} where a text belongs")
    return value
