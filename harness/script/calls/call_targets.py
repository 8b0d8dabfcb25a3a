"""The calls that the subject of a run describes: the target in the script's file, and sets of inputs for it."""

from __future__ import annotations

import functools
import importlib
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ...errors import UsageError
from ...records.run.call_subject import MAKERS, CallSubject
from ...records.run.input_language import DescribedInput, described_inputs
from .captured_calls import CallCapture
from .planned_call import PlannedCall, seed_generators

Inputs = tuple[tuple[Any, ...], dict[str, Any]]

ReadSaved = Callable[[str], Any]
"""Reads a file of inputs. Raises UsageError."""
"""The positional and the named arguments of a call."""


def planned_calls(
    subject: CallSubject, scope: Mapping[str, Any], captured: CallCapture, read_saved: ReadSaved
) -> list[PlannedCall]:
    """Return the calls of a function or module that the script's variables `scope` contain.

    Each set of inputs is made from its own seed. Raises UsageError if there is no such function, or no inputs for it.
    """
    target = target_in(scope, subject.function)
    function = functools.reduce(_unwrapped, range(2), target)
    if isinstance(function, type) and issubclass(function, torch.nn.Module):
        function = _made(function, scope)
    if not callable(function):
        raise UsageError(f"{subject.function} is {type(function).__name__}, and cannot be called; name a function")
    refuse_unusable(function, subject.function)
    calls = []
    for seed in range(subject.seeds):
        seed_generators(seed)
        args, kwargs = _inputs_for(subject, scope, seed, read_saved)
        label = f"seed {seed}" if subject.seeds > 1 else "the call"
        calls.append(PlannedCall(label, function, args, kwargs, captured.compiled_with(function), seed=seed))
    for call in calls:
        _check_arguments(call, subject)
        if not any(tensor.requires_grad for _, tensor in call.names()):
            for _, tensor in call.names():
                if tensor.is_floating_point() and tensor.is_leaf and not getattr(tensor, "without_gradient", False):
                    tensor.requires_grad_(subject.gradients)
    return calls


def op_calls(subject: CallSubject) -> list[PlannedCall]:
    """Return calls of an op with samples of PyTorch's test suite. Raises UsageError and NotAvailable."""
    seed_generators(0)
    # imported here because the samples take seconds to import
    samples = importlib.import_module("numdrift.harness.torch_private.op_samples")
    function, inputs = samples.op_samples(subject.op, subject.seeds, gradients=subject.gradients)
    return [
        PlannedCall(f"sample {number}", function, args, kwargs, seed=number)
        for number, (args, kwargs) in enumerate(inputs)
    ]


def target_in(scope: Mapping[str, Any], name: str) -> Any:
    """Return the object of a dotted name. Raises UsageError."""
    first, *rest = name.split(".")
    value = scope.get(first)
    for part in rest:
        value = getattr(value, part, None)
    if value is None:
        raise UsageError(f"the script has run, but has no {name!r}; name a function or class of its top level")
    return value


def refuse_unusable(function: Callable[..., Any], name: str) -> None:
    """Raise UsageError for a function whose result is made later: a generator or a coroutine."""
    of_call = function.forward if isinstance(function, torch.nn.Module) else function
    if inspect.isgeneratorfunction(of_call) or inspect.isasyncgenfunction(of_call):
        raise UsageError(
            f"{name} is a generator: name a function that returns tensors, such as one that lists its items"
        )
    if inspect.iscoroutinefunction(of_call):
        raise UsageError(f"{name} is a coroutine: name a function that returns tensors")


def _unwrapped(value: Any, _: int) -> Any:
    """Return the module in a compiled module, and the function in a compiled function."""
    inner = getattr(value, "_orig_mod", None)
    return value if inner is None else inner


def _made(module: type[torch.nn.Module], scope: Mapping[str, Any]) -> torch.nn.Module:
    """Return an instance, made with the file's `get_init_inputs()` if it has one. Raises UsageError."""
    maker = scope.get("get_init_inputs") or scope.get("init_inputs")
    args, kwargs = ((), {}) if maker is None else _as_inputs(maker())
    if (
        len(args) == 2 and isinstance(args[0], (list, tuple)) and isinstance(args[1], dict)
    ):  # as newer KernelBench files
        args, kwargs = tuple(args[0]), args[1]
    seed_generators(0)
    try:
        return module(*args, **kwargs)
    except TypeError as error:
        if maker is None:
            raise UsageError(
                f"{module.__name__}() cannot be made ({error}): define get_init_inputs() beside it, which returns its "
                "arguments"
            ) from None
        raise


