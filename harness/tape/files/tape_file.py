"""A tape in one file: tensors that any safetensors reader can read, and the calls as JSON among the facts.

    input 3           the bytes of the storage in slot 3 before the step
    watched 0         a value with which executions are compared, number 0 in the fact `watched`
    given 0           an argument of the first root module, number 0 in the fact `given`
    drawn 7 1         the second tensor that call number 7 drew
    settled 9 0       the first result of call number 9, which does not repeat
    generator 2       the state of generator number 2

The reader refuses ops that the dispatcher does not list, and views that exceed their storages. The fact `own`
has the schemas of the ops that the script defines. With them, a process that has not executed the script can define
these ops.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import astuple, dataclass, field
from pathlib import Path
from typing import Any, get_args

import torch

from ...errors import JournalError
from ...torch_private.dispatching import registered_operation
from ...torch_private.own_operators import define_without_kernel, own_schema
from ..placed import placed
from ..tape import Call, CompiledNode, Draw, Phase, Slot, Tape, View, Watched, leaves, views_in
from ..tape_arguments import Decoder, Encoder, dtype_named, name_of, text, whole
from ..uncollected import uncollected
from .tensor_file import read_tensors, write_tensors

SCHEMA = 1
TAPES = "tapes"
PHASES = get_args(Phase)


def tape_file(folder: Path, step: int) -> Path:
    return folder / f"tape-{step:06d}.safetensors"


def noise_file(folder: Path, step: int) -> Path:
    return folder / f"noise-{step:06d}.json"


def exact_file(tape: Path) -> Path:
    """Return the path of the file for a tape's values from the fp64 referee. It is beside the tape."""
    return tape.with_name(tape.name.replace("tape-", "exact-", 1))


@uncollected()
def write_tape(path: Path, tape: Tape, earlier: Sequence[Path] = ()) -> None:
    """Write a tape. Raises OSError, for example if the disk is full.

    Values that one of the files `earlier` has are not written again (see `earlier_values`).
    """
    write_tensors(path, *described_tape(tape), earlier)


def described_tape(tape: Tape) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Return the tensors of a tape by name, and everything else in the tape as JSON values."""
    encoder = Encoder()
    places: dict[tuple[str, ...], int] = {}  # each place is written once, since thousands of calls share few places
    tensors = {f"input {slot}": data for slot, data in tape.inputs.items()}
    kinds = {"watched": tape.watched, "given": tape.batch}
    tensors |= {
        f"{kind} {number}": watched.value for kind, group in kinds.items() for number, watched in enumerate(group)
    }
    calls = [_described_call(call, encoder, places) for call in tape.calls]
    for number, call in enumerate(tape.calls):
        if call.draw is not None:
            tensors |= {f"drawn {number} {at}": value for at, value in enumerate(call.draw.drawn)}
        if call.settled is not None:
            tensors |= {f"settled {number} {at}": value for at, value in enumerate(call.settled)}
    facts = {
        "schema": SCHEMA,
        "step": tape.step,
        "torch": torch.__version__,
        "settings": dict(tape.settings),
        "slots": [[slot.size, slot.device, name_of(slot.dtype)] for slot in tape.slots],
        "places": [list(frames) for frames in places],
        "calls": calls,
    }
    own = {op: schema for op in dict.fromkeys(call.op for call in tape.calls) if (schema := own_schema(op)) is not None}
    if own:  # a process that has not executed the script lacks these ops
        facts["own"] = own
    if tape.set_at:
        facts["set_at"] = dict(tape.set_at)
    if tape.starts:
        facts["starts"] = [[name, encoder.encode(view)] for name, view in tape.starts.items()]
    facts |= {
        kind: [[watched.position, watched.name, encoder.encode(watched.view)] for watched in group]
        for kind, group in kinds.items()
    }
    tensors |= {f"generator {number}": state for number, state in enumerate(encoder.states)}
    return tensors, facts


def _described_call(call: Call, encoder: Encoder, places: dict[tuple[str, ...], int]) -> dict[str, Any]:
    """Return a call as JSON values. The call's frames are added to `places` if no earlier call has the same frames."""
    described = {
        "op": call.op,
        "arguments": encoder.encode(call.arguments),
        "outputs": encoder.encode(call.outputs),
        "fresh": list(call.fresh),
        "phase": call.phase,
        "grad": call.grad,
    }
    draw = call.draw
    optional = {
        "keywords": {name: encoder.encode(value) for name, value in call.keywords.items()} or None,
        "module": call.module,
        "place": places.setdefault(call.frames, len(places)) if call.frames else None,
        "sequence": call.sequence,
        "owners": list(call.owners) or None,
        "iteration": call.iteration,
        "order": call.order,
        "repeats": call.repeats,
        "compiled": None if call.compiled is None else list(astuple(call.compiled)),
        "draw": None if draw is None else [len(draw.drawn), [encoder.encode(state) for state in draw.states]],
        "settled": None if call.settled is None else len(call.settled),
    }
    # Leave out the fields that are None. Most calls lack most of these fields, and a tape has thousands of calls.
    return described | {name: value for name, value in optional.items() if value is not None}


