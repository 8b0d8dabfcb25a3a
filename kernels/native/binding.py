"""How an op calls a kernel that a user brings, made from the op's schema in aten, and a kernel in C called so.

In C: void kernel_float32(int64_t n, <numbers and texts>, <tensors>, float *result). Every tensor is a pointer
to n contiguous elements, every number or flag a double, every text a `const char *`, each group in the order
of the schema. An optional tensor that is missing is NULL, an optional number NAN."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from numdrift.harness.compiler import Library, compile_library
from numdrift.harness.errors import KernelError, UsageError
from numdrift.harness.torch_private.operators import arguments_of, find_overload, find_packet, is_random, schema_of

from .library import has_memory
from .source import user_source

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
        """Whether the op gives one tensor, element by element, from arguments that C can be given."""
        # Told by what the op itself returns for a small input: torch does not tag all of them as pointwise.
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
    """The signature of the overload that `op` names, or else of the one that writes to nothing and takes most tensors.

    Raises KernelNotFound, naming the nearest, for an op that torch does not have.
    """
    name, _, overload = op.partition(".")
    if overload:
        return _signature(op, find_overload(op))
    packet = find_packet(name)

    def fitness(one: KernelSignature) -> tuple[bool, int]:
        writes = any(argument.writes for argument in arguments_of(one.overload))
        return not writes, sum(argument.kind == "tensor" and not argument.optional for argument in one.arguments)

    return max((_signature(op, getattr(packet, one)) for one in packet.overloads()), key=fitness)


def _signature(op: str, overload: Any) -> KernelSignature:
    pointwise = torch.Tag.pointwise in overload.tags
    arguments = []
    for one in schema_of(overload).arguments:
        of = str(one.type).removeprefix("Optional[").removesuffix("]")
        optional = one.has_default_value()
        arguments.append(
            Argument(
                name=one.name,
                # an int of a pointwise op is a number like others, elsewhere it is a dimension or a size
                kind="number" if of == "int" and pointwise else _KINDS.get(of, "other"),
                keyword=one.kwarg_only,
                optional=optional,
                default=one.default_value if optional else None,
            )
        )
    return KernelSignature(op, overload, tuple(arguments))


@dataclass(frozen=True, slots=True)
class CKernel:
    """The functions of a compiled file by dtype, called as an op is called.

    `name` is `op=name`. The result is contiguous, of the operands' common shape and dtype, on the device of the
    first one; operands elsewhere than on the CPU are copied there first (a lazy one is thereby computed).
    """

    name: str
    signature: KernelSignature
    functions: Mapping[torch.dtype, Callable[..., None]]

    def __call__(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        try:
            values = self.signature.values(args, kwargs)
        except TypeError as error:
            raise KernelError(self.name, f"cannot be called: {error}") from None
        tensors = {name: values[name] for name in self.signature.named("tensor") if values[name] is not None}
        given = [one for one in tensors.values() if isinstance(one, torch.Tensor)]

        # The dtype is that of the tensors which have dimensions: the others count as numbers.
        dtypes = {one.dtype for one in given if one.dim()} or {one.dtype for one in given}
        if len(dtypes) != 1 or not dtypes <= self.functions.keys():
            asked = " and ".join(sorted(str(one).removeprefix("torch.") for one in dtypes))
            known = ", ".join(str(one).removeprefix("torch.") for one in self.functions)
            raise KernelError(self.name, f"computes {known}, and was called with {asked}")
        dtype = dtypes.pop()

        untraceable = KernelError(self.name, "is C and cannot be traced: its tensors have no values here")
        if any(one.is_meta for one in given):
            raise untraceable
        on_cpu = [
            one.to("cpu", dtype).resolve_neg()
            if isinstance(one, torch.Tensor)
            else torch.tensor(one, dtype=dtype, device="cpu")
            for one in tensors.values()
        ]
        operands = [one.contiguous() for one in torch.broadcast_tensors(*on_cpu)]
        result = torch.empty(operands[0].shape, dtype=dtype, device="cpu")
        if not all(map(has_memory, (*operands, result))):
            raise untraceable

        # First numbers and texts, then tensors, each in the order of the schema; what is missing is NAN or NULL.
        scalars: list[Any] = []
        for one in self.signature.scalars():
            value = values[one.name]
            if one.kind == "number":
                scalars.append(math.nan if value is None else float(value))
            else:
                scalars.append(None if value is None else value.encode())
        pointers = dict(zip(tensors, (one.data_ptr() for one in operands), strict=True))
        in_order = (pointers.get(name) for name in self.signature.named("tensor"))
        self.functions[dtype](result.numel(), *scalars, *in_order, result.data_ptr())
        return result.to(given[0].device)


def exported(path: Path, library: Library) -> dict[str, Callable[..., None]]:
    """The functions `kernel_<dtype>` of a compiled file, by dtype. Raises UsageError if it cannot be loaded."""
    try:
        handle = ctypes.CDLL(str(library.path))
    except OSError as error:
        raise UsageError(f"{path} compiles and cannot be loaded: {error}") from None
    return {dtype: handle[f"kernel_{dtype}"] for dtype in C_TYPES if hasattr(handle, f"kernel_{dtype}")}


def bind(path: Path, signature: KernelSignature) -> CKernel:
    """Compile a user's C file for an op.

    Raises UsageError for an op that is not elementwise and for a file without the function that the op needs;
    what `compile_library` raises.
    """
    if not signature.is_elementwise():
        raise UsageError(
            f"{path}: a kernel in C computes element by element, and aten.{signature.op} does not; "
            f"write it in Python: `{signature.in_python()}`"
        )
    functions = exported(path, compile_library(user_source(path)))
    if not functions:
        raise UsageError(f"{path} defines no `{signature.in_c('float32')}` (nor kernel_float64)")
    scalars = [ctypes.c_double if one.kind == "number" else ctypes.c_char_p for one in signature.scalars()]
    pointers = [ctypes.c_void_p] * (len(signature.named("tensor")) + 1)
    bound: dict[torch.dtype, Callable[..., None]] = {}
    for dtype, function in functions.items():
        function.argtypes, function.restype = [ctypes.c_int64, *scalars, *pointers], None  # type: ignore[attr-defined]
        bound[getattr(torch, dtype)] = function
    return CKernel(f"{signature.op}={path.stem}", signature, bound)
