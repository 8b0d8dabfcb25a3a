"""Digests of the batches, that is, of the arguments with which a step calls the root modules."""

from __future__ import annotations

import dataclasses
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from ...torch_private.deferred.lazy import lazy_has_value
from ...torch_private.deferred.xla_tensors import is_pending
from ...torch_private.dispatching import unseen, version_of
from ..values.digest import Digester, hash_text
from ..values.torch_digest import Records

Read = Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]
"""A function that returns the values of tensors, on the CPU or where they lie."""

COMPUTED = ""
"""Hash of an argument that was computed from parameters, or whose value was gone before it could be read."""


@dataclass(frozen=True, slots=True)
class BatchArgument:
    """A tensor argument of a module's call.

    digest: returns the digest of the tensor's value at the call, which may wait for a device. None for COMPUTED.
    waiting: the tensor, if it had no value at the call. It is digested later, unless the script has dropped it by then.
    """

    dtype: str
    shape: tuple[int, ...]
    digest: Records | None
    waiting: weakref.ref[torch.Tensor] | None = None


class Batches:
    """Digests the tensor arguments of calls, including nested ones, at the call: a script may reuse their memory.

    An argument that a lazy graph has yet to compute is not computed for its digest. It is not kept alive either,
    because that would make it an output of the graph. It is digested once the step's values are available, if it still
    exists then.
    """

    def __init__(self, digester: Digester, read: Read) -> None:
        self._digester = digester
        self._read = read
        self._calls: list[list[BatchArgument]] = []
        self._digests: dict[int, tuple[weakref.ref[torch.Tensor], int, Records]] = {}

    def called(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Record one call."""
        call: list[BatchArgument] = []
        with unseen():
            for tensor in tensors_in((*args, *kwargs.values())):
                dtype, shape = str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape)
                if tensor.grad_fn is not None:  # a value computed from parameters differs between modes by rounding
                    call.append(BatchArgument(dtype, shape, None))
                elif not has_value(tensor):
                    call.append(BatchArgument(dtype, shape, None, weakref.ref(tensor)))
                else:
                    call.append(BatchArgument(dtype, shape, self._digest(tensor)))
        self._calls.append(call)

    def take(self) -> list[list[BatchArgument]]:
        """Return the calls that were recorded since `take` was last called, and forget them."""
        calls, self._calls = self._calls, []
        self._digests.clear()
        return calls

    def settled(self, calls: Sequence[Sequence[BatchArgument]]) -> list[list[list[Any]]]:
        """Return calls as JSON, once the values of their step can be read."""
        described: list[list[list[Any]]] = []
        with unseen():
            for call in calls:
                described.append([])
                for argument in call:
                    tensor = None if argument.waiting is None else argument.waiting()
                    hash_ = COMPUTED if argument.digest is None else hash_text(argument.digest())
                    if tensor is not None and has_value(tensor):
                        hash_ = hash_text(self._digester.digest(self._read([tensor])))
                    described[-1].append([argument.dtype, list(argument.shape), hash_])
        return described

    def _digest(self, tensor: torch.Tensor) -> Records:
        """Begin to digest a tensor's value. A second pass over the same batch does not read the value again."""
        version = version_of(tensor)
        # An id is reused once its tensor is gone, and the version counts writes, so both must match.
        earlier = self._digests.get(id(tensor))
        if earlier is not None and earlier[0]() is tensor and version is not None and version == earlier[1]:
            return earlier[2]
        digest = self._digester.launch(self._read([tensor]))
        if version is not None:
            self._digests[id(tensor)] = (weakref.ref(tensor), version, digest)
        return digest


def has_value(tensor: torch.Tensor) -> bool:
    """Check that a tensor has its value, so that reading it executes nothing."""
    match tensor.device.type:
        case "lazy":
            return lazy_has_value(tensor)
        case "xla":
            return not is_pending(tensor)
        case _:
            return True


def input_tensors(args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[int, torch.Tensor]:
    """Return the tensors of a call by their places, without those that were computed from parameters."""
    tensors = enumerate(tensors_in((*args, *kwargs.values())))
    return {place: tensor for place, tensor in tensors if tensor.grad_fn is None}


def tensors_in(value: Any) -> Iterator[torch.Tensor]:
    """Yield the tensors in a value built from lists, tuples, dictionaries and data classes, in order."""
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, Mapping):
        for item in value.values():
            yield from tensors_in(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from tensors_in(item)
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        for field in dataclasses.fields(value):
            yield from tensors_in(getattr(value, field.name, None))
