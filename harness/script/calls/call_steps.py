"""The steps of a run that makes calls: each call is a step, and its results are the parameters after it.

    step 0     y = function(x);  y.backward(fixed cotangent);  results.step()
    after it   parameters output = y,  grad_x = x.grad;  also x itself, if the call wrote to it

So all that is recorded, started from the reference's state, judged and localized by step applies to calls.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import torch
from torch.optim.optimizer import Optimizer

from ...errors import NumdriftError, UsageError
from ...records.modes.mode_registry import DEFERRED_DEVICES
from ...records.run.call_subject import CALLED, GRADIENT, OUTPUT, WRITTEN, CallFacts, ResultFacts
from .call_copies import replaced, tensors_of
from .planned_call import PlannedCall, named_inputs

UNUSED = "unused"
"""The name of a parameter that a function gets if all its results are whole numbers."""

Named = list[tuple[str, torch.Tensor]]


@dataclass(frozen=True, slots=True)
class ExecutedCall:
    """A call that has been executed.

    outputs: the tensors that it returned, by name
    inputs: its input tensors after the call
    gradients: the gradients of the inputs
    written: the names of the inputs that it wrote to
    """

    outputs: Named
    inputs: Named
    gradients: Named
    written: frozenset[str]

    def results(self) -> dict[str, torch.Tensor]:
        """Return what is compared: the outputs, the gradients, and the inputs that the call wrote to."""
        named = [
            *self.outputs,
            *((GRADIENT + name, value) for name, value in self.gradients),
            *((WRITTEN + name, value) for name, value in self.inputs if name in self.written),
        ]
        return {name: value.detach() for name, value in named if value.layout == torch.strided}


class Called(torch.nn.Module):
    """A function or module as a module that has the results of its calls as parameters."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        if isinstance(function, torch.nn.Module):
            self.module = function
        self.call = (function,)  # in a tuple, so that a module is registered only once

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.call[0](*args, **kwargs)


class OptimizedModule(torch.nn.Module):
    """Calls a function eagerly, and has the names of what `torch.compile` returns, so that the results do, too.

    Importing torch's class of this name, with the compiler, takes as long as importing torch.
    """

    def __init__(self, called: Called) -> None:
        super().__init__()
        self._orig_mod = called

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._orig_mod(*args, **kwargs)


@dataclass
class CalledTarget:
    """A function that is called.

    called: the function with its results
    compiled_with: the arguments of the script's own `torch.compile`
    """

    called: Called
    compiled_with: Mapping[str, Any] = field(default_factory=dict)

    def add_result(self, name: str, value: torch.Tensor) -> None:
        """Add a parameter or buffer for a result, unless there is one of this name, shape and dtype."""
        place = self.place(name, value)
        if hasattr(self.called, place):
            return
        empty = torch.zeros(value.shape, dtype=value.dtype)
        if value.is_floating_point() or value.is_complex():
            self.called.register_parameter(place, torch.nn.Parameter(empty))
        else:
            self.called.register_buffer(place, empty)

    def place(self, name: str, value: torch.Tensor) -> str:
        """Return the name of a result's parameter; results of another shape or dtype have another parameter."""
        place, number = name, 1
        while (existing := getattr(self.called, place, None)) is not None and (
            existing.shape != value.shape or existing.dtype != value.dtype
        ):
            number += 1
            place = f"{name}_{number}"
        return place


class Results(Optimizer):
    """Ends the step of a call by putting its results into the parameters and buffers of its target."""

    def __init__(self, target: CalledTarget) -> None:
        own = [parameter for name, parameter in target.called.named_parameters(recurse=False)]
        super().__init__([{"params": own}], {})
        self._target = target
        self._pairs: list[tuple[torch.Tensor, torch.Tensor]] = []

    def take(self, results: Mapping[str, torch.Tensor]) -> None:
        """Take the results of a call. One that the call does not have in eager mode is left out."""
        places = ((self._target.place(name, value), value) for name, value in results.items())
        self._pairs = [
            (tensor, value)
            for place, value in places
            if (tensor := getattr(self._target.called, place, None)) is not None
        ]

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        self.param_groups.append(param_group)  # without torch's checks, which import the compiler

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        pairs, self._pairs = self._pairs, []
        for tensor, value in pairs:
            tensor.copy_(value)


