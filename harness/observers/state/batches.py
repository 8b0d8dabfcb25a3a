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

Read = Callable[[Sequence[torch.Tensor]], list[torch.Tensor]]
"""A function that returns the values of tensors on the CPU."""

COMPUTED = ""
"""Hash of an argument that was computed from parameters, or whose value was gone before it could be read."""


@dataclass(frozen=True, slots=True)
class BatchArgument:
    """A tensor argument of a module's call.

    hash: the hash of the tensor's value, or COMPUTED.
    waiting: the tensor, if it had no value at the call. It is digested later, unless the script has dropped it by then.
    """

    dtype: str
    shape: tuple[int, ...]
    hash: str
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
        self._hashes: dict[int, tuple[weakref.ref[torch.Tensor], int, str]] = {}

    def called(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
        """Record one call."""
        call: list[BatchArgument] = []
        with unseen():
            for tensor in tensors_in((*args, *kwargs.values())):
                dtype, shape = str(tensor.dtype).removeprefix("torch."), tuple(tensor.shape)
                if tensor.grad_fn is not None:  # a value computed from parameters differs between modes by rounding
                    call.append(BatchArgument(dtype, shape, COMPUTED))
                elif not has_value(tensor):
                    call.append(BatchArgument(dtype, shape, COMPUTED, weakref.ref(tensor)))
                else:
                    call.append(BatchArgument(dtype, shape, self._hash(tensor)))
        self._calls.append(call)

    def take(self) -> list[list[BatchArgument]]:
        """Return the calls that were recorded since `take` was last called, and forget them."""
        calls, self._calls = self._calls, []
        self._hashes.clear()
        return calls

    def settled(self, calls: Sequence[Sequence[BatchArgument]]) -> list[list[list[Any]]]:
        """Return calls as JSON, once the values of their step can be read."""
        described: list[list[list[Any]]] = []
        with unseen():
            for call in calls:
                described.append([])
                for argument in call:
                    tensor = None if argument.waiting is None else argument.waiting()
                    hash_ = argument.hash
                    if tensor is not None and has_value(tensor):
                        hash_ = hash_text(self._digester.digest(self._read([tensor])))
                    described[-1].append([argument.dtype, list(argument.shape), hash_])
        return described

    def _hash(self, tensor: torch.Tensor) -> str:
        """Return the hash of a tensor's value. A second pass over the same batch does not read the value again."""
        version = version_of(tensor)
        # An id is reused once its tensor is gone, and the version counts writes, so both must match.
        reference, known_version, known_hash = self._hashes.get(id(tensor), (None, None, ""))
        if reference is not None and reference() is tensor and version is not None and version == known_version:
            return known_hash
        new_hash = hash_text(self._digester.digest(self._read([tensor])))
        if version is not None:
            self._hashes[id(tensor)] = (weakref.ref(tensor), version, new_hash)
        return new_hash


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
