"""Recording a step as a tape, by a dispatch mode that sees every op and changes none."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import torch

from .. import torch_private
from ..recorder.origin import script_line
from .generators import generator_state
from .owners import owners_of
from .places import Place, Places
from .slots import SlotTable
from .tape import Call, Draw, GeneratorState, NotReplayable, Tape, View, Watched, leaves, mapped

OFF_TAPE = ("profiler", "prim")
"""Namespaces of calls that compute nothing and carry handles which nothing could write down."""

NAMES_ONLY = ("aten::set_",)
"""Ops that give a tensor other memory, which the next view of it tells: a data loader's workers send theirs so."""

COLLECTIVES = ("c10d", "_c10d_functional", "c10d_functional", "_dtensor")

PLAIN = (
    type(None),
    bool,
    int,
    float,
    complex,
    str,
    torch.dtype,
    torch.device,
    torch.layout,
    torch.memory_format,
)
"""Arguments that are written down as they are."""

COMPILED = "CompiledFunction"
"""How the autograd nodes of compiled regions begin."""

OPAQUE = "a part of the step is compiled by torch.compile, and a tape cannot look into it"


@dataclass(frozen=True, slots=True)
class Taken:
    """What is noted of a call before it runs."""

    arguments: tuple[Any, ...]
    keywords: Mapping[str, Any]
    place: Place
    grad: bool
    known: int
    generators: tuple[GeneratorState, ...]
    given: tuple[tuple[torch.Generator, torch.Tensor], ...]


class TapeRecorder:
    """Records from `start` to `stop`. Whatever it cannot take ends the tape, with the `reason`, and not the training.

    `script` is the file whose lines are noted. With `modules` the modules' calls are followed by hooks.
    """

    def __init__(self, step: int, script: str, *, modules: bool) -> None:
        self.reason: str | None = None
        self._step = step
        self._script = script
        self._modules = modules
        self._process = os.getpid()
        self._calls: list[Call] = []
        self._watched: list[Watched] = []
        self._table = SlotTable()
        self._mode = torch_private.InterceptedOps(self._around)
        self._places: Places | None = None

    def start(self) -> None:
        self._places = Places(modules=self._modules)
        self._mode.__enter__()  # type: ignore[no-untyped-call]

    def stop(self) -> None:
        """Look at nothing any more. May be called twice."""
        self._mode.__exit__(None, None, None)
        self.forget_modules()

    def forget_modules(self) -> None:
        """Take the hooks out of the modules' calls."""
        if self._places is not None:
            self._places.close()

    def watch(self, name: str, tensor: torch.Tensor) -> None:
        """Note a value that the step is compared by, as it is now."""
        with self._looking():
            if self.reason is None:
                view = self._table.view(tensor.detach(), is_input=True)
                value = tensor.detach().clone()
                self._watched.append(Watched(len(self._calls), name, view, value))

    def tape(self) -> Tape:
        """What was recorded. Raises NotReplayable with the reason where that is not the whole step."""
        if self.reason is not None:
            raise NotReplayable(self.reason)
        owners = owners_of(self._calls, self._watched)
        calls = tuple(
            replace(call, owners=found) if found else call
            for call, found in zip(self._calls, owners, strict=True)
        )
        return Tape(self._step, self._table.slots, self._table.inputs, calls, tuple(self._watched))

    def give_up(self, reason: str) -> None:
        """End the tape; the first reason stays."""
        if self.reason is None:
            self.reason = reason
            self._calls.clear()
            self._watched.clear()
            self._table = SlotTable()

    @contextmanager
    def _looking(self) -> Iterator[None]:
        """What happens here is seen by no mode, and no failure leaves it."""
        try:
            with (
                torch.no_grad(),
                torch_private.without_dispatch_modes(),
                torch_private.without_function_modes(),
            ):
                yield
        except NotReplayable as found:
            self.give_up(str(found))
        except Exception as error:  # noqa: BLE001, the training goes on whatever fails here
            self.give_up(f"recording an op failed: {type(error).__name__}: {error}")

    def _around(self, operation: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Any:
        if self.reason is not None or os.getpid() != self._process or _is_off_tape(operation):
            return operation(*args, **kwargs)
        taken: Taken | None = None
        grad = torch.is_grad_enabled()
        with self._looking():
            taken = self._before(operation, args, kwargs, grad)
        outputs = operation(*args, **kwargs)
        if taken is not None:
            with self._looking():
                self._after(operation, args, kwargs, taken, outputs)
        return outputs

    def _before(self, operation: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], grad: bool) -> Taken:
        _require_replayable(operation)
        assert self._places is not None
        given = list(leaves([*args, *kwargs.values()]))
        tensors = [one for one in given if isinstance(one, torch.Tensor)]
        place = self._places.here(grad=grad, differentiable=any(one.requires_grad for one in tensors))
        generators = [one for one in given if isinstance(one, torch.Generator)]
        arguments = mapped(functools.partial(self._argument, operation), args)
        keywords = {
            name: mapped(functools.partial(self._argument, operation), value)
            for name, value in kwargs.items()
        }
        return Taken(
            arguments,
            keywords,
            place,
            grad,
            len(self._table),
            tuple(GeneratorState(one, generator_state(one)) for one in ("cpu", *_accelerators(given))),
            tuple((one, one.get_state()) for one in generators),
        )

    def _argument(self, operation: Any, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            maker = value.grad_fn
            if maker is not None and maker.name().startswith(COMPILED):
                raise NotReplayable(OPAQUE)
            return self._table.view(value, is_input=True)
        if isinstance(value, torch.Generator):
            return GeneratorState(str(value.device), value.get_state())
        if isinstance(value, PLAIN):
            return value
        raise NotReplayable(f"{operation} takes a {type(value).__name__}, which a tape cannot hold")

    def _after(
        self, operation: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], taken: Taken, outputs: Any
    ) -> None:
        results = list(leaves(outputs)) if outputs is not None else []
        shown = tuple(self._output(operation, one) for one in results)
        self._calls.append(
            Call(
                op=str(operation),
                arguments=taken.arguments,
                keywords=taken.keywords,
                outputs=shown,
                fresh=tuple(isinstance(one, View) and one.slot >= taken.known for one in shown),
                phase=taken.place.phase,
                module=taken.place.module,
                line=script_line(self._script),
                sequence=taken.place.sequence,
                grad=taken.grad,
                draw=_draw(operation, args, kwargs, taken, results),
            )
        )

    def _output(self, operation: Any, value: Any) -> Any:
        if isinstance(value, torch.Tensor):
            return self._table.view(value, is_input=False)
        if isinstance(value, PLAIN):
            return value
        raise NotReplayable(f"{operation} gives a {type(value).__name__}, which a tape cannot hold")


