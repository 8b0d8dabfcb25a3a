"""The signature of a user's kernel, derived from the op's schema in aten, and calls of kernels written in C.

In C: void kernel_float32(int64_t n, <numbers and texts>, <tensors>, float *result). Every tensor is a pointer
to n contiguous elements, every number or flag a double, every text a `const char *`. Each group is in the order
of the schema. A missing optional tensor or text is NULL, and a missing optional number is NAN."""

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
"""The C type of an element; 16-bit dtypes are passed as bit patterns."""

_KINDS = {"Tensor": "tensor", "float": "number", "number": "number", "bool": "number", "str": "text"}
_EXAMPLE_SHAPE = (2, 3)


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of an op; `kind` is tensor, number, text, or other for a value that cannot be passed to C."""

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
        """Return the names of the arguments of one kind."""
        return [argument.name for argument in self.arguments if argument.kind == kind]

    def scalars(self) -> list[Argument]:
        """Return the arguments that come before the tensors in C."""
        return [argument for argument in self.arguments if argument.kind in ("number", "text")]

    def in_c(self, dtype: str) -> str:
        """Return the declaration of the C function for a dtype, a key of C_TYPES."""
        element = C_TYPES[dtype]
        parts = [
            "int64_t n",
            *(
                f"{'double ' if argument.kind == 'number' else 'const char *'}{argument.name}"
                for argument in self.scalars()
            ),
            *(f"const {element} *{name}" for name in self.named("tensor")),
            f"{element} *result",
        ]
        return f"void kernel_{dtype}({', '.join(parts)})"

    def in_python(self) -> str:
        """Return the `def` line of the Python function."""
        parts: list[str] = []
        for argument in self.arguments:
            if argument.keyword and "*" not in parts:
                parts.append("*")
            parts.append(f"{argument.name}={argument.default!r}" if argument.optional else argument.name)
        return f"def {self.op.partition('.')[0]}({', '.join(parts)}):"

    def values(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments of a call by name, defaults included. Raises TypeError if they do not match the op."""
        passed = dict(zip((argument.name for argument in self.arguments), args, strict=False)) | dict(kwargs)
        names = {argument.name for argument in self.arguments}
        wrong = sorted(passed.keys() - names) + [
            argument.name for argument in self.arguments if argument.name not in passed and not argument.optional
        ]
        if wrong or len(args) > len(names):
            raise TypeError(f"{len(args)} arguments and the keywords {sorted(kwargs)} do not match {self.overload}")
        return {argument.name: passed.get(argument.name, argument.default) for argument in self.arguments}

    def example(self, dtype: torch.dtype, device: str = "cpu") -> tuple[list[Any], dict[str, Any]]:
        """Return arguments for a trial call: tensors [2, 3] of distinct values between 0 and 1, and the defaults of
        other arguments. A number without a default is 0.5."""
        args: list[Any] = []
        kwargs: dict[str, Any] = {}
        for place, argument in enumerate(self.arguments, 1):
            value = argument.default
            if argument.kind == "tensor" and not argument.optional:
                count = math.prod(_EXAMPLE_SHAPE)
                steps = torch.arange(1, count + 1, dtype=torch.float64, device="cpu").reshape(_EXAMPLE_SHAPE)
                value = (steps * place / ((count + 1) * (len(self.arguments) + 1))).to(device, dtype)
            elif argument.kind == "number" and value is None:
                value = 0.5
            if not argument.keyword:
                args.append(value)
            elif not argument.optional:
                kwargs[argument.name] = value
        return args, kwargs

    def is_elementwise(self) -> bool:
        """Check whether the op returns one tensor, element by element, from arguments that C can take."""
        # Call the op on a small input, because torch does not tag all such ops as pointwise.
        needs_other = any(argument.kind == "other" and not argument.optional for argument in self.arguments)
        if needs_other or is_random(self.overload):
            return False
        args, kwargs = self.example(torch.float32)
        try:
            result = self.overload(*args, **kwargs)
        except (RuntimeError, TypeError, ValueError, IndexError, NotImplementedError):
            return False
        return isinstance(result, torch.Tensor) and result.shape == _EXAMPLE_SHAPE and result.dtype == torch.float32


def signature_of(op: str) -> KernelSignature:
    """Return the signature of the overload that `op` names, or else of the overload that takes the most tensors among
    those that write to no argument.

    Raises KernelNotFound, with the nearest name, for an op that torch does not have.
    """
    name, _, overload = op.partition(".")
    if overload:
        return _signature(op, find_overload(op))
    packet = find_packet(name)

    def fitness(signature: KernelSignature) -> tuple[bool, int]:
        writes = any(argument.writes for argument in arguments_of(signature.overload))
        return not writes, sum(argument.kind == "tensor" and not argument.optional for argument in signature.arguments)

    return max((_signature(op, getattr(packet, overload_name)) for overload_name in packet.overloads()), key=fitness)


