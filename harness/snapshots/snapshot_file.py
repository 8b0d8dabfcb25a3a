"""A snapshot in one file, which any safetensors reader can open. The file's tensors:

    input 3           the storage in slot 3 as it was before the execution, in the shape of the input that uses it
    output 0          a result of the execution
    drawn 7 1         the second tensor that call number 7 drew
    generator 2       the state of generator number 2
    hlo               in mode xla: the bytes of the HloModuleProto that XLA received

The metadata entry `snapshot` has everything else as JSON, including the calls in the format of a tape, and the SHA-256
of each tensor. The entry `sha256` is the digest of `snapshot`. Nothing in the file is evaluated as code, and only ops
of the namespaces `OPS` are executed.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any, get_args

import torch

from ..errors import JournalError, SnapshotError
from ..records.codec import read
from ..records.run.execution_facts import INPUTS, KEYWORDS, OUTPUTS, Execution
from ..tape.files.journal_writing import bytes_of
from ..tape.files.tape_file import described_tape, understood_tape
from ..tape.files.tensor_file import CODES, read_tensors, write_tensors
from ..tape.placed import is_known, placed
from ..tape.tape import Tape, View
from ..tape.tape_arguments import Decoder, Encoder, text, whole
from ..torch_private.dispatching import bare_execution
from .snapshot_record import Circumstances, Hlo, Port, Reason, Snapshot

SCHEMA = 1

OPS = ("aten", "prims")
"""The namespaces whose ops a snapshot may contain. Other ops belong to libraries that another machine may lack."""

OUTSIDE = ("from_file",)
"""The ops of these namespaces that are refused, because they access more than the process's memory."""


HLO = "hlo"


def write_snapshot(path: Path, snapshot: Snapshot) -> None:
    """Write a snapshot completely or not at all. Raises OSError, for example if the disk is full."""
    described, tape = described_tape(snapshot.tape)
    tensors: dict[str, torch.Tensor] = {}
    for name, tensor in described.items():
        kind, _, number = name.partition(" ")
        if kind == "input" and INPUTS in snapshot.held:
            tensors[name] = _shaped(int(number), tensor, snapshot.inputs)
        elif kind == "watched" and OUTPUTS in snapshot.held:
            tensors[f"output {number}"] = tensor
        elif kind not in ("input", "watched"):
            tensors[name] = tensor
    encoder = Encoder()
    hlo: dict[str, object] | None = None
    if snapshot.hlo is not None:
        tensors[HLO] = torch.frombuffer(bytearray(snapshot.hlo.proto), dtype=torch.uint8)
        views = [encoder.encode(view)["view"] for view in snapshot.hlo.parameters]
        hlo = {"text": snapshot.hlo.text, "parameters": views}
    facts = {
        "schema": SCHEMA,
        "execution": asdict(snapshot.execution),
        "around": asdict(snapshot.around),
        "reason": snapshot.reason,
        "held": list(snapshot.held),
        "inputs": [[port.name, encoder.encode(port.view)["view"]] for port in snapshot.inputs],
        "outputs": [[port.name, encoder.encode(port.view)["view"]] for port in snapshot.outputs],
        "unplayable": snapshot.unplayable,
        "error": snapshot.error,
        "dynamic": snapshot.dynamic,
        "notes": list(snapshot.notes),
        **({} if hlo is None else {HLO: hlo}),
        "tape": tape,
        "sha256": {name: digest_of(tensor) for name, tensor in sorted(tensors.items())},
    }
    write_tensors(path, tensors, {"snapshot": facts, "sha256": _digest_of_text(facts)})


def read_snapshot(path: Path) -> Snapshot:
    """Read a snapshot onto the CPU, whatever device its tensors come from.

    Raises SnapshotError if the file is not a snapshot, is damaged, or contains an op that this version of torch lacks.
    """
    try:
        tensors, outer = read_tensors(path)
    except JournalError as error:
        raise SnapshotError(path, str(error).removeprefix(f"{path}: ")) from error
    facts = outer.get("snapshot")
    if not isinstance(facts, dict):
        raise SnapshotError(path, "is not a snapshot; `numdrift snapshot list` shows those of a run")
    # Check the description before anything in it is used. Then compare the tensors with it.
    if _digest_of_text(facts) != outer.get("sha256"):
        raise SnapshotError(path, "is damaged: its description has changed since it was written")
    if facts.get("schema") != SCHEMA:
        raise SnapshotError(
            path, f"is a snapshot of schema {facts.get('schema')!r}; this version of numdrift reads schema {SCHEMA}"
        )
    try:
        digests = facts["sha256"]
        if sorted(tensors) != sorted(digests):
            raise ValueError("it has too few or too many tensors")
        for name, tensor in tensors.items():
            if digest_of(tensor) != digests[name]:
                raise ValueError(f"the tensor {name!r} has changed since it was written")
        return _understood(tensors, facts)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, RuntimeError) as error:
        complaint = (str(error).splitlines() or [""])[0]
        raise SnapshotError(path, f"cannot be understood: {complaint}") from error


