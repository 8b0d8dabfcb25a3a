"""How an op calls a kernel that a user brings, made from the op's schema in aten.

In C: void kernel_float32(int64_t n, <numbers and texts>, <tensors>, float *result). Every tensor is a pointer
to n contiguous elements, every number or flag a double, every text a `const char *`, each group in the order
of the schema. An optional tensor that is missing is NULL, an optional number NAN."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from numdrift.harness.torch_private.operators import arguments_of, find_overload, find_packet, is_random, schema_of

C_TYPES = {"float32": "float", "float64": "double", "bfloat16": "uint16_t", "float16": "uint16_t"}
"""How C declares an element; the 16-bit dtypes as their bit patterns."""

_KINDS = {"Tensor": "tensor", "float": "number", "number": "number", "bool": "number", "str": "text"}
_EXAMPLE_SHAPE = (2, 3)


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of an op; `kind` is tensor, number, text, or other for what C cannot be given."""

    name: str
    kind: str
    keyword: bool
    optional: bool
    default: Any


@dataclass(frozen=True, slots=True)
class KernelSignature:
    """The arguments of one overload of an op, in the order of its schema."""

    op: str
    overload: Any
    arguments: tuple[Argument, ...]

    def named(self, kind: str) -> list[str]:
        """The names of the arguments of one kind."""
        return [one.name for one in self.arguments if one.kind == kind]

    def scalars(self) -> list[Argument]:
        """The arguments that C gets before the tensors."""
        return [one for one in self.arguments if one.kind in ("number", "text")]

    def in_c(self, dtype: str) -> str:
        """The declaration of the C function for a key of C_TYPES."""
        element = C_TYPES[dtype]
        parts = [
            "int64_t n",
            *(f"{'double ' if one.kind == 'number' else 'const char *'}{one.name}" for one in self.scalars()),
            *(f"const {element} *{name}" for name in self.named("tensor")),
            f"{element} *result",
        ]
        return f"void kernel_{dtype}({', '.join(parts)})"

    def in_python(self) -> str:
        """The head of the Python function."""
        parts: list[str] = []
        for one in self.arguments:
            if one.keyword and "*" not in parts:
                parts.append("*")
            parts.append(f"{one.name}={one.default!r}" if one.optional else one.name)
        return f"def {self.op.partition('.')[0]}({', '.join(parts)}):"

    def values(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """The arguments of a call by name, defaults included. Raises TypeError for another op's call."""
        given = dict(zip((one.name for one in self.arguments), args, strict=False)) | dict(kwargs)
        known = {one.name for one in self.arguments}
        wrong = sorted(given.keys() - known) + [
            one.name for one in self.arguments if one.name not in given and not one.optional
        ]
        if wrong or len(args) > len(known):
            raise TypeError(f"{len(args)} arguments and {sorted(kwargs)} are no call of {self.overload}")
        return {one.name: given.get(one.name, one.default) for one in self.arguments}

    def example(self, dtype: torch.dtype, device: str = "cpu") -> tuple[list[Any], dict[str, Any]]:
        """Arguments to try the op with: [2, 3] tensors of distinct values between 0 and 1, defaults, halves."""
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for place, one in enumerate(self.arguments, 1):
            value = one.default
            if one.kind == "tensor" and not one.optional:
                count = math.prod(_EXAMPLE_SHAPE)
                steps = torch.arange(1, count + 1, dtype=torch.float64, device="cpu").reshape(_EXAMPLE_SHAPE)
                value = (steps * place / ((count + 1) * (len(self.arguments) + 1))).to(device, dtype)
            elif one.kind == "number" and value is None:
                value = 0.5
            if not one.keyword:
                args.append(value)
            elif not one.optional:
                kwargs[one.name] = value
        return args, kwargs

    def is_elementwise(self) -> bool:
        """Whether the op gives one tensor, element by element, from arguments that C can be given.

        Told by what the op itself returns for a small input: torch does not tag all of them as pointwise.
        """
        wanting = any(one.kind == "other" and not one.optional for one in self.arguments)
        if wanting or is_random(self.overload):
            return False
        args, kwargs = self.example(torch.float32)
        try:
            result = self.overload(*args, **kwargs)
        except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
            return False
        return isinstance(result, torch.Tensor) and result.shape == _EXAMPLE_SHAPE and result.dtype == torch.float32


def signature_of(op: str) -> KernelSignature:
    """The signature of the overload that `op` names, or else of the one that writes to nothing and takes most
    tensors.

    Raises KernelNotFound, naming the nearest, for an op that torch does not have.
    """
    name, _, overload = op.partition(".")
    if overload:
        return _signature(op, find_overload(op))
    packet = find_packet(name)
    known = [_signature(op, getattr(packet, one)) for one in packet.overloads()]
    return max(known, key=lambda one: (not _writes(one), _required_tensors(one)))


def _signature(op: str, overload: Any) -> KernelSignature:
    pointwise = torch.Tag.pointwise in overload.tags
    return KernelSignature(op, overload, tuple(_argument(one, pointwise) for one in schema_of(overload).arguments))


def _argument(argument: Any, pointwise: bool) -> Argument:
    of = str(argument.type).removeprefix("Optional[").removesuffix("]")
    optional = argument.has_default_value()
    return Argument(
        name=argument.name,
        kind="number" if of == "int" and pointwise else _KINDS.get(of, "other"),
        keyword=argument.kwarg_only,
        optional=optional,
        default=argument.default_value if optional else None,
    )


def _writes(signature: KernelSignature) -> bool:
    return any(one.writes for one in arguments_of(signature.overload))


def _required_tensors(signature: KernelSignature) -> int:
    return sum(1 for one in signature.arguments if one.kind == "tensor" and not one.optional)
