"""Executes a snapshot: op by op on a device, as the recorded HLO, or as a graph that a mode's backend compiles."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch

from ...errors import NotAvailable, SnapshotError
from ...hooks.backend_adapter import adapter_for
from ...records.modes.mode_registry import registry
from ...records.modes.mode_spec import ModeSpec, parse_mode
from ...records.run.execution_facts import INPUTS
from ...snapshots.snapshot_graph import DROPOUT, draws_alone, graph_of, scale_of
from ...snapshots.snapshot_record import Hlo, Snapshot, outputs_of_own_draws
from ...tape.placed import placed
from ...tape.replaying.replay import AsRecorded, Computation, Replay, generator_state, set_generator_state
from ...tape.storages import viewed
from ...tape.tape import NotReplayable
from ...torch_private.compiler.probing import annotate, compile_graph, fake_mode
from ...torch_private.deferred.xla import start_xla
from ...torch_private.deferred.xla_tensors import execute_hlo
from ...torch_private.first_calls import settle_first_calls
from ..compiled.adapter import inductor_as_stated
from ..eager.mode import EagerMode
from ..mode_presence import require_here

STATIC = (
    "its graph was compiled for any size, but is compiled here for one size: the code differs, and the bits may differ"
)
SWAPPED = "the mode's kernels ({}) are not in the snapshot: torch's own are executed in their place"
ELSEWHERE = "it was taken with torch {}, and this is torch {}"


@dataclass(frozen=True, slots=True, eq=False)
class Outcome:
    """The outcome of a replay.

    values: the outputs in order
    error: the error that an op raised, or ""
    drawn_otherwise: the names, on the tape, of the outputs that depend on random numbers that only Inductor draws
    """

    values: Sequence[torch.Tensor]
    error: str
    notes: tuple[str, ...]
    drawn_otherwise: frozenset[str] = frozenset()


class Drawn:
    """Executes the calls as recorded; random ops return their recorded draws."""

    def held(self, recorded: torch.dtype) -> torch.dtype:
        return recorded

    def execute(self, computation: Computation, arguments: tuple[Any, ...], keywords: Mapping[str, Any]) -> list[Any]:
        draw = computation.call.draw
        if draw is None or not (draws_alone(computation.call) or computation.call.op == DROPOUT or not draw.states):
            return AsRecorded().execute(computation, arguments, keywords)
        device = next((value.device for value in arguments if isinstance(value, torch.Tensor)), None)
        drawn_values = [value.clone().to(device or "cpu") for value in draw.drawn]
        if computation.call.op == DROPOUT:
            # compute it as the CPU kernel does, with the recorded mask
            value, mask, probability = arguments[0], drawn_values[1], float(arguments[1])
            return [value.mul(mask).mul(scale_of(probability)), mask]
        if not draws_alone(computation.call):
            raise NotReplayable(f"{computation.call.op} draws random numbers, and another device draws different ones")
        outputs: list[Any] = [drawn_values.pop(0) for _ in computation.call.outputs]
        for target, drawn in zip(computation.written(arguments, keywords), drawn_values, strict=False):
            target.copy_(drawn)
        return outputs


def mode_of(snapshot: Snapshot, path: Path, text: str | None) -> ModeSpec:
    """Return the mode to replay in: the mode `text`, or else the snapshot's own. Raises SnapshotError or ModeError."""
    if text is not None:
        return parse_mode(text)
    try:
        return parse_mode(snapshot.around.spec)
    except Exception as error:
        raise SnapshotError(
            path, f"its mode {snapshot.around.spec!r} does not exist here; name one with --mode"
        ) from error


