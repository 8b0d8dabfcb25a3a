"""A recorded step whose compiled regions are compiled again, by another backend or with other settings.

Ops that the script executed outside of compiled code are executed as recorded. A captured graph is called in the same
way as in the script's step, with autograd. Autograd executes the graph's backward at the position of the recorded one:

    on the tape                       in the recompiled step
    uncompiled ops (data, optimizer)  the same calls
    a captured graph: aten ops        the graph, compiled by the requested backend, called on the same inputs
    its backward: aten ops            torch.autograd.grad of the graph's results, at the recorded backward's position
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import torch

from ...records.modes.mode_spec import INDUCTOR, ModeSpec
from ...tape.recording.compiled_graphs import CapturedGraph
from ...tape.replaying.replay import call_arguments, executions, generator_state, set_generator_state
from ...tape.serving.step_kernels import executed_apart
from ...tape.stated_settings import put_stated
from ...tape.step_settings import settings_of_step
from ...tape.storages import Storages
from ...tape.tape import NotReplayable, Tape, View
from ...torch_private.compiler.compiling import inductor_settings_kept
from ...torch_private.compiler.probing import compile_captured
from .captured_calls import BackwardCall, CapturedCall, CapturedCalls
from .mode import configure_inductor, contract_on_device

Compiler = Callable[[torch.fx.GraphModule, Sequence[Any]], Callable[..., Any]]
"""Compiles a captured graph for example inputs."""


@dataclass(frozen=True, slots=True, eq=False)
class Live:
    """A call of a captured graph in this execution: the inputs, in the order of the forward graph, and the outputs.

    The outputs have an autograd graph that leads to the inputs.
    """

    inputs: Sequence[Any]
    outputs: Sequence[Any]


class RecompiledStep:
    """One execution of a step whose captured graphs are compiled by `compile_`."""

    def __init__(self, tape: Tape, captured: CapturedCalls, compile_: Compiler) -> None:
        """Raise NotReplayable if the step's calls of its compiled code are unknown."""
        if captured.reason or not captured.calls:
            raise NotReplayable(captured.reason or "the step calls nothing that dynamo captured")
        self._tape = tape
        self._regions: list[CapturedCall | BackwardCall] = [*captured.calls, *captured.backwards]
        self._regions.sort(key=lambda region: region.first)
        self._compile = compile_
        self._compiled: dict[CapturedGraph, Callable[..., Any]] = {}
        self._live: dict[int, Live] = {}
        self._storages = Storages(tape, lambda dtype: dtype)

    def values(self) -> dict[str, torch.Tensor]:
        """Execute the step and return the watched values. Random generators are restored afterwards.

        Raise NotReplayable if a call cannot be repeated. Exceptions of the compiler or an op propagate.
        """
        values: dict[str, torch.Tensor] = {}
        watched = sorted(self._tape.watched, key=lambda watched_value: watched_value.position)
        regions = [candidate for candidate in self._regions if candidate.first < candidate.last]
        devices = {"cpu", *(slot.device for slot in self._tape.slots)}
        before = {device: generator_state(device) for device in devices}
        last_watched: dict[int, int] = {}
        for watched_value in watched:
            last_watched[watched_value.view.slot] = watched_value.position

        def watch(position: int) -> None:
            while watched and watched[0].position <= position:
                watched_value = watched.pop(0)
                values[watched_value.name] = self._storages.tensor(watched_value.view).detach().clone()

        try:
            end = 0
            for computation in executions(self._tape):
                while regions and regions[0].first <= computation.position:
                    watch(regions[0].first)
                    end = regions[0].last
                    self._execute_region(regions.pop(0))
                watch(computation.position)
                if computation.position >= end:
                    self._storages.take(
                        computation.call,
                        executed_apart(computation, *call_arguments(computation.call, self._storages.tensor)),
                    )
                # The calls of a region are skipped, since the whole region was executed at its start. Slots whose last
                # use is among these calls are still freed, unless they are watched later.
                ends = [slot for slot in computation.ends if last_watched.get(slot, 0) <= computation.position]
                self._storages.free(ends)
            for region in regions:
                watch(region.first)
                self._execute_region(region)
            watch(len(self._tape.calls))
        finally:
            for device, state in before.items():
                set_generator_state(device, state)
        return values

    def _execute_region(self, region: CapturedCall | BackwardCall) -> None:
        for device, state in region.generators.items():
            set_generator_state(device, state)
        # Dispatch modes that the script left enabled stay enabled, as in the recorded step.
        if isinstance(region, CapturedCall):
            self._call(region)
        else:
            self._call_backward(region)

    def _call(self, call: CapturedCall) -> None:
        inputs = []
        for argument, differentiable in zip(call.inputs, call.differentiable, strict=True):
            tensor = self._storages.tensor(argument) if isinstance(argument, View) else argument
            inputs.append(tensor.requires_grad_() if differentiable else tensor)
        with ExitStack() as stack:
            stack.enter_context(torch.set_grad_enabled(call.grad))
            for kind, dtype in call.autocast.items():
                stack.enter_context(torch.autocast(kind, dtype))
            compiled = self._compiled.get(call.graph)
            if compiled is None:
                compiled = self._compiled[call.graph] = self._compile(call.graph.module, inputs)
            outputs = compiled(*inputs)
        flat = list(outputs) if isinstance(outputs, (list, tuple)) else [outputs]
        if len(flat) != len(call.outputs):
            raise NotReplayable(f"a captured graph returns {len(flat)} results; {len(call.outputs)} were recorded")
        for forward, views in call.forwards.items():
            order = [call.inputs.index(view) if view in call.inputs else None for view in views]
            self._live[forward] = Live([None if at is None else inputs[at] for at in order], flat)
        slots = {value.slot for value in call.inputs if isinstance(value, View)}
        self._take(call.outputs, flat, slots)

    def _call_backward(self, call: BackwardCall) -> None:
        live = self._live.get(call.forward)
        if live is None or len(live.inputs) != len(call.gradients):
            raise NotReplayable("a compiled backward belongs to no call of a captured graph in this step")
        wanted = [number for number, gradient in enumerate(call.gradients) if isinstance(gradient, View)]
        if any(live.inputs[number] is None for number in wanted):
            raise NotReplayable(
                "a compiled backward returns the gradient of a value that the captured graph's call did not take"
            )
        gradients = torch.autograd.grad(
            [live.outputs[number] for number in call.tangents],
            [live.inputs[number] for number in wanted],
            [self._storages.tensor(view) for view in call.tangents.values()],
            allow_unused=True,
            retain_graph=True,
        )
        slots = {view.slot for view in call.tangents.values()}
        self._take([call.gradients[number] for number in wanted], gradients, slots)

    def _take(self, views: Sequence[Any], tensors: Sequence[Any], known_slots: set[int]) -> None:
        """Store the results in the slots of the recorded views.

        If the slot of a result is in `known_slots`, or already holds an earlier result, the result is either a view of
        the slot's memory or is copied into it.
        """
        bound = set(known_slots)
        for view, tensor in zip(views, tensors, strict=True):
            if not isinstance(view, View):
                continue
            value = torch.zeros(view.size, dtype=view.dtype) if tensor is None else tensor.detach()
            if view.slot not in bound:
                bound.add(view.slot)
                self._storages.bind(view, value)
            else:
                place = self._storages.tensor(view)
                if place.data_ptr() != value.data_ptr():
                    place.copy_(value)


def recompiled_as(spec: ModeSpec, tape: Tape, captured: CapturedCalls) -> dict[str, torch.Tensor]:
    """Return the results of a step with its captured graphs compiled in a mode.

    Settings that the mode leaves open have Inductor's current values. Raise NotReplayable if a call cannot be repeated.
    Exceptions of the compiler or an op propagate.
    """
    backend = spec.backend or INDUCTOR
    with inductor_settings_kept(spec.inductor), settings_of_step({}), ExitStack() as stack:
        configure_inductor(spec)
        stack.callback(contract_on_device(spec))
        put_stated(spec)
        return RecompiledStep(tape, captured, lambda module, inputs: compile_captured(module, inputs, backend)).values()
