"""The op that a sweep measures: the argument that varies, and the values at which its other arguments are held."""

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

HELD_AT = 1.0
"""The default value of tensor arguments that do not vary."""

_PROBE = (0.25, 0.375, 0.5, 0.625, 0.75, 0.875, 1.0)


@dataclass(frozen=True, slots=True)
class Subject:
    """One overload of an op, as a function of one tensor.

    `varied` is the argument that takes all inputs. `held` are the names and values of the other passed arguments, in
    the order of the schema; the value of a tensor is the number that fills it.
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
        """Return the arguments as the dispatcher passes them: tensors of the shape and dtype of `inputs`."""
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
        """Return the varied and the held arguments as text, for example `output, with grad_output = 1`."""
        others = ", ".join(f"{name} = {value:g}" if isinstance(value, float) else f"{name} = {value}"
                           for name, value in self.held)  # fmt: skip
        return f"{self.varied}, with {others}" if others else self.varied


def subject_of(op: str, encoding: Encoding, vary: str | None = None, hold: Sequence[str] = ()) -> Subject:
    """Choose the overload and its arguments, and try them.

    vary: the argument that varies; by default the last tensor argument. hold: NAME=VALUE for other arguments; the
    value of a tensor is rounded to the format. Tensors are held at `HELD_AT` by default, other arguments at the op's
    default. Raises KernelNotFound for an unknown op, and UsageError for an op or arguments that cannot be swept.
    """
    overload = _overload(op)
    arguments = {argument.name: argument for argument in schema_of(overload).arguments}
    tensors = [name for name, argument in arguments.items() if _is_tensor(argument)]
    if not tensors:
        raise UsageError(f"op {op} takes no tensor, so there is nothing to sweep ({schema_of(overload)})")
    if is_random(overload):
        raise UsageError(f"op {op} draws random numbers, so it has no error to measure")
    if _writes(overload):
        plain = op.partition(".")[0].removesuffix("_")
        raise UsageError(f"op {op} writes to its arguments: sweep {plain} instead")
    varied = vary or tensors[-1]
    if varied not in tensors:
        raise UsageError(f"--vary {varied}: op {op} has no such tensor argument; {nearest(varied, tensors)}")
    held_values = _parsed(op, hold, arguments, varied)
    for name in held_values.keys() & tensors:
        held_values[name] = torch.tensor(held_values[name]).to(encoding.torch_dtype).item()
    # First check whether the op can be elementwise; only then ask the user for missing arguments.
    guesses: dict[str, Any] = {}
    for name, argument in arguments.items():
        kind = str(argument.type)
        if name != varied and not argument.has_default_value() and kind != "Tensor" and not kind.startswith("Optional"):
            # the last dimension, or a small value of the argument's type
            guesses[name] = (-1 if "dim" in name else 1) if kind == "int" else _GUESSES.get(kind)
    guessed = _held(op, arguments, varied, {**guesses, **held_values})
    if why := _mixing(Subject(op, overload, encoding, varied, tuple(guessed)).call, overload):
        raise not_elementwise(op, why)
    if op.partition(".")[0] in RECIPES:
        raise not_elementwise(op, "mixes its inputs")
    subject = Subject(op, overload, encoding, varied, tuple(_held(op, arguments, varied, held_values)))
    _try(subject)
    return subject


def roundings(subject: Subject, hold: Sequence[str]) -> list[str]:
    """Describe the values of tensors in `hold` that the format rounds more than float32 does: `output=0.999 is 1 in
    bfloat16`."""
    notes = []
    held = dict(subject.held)
    tensors = {argument.name for argument in schema_of(subject.overload).arguments if _is_tensor(argument)}
    for name, equals, value in (text.partition("=") for text in hold):
        if name in tensors and not math.isnan(float(value)):
            nearly = torch.tensor(float(value)).item()
            if held[name] != nearly or (math.isinf(nearly) and not math.isinf(float(value))):
                notes.append(f"{name}{equals}{value} is {held[name]:.9g} in {subject.encoding.name}")
    return notes


def _overload(op: str) -> Any:
    """Return the overload that `op` names, or else the first that takes a tensor and writes to no argument."""
    name, _, wanted = op.partition(".")
    packet = find_packet(name)
    if wanted:
        return find_overload(op)
    names = packet.overloads()
    usual = [overload_name for overload_name in ("default", "Tensor") if overload_name in names]
    overloads = [getattr(packet, overload_name) for overload_name in (*usual, *names)]
    for overload in overloads:
        if any(map(_is_tensor, schema_of(overload).arguments)) and not _writes(overload):
            return overload
    return overloads[0]


def _parsed(op: str, hold: Sequence[str], arguments: Mapping[str, Any], varied: str) -> dict[str, Any]:
    """Read NAME=VALUE texts as values by name: a number for a tensor; for other arguments a Python literal, or else the
    text itself."""
    values: dict[str, Any] = {}
    for text in hold:
        name, equals, value = text.partition("=")
        if not equals:
            raise UsageError(f"--hold {text!r} is not NAME=VALUE")
        if name == varied:
            raise UsageError(f"--hold {text}: {name} is the argument that varies; choose another one with --vary")
        if name not in arguments:
            others = [argument_name for argument_name in arguments if argument_name != varied]
            hint = nearest(name, others) if others else f"it has only {varied}"
            raise UsageError(f"--hold {text}: op {op} has no argument {name!r}; {hint}")
        if _is_tensor(arguments[name]):
            try:
                values[name] = float(value)
            except ValueError:
                raise UsageError(f"--hold {text}: the value of a tensor must be a number, not {value!r}") from None
        elif value.lower() in ("true", "false"):
            values[name] = value.lower() == "true"
        else:
            try:
                values[name] = ast.literal_eval(value)
            except (ValueError, SyntaxError):
                values[name] = value
    return values


def _held(op: str, arguments: Mapping[str, Any], varied: str, values: Mapping[str, Any]) -> list[tuple[str, Any]]:
    """Return the arguments to pass: those without a default, those in `values`, and positional arguments before
    these."""
    positional = [name for name, argument in arguments.items() if not argument.kwarg_only]
    needed = [name for name in positional if name in values or not arguments[name].has_default_value()]
    last = max((positional.index(name) for name in needed), default=-1)
    held: list[tuple[str, Any]] = []
    for name, argument in arguments.items():
        passed = name in values or not argument.has_default_value()
        if name == varied or not (passed or name in positional[: last + 1]):
            continue
        if name in values:
            held.append((name, values[name]))
        elif argument.has_default_value():
            held.append((name, argument.default_value))
        elif _is_tensor(argument):
            held.append((name, HELD_AT))
        elif str(argument.type).startswith("Optional"):
            held.append((name, None))
        else:
            example = {"bool": "true", "str": "TEXT"}.get(str(argument.type), "1")
            raise UsageError(f"op {op} needs a value for {name} ({argument.type}), as in --hold {name}={example}")
    return held


def _is_tensor(argument: Any) -> bool:
    return str(argument.type) == "Tensor"


def _writes(overload: Any) -> bool:
    return any(argument.writes for argument in arguments_of(overload))


def not_elementwise(op: str, why: str) -> UsageError:
    name = op.partition(".")[0]
    only = "only ops that work element by element are swept"
    return UsageError(f"op {op} {why}: {only}; measure it with `numdrift kernels check {name}`")


def _try(subject: Subject) -> None:
    """Raise UsageError unless the op, in float64, works element by element with exactly these arguments."""
    op, overload = subject.op, subject.overload
    probe = torch.tensor(_PROBE, dtype=torch.float64)
    try:
        together = subject.call(overload, probe)
        apart = [subject.call(overload, single) for single in probe.split(1)]
    except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError) as error:
        why = str(error).splitlines()[0]
        raise UsageError(f"op {op} cannot be called on {subject.described()}: {why}") from None
    if not isinstance(together, torch.Tensor):
        raise not_elementwise(op, "does not return a single tensor")
    if together.shape != probe.shape:
        shapes = f"{list(together.shape)} for inputs of shape {list(probe.shape)}"
        raise not_elementwise(op, f"returns shape {shapes}")
    if not together.is_floating_point():
        raise UsageError(f"op {op} returns {together.dtype}, not floating-point numbers, so it has no error in ULP")
    if not torch.allclose(together, torch.cat(apart), rtol=1e-9, atol=0, equal_nan=True):
        raise not_elementwise(op, "mixes its inputs")


# The check that an op may work element by element: guessed arguments, and a trial on two shapes.

_GUESSES = {"bool": False, "number": 0.5, "float": 0.5, "int": 1, "str": "none"}
_SHAPES = ((7,), (3, 3))


def _mixing(call: Callable[[Any, torch.Tensor], Any], overload: Any) -> str:
    """Return the reason why an op cannot work element by element, or "" if it may.

    call: the op as a function of the overload and one float64 tensor. It is called on 7 numbers and on 3 x 3 numbers,
        and on the same numbers with one of them changed. Inputs that the op rejects prove nothing."""
    schema = schema_of(overload)
    # the schema is read first because a call may crash: batch norm without its statistics does (torch 2.13)
    if [str(result.type) for result in schema.returns] != ["Tensor"]:
        return "does not return a single tensor"
    for begin, what in (("List", "lists"), ("Optional[Tensor]", "optional tensors")):
        if any(str(result.type).startswith(begin) and not result.has_default_value() for result in schema.arguments):
            return f"takes {what}"
    for shape in _SHAPES:
        probe = torch.linspace(0.25, 1, torch.Size(shape).numel(), dtype=torch.float64).reshape(shape)
        changed = probe.clone()
        changed.view(-1)[0] = 0.75
        try:
            result, changed_result = call(overload, probe), call(overload, changed)
        except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
            continue
        if result.shape != probe.shape:
            return f"returns shape {list(result.shape)} for inputs of shape {list(probe.shape)}"
        others_before, others_after = result.reshape(-1)[1:], changed_result.reshape(-1)[1:]
        if not bool(((others_before == others_after) | (others_before.isnan() & others_after.isnan())).all()):
            return "mixes its inputs"
    return ""