@uncollected()
def read_tape(path: Path, opened: Callable[[Collection[str]], bool] = lambda devices: True) -> Tape:
    """Read a tape, on the devices of its recording if `opened` returns True for them, otherwise on the CPU.

    Raises JournalError if the file is damaged, or if this version of torch cannot execute the tape.
    """
    tensors, facts = read_tensors(path, maps=True)
    if facts.get("schema") != SCHEMA:
        raise JournalError(path, f"is not a tape of schema {SCHEMA}")
    try:
        is_ready = opened({text(device) for _, device, _ in facts["slots"]})
        tape = understood_tape(tensors, facts, on_the_cpu=not is_ready)
        return tape if is_ready else placed(tape, "cpu")
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        complaint = (str(error).splitlines() or [""])[0]
        raise JournalError(path, f"is a damaged tape ({type(error).__name__}: {complaint})") from error


def understood_tape(tensors: Mapping[str, torch.Tensor], facts: Mapping[str, Any], *, on_the_cpu: bool = False) -> Tape:
    """Return the tape, given the results of `described_tape`. With `on_the_cpu`, its calls name no device but the CPU.

    Raises ValueError, TypeError, KeyError or RecursionError if `tensors` and `facts` are not those of a tape.
    """
    slots = tuple(Slot(whole(size), text(device), dtype_named(dtype)) for size, device, dtype in facts["slots"])
    own = facts.get("own", {})  # most tapes have none
    if not isinstance(own, dict):
        raise TypeError("the ops that the script defines are not a dictionary")
    for name, schema in own.items():
        if registered_operation(text(name)) is None:
            define_without_kernel(name, text(schema))
    decoder = Decoder(lambda number: _bytes(tensors, f"generator {number}"), on_the_cpu=on_the_cpu)
    places = [tuple(text(frame) for frame in frames) for frames in facts.get("places", ())]
    reader = _CallReader(decoder, tensors, slots, places)
    calls = tuple(reader.call(number, described) for number, described in enumerate(facts["calls"]))
    kinds: dict[str, list[Watched]] = {"watched": [], "given": []}  # older tapes have no `given`
    for kind, group in kinds.items():
        for number, (position, name, described) in enumerate(facts.get(kind, ())):
            view = decoder.view(described["view"])
            _require_inside(view, slots)
            group.append(Watched(whole(position), text(name), view, tensors[f"{kind} {number}"]))
        if any(watched.position > len(calls) for watched in group):
            raise ValueError(f"a {kind} value after the end of the calls")
    # The file has the bytes of the storages that exist before the step: those of slot 3 are in the tensor `input 3`.
    inputs = {
        whole(int(name.partition(" ")[2])): _bytes(tensors, name) for name in tensors if name.startswith("input ")
    }
    for slot, data in inputs.items():
        if slot >= len(slots) or data.numel() > slots[slot].size:
            raise ValueError(f"input {slot} is larger than its storage")
    settings = facts.get("settings", {})  # older tapes have none
    if not isinstance(settings, dict) or not all(isinstance(value, (bool, int, str)) for value in settings.values()):
        raise TypeError("the settings are invalid")
    set_at = facts.get("set_at", {})  # most tapes have none
    if not isinstance(set_at, dict):
        raise TypeError("the lines of the settings are not a dictionary")
    starts = {}
    for name, described in facts.get("starts", ()):  # most tapes have none
        starts[text(name)] = view = decoder.view(described["view"])
        _require_inside(view, slots)
    lines = {name: text(line) for name, line in set_at.items()}
    optional_fields = tuple(kinds["watched"]), settings, starts, tuple(kinds["given"]), lines
    return Tape(whole(facts["step"]), slots, inputs, calls, *optional_fields)


