"""Compiled graphs taken apart: what one execution becomes on the tape, and what its nodes really gave."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from ...tape.call_log import CallLog
from ...tape.compiled_graphs import CapturedGraph, CompiledGraph
from ...tape.op_places import OpPlace
from ...tape.probed_graph import ValueKey, value_key
from ...tape.random_calls import RandomCalls
from ...tape.replay import generator_state, is_same, set_generator_state
from ...tape.storages import bytes_of_storage
from ...tape.tape import NotReplayable, Phase, View, views_in
from ...torch_private.compiling import draws_by_eager
from ...torch_private.dispatching import (
    bare_execution,
    registered_operation,
    storage_address,
    without_dispatch_modes,
)
from ...torch_private.probing import Boxed
from .captured_calls import BackwardCall, CapturedCalls, OpenCall, tangents_of, viewed_by
from .compiled_interpreter import Described, Interpreted, Interpreter, NodeNames, flat_outputs, laid_out_like, layout_of

OTHER_RANDOM = (
    "a compiled graph draws random numbers by a generator of its own; in the mode compile,fallback_random=on they are "
    "those of eager mode"
)
OTHER_AMOUNT = "a compiled graph drew more or fewer random numbers than torch's own kernels do for its nodes"
OTHER_NUMBERS = "other random numbers than torch's own kernel does on inputs that are laid out as they were there"


class Regions:
    """The executions of one step."""

    def __init__(self, log: CallLog, script: str) -> None:
        self.log = log
        self.names = NodeNames(script)
        self.forwards: list[tuple[int, int, set[int]]] = []
        self.captured = CapturedCalls()
        self._open: OpenCall | None = None
        self._runs = 0

    def called(self, graph: CapturedGraph, inputs: Sequence[Any], *, grad: bool) -> None:
        """Note that a captured graph is about to be called."""
        self._open = None
        with self.captured.complete():
            self._open = OpenCall(self.log, graph, inputs, generator_states(inputs), grad=grad)

    def returned(self, outputs: Any) -> None:
        """Note what the graph that was called last has given."""
        call, self._open = self._open, None
        with self.captured.complete():
            if call is not None:
                self.captured.calls.append(call.returned(outputs))

    def enter(self, graph: CompiledGraph, phase: Phase, inputs: Sequence[Any]) -> UnrolledRegion:
        """Note what a graph is about to be executed with."""
        backward = graph.phase == "backward"
        given = viewed_by(self.log, inputs, are_inputs=True)
        views = [one for one in given if isinstance(one, View)]
        run = self._runs
        self._runs += 1
        if backward:
            # It belongs to the run of that forward of its region which gave most of what it takes. Pairs compare by
            # the number in common first, then by the run: of equals the last.
            slots = {view.slot for view in views}
            found = [(len(slots & made), one) for region, one, made in self.forwards if region == graph.region]
            run = max(found)[1] if found else run
        elif self._open is not None:
            self._open.forwards[run] = given
        else:
            self.captured.reason = self.captured.reason or "a compiled graph was executed that dynamo did not capture"
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
        """Read the values of the execution, which gave `outputs`, from its repetitions. Fails for itself alone."""
        if self._graph.probed is None:
            return
        after = generator_states(self._inputs)
        self._outputs = outputs
        try:
            self._probed = self._graph.probed.values(self)
        except Exception as error:  # noqa: BLE001, the training goes on whatever fails here
            first = (str(error).splitlines() or [""])[0]
            self._note(f"compiling it with probes fails: {type(error).__name__}: {first}")
        finally:
            self._outputs = ()
            _set_generators(after)

    def repeated(self, compiled: Boxed) -> bool:
        copies = copied_tensors(self._copies)
        _set_generators(self._generators)
        with torch.no_grad(), without_dispatch_modes():
            outputs = compiled(list(copies))
        return self._is_same(self._outputs, outputs, copies)

    def _is_same(self, outputs: Sequence[Any], others: Sequence[Any], written: Sequence[Any]) -> bool:
        """Whether other results, and other inputs where the graph writes to them, have the bits of the real ones."""
        pairs = list(zip(outputs, others, strict=True))
        targets = written_inputs(self._graph.module.graph)
        pairs += [(self._inputs[index], written[index]) for index in targets.values()]
        return all(is_same(one, other) for one, other in pairs if isinstance(one, torch.Tensor))

    def leave(self, outputs: Sequence[Any], random: RandomCalls) -> None:
        """Take the execution, which gave `outputs` and made the calls `random`, apart. Raises NotReplayable."""
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
        returned = flat_outputs(list(module.graph.nodes)[-1])
        given: dict[ValueKey, torch.Tensor] = {}
        for one, real in zip(returned, outputs, strict=True):
            key = value_key(one) if isinstance(one, torch.fx.Node) else None
            if key is not None and isinstance(real, torch.Tensor):
                given[key] = real
        layouts = {**self._probed, **given}
        interpreter = Interpreter(self._log, self._describe, layouts, random, keep=self._graph.probed is None)
        interpreted = interpreter.run(module, list(self._copies))
        # The nodes were executed by eager kernels. Only if these leave the generators where the compiled
        # graph left them did both draw alike.
        if any(not torch.equal(state, generator_state(device)) for device, state in after.items()):
            raise NotReplayable(OTHER_AMOUNT if draws_by_eager() else OTHER_RANDOM)
        # What the nodes really gave, where that is known: what the probes showed; of a backend that executes op by op
        # what was just executed, if that has the same results; and the graph's own results.
        done = interpreter.done
        known = dict(self._probed)
        if self._graph.probed is None and self._is_same(outputs, interpreted, self._copies):
            for one in done:
                tensors = ((at, value) for at, value in enumerate(one.outputs) if isinstance(value, torch.Tensor))
                known |= {(one.node.name, at): value for at, value in tensors}
        known |= {key: real.detach().clone() for key, real in given.items() if key not in known}
        targets = written_inputs(module.graph)
        assert self._log.values is not None
        for one in done:
            values = [known.get((one.node.name, index)) for index, fresh in enumerate(one.call.fresh) if fresh]
            # What a node gives beyond its fresh outputs are arguments that it writes: known only where the
            # graph copies them into an input.
            for _ in range(one.count - len(values)):
                target = targets.get(one.node)
                values.append(None if target is None else self._inputs[target].detach().clone())
            if one.call.draw is not None and not _drew_the_same(one, values):
                said = f"the node {one.node.name!r} ({one.call.op}) of a compiled graph drew {OTHER_NUMBERS}"
                raise NotReplayable(said if draws_by_eager() else OTHER_RANDOM)
            self._log.values.set(one.position, values, keep=True)
            if self._graph.probed is not None and one.swapped is None and one.call.draw is None:
                lay = random.layouts_of(one.call, registered_operation(one.call.op))
                if lay is not None:
                    self._log.values.layouts[one.position] = lay
            if one.swapped is not None:
                self._log.values.swapped[one.position] = one.swapped
        for position, copied in interpreter.copies.items():
            self._log.values.set(position, [None if copied is None else known.get(copied)], keep=False)
        unknown = sum(None in self._log.values.digests[one.position] for one in done)
        if unknown:
            probed = self._graph.probed
            why = (probed.unread if probed is not None else "") or "reading it changes the results"
            self._note(f"what {unknown} of its {len(done)} nodes gave is unknown: {why}")
        self._adopt(interpreted, outputs)
        if self._graph.phase == "forward":
            self._regions.forwards.append((self._graph.region, self._run, self._slots(outputs)))

    def _describe(self, node: torch.fx.Node) -> Described:
        names, graph = self._regions.names, self._graph
        sequence = names.sequence(self._run, node)
        place = OpPlace(self._phase, names.module(graph, node), sequence)
        return Described(place, names.frames(node), names.describe(graph, self._run, node))

    def _adopt(self, interpreted: Sequence[Any], outputs: Sequence[Any]) -> None:
        """Let the memory of the real results be that of the interpreted ones."""
        table = self._log.table
        inputs = self._slots(self._copies)
        own = {storage_address(one) for one in self._inputs if isinstance(one, torch.Tensor)}
        slots: dict[int, int] = {}
        for value, real in zip(interpreted, outputs, strict=True):
            if not isinstance(real, torch.Tensor):
                continue
            address = storage_address(real)
            slot = table.view(value, is_input=True).slot
            fits = layout_of(value) == layout_of(real)
            if slots.get(address, slot) != slot or (address in slots and not fits):
                raise NotReplayable(
                    f"results of the compiled graph {self._graph.name!r} share memory in a way of its own"
                )
            given_back = table.slot_of(real) == slot and address in own
            elsewhere = address not in slots and slot in slots.values()
            # What eager gives as a view of an input the compiler may give as memory of its own: then the tape
            # gets a copy in its layout, which the real result is.
            if not fits or elsewhere or (slot in inputs and not given_back):
                clone = torch.ops.aten.clone.default
                taken = self._log.take(clone, (value,), {}, OpPlace(self._phase, None, None), grad=False)
                made = laid_out_like(real, value)
                slot = self._log.complete(clone, (value,), {}, taken, made, ()).outputs[0].slot
                assert self._log.values is not None
                self._log.values.set(len(self._log.calls) - 1, [real], keep=False)
            slots[address] = slot
            table.assign(real, slot)

    def _slots(self, values: Iterable[Any]) -> set[int]:
        """The slots of the tensors among these."""
        found = (self._log.table.slot_of(one) for one in values if isinstance(one, torch.Tensor))
        return {slot for slot in found if slot is not None}

    def _note(self, text: str) -> None:
        if self._log.values is not None:
            self._log.values.notes.append(f"the compiled graph {self._graph.name!r}: {text}")


def copied_tensors(values: Iterable[Any]) -> list[Any]:
    """Copies of tensors that share memory exactly as these do; what is no tensor stays."""
    storages: dict[int, torch.Tensor] = {}

    def copied(value: Any) -> Any:
        if not isinstance(value, torch.Tensor):
            return value
        plain = value.detach()
        address = storage_address(plain)
        if address not in storages:
            # The whole storage is copied, once, so that inputs that are views of one another are so in the copies too.
            storages[address] = bytes_of_storage(plain).clone()
        empty = torch.empty(0, dtype=plain.dtype, device=plain.device)
        return empty.set_(storages[address].untyped_storage(), plain.storage_offset(), plain.size(), plain.stride())

    with bare_execution(), torch.no_grad():
        return [copied(value) for value in values]


def written_inputs(graph: torch.fx.Graph) -> dict[torch.fx.Node, int]:
    """The nodes that write a result into an input at the end of a graph, with the number of that input."""
    numbers = {node: at for at, node in enumerate(one for one in graph.nodes if one.op == "placeholder")}
    copies = (one for one in graph.nodes if one.target is torch.ops.aten.copy_.default)
    return {one: numbers[one.args[0]] for one in copies if one.args[0] in numbers}


def _drew_the_same(one: Interpreted, values: Sequence[torch.Tensor | None]) -> bool:
    """Whether what a random node really gave is what it gave on the tape, in what depends on nothing but the draw."""
    name = one.call.name
    alone = name.endswith("_like") or name.startswith("bernoulli") or not any(True for _ in views_in(one.call))
    return all(
        is_same(value, drawn)
        for value, drawn in zip(values, one.given, strict=True)
        if value is not None and (alone or not value.is_floating_point())
    )


def generator_states(values: Iterable[Any]) -> dict[str, torch.Tensor]:
    devices = {str(one.device) for one in values if isinstance(one, torch.Tensor)}
    return {device: generator_state(device) for device in sorted({"cpu", *devices} - {"meta"})}


def _set_generators(states: Mapping[str, torch.Tensor]) -> None:
    for device, state in states.items():
        set_generator_state(device, state)
