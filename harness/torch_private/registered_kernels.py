"""Kernels and ops that numdrift registers with torch's dispatcher, and the kernels that they replace."""

from __future__ import annotations

import functools
import inspect
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..errors import NotAvailable
from .device_kernels import boxed_kernel
from .operators import arguments_of
from .presence import private, require


def dispatch_key(device: str) -> str:
    """Return the dispatch key of a device type: `CPU` for `cpu`."""
    return str(private("torch._C", "_dispatch_key_for_device")(device))


_libraries: list[Any] = []
"""The libraries of the defined ops, kept because an op exists only as long as its library."""


def original_kernel(overload: Any, key: str) -> Callable[..., Any]:
    """Return the kernel to which torch now dispatches for a key, callable even after the key is overridden.

    Raises NotAvailable if torch has no kernel for the key.
    """
    try:
        kernel = boxed_kernel(overload, key)
    except RuntimeError as error:
        raise NotAvailable(f"{overload} for {key}", str(error).splitlines()[0]) from error
    tensors = [
        (place, argument.name) for place, argument in enumerate(arguments_of(overload)) if argument.kind == "Tensor"
    ]

    def call(*args: Any, **kwargs: Any) -> Any:
        # `x * 2` calls mul.Tensor, and an override of this op receives the number itself.
        for place, name in tensors:
            value = args[place] if place < len(args) else kwargs.get(name)
            if isinstance(value, (int, float, complex)):
                return _with_numbers(functools.partial(kernel, *args, **kwargs))
        return kernel(*args, **kwargs)

    return call


def _with_numbers(call: Callable[[], Any]) -> Any:
    """Make a call in which torch accepts numbers as tensors and remembers that they are numbers.

    A tensor made from the number would behave differently: its dtype takes part in type promotion, and in low precision
    the number is rounded first. Torch makes the right tensor within any op of `prims`, whatever that op does
    (`ToIValueAllowNumbersAsTensors` in torch/csrc/jit/python/pybind_utils.h, torch 2.13).
    """
    results: list[Any] = []
    before = getattr(_under_way, "call", None)  # a kernel may call other kernels with numbers
    _under_way.call = lambda: results.append(call())
    try:
        _number_taker()()
    finally:
        _under_way.call = before
    return results[0]


_under_way = threading.local()


@functools.cache
def _number_taker() -> Any:
    """Return an op of `prims` that executes the pending call of its thread."""
    library: Any = torch.library.Library("prims", "FRAGMENT")
    library.define("numdrift_takes_numbers() -> ()")
    library.impl("numdrift_takes_numbers", lambda: _under_way.call(), "CompositeExplicitAutograd")
    _libraries.append(library)
    return torch.ops.prims.numdrift_takes_numbers.default


def decomposed(overload: Any, *args: Any, **kwargs: Any) -> Any:
    """Compute an op from the ops that it is composed of, regardless of what replaces it on a device."""
    require(overload, "_op_dk")
    key = private("torch._C", "DispatchKey").CompositeImplicitAutograd
    return overload._op_dk(key, *args, **kwargs)


class Overrides:
    """Kernels of aten ops replaced in this process, until `close`."""

    def __init__(self) -> None:
        self._library: Any = torch.library.Library("aten", "IMPL")
        # Without `allow_override` torch (from 2.7 on) refuses to replace a kernel that was already registered from
        # Python.
        parameters = inspect.signature(self._library.impl).parameters
        self._allowed = {"allow_override": True} if "allow_override" in parameters else {}

    def replace(self, overload: Any, key: str, kernel: Callable[..., Any]) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            self._library.impl(overload, kernel, key, **self._allowed)

    def close(self) -> None:
        self._library._destroy()


class OpaqueOps:
    """The ops `numdrift::<name>`, which compilers leave as they are; they exist until `close`."""

    def __init__(self) -> None:
        self._library: Any = torch.library.Library("numdrift", "FRAGMENT")

    def define(self, name: str, schema: str, run: Callable[..., Any], fake: Callable[..., Any]) -> Any:
        """Define an op with this schema (arguments and results). `run` computes the results, `fake` their shapes."""
        self._library.define(name + schema, tags=(torch.Tag.pt2_compliant_tag,))
        self._library.impl(name, run, "CompositeExplicitAutograd")
        torch.library.register_fake(f"numdrift::{name}", fake, lib=self._library)
        return getattr(torch.ops.numdrift, name).default

    def close(self) -> None:
        self._library._destroy()


def define_show_op(receive: Callable[[Sequence[torch.Tensor], str], None]) -> Any:
    """Define `numdrift::show(Tensor[] values, str text) -> ()`, which calls `receive`. Call it once in a process.

    The compiler chooses the layout of the values, and keeps the op although nothing uses its result.
    """
    library: Any = torch.library.Library("numdrift", "FRAGMENT")
    tags = (torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout)
    library.define("show(Tensor[] values, str text) -> ()", tags=tags)
    library.impl("show", lambda values, text: receive(values, text), "CompositeExplicitAutograd")
    # register_fake is not used: to find its caller, it reads the sources of all imported modules, which takes a tenth
    # of a second.
    library.impl("show", lambda values, text: None, "Meta")
    operation = torch.ops.numdrift.show.default
    private("torch.fx.node", "has_side_effect")(operation)
    _libraries.append(library)
    return operation
