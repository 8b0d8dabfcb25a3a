"""The op that a sweep measures: which of its arguments varies, and what the others are held at."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from numdrift.harness.errors import UsageError, nearest
from numdrift.harness.torch_private.operators import arguments_of, find_overload, find_packet, is_random, schema_of

from .recipes import RECIPES
from .sweep_domain import Encoding
from .sweep_guess import guess, is_missing, mixing

HELD_AT = 1.0
"""What tensor arguments are that do not vary and that nothing is said about."""

_PROBE = (0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1.0)


@dataclass(frozen=True, slots=True)
class Subject:
    """One overload of an op, made a function of one tensor.

    `varied` is the argument that takes all inputs; `held` are the others that are passed, in the order of the
    schema: numbers for tensors, anything for other arguments.
    """

    op: str
    overload: Any
    encoding: Encoding
    varied: str
    held: tuple[tuple[str, Any], ...]

    def call(self, function: Callable[..., Any], inputs: torch.Tensor) -> Any:
        """Call a kernel of the op with `inputs` as the varied argument."""
        args, kwargs = self.arguments(inputs)
        return function(*args, **kwargs)

    def arguments(self, inputs: torch.Tensor) -> tuple[list[Any], dict[str, Any]]:
        """The arguments as the dispatcher passes them: tensors of the shape and dtype of `inputs`."""
        held = dict(self.held)
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for argument in schema_of(self.overload).arguments:
            if argument.name == self.varied:
                value: Any = inputs
            elif argument.name not in held:
                continue
            elif _is_tensor(argument):
                value = torch.full_like(inputs, held[argument.name])
            else:
                value = held[argument.name]
            if argument.kwarg_only:
                kwargs[argument.name] = value
            else:
                args.append(value)
        return args, kwargs

    def described(self) -> str:
        """`output, with grad_output = 1`: what varies and what does not."""
        others = ", ".join(f"{name} = {value:g}" if isinstance(value, float) else f"{name} = {value}"
                           for name, value in self.held)  # fmt: skip
        return f"{self.varied}, with {others}" if others else self.varied


def subject_of(op: str, encoding: Encoding, vary: str | None = None, hold: Sequence[str] = ()) -> Subject:
    """Choose the overload and its arguments, and try them.

    vary: the argument that varies; by default the last tensor argument. hold: NAME=VALUE for others, rounded
    to the format for tensors. Tensors are held at `HELD_AT` by default, the rest at what the op has as
    default. Raises KernelNotFound for an unknown op, UsageError for an op or arguments that cannot be swept.
    """
    overload = _overload(op)
    arguments = {one.name: one for one in schema_of(overload).arguments}
    tensors = [name for name, one in arguments.items() if _is_tensor(one)]
    if not tensors:
        raise UsageError(f"op {op} takes no tensor: there is nothing to sweep ({schema_of(overload)})")
    _refuse(op, overload)
    varied = vary or tensors[-1]
    if varied not in tensors:
        raise UsageError(f"--vary {varied}: op {op} has no such tensor argument; {nearest(varied, tensors)}")
    given = _parsed(op, hold, arguments, varied)
    for name in given.keys() & tensors:
        given[name] = torch.tensor(given[name]).to(encoding.torch_dtype).item()
    guesses = {name: guess(one) for name, one in arguments.items() if name != varied and is_missing(one)}
    guessed = _held(op, arguments, varied, {**guesses, **given})
    if why := mixing(Subject(op, overload, encoding, varied, tuple(guessed)).call, overload):
        raise not_elementwise(op, why)
    if op.partition(".")[0] in RECIPES:
        raise not_elementwise(op, "mixes its inputs")
    subject = Subject(op, overload, encoding, varied, tuple(_held(op, arguments, varied, given)))
    _try(subject)
    return subject


def roundings(subject: Subject, hold: Sequence[str]) -> list[str]:
    """Which of the tensors in `hold` the format changes by more than float32 would, as `output=0.999 is 1 in
    bfloat16`."""
    notes = []
    held = dict(subject.held)
    tensors = {one.name for one in schema_of(subject.overload).arguments if _is_tensor(one)}
    for name, equals, value in (text.partition("=") for text in hold):
        if name in tensors and float(value) == float(value):
            nearly = torch.tensor(float(value)).item()
            if held[name] != nearly or (math.isinf(nearly) and not math.isinf(float(value))):
                notes.append(f"{name}{equals}{value} is {held[name]:.9g} in {subject.encoding.name}")
    return notes


def _overload(op: str) -> Any:
    name, _, wanted = op.partition(".")
    packet = find_packet(name)
    if wanted:
        return find_overload(op)
    names = packet.overloads()
    usual = [one for one in ("default", "Tensor") if one in names]
    found = [getattr(packet, one) for one in (*usual, *names)]
    return next((one for one in found if _takes_tensor(one) and not _writes(one)), found[0])


def _parsed(op: str, hold: Sequence[str], arguments: Mapping[str, Any], varied: str) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for text in hold:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--hold {text!r} is not NAME=VALUE")
        if name == varied:
            raise UsageError(f"--hold {text}: {name} is the argument that varies; --vary names another")
        if name not in arguments:
            others = [one for one in arguments if one != varied]
            known = nearest(name, others) if others else f"it has only {varied}"
            raise UsageError(f"--hold {text}: op {op} has no argument {name!r}; {known}")
        given[name] = _number(text, value) if _is_tensor(arguments[name]) else _literal(value)
    return given


def _number(text: str, value: str) -> float:
    try:
        return float(value)
    except ValueError:
        raise UsageError(f"--hold {text}: a tensor is held at a number, not at {value!r}") from None


def _literal(value: str) -> Any:
    if value.lower() in ("true", "false"):
        return value.lower() == "true"
    try:
        return ast.literal_eval(value)
    except (ValueError, SyntaxError):
        return value


def _held(op: str, arguments: Mapping[str, Any], varied: str, given: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """The arguments to pass: those without a default, those given, and the positional ones before these."""
    positional = [name for name, one in arguments.items() if not one.kwarg_only]
    needed = [name for name in positional if name in given or not arguments[name].has_default_value()]
    last = max((positional.index(name) for name in needed), default=-1)
    held: list[tuple[str, Any]] = []
    for name, argument in arguments.items():
        passed = name in given or not argument.has_default_value()
        if name == varied or not (passed or name in positional[: last + 1]):
            continue
        if name in given:
            held.append((name, given[name]))
        elif argument.has_default_value():
            held.append((name, argument.default_value))
        elif _is_tensor(argument):
            held.append((name, HELD_AT))
        elif str(argument.type).startswith("Optional"):
            held.append((name, None))
        else:
            raise UsageError(
                f"op {op} needs {name} ({argument.type}): give it, as in --hold {name}={_example(argument)}"
            )
    return held


def _example(argument: Any) -> str:
    return {"bool": "true", "str": "TEXT"}.get(str(argument.type), "1")


def _is_tensor(argument: Any) -> bool:
    return str(argument.type) == "Tensor"


def _takes_tensor(overload: Any) -> bool:
    return any(_is_tensor(argument) for argument in schema_of(overload).arguments)


def _writes(overload: Any) -> bool:
    return any(argument.writes for argument in arguments_of(overload))


def _refuse(op: str, overload: Any) -> None:
    """Raise UsageError for an op that no arguments make fit."""
    if is_random(overload):
        raise UsageError(f"op {op} draws random numbers: it has no error to measure")
    if _writes(overload):
        plain = op.partition(".")[0].removesuffix("_")
        raise UsageError(f"op {op} writes to its arguments: sweep {plain} instead")


def not_elementwise(op: str, why: str) -> UsageError:
    name = op.partition(".")[0]
    only = "only ops that work element by element are swept"
    return UsageError(f"op {op} {why}: {only}; numdrift kernels check {name} measures it")


def _try(subject: Subject) -> None:
    """Raise UsageError unless the op, in float64, works element by element with these very arguments."""
    op, overload = subject.op, subject.overload
    probe = torch.tensor(_PROBE, dtype=torch.float64)
    try:
        together = subject.call(overload, probe)
        apart = [subject.call(overload, one) for one in probe.split(1)]
    except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError) as error:
        why = str(error).splitlines()[0]
        raise UsageError(f"op {op} cannot be called on {subject.described()}: {why}") from None
    if not isinstance(together, torch.Tensor):
        raise not_elementwise(op, "returns no single tensor")
    if together.shape != probe.shape:
        shapes = f"{list(together.shape)} for inputs of shape {list(probe.shape)}"
        raise not_elementwise(op, f"returns shape {shapes}")
    if not together.is_floating_point():
        raise UsageError(f"op {op} returns {together.dtype}, no floating-point numbers: it has no error in ULP")
    if not torch.allclose(together, torch.cat(apart), rtol=1e-9, atol=0, equal_nan=True):
        raise not_elementwise(op, "mixes its inputs")