def digest_of(tensor: torch.Tensor) -> str:
    """Return the SHA-256 of a tensor's dtype, shape and elements in row-major order."""
    with bare_execution(), torch.no_grad():
        flat = tensor.detach().cpu().contiguous().reshape(-1)
        data = flat.view(torch.uint8) if flat.numel() else flat
    digest = hashlib.sha256(f"{tensor.dtype} {tuple(tensor.shape)} ".encode())
    digest.update(bytes_of(data))
    return digest.hexdigest()


def _digest_of_text(facts: Any) -> str:
    described = json.dumps(facts, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(described.encode()).hexdigest()


def _shaped(slot: int, data: torch.Tensor, ports: Sequence[Port]) -> torch.Tensor:
    """Return a storage in the shape and dtype of the input that takes up all of it, or as bytes if no input does."""
    view = next((port.view for port in ports if port.view.slot == slot), None)
    if view is None or view.dtype not in CODES:
        return data
    count, row_major = 1, []
    for size in reversed(view.size):
        row_major.append(count)
        count *= size
    if view.offset or count * view.dtype.itemsize != data.numel() or not count:
        return data
    if view.stride != tuple(reversed(row_major)):
        return data
    with bare_execution(), torch.no_grad():
        return data.view(view.dtype).view(view.size)


def _understood(stored: Mapping[str, torch.Tensor], facts: Mapping[str, Any]) -> Snapshot:
    """Build the snapshot from a file's contents, which may be anything.

    Raises ValueError, TypeError, KeyError or AttributeError if the contents are not those of a snapshot.
    """
    held = tuple(keyword for keyword in KEYWORDS if keyword in facts["held"])
    tape = _tape(stored, facts["tape"], has_outputs=OUTPUTS in held)
    if facts["reason"] not in get_args(Reason):
        raise ValueError(f"unknown reason {facts['reason']!r}")
    outputs = _ports(facts["outputs"], tape)
    if len(outputs) != len(tape.watched):
        raise ValueError(f"{len(outputs)} outputs have names, but there are {len(tape.watched)} outputs")
    execution, around = read(Execution, facts["execution"]), read(Circumstances, facts["around"])
    for number in (execution.step, execution.count, execution.device_index, around.rank, around.world_size):
        whole(number)
    whole(around.threads)
    hlo = None
    if HLO in stored:
        parameters = _views(facts[HLO]["parameters"], tape)
        hlo = Hlo(text(facts[HLO]["text"]), bytes(bytes_of(stored[HLO])), parameters)
    return Snapshot(
        execution=execution,
        around=around,
        reason=facts["reason"],
        held=held,
        inputs=_ports(facts["inputs"], tape),
        outputs=outputs,
        tape=tape,
        unplayable=text(facts["unplayable"]),
        error=text(facts["error"]),
        dynamic=facts["dynamic"] is True,
        notes=tuple(map(text, facts["notes"])),
        hlo=hlo,
    )


def _tape(stored: Mapping[str, torch.Tensor], described: Mapping[str, Any], *, has_outputs: bool) -> Tape:
    """Return the calls of a snapshot as a tape on the CPU. Raises ValueError for ops that no snapshot may execute."""
    for call in described["calls"]:
        op = text(call["op"])
        namespace, _, op_name = op.partition(".")
        if namespace not in OPS or op_name.partition(".")[0] in OUTSIDE:
            raise ValueError(
                f"it contains the op {op}, but a snapshot may execute only ops of {' and '.join(OPS)} that stay within "
                "the process's memory"
            )
    # A tape has its inputs as bytes, and a value for each watched output.
    tensors = {name: tensor for name, tensor in stored.items() if name != HLO}
    for name in stored:
        if name.startswith("input "):
            with bare_execution(), torch.no_grad():
                flat = stored[name].contiguous().reshape(-1)
                tensors[name] = flat.view(torch.uint8) if flat.numel() else torch.empty(0, dtype=torch.uint8)
    for number in range(len(described["watched"])):
        output = tensors.pop(f"output {number}", None)
        if output is None and has_outputs:
            raise ValueError(f"output {number} is missing")
        tensors[f"watched {number}"] = torch.empty(0) if output is None else output
    # If a device's package is not loaded, torch does not know the device's name. The replay reports such a device.
    device_known = is_known({str(device) for _, device, _ in described["slots"]})
    on_the_cpu = [[size, "cpu", dtype] for size, _, dtype in described["slots"]]
    tape = understood_tape(tensors, {**described, "slots": on_the_cpu}, on_the_cpu=not device_known)
    return tape if device_known else placed(tape, "cpu")


def _ports(described: Any, tape: Tape) -> tuple[Port, ...]:
    views = _views([view for _, view in described], tape)
    return tuple(Port(text(name), view) for (name, _), view in zip(described, views, strict=True))


def _views(described: Any, tape: Tape) -> tuple[View, ...]:
    decoder = Decoder(lambda number: torch.empty(0))
    views = tuple(decoder.view(view) for view in described)
    for view in views:
        # Without this check, a view could read memory outside of its storage.
        if view.slot >= len(tape.slots) or view.extent * view.dtype.itemsize > tape.slots[view.slot].size:
            raise ValueError("an input or output lies outside of its storage")
    return views