def targets_of(
    calls: Sequence[PlannedCall], results: Sequence[dict[str, torch.Tensor] | None]
) -> dict[int, CalledTarget]:
    """Return the functions that are called, by their identity, with a parameter for each result of their calls.

    `results` are those that each call has in eager mode, None if it raises an error there.
    """
    targets: dict[int, CalledTarget] = {}
    for call, expected in zip(calls, results, strict=True):
        target = targets.setdefault(id(call.function), CalledTarget(Called(call.function), call.compiled_with))
        for name, value in (expected or {}).items():
            target.add_result(name, value)
    for target in targets.values():
        if next(target.called.parameters(), None) is None:  # only modules with parameters are recorded
            target.called.register_parameter(UNUSED, torch.nn.Parameter(torch.zeros(1)))
    return targets


def make_calls(
    calls: Sequence[PlannedCall],
    targets: Mapping[int, CalledTarget],
    device: str,
    write: Callable[..., None],
    *,
    compiles: bool,
) -> None:
    """Make the calls, one after the other, each as a step of the run. `write` writes an event to the journal.

    A call that raises an error is no step; its facts state the error.
    """
    # compiled here because the mode has replaced `torch.compile` by now
    compiled: dict[int, Callable[..., Any]] = {
        key: torch.compile(target.called, **target.compiled_with) if compiles else OptimizedModule(target.called)
        for key, target in targets.items()
    }
    stepping = {key: Results(target) for key, target in targets.items()}
    for number, call in enumerate(calls):
        key = id(call.function)
        call.state.restore()
        try:
            executed = execute(call, compiled[key], device)
        except NumdriftError:
            raise
        except Exception as error:  # noqa: BLE001, an error of the called function is the call's result
            write(CALLED, **asdict(CallFacts(number, call.label, raised=_in_words(error))))
            continue
        seeded = torch.Generator().manual_seed(call.seed).get_state()
        draws = not torch.equal(seeded, torch.get_rng_state())
        stepping[key].take(executed.results())
        stepping[key].step()
        write(CALLED, **asdict(replace(_facts(number, call, executed, device), draws=draws)))


def expected_results(call: PlannedCall) -> dict[str, torch.Tensor] | None:
    """Call the function eagerly, where its inputs are, and return the tensors that a call has as results, by name.

    If it cannot write to an input that needs a gradient, it gets a copy of the input. If the backward raises an error,
    the call computes no gradients. If the call itself raises an error, return None. Raises UsageError if the call
    computes no tensor.
    """
    grad, computed = call.grad, call.computed
    everything = frozenset(name for name, _ in call.names())
    for call.grad, call.computed in ((grad, computed), (grad, everything), (False, computed)):
        results = _tried(call)
        if results:
            return results
        if results is not None:
            name = getattr(call.function, "__qualname__", type(call.function).__name__)
            raise UsageError(f"{name} returns no tensor and writes to none: name a function that computes tensors")
    call.grad, call.computed = grad, computed
    return None


def _tried(call: PlannedCall) -> dict[str, torch.Tensor] | None:
    """Return the results of a call, None if it raises an error: then it raises the error in its step, too."""
    try:
        call.state.restore()
        return execute(call, call.function, "").results()
    except Exception:  # noqa: BLE001, a function may raise anything
        return None


