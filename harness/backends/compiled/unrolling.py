"""Unroll compiled graphs: represent each execution by calls on the tape, with the real values of the graph's nodes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from ...tape.module_frames import ModuleFrames
from ...tape.op_places import OpPlace
from ...tape.recording.call_log import CallLog
from ...tape.recording.compiled_graphs import CapturedGraph, CompiledGraph
from ...tape.recording.followed_calls import OpCall
from ...tape.recording.probed_graph import PutOff, ValueKey, value_key
from ...tape.recording.random_calls import RandomCalls
from ...tape.replaying.replay import generator_state, is_same, set_generator_state
from ...tape.storages import bytes_of_storage
from ...tape.tape import NotReplayable, Phase, View, views_in
from ...torch_private.compiler.compiling import draws_by_eager
from ...torch_private.compiler.probing import Boxed
from ...torch_private.dispatching import (
    bare_execution,
    registered_operation,
    storage_address,
    without_dispatch_modes,
)
from .captured_calls import BackwardCall, CapturedCalls, OpenCall, tangents_of, viewed_by
from .compiled_interpreter import Described, Interpreted, Interpreter, NodeNames, flat_outputs, laid_out_like, layout_of

OTHER_RANDOM = (
    "a compiled graph draws random numbers from Inductor's own generator; in the mode compile,fallback_random=on, it "
    "draws the numbers of eager mode"
)
OTHER_AMOUNT = "a compiled graph drew more or fewer random numbers than torch's own kernels do for its nodes"
OTHER_NUMBERS = "random numbers other than those that torch's own kernel draws for inputs in the same layout"


class Regions:
    """The executions of compiled graphs in one step."""

    def __init__(self, log: CallLog, script: str) -> None:
        self.log = log
        self.names = NodeNames(script)
        self.forwards: list[tuple[int, int, set[int]]] = []
        self.captured = CapturedCalls()
        self._open: OpenCall | None = None
        self._runs = 0

    def called(self, graph: CapturedGraph, inputs: Sequence[Any], *, grad: bool) -> None:
        """Record that a captured graph is about to be called."""
        self._open = None
        with self.captured.complete():
            self._open = OpenCall(self.log, graph, inputs, generator_states(inputs), grad=grad)

    def returned(self, outputs: Any) -> None:
        """Record the outputs of the captured graph that was called last."""
        call, self._open = self._open, None
        with self.captured.complete():
            if call is not None:
                self.captured.calls.append(call.returned(outputs))

    def enter(self, graph: CompiledGraph, phase: Phase, inputs: Sequence[Any], frames: ModuleFrames) -> UnrolledRegion:
        """Record the inputs of a graph that is about to be executed, and the modules that call it."""
        backward = graph.phase == "backward"
        input_views = viewed_by(self.log, inputs, are_inputs=True)
        views = [value for value in input_views if isinstance(value, View)]
        run = self._runs
        self._runs += 1
        if backward:
            # A backward belongs to the forward run of its region whose results include the most of the backward's
            # inputs. If there are several such runs, the last one is used.
            slots = {view.slot for view in views}
            runs = [
                (len(slots & made), forward_run)
                for region, forward_run, made in self.forwards
                if region == graph.region
            ]
            run = max(runs)[1] if runs else run
        else:
            self.names.entered(graph, run, frames)
            if self._open is not None:
                self._open.forwards[run] = input_views
            else:
                reason = "a compiled graph that dynamo did not capture was executed"
                self.captured.reason = self.captured.reason or reason
        return UnrolledRegion(self, graph, "backward" if backward else phase, run, inputs)


class UnrolledRegion:
    """One execution of a compiled graph."""

    def __init__(self, regions: Regions, graph: CompiledGraph, phase: Phase, run: int, inputs: Sequence[Any]) -> None:
        self._regions = regions
        self._log = regions.log
        self._graph = graph
        self._phase = phase
        self._run = run
        self._inputs = list(inputs)
        self._copies = copied_tensors(self._inputs)
        self._generators = generator_states(self._inputs)
        self._outputs: Sequence[Any] = ()
        self._probed: dict[ValueKey, torch.Tensor] = {}

    def probe(self, outputs: Sequence[Any]) -> None:
        """Read the values of the execution, which returned `outputs`, by repeating it with probes.

        Raises nothing but PutOff.
        """
        if self._graph.probed is None:
            return
        after = generator_states(self._inputs)
        self._outputs = outputs
        try:
            self._probed = self._graph.probed.values(self)
        except PutOff:
            raise
        except Exception as error:  # noqa: BLE001, the training continues whatever fails here
            first = (str(error).splitlines() or [""])[0]
            self._note(f"compiling it with probes failed: {type(error).__name__}: {first}")
        finally:
            self._outputs = ()
            _set_generators(after)

    def repeated(self, compiled: Boxed) -> bool:
        copies = copied_tensors(self._copies)
        _set_generators(self._generators)
        with torch.no_grad(), without_dispatch_modes():
            outputs = compiled(list(copies))
        return self._is_same(self._outputs, outputs, copies)

    def _is_same(self, outputs: Sequence[Any], repeated_outputs: Sequence[Any], written: Sequence[Any]) -> bool:
        """Return whether the outputs and written inputs of a repetition equal the real ones bit for bit."""
        pairs = list(zip(outputs, repeated_outputs, strict=True))
        targets = written_inputs(self._graph.module.graph)
        pairs += [(self._inputs[index], written[index]) for index in targets.values()]
        return all(is_same(real, repeated) for real, repeated in pairs if isinstance(real, torch.Tensor))

    def leave(self, outputs: Sequence[Any], random: RandomCalls) -> None:
        """Record the execution op by op. It returned `outputs` and made the random calls `random`.

        Raise NotReplayable if the tape cannot represent the execution.
        """
        after, first = generator_states(self._inputs), len(self._log.calls)
        try:
            _set_generators(self._generators)
            with bare_execution():
                self._unroll(list(outputs), after, random)
        finally:
            _set_generators(after)
        if self._graph.phase == "backward":
            captured = self._regions.captured
            with captured.complete():
                captured.backwards.append(
                    BackwardCall(
                        forward=self._run,
                        first=first,
                        last=len(self._log.calls),
                        tangents={
                            result: self._log.table.view(self._inputs[number], is_input=True)
                            for number, result in tangents_of(self._graph.module.graph).items()
                        },
                        gradients=viewed_by(self._log, outputs, are_inputs=False),
                        generators=self._generators,
                    )
                )

    def _unroll(self, outputs: list[Any], after: Mapping[str, torch.Tensor], random: RandomCalls) -> None:
        table = self._log.table
        for real, copied in zip(self._inputs, self._copies, strict=True):
            slot = table.slot_of(real) if isinstance(real, torch.Tensor) else None
            if slot is not None:
                table.assign(copied, slot)
        module = self._graph.module
        results: dict[ValueKey, torch.Tensor] = {}
        for entry, real in zip(flat_outputs(list(module.graph.nodes)[-1]), outputs, strict=True):
            key = value_key(entry) if isinstance(entry, torch.fx.Node) else None
            if key is not None and isinstance(real, torch.Tensor):
                results[key] = real
        layouts, by_eager = {**self._probed, **results}, self._graph.probed is None
        interpreter = Interpreter(self._log, self._describe, layouts, random, keep=by_eager)
        interpreted = interpreter.run(module, list(self._copies))
        # Eager kernels have executed the nodes. If they drew as many numbers as the compiled graph, the generators are
        # in the same state as after the graph.
        if any(not torch.equal(state, generator_state(device)) for device, state in after.items()):
            raise NotReplayable(OTHER_AMOUNT if draws_by_eager() else OTHER_RANDOM)
        # A node's real results are known if the probes read them, or if the graph returns them. For a backend that
        # executes op by op, the interpreted values are real results too, provided that the interpreted outputs equal
        # the graph's.
        known_values = dict(self._probed)
        if by_eager and self._is_same(outputs, interpreted, self._copies):
            for entry in interpreter.done:
                tensors = ((at, value) for at, value in enumerate(entry.outputs) if isinstance(value, torch.Tensor))
                known_values |= {(entry.node.name, at): value for at, value in tensors}
        known_values |= {key: real.detach().clone() for key, real in results.items() if key not in known_values}
        self._set_values(interpreter, known_values, random)
        self._adopt(interpreted, outputs)
        if self._graph.phase == "forward":
            self._regions.forwards.append((self._graph.region, self._run, self._slots(outputs)))

    def _set_values(
        self, interpreter: Interpreter, known_values: Mapping[ValueKey, torch.Tensor], random: RandomCalls
    ) -> None:
        """Set the real results of the calls that represent the nodes, as far as they are known.

        Raise NotReplayable if the numbers that a node drew differ from those that its call drew.
        """
        log_values, targets = self._log.values, written_inputs(self._graph.module.graph)
        assert log_values is not None
        for entry in interpreter.done:
            values = [
                known_values.get((entry.node.name, index)) for index, fresh in enumerate(entry.call.fresh) if fresh
            ]
            # The tensors beyond a node's fresh outputs are arguments that it writes to. They are known only if the node
            # is a copy into an input of the graph.
            for _ in range(entry.count - len(values)):
                target = targets.get(entry.node)
                values.append(None if target is None else self._inputs[target].detach().clone())
            if entry.call.draw is not None and not _drew_the_same(entry, values):
                message = f"the node {entry.node.name!r} ({entry.call.op}) of a compiled graph drew {OTHER_NUMBERS}"
                raise NotReplayable(message if draws_by_eager() else OTHER_RANDOM)
            log_values.set(entry.position, values, keep=True)
            if self._graph.probed is not None and entry.swapped is None and entry.call.draw is None:
                call_layouts = random.layouts_of(entry.call, registered_operation(entry.call.op))
                if call_layouts is not None:
                    log_values.layouts[entry.position] = call_layouts
            if entry.swapped is not None:
                log_values.swapped[entry.position] = entry.swapped
        for position, copied in interpreter.copies.items():
            log_values.set(position, [None if copied is None else known_values.get(copied)], keep=False)
        unknown = sum(None in log_values.digests[entry.position] for entry in interpreter.done)
        if unknown:
            probed = self._graph.probed
            cause = (probed.unread if probed is not None else "") or "reading them changes the results"
            self._note(f"the results of {unknown} of its {len(interpreter.done)} nodes are unknown: {cause}")

    def _describe(self, node: torch.fx.Node) -> Described:
        names, graph = self._regions.names, self._graph
        sequence = names.sequence(self._run, node)
        place = OpPlace(self._phase, names.module(graph, self._run, node), sequence)
        return Described(place, names.frames(node), names.describe(graph, self._run, node))

    def _adopt(self, interpreted: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Assign the memory of the real results to the slots of the interpreted results."""
        table = self._log.table
        inputs = self._slots(self._copies)
        own = {storage_address(tensor) for tensor in self._inputs if isinstance(tensor, torch.Tensor)}
        slots: dict[int, int] = {}
        for value, real in zip(interpreted, outputs, strict=True):
            if not isinstance(real, torch.Tensor):
                continue
            address = storage_address(real)
            slot = table.view(value, is_input=True).slot
            fits = layout_of(value) == layout_of(real)
            if slots.get(address, slot) != slot or (address in slots and not fits):
                raise NotReplayable(
                    f"the results of the compiled graph {self._graph.name!r} share memory differently from "
                    "the results of its nodes"
                )
            given_back = table.slot_of(real) == slot and address in own
            elsewhere = address not in slots and slot in slots.values()
            # Where eager execution returns a view of an input, the compiler may return new memory. The tape then gets a
            # copy in the layout of the real result.
            if not fits or elsewhere or (slot in inputs and not given_back):
                clone = torch.ops.aten.clone.default
                noted = self._log.take(OpCall(clone, (value,), {}), OpPlace(self._phase, None, None))
                made = laid_out_like(real, value)
                slot = self._log.complete(noted, made, ()).outputs[0].slot
                assert self._log.values is not None
                self._log.values.set(len(self._log.calls) - 1, [real], keep=False)
            slots[address] = slot
            table.assign(real, slot)

    def _slots(self, values: Iterable[Any]) -> set[int]:
        """Return the slots of the tensors among these values."""
        candidates = (self._log.table.slot_of(value) for value in values if isinstance(value, torch.Tensor))
        return {slot for slot in candidates if slot is not None}

    def _note(self, text: str) -> None:
        if self._log.values is not None:
            self._log.values.notes.append(f"the compiled graph {self._graph.name!r}: {text}")