def _signature(op: str, overload: Any) -> KernelSignature:
    pointwise = torch.Tag.pointwise in overload.tags
    arguments = []
    for argument in schema_of(overload).arguments:
        of = str(argument.type).removeprefix("Optional[").removesuffix("]")
        optional = argument.has_default_value()
        arguments.append(
            Argument(
                name=argument.name,
                # in a pointwise op, an int is a plain number; in other ops, it is a dimension or a size
                kind="number" if of == "int" and pointwise else _KINDS.get(of, "other"),
                keyword=argument.kwarg_only,
                optional=optional,
                default=argument.default_value if optional else None,
            )
        )
    return KernelSignature(op, overload, tuple(arguments))


@dataclass(frozen=True, slots=True)
class CKernel:
    """The functions of a compiled file by dtype, called like an op.

    `name` has the form `op=name`. The result is contiguous, has the operands' common shape and dtype, and is on the
    device of the first operand. Operands on other devices are first copied to the CPU; for a lazy operand, this copy
    executes the pending graph.
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
        inputs = [tensor for tensor in tensors.values() if isinstance(tensor, torch.Tensor)]

        # The dtype is that of the tensors with dimensions; tensors without dimensions count as numbers.
        dtypes = {tensor.dtype for tensor in inputs if tensor.dim()} or {tensor.dtype for tensor in inputs}
        if len(dtypes) != 1 or not dtypes <= self.functions.keys():
            called = " and ".join(sorted(str(input_dtype).removeprefix("torch.") for input_dtype in dtypes))
            supported = ", ".join(str(own_dtype).removeprefix("torch.") for own_dtype in self.functions)
            raise KernelError(self.name, f"computes {supported}, but was called with {called}")
        dtype = dtypes.pop()

        untraceable = KernelError(self.name, "is written in C and cannot be traced: the tensors have no values here")
        if any(tensor.is_meta for tensor in inputs):
            raise untraceable
        on_cpu = [
            operand.to("cpu", dtype).resolve_neg()
            if isinstance(operand, torch.Tensor)
            else torch.tensor(operand, dtype=dtype, device="cpu")
            for operand in tensors.values()
        ]
        operands = [operand.contiguous() for operand in torch.broadcast_tensors(*on_cpu)]
        result = torch.empty(operands[0].shape, dtype=dtype, device="cpu")
        if not all(map(has_memory, (*operands, result))):
            raise untraceable

        # First numbers and texts, then tensors, each in the order of the schema; a missing argument is NAN or NULL.
        scalars: list[Any] = []
        for argument in self.signature.scalars():
            value = values[argument.name]
            if argument.kind == "number":
                scalars.append(math.nan if value is None else float(value))
            else:
                scalars.append(None if value is None else value.encode())
        pointers = dict(zip(tensors, (operand.data_ptr() for operand in operands), strict=True))
        in_order = (pointers.get(name) for name in self.signature.named("tensor"))
        self.functions[dtype](result.numel(), *scalars, *in_order, result.data_ptr())
        return result.to(inputs[0].device)


def exported(path: Path, library: Library) -> dict[str, Callable[..., None]]:
    """Return the functions `kernel_<dtype>` of a compiled file, by dtype. Raises UsageError if it cannot be loaded."""
    try:
        handle = ctypes.CDLL(str(library.path))
    except OSError as error:
        raise UsageError(f"{path} compiles but cannot be loaded: {error}") from None
    return {dtype: handle[f"kernel_{dtype}"] for dtype in C_TYPES if hasattr(handle, f"kernel_{dtype}")}


def bind(path: Path, signature: KernelSignature) -> CKernel:
    """Compile a user's C file for an op.

    Raises UsageError for an op that is not elementwise, and for a file that lacks the op's function. Also raises the
    errors of `compile_library`.
    """
    if not signature.is_elementwise():
        raise UsageError(
            f"{path}: a kernel in C computes element by element, and aten.{signature.op} does not; "
            f"write it in Python: `{signature.in_python()}`"
        )
    functions = exported(path, compile_library(user_source(path)))
    if not functions:
        raise UsageError(f"{path} defines neither `{signature.in_c('float32')}` nor kernel_float64")
    scalars = [ctypes.c_double if argument.kind == "number" else ctypes.c_char_p for argument in signature.scalars()]
    pointers = [ctypes.c_void_p] * (len(signature.named("tensor")) + 1)
    bound: dict[torch.dtype, Callable[..., None]] = {}
    for dtype, function in functions.items():
        function.argtypes, function.restype = [ctypes.c_int64, *scalars, *pointers], None  # type: ignore[attr-defined]
        bound[getattr(torch, dtype)] = function
    return CKernel(f"{signature.op}={path.stem}", signature, bound)