def _is_off_tape(operation: Any) -> bool:
    if not torch_private.is_operation_overload(operation):
        return False
    return operation.namespace in OFF_TAPE or operation.name().partition(".")[0] in NAMES_ONLY


def _require_replayable(operation: Any) -> None:
    if not torch_private.is_operation_overload(operation):
        raise NotReplayable(f"the step calls the higher-order operator {operation}")
    if operation.namespace in COLLECTIVES:
        raise NotReplayable(f"the step communicates with other processes ({operation})")
    node = torch_private.current_autograd_node()
    if node is not None and node.name().startswith(COMPILED):
        raise NotReplayable(OPAQUE)


def _accelerators(given: list[Any]) -> list[str]:
    """The devices other than the CPU that an op with these arguments runs on."""
    devices = [
        one if isinstance(one, torch.device) else one.device
        for one in given
        if isinstance(one, (torch.Tensor, torch.device))
    ]
    return sorted({str(one) for one in devices if one.type not in ("cpu", "meta")})


def _draw(
    operation: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any], taken: Taken, results: list[Any]
) -> Draw | None:
    """What the op drew, None where no generator has moved: an attention without dropout is tagged as random too."""
    given = any(not torch.equal(state, generator.get_state()) for generator, state in taken.given)
    moved = tuple(one for one in taken.generators if not torch.equal(one.state, generator_state(one.device)))
    if not given and not moved:
        return None
    drawn = [*results, *torch_private.written_values(operation, args, kwargs)]
    tensors = tuple(one.detach().clone() for one in drawn if isinstance(one, torch.Tensor))
    return Draw(moved, tensors)