def copied_tensors(values: Iterable[Any]) -> list[Any]:
    """Return copies of the tensors. Copies share memory where the originals do. Other values are returned unchanged."""
    storages: dict[int, torch.Tensor] = {}

    def copied(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        plain = value.detach()
        address = storage_address(plain)
        if address not in storages:
            # Copy the whole storage once: the copies of tensors that share memory then share memory, too.
            storages[address] = bytes_of_storage(plain).clone()
        empty = torch.empty(0, dtype=plain.dtype, device=plain.device)
        return empty.set_(storages[address].untyped_storage(), plain.storage_offset(), plain.size(), plain.stride())

    with bare_execution(), torch.no_grad():
        return [copied(value) for value in values]


def written_inputs(graph: torch.fx.Graph) -> dict[torch.fx.Node, int]:
    """Return the nodes of a graph that copy a result into one of its inputs, each with the input's number."""
    numbers = {
        node: at
        for at, node in enumerate(placeholder for placeholder in graph.nodes if placeholder.op == "placeholder")
    }
    copies = (node for node in graph.nodes if node.target is torch.ops.aten.copy_.default)
    return {copy: numbers[copy.args[0]] for copy in copies if copy.args[0] in numbers}


def _drew_the_same(executed: Interpreted, values: Sequence[torch.Tensor | None]) -> bool:
    """Return whether a random node's real results equal those on the tape.

    Floating-point results that depend on more than the draw are not compared.
    """
    name = executed.call.name
    alone = name.endswith("_like") or name.startswith("bernoulli") or not any(True for _ in views_in(executed.call))
    return all(
        is_same(value, drawn)
        for value, drawn in zip(values, executed.produced, strict=True)
        if value is not None and (alone or not value.is_floating_point())
    )


def generator_states(values: Iterable[Any]) -> dict[str, torch.Tensor]:
    devices = {str(value.device) for value in values if isinstance(value, torch.Tensor)}
    return {device: generator_state(device) for device in sorted({"cpu", *devices} - {"meta"})}


def _set_generators(states: Mapping[str, torch.Tensor]) -> None:
    for device, state in states.items():
        set_generator_state(device, state)