def _inputs_for(subject: CallSubject, scope: Mapping[str, Any], seed: int, read_saved: ReadSaved) -> Inputs:
    """Return the inputs of the set with this seed. Raises UsageError."""
    if subject.inputs:
        return _described(described_inputs(subject.inputs), seed)
    if subject.saved:
        return _as_inputs(read_saved(subject.saved))
    maker = next((scope[name] for name in MAKERS if callable(scope.get(name))), None)
    if maker is None:
        raise UsageError(
            f"there are no inputs for {subject.function}: define inputs() in the file, which returns them, or describe "
            "them, as in --inputs 'randn(4, 8), randint(0, 10, (4,))'"
        )
    accepted = inspect.signature(maker).parameters
    return _as_inputs(maker(seed=seed) if "seed" in accepted else maker())


def _as_inputs(value: Any) -> Inputs:
    """Return what a function made as arguments: a dictionary has names, a tuple or list has none."""
    if isinstance(value, Mapping):
        return (), dict(value)
    return (tuple(value), {}) if isinstance(value, (list, tuple)) else ((value,), {})


def _described(inputs: Sequence[DescribedInput], seed: int) -> Inputs:
    """Return the described inputs, drawn from a generator of their own."""
    generator = torch.Generator().manual_seed(seed)
    made = [(described.name, _tensor(described, generator)) for described in inputs]
    return tuple(value for name, value in made if not name), {name: value for name, value in made if name}


def _tensor(described: DescribedInput, generator: torch.Generator) -> Any:
    if not described.function:
        return described.value
    shape, numbers = list(described.shape), described.numbers
    if described.layout == "transposed" and len(shape) > 1:
        shape[-1], shape[-2] = shape[-2], shape[-1]
    elif described.layout == "expanded" and shape:
        shape[0] = 1
    elif described.layout == "sliced" and shape:
        shape[-1] *= 2
    dtype = getattr(torch, described.dtype) if described.dtype else None
    value = _values(described.function, numbers, shape, generator)
    value = value if dtype is None else value.to(dtype)
    if described.layout == "transposed" and len(shape) > 1:
        value = value.transpose(-1, -2)
    elif described.layout == "expanded" and shape:
        value = value.expand(described.shape)
    elif described.layout == "sliced" and shape:
        value = value[..., ::2]
    value.without_gradient = not described.grad  # type: ignore[attr-defined]
    return value


def _values(function: str, numbers: Sequence[float], shape: Sequence[int], generator: torch.Generator) -> torch.Tensor:
    """Return the values of a described tensor. They are drawn as float32 or int64, whatever its dtype is."""
    if function in ("zeros", "ones"):
        return getattr(torch, function)(shape)  # type: ignore[no-any-return]
    if function == "arange":
        return torch.arange(*numbers)
    if function == "full":
        return torch.full(tuple(shape), numbers[0])
    if function == "randint":
        return torch.randint(int(numbers[0]), int(numbers[1]), tuple(shape), generator=generator)
    if function in ("uniform", "rand"):
        low, high = numbers or (0.0, 1.0)
        return low + (high - low) * torch.rand(shape, generator=generator)
    mean, deviation = numbers or (0.0, 1.0)
    drawn = torch.randn(shape, generator=generator)
    return drawn if not numbers else mean + deviation * drawn


def _check_arguments(call: PlannedCall, subject: CallSubject) -> None:
    """Raise UsageError if the function does not take these arguments."""
    of_call = call.function.forward if isinstance(call.function, torch.nn.Module) else call.function
    try:
        signature = inspect.signature(of_call)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*call.args, **call.kwargs)
    except TypeError as error:
        raise UsageError(
            f"{subject.function}{signature} does not take these inputs ({error}); pass inputs by name where it has "
            "keyword-only parameters, as in --inputs 'x=randn(4)'"
        ) from None