def replayed(snapshot: Snapshot, path: Path, spec: ModeSpec) -> Outcome:
    """Execute a snapshot in a mode. An error that an op raises becomes part of the outcome.

    Raises SnapshotError if the snapshot cannot be executed; UsageError and NotAvailable if the mode's backend is not
    available on this machine.
    """
    if INPUTS not in snapshot.held:
        raise SnapshotError(path, "holds no inputs (it was taken with --what outputs), so nothing can be executed")
    as_hlo = snapshot.hlo if spec.capabilities.executes_hlo else None
    if snapshot.unplayable and as_hlo is None:
        raise SnapshotError(path, f"cannot be executed: {snapshot.unplayable}")
    require_here(replace(spec, python=None))
    # Only Inductor can draw the numbers of Inductor's own generator.
    own = spec.is_inductor
    notes = [] if own else [*snapshot.notes]
    otherwise = frozenset() if own else outputs_of_own_draws(snapshot.tape)
    if snapshot.around.torch != torch.__version__:
        notes.append(ELSEWHERE.format(snapshot.around.torch, torch.__version__))
    kernels = [*spec.kernel, *spec.decompose]
    if kernels:
        notes.append(SWAPPED.format(", ".join(kernels)))
    threads, generator = torch.get_num_threads(), generator_state("cpu")
    torch.set_num_threads(max(1, spec.threads or snapshot.around.threads))
    settle_first_calls()
    try:
        if as_hlo is not None:
            return Outcome(_as_hlo(snapshot, as_hlo), "", tuple(notes))
        if issubclass(registry.load(spec.base), EagerMode):
            tape = placed(snapshot.tape, spec.device or spec.base)
            values = Replay(tape).run(Drawn())
            return Outcome([values[watched.name].cpu() for watched in tape.watched], "", tuple(notes), otherwise)
        if snapshot.dynamic and spec.capabilities.compiles:
            notes.append(STATIC)
        return Outcome(_as_graph(snapshot, spec), "", tuple(notes), otherwise)
    except NotReplayable as error:
        raise SnapshotError(path, f"cannot be executed in mode {spec.name!r}: {error}") from error
    except NotAvailable:
        raise
    except Exception as error:  # noqa: BLE001, an op or a backend may raise anything
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        first_line = re.sub(r"\s+", " ", lines[0]) if lines else ""
        return Outcome([], f"{type(error).__name__}: {first_line}", tuple(notes))
    finally:
        set_generator_state("cpu", generator)
        torch.set_num_threads(threads)


def _as_hlo(snapshot: Snapshot, hlo: Hlo) -> list[torch.Tensor]:
    """Execute the recorded module with XLA."""
    start_xla()
    storages = snapshot.tape.inputs
    values = [viewed(storages[view.slot].clone().untyped_storage(), view) for view in hlo.parameters]
    return execute_hlo(hlo.proto, values)


def _as_graph(snapshot: Snapshot, spec: ModeSpec) -> list[torch.Tensor]:
    """Compile the snapshot's graph with the mode's backend, execute it, and return its outputs.

    A graph that was compiled in the training goes to Inductor as it is: nothing is traced or decomposed again.
    """
    own = spec.is_inductor
    if spec.accelerator is not None:
        snapshot = replace(snapshot, tape=placed(snapshot.tape, spec.accelerator))
    was_compiled = any(call.compiled is not None for call in snapshot.tape.calls)
    graph = graph_of(snapshot, keep_draws=own and was_compiled)
    for state in graph.generators:
        set_generator_state(state.device, state.state)
    if own and was_compiled and graph.is_functional:
        inputs = graph.inputs()
        with inductor_as_stated(spec), torch.no_grad():
            mode = fake_mode()
            fakes = [mode.from_tensor(value) for value in inputs]
            annotate(graph.module, fakes, mode)
            backward = snapshot.execution.phase == "backward"
            outputs = list(compile_graph(graph.module, fakes, backward=backward)(list(inputs)))
            return [output.detach().cpu() for output in outputs]
    # The adapter may execute the graph on the example inputs and write to them: the real inputs are created separately.
    execute = adapter_for(spec).compile_graph(graph.module, [value.cpu() for value in graph.inputs()])
    with torch.no_grad():
        outputs = execute(*(value.cpu() for value in graph.inputs()))
    return [output.detach().cpu() for output in outputs]
