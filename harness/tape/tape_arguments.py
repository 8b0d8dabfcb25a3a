"""Convert the arguments of a tape's calls to JSON values and back. No argument is ever evaluated as code.

Numbers, text, None and lists become their JSON counterparts. Anything else becomes an object with one key, its kind:
`view`, `dtype`, `device`, `layout`, `memory_format`, `generator`, `complex`, or `float` for a number that JSON lacks.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch

from ..torch_private.accelerators import device_meant
from .tape import GeneratorState, View

DTYPE_NAMES = """
float16 bfloat16 float32 float64 complex32 complex64 complex128 bool uint8 uint16 uint32 uint64 int8 int16 int32 int64
float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz
"""
DTYPES = {name: value for name in DTYPE_NAMES.split() if isinstance(value := getattr(torch, name, None), torch.dtype)}
LAYOUTS = (torch.strided, torch.sparse_coo, torch.sparse_csr, torch.sparse_csc)
FORMATS = (torch.contiguous_format, torch.preserve_format, torch.channels_last, torch.channels_last_3d)


LIMIT = 2**62
"""The least whole number that is refused: no size, stride or number of a slot is that large."""


def name_of(value: torch.dtype | torch.layout | torch.memory_format) -> str:
    return str(value).removeprefix("torch.")


TABLES: Mapping[str, Mapping[str, Any]] = {
    "dtype": DTYPES,
    "layout": {name_of(layout): layout for layout in LAYOUTS},
    "memory_format": {name_of(memory_format): memory_format for memory_format in FORMATS},
}
"""The objects of torch that may be arguments, by kind and name. Nothing else in torch is looked up by name."""


class Encoder:
    """An encoder of arguments. It collects the states of generators in `states`; the JSON refers to them by number."""

    def __init__(self) -> None:
        self.states: list[torch.Tensor] = []

    def encode(self, value: Any) -> Any:
        if value is None or isinstance(value, (bool, int, str)):
            return value
        if isinstance(value, float):
            return value if math.isfinite(value) else {"float": str(value)}
        if isinstance(value, complex):
            return {"complex": [self.encode(value.real), self.encode(value.imag)]}
        if isinstance(value, tuple):
            return [self.encode(item) for item in value]
        if isinstance(value, View):
            return {"view": [value.slot, name_of(value.dtype), value.offset, list(value.size), list(value.stride)]}
        if isinstance(value, GeneratorState):
            self.states.append(value.state)
            return {"generator": [value.device, len(self.states) - 1]}
        if isinstance(value, torch.device):
            return {"device": str(device_meant(value))}
        for kind, torch_class in (
            ("dtype", torch.dtype),
            ("layout", torch.layout),
            ("memory_format", torch.memory_format),
        ):
            if isinstance(value, torch_class):
                return {kind: name_of(value)}
        raise TypeError(f"a tape cannot hold a {type(value).__name__}")


class Decoder:
    """A decoder of arguments. `state` returns a generator's state by its number.

    With `on_the_cpu`, every device but `meta` is read as the CPU. The methods raise ValueError or TypeError for invalid
    values.
    """

    def __init__(self, state: Callable[[int], torch.Tensor], *, on_the_cpu: bool = False) -> None:
        self._state = state
        self._on_the_cpu = on_the_cpu

    def decode(self, value: Any) -> Any:
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, list):
            return tuple([self.decode(item) for item in value])
        [(kind, inner)] = value.items() if isinstance(value, dict) and len(value) == 1 else [("", None)]
        if kind == "view":
            return self.view(inner)
        if kind == "generator":
            return self.generator(inner)
        if kind in TABLES:
            return _entry(TABLES[kind], inner)
        if kind == "float":
            # Only these numbers are encoded in this way: JSON has all finite numbers.
            if inner not in ("nan", "inf", "-inf"):
                raise ValueError(f"unknown number {inner!r}")
            return float(inner)
        if kind == "complex":
            real, imaginary = self.decode(inner) if isinstance(inner, list) and len(inner) == 2 else (None, None)
            if not isinstance(real, float) or not isinstance(imaginary, float):
                raise TypeError("a complex number without its two parts")
            return complex(real, imaginary)
        if kind == "device":
            if self._on_the_cpu and inner != "meta":
                return torch.device("cpu")
            try:
                return torch.device(str(inner))
            except RuntimeError as error:
                raise ValueError(f"an unknown device {inner!r}") from error
        raise ValueError("an argument of an unknown kind")

    def view(self, value: Any) -> View:
        if not isinstance(value, list) or len(value) != 5:
            raise ValueError("a view without its five parts")
        slot, dtype, offset, size, stride = value
        if not isinstance(size, list) or not isinstance(stride, list) or len(size) != len(stride):
            raise ValueError("a view without its layout")
        for number in (slot, offset, *size, *stride):
            if type(number) is not int or not 0 <= number < LIMIT:
                whole(number)  # raises the error
        return View(slot, dtype_named(dtype), offset, tuple(size), tuple(stride))

    def generator(self, value: Any) -> GeneratorState:
        if not isinstance(value, list) or len(value) != 2 or not isinstance(value[0], str):
            raise ValueError("a generator without its state")
        return GeneratorState(value[0], self._state(whole(value[1])))


def whole(value: Any) -> int:
    """Return the value if it is a whole number that is not negative. Raises ValueError otherwise."""
    if type(value) is not int or not 0 <= value < LIMIT:
        raise ValueError(f"expected a whole number, not {value!r}")
    return value


def text(value: Any) -> str:
    """Return the value if it is text. Raises TypeError otherwise."""
    if not isinstance(value, str):
        raise TypeError(f"expected a text, not {value!r}")
    return value


def dtype_named(name: Any) -> torch.dtype:
    dtype: torch.dtype = _entry(DTYPES, name)
    return dtype


def _entry(table: Mapping[str, Any], name: Any) -> Any:
    if not isinstance(name, str) or name not in table:
        raise ValueError(f"this torch does not have {name!r}")
    return table[name]