def execute(call: PlannedCall, function: Callable[..., Any], device: str) -> ExecutedCall:
    """Make a call with copies of its inputs; a `device` other than the CPU gets them in its own memory.

    The backward starts from fixed gradients of the outputs. They are drawn when the call is first made.
    """
    is_elsewhere = device not in ("", "cpu")
    args, kwargs = call.inputs(device if is_elsewhere else "")
    leaves = named_inputs(call.function, args, kwargs)
    for (_, leaf), (_, original) in zip(leaves, call.names(), strict=True):
        leaf.requires_grad_(original.requires_grad and call.grad)
    if call.computed:
        computed = {id(tensor) for name, tensor in leaves if name in call.computed}
        args, kwargs = replaced((args, kwargs), lambda tensor: tensor.clone() if id(tensor) in computed else tensor)
    inputs = named_inputs(call.function, args, kwargs)
    cotangents = [tensor.to(device) if is_elsewhere else tensor for tensor in call.cotangents or ()]
    versions = [value._version for _, value in inputs]
    with call.surroundings():
        returned = function(*args, **kwargs)
    outputs = [(f"{OUTPUT}_{name}" if name else OUTPUT, value) for name, value in tensors_of(returned)]
    started = [value for _, value in outputs if value.requires_grad and call.grad]
    if started and call.cotangents is None:
        call.cotangents = cotangents = [cotangent(value, number) for number, value in enumerate(started)]
    if started:
        torch.autograd.backward(started, cotangents)
    gradients = [(name, leaf.grad) for name, leaf in leaves if leaf.grad is not None]
    written = frozenset(
        name for (name, value), before in zip(inputs, versions, strict=True) if value._version != before
    )
    return ExecutedCall(outputs, inputs, gradients, written)


def cotangent(output: torch.Tensor, number: int) -> torch.Tensor:
    """Return the gradient of the result with respect to an output: standard normal numbers, the same in every mode."""
    generator = torch.Generator().manual_seed(number)
    dtype = output.dtype if output.dtype.is_complex else torch.float32
    return torch.randn(output.shape, generator=generator, dtype=dtype).to(output.dtype).to(output.device)


def _facts(number: int, call: PlannedCall, executed: ExecutedCall, device: str) -> CallFacts:
    """Return what a call did beside computing values. On a device that defers ops, memory cannot be seen."""
    if device.partition(":")[0] in DEFERRED_DEVICES:
        seen = [ResultFacts(name, _dtype(value), tuple(value.shape)) for name, value in executed.outputs]
        return CallFacts(number, call.label, results=tuple(seen), sees_memory=False)
    owners: dict[int, str] = {}
    for name, value in executed.inputs:
        owners.setdefault(_address(value), name)
    facts = []
    for name, value in executed.outputs:
        address = _address(value)
        stride = tuple(value.stride()) if value.layout == torch.strided else ()
        owner = owners.setdefault(address, name) if address else name
        facts.append(ResultFacts(name, _dtype(value), tuple(value.shape), stride, "" if owner == name else owner))
    before = dict(call.names())
    changed = [name for name, value in executed.inputs if not _is_same(value.detach(), before[name].detach())]
    return CallFacts(number, call.label, results=tuple(facts), mutated=tuple(changed))


def _is_same(value: torch.Tensor, before: torch.Tensor) -> bool:
    if value.layout != torch.strided:
        return True
    before = before.to(value.device)
    if value.shape != before.shape or value.dtype != before.dtype:
        return False
    both_nan = value.isnan() & before.isnan()
    return bool(((value == before) | both_nan).all())


def _dtype(tensor: torch.Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def _address(tensor: torch.Tensor) -> int:
    """Return where a tensor's memory begins; 0 for a tensor without plain memory, or without elements."""
    is_plain = tensor.layout == torch.strided and type(tensor) in (torch.Tensor, torch.nn.Parameter)
    return tensor.untyped_storage().data_ptr() if is_plain else 0


def _in_words(error: Exception) -> str:
    first_line = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {first_line}".rstrip(": ")
