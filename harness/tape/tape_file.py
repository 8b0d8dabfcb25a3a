"""A tape in one file: tensors as any safetensors reader sees them, the calls as JSON among its facts.

    input 3           the bytes of the storage in slot 3 as it was before the step
    watched 0         the value that the step is compared by, number 0 of the fact `watched`
    given 0           what the first root module was called with, number 0 of the fact `given`
    drawn 7 1         the second tensor that the call number 7 drew
    generator 2       the state of a generator, number 2

What is read is checked: ops by the dispatcher's own list, views against the storages that they are views of. Ops that a
script has defined are described by their schemas (`own`), and known by these where nobody has defined them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import astuple
from pathlib import Path
from typing import Any, get_args

import torch

from ..errors import JournalError
from ..torch_private.dispatching import registered_operation
from ..torch_private.own_operators import define_without_kernel, own_schema
from .placed import placed
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
    places: dict[tuple[str, ...], int] = {}  # thousands of calls have few of them
    tensors = {f"input {slot}": data for slot, data in tape.inputs.items()}
    seen = {"watched": tape.watched, "given": tape.given}
    tensors |= {f"{kind} {number}": one.value for kind, ones in seen.items() for number, one in enumerate(ones)}
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
            "place": places.setdefault(call.frames, len(places)) if call.frames else None,
            "sequence": call.sequence,
            "owners": list(call.owners) or None,
            "iteration": call.iteration,
            "order": call.order,
            "repeats": call.repeats,
            "compiled": None if call.compiled is None else list(astuple(call.compiled)),
            "draw": None
            if call.draw is None
            else [len(call.draw.drawn), [encoder.encode(one) for one in call.draw.states]],
        }
        # Most calls lack most of these, and a tape has thousands of calls.
        calls.append(described | {name: value for name, value in optional.items() if value is not None})
        if call.draw is not None:
            tensors |= {f"drawn {number} {at}": one for at, one in enumerate(call.draw.drawn)}
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
    if own:  # a process that has not executed the script does not know them
        facts["own"] = own
    if tape.set_at:
        facts["set_at"] = dict(tape.set_at)
    if tape.starts:
        facts["starts"] = [[name, encoder.encode(view)] for name, view in tape.starts.items()]
    facts |= {kind: [[one.position, one.name, encoder.encode(one.view)] for one in ones] for kind, ones in seen.items()}
    tensors |= {f"generator {number}": state for number, state in enumerate(encoder.states)}
    return tensors, facts


def read_tape(path: Path, opened: Callable[[Collection[str]], bool] = lambda devices: True) -> Tape:
    """Read a tape. `opened` is asked to make its devices ready here; where it cannot the tape comes on the CPU.

    Raises JournalError for a file that is damaged, or that this torch cannot execute.
    """
    tensors, facts = read_tensors(path)
    if facts.get("schema") != SCHEMA:
        raise JournalError(path, f"is no tape of schema {SCHEMA}")
    try:
        there = opened({_text(device) for _, device, _ in facts["slots"]})
        tape = understood_tape(tensors, facts, on_the_cpu=not there)
        return tape if there else placed(tape, "cpu")
    except (ValueError, TypeError, KeyError, RecursionError) as error:
        complaint = (str(error).splitlines() or [""])[0]
        raise JournalError(path, f"is a damaged tape ({type(error).__name__}: {complaint})") from error


def understood_tape(tensors: Mapping[str, torch.Tensor], facts: Mapping[str, Any], *, on_the_cpu: bool = False) -> Tape:
    """The tape that `described_tape` has described; with `on_the_cpu` its calls name no other device.

    Raises ValueError, TypeError, KeyError and RecursionError.
    """
    slots = tuple(Slot(whole(size), _text(device), dtype_named(dtype)) for size, device, dtype in facts["slots"])
    own = facts.get("own", {})  # most tapes have none
    if not isinstance(own, dict):
        raise TypeError("ops of a script's own that are none")
    for name, schema in own.items():
        if registered_operation(_text(name)) is None:
            define_without_kernel(name, _text(schema))
    decoder = Decoder(lambda number: _bytes(tensors, f"generator {number}"), on_the_cpu=on_the_cpu)
    places = [tuple(_text(one) for one in frames) for frames in facts.get("places", ())]
    calls = tuple(_call(number, one, decoder, tensors, slots, places) for number, one in enumerate(facts["calls"]))
    seen: dict[str, list[Watched]] = {"watched": [], "given": []}  # tapes of before have nothing given
    for kind, ones in seen.items():
        for number, (position, name, described) in enumerate(facts.get(kind, ())):
            view = decoder.view(described["view"])
            _require_inside(view, slots)
            ones.append(Watched(whole(position), _text(name), view, tensors[f"{kind} {number}"]))
        if any(one.position > len(calls) for one in ones):
            raise ValueError(f"a {kind} value after the end")
    # Only what came from before the step has bytes: `input 3` is slot 3.
    inputs = {
        whole(int(name.partition(" ")[2])): _bytes(tensors, name) for name in tensors if name.startswith("input ")
    }
    for slot, data in inputs.items():
        if slot >= len(slots) or data.numel() > slots[slot].size:
            raise ValueError(f"input {slot} is larger than its storage")
    settings = facts.get("settings", {})  # tapes of before have none
    if not isinstance(settings, dict) or not all(isinstance(one, (bool, int, str)) for one in settings.values()):
        raise TypeError("settings that are none")
    set_at = facts.get("set_at", {})  # most tapes have none
    if not isinstance(set_at, dict):
        raise TypeError("lines of settings that are none")
    starts = {}
    for name, described in facts.get("starts", ()):  # most tapes have none
        starts[_text(name)] = view = decoder.view(described["view"])
        _require_inside(view, slots)
    lines = {name: _text(line) for name, line in set_at.items()}
    found = tuple(seen["watched"]), settings, starts, tuple(seen["given"]), lines
    return Tape(whole(facts["step"]), slots, inputs, calls, *found)


def _call(
    number: int,
    described: Mapping[str, Any],
    decoder: Decoder,
    tensors: Mapping[str, torch.Tensor],
    slots: Sequence[Slot],
    places: Sequence[tuple[str, ...]],
) -> Call:
    """The call that a line of the file describes, if this torch has its op and its views lie in their storages."""
    outputs = decoder.decode(described["outputs"])
    fresh = described["fresh"]
    if not isinstance(outputs, tuple) or not isinstance(fresh, list) or len(fresh) != len(outputs):
        raise ValueError(f"call {number} without its outputs")
    arguments, keywords = decoder.decode(described["arguments"]), described.get("keywords", {})
    if not isinstance(arguments, tuple) or not isinstance(keywords, dict):
        raise TypeError(f"call {number} without its arguments")
    if described["phase"] not in PHASES:
        raise ValueError(f"call {number} is of the phase {described['phase']!r}")
    if registered_operation(_text(described["op"])) is None:
        raise ValueError(f"torch {torch.__version__} has no op {described['op']!r} here")
    module, line, place, sequence = (described.get(name) for name in ("module", "line", "place", "sequence"))
    # tapes of before have a line alone
    frames = () if line is None else (_text(line),)
    if place is not None:
        if whole(place) >= len(places):
            raise ValueError(f"call {number} is at place {place}, which there is not")
        frames = places[place]
    if sequence is not None:
        # Those of compiled nodes are negative.
        sequence = -whole(-sequence) if type(sequence) is int and sequence < 0 else whole(sequence)
    late = map(described.get, ("iteration", "order", "repeats"))
    iteration, order, repeats = (None if one is None else whole(one) for one in late)
    if repeats is not None and repeats >= number:
        raise ValueError(f"call {number} repeats one that comes after it")
    draw, compiled = described.get("draw"), described.get("compiled")
    if draw is not None:
        count, states = draw
        generators = tuple(decoder.generator(one["generator"]) for one in states)
        draw = Draw(generators, tuple(tensors[f"drawn {number} {at}"] for at in range(whole(count))))
    if compiled is not None:
        graph, node, origin, group = compiled
        compiled = CompiledNode(_text(graph), _text(node), _text(origin), whole(group))
    call = Call(
        op=described["op"],
        arguments=arguments,
        keywords={_text(name): decoder.decode(value) for name, value in keywords.items()},
        outputs=outputs,
        fresh=tuple(one is True for one in fresh),
        phase=described["phase"],
        module=None if module is None else _text(module),
        frames=frames,
        sequence=sequence,
        grad=described["grad"] is True,
        draw=draw,
        owners=tuple(_text(one) for one in described.get("owners", ())),
        compiled=compiled,
        iteration=iteration,
        order=order,
        repeats=repeats,
    )
    # A view that ends behind its storage would read, or write, memory of somebody else's when it is replayed.
    for view in (*views_in(call), *(one for one in leaves(outputs) if isinstance(one, View))):
        _require_inside(view, slots)
    if any(new and not isinstance(one, View) for new, one in zip(call.fresh, outputs, strict=True)):
        raise ValueError(f"call {number} gives a storage that is no tensor's")
    return call


def _require_inside(view: View, slots: Sequence[Slot]) -> None:
    if view.slot >= len(slots):
        raise ValueError(f"a view of slot {view.slot}, which there is not")
    if view.extent * view.dtype.itemsize > slots[view.slot].size:
        raise ValueError(f"a view that ends behind its storage {view.slot}")


def _bytes(tensors: Mapping[str, torch.Tensor], name: str) -> torch.Tensor:
    data = tensors[name]
    if data.dtype != torch.uint8 or data.dim() != 1:
        raise ValueError(f"{name} is no row of bytes")
    return data


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} where a name belongs")
    return value