@dataclass(frozen=True, slots=True)
class _CallReader:
    """Reads the calls of a tape. The fields are the parts of the file to which calls refer."""

    decoder: Decoder
    tensors: Mapping[str, torch.Tensor]
    slots: Sequence[Slot]
    places: Sequence[tuple[str, ...]]
    operation_of: Callable[[str], Any] = field(default_factory=lambda: functools.cache(registered_operation))

    def call(self, number: int, described: Mapping[str, Any]) -> Call:
        """Return the call that the file describes. Raises ValueError, TypeError or KeyError if the call is invalid.

        It is invalid, for example, if this version of torch lacks its op, or if one of its views exceeds its storage.
        """
        outputs, fresh = self.decoder.decode(described["outputs"]), described["fresh"]
        if not isinstance(outputs, tuple) or not isinstance(fresh, list) or len(fresh) != len(outputs):
            raise ValueError(f"call {number} has no outputs")
        arguments, keywords = self.decoder.decode(described["arguments"]), described.get("keywords", {})
        if not isinstance(arguments, tuple) or not isinstance(keywords, dict):
            raise TypeError(f"call {number} has no arguments")
        if described["phase"] not in PHASES:
            raise ValueError(f"call {number} has the unknown phase {described['phase']!r}")
        if self.operation_of(text(described["op"])) is None:
            raise ValueError(f"torch {torch.__version__} has no op {described['op']!r} here")
        module = described.get("module")
        late = map(described.get, ("iteration", "order", "repeats"))
        iteration, order, repeats = (None if value is None else whole(value) for value in late)
        if repeats is not None and repeats >= number:
            raise ValueError(f"call {number} repeats itself or a later call")
        call = Call(
            op=described["op"],
            arguments=arguments,
            keywords={text(name): self.decoder.decode(value) for name, value in keywords.items()},
            outputs=outputs,
            fresh=tuple(flag is True for flag in fresh),
            phase=described["phase"],
            module=None if module is None else text(module),
            frames=self._frames(number, described),
            sequence=_sequence(described.get("sequence")),
            grad=described["grad"] is True,
            draw=self._draw(number, described.get("draw")),
            owners=tuple(text(owner) for owner in described.get("owners", ())),
            compiled=_compiled_node(described.get("compiled")),
            iteration=iteration,
            order=order,
            repeats=repeats,
            settled=self._settled(number, described.get("settled")),
        )
        # In a replay, a view that exceeds its storage would read or write unrelated memory of the process.
        for view in (*views_in(call), *(leaf for leaf in leaves(outputs) if isinstance(leaf, View))):
            _require_inside(view, self.slots)
        if any(new and not isinstance(output, View) for new, output in zip(call.fresh, outputs, strict=True)):
            raise ValueError(f"call {number} returns a fresh storage that is not a tensor's")
        return call

    def _frames(self, number: int, described: Mapping[str, Any]) -> tuple[str, ...]:
        place, line = described.get("place"), described.get("line")
        if place is None:  # the call has no frames; in older tapes it may have a line instead
            return () if line is None else (text(line),)
        if whole(place) >= len(self.places):
            raise ValueError(f"call {number} is at place {place}, which does not exist")
        return self.places[whole(place)]

    def _draw(self, number: int, described: Any) -> Draw | None:
        if described is None:
            return None
        count, states = described
        generators = tuple(self.decoder.generator(state["generator"]) for state in states)
        return Draw(generators, tuple(self.tensors[f"drawn {number} {at}"] for at in range(whole(count))))

    def _settled(self, number: int, count: Any) -> tuple[torch.Tensor, ...] | None:
        if count is None:
            return None
        return tuple(self.tensors[f"settled {number} {at}"] for at in range(whole(count)))


def _sequence(described: Any) -> int | None:
    if type(described) is int and described < 0:  # the number of a compiled node
        return -whole(-described)
    return None if described is None else whole(described)


def _compiled_node(described: Any) -> CompiledNode | None:
    if described is None:
        return None
    graph, node, origin, group = described
    return CompiledNode(text(graph), text(node), text(origin), whole(group))


def _require_inside(view: View, slots: Sequence[Slot]) -> None:
    if view.slot >= len(slots):
        raise ValueError(f"a view of slot {view.slot}, which does not exist")
    if view.extent * view.dtype.itemsize > slots[view.slot].size:
        raise ValueError(f"a view that ends after the end of its storage {view.slot}")


def _bytes(tensors: Mapping[str, torch.Tensor], name: str) -> torch.Tensor:
    data = tensors[name]
    if data.dtype != torch.uint8 or data.dim() != 1:
        raise ValueError(f"{name} is not a row of bytes")
    return data
