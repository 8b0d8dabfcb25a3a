"""The digests of one step, which are decoded only where they are looked at.

Two long runs are compared by the bits of 64-byte records. To make an object of each record would take a hundred times
as long: most steps are equal, or only the first tensor that differs is asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import numpy as np

from ..records.values.digest_record import RECORD_BYTES, Digest, unpack

Found_co = TypeVar("Found_co", covariant=True)

WORDS = RECORD_BYTES // 8
"""The number of 64-bit words of a record. The first two, the hash and the number of elements, decide equality."""


@dataclass(frozen=True, slots=True)
class StepDigests:
    """The digests of one step: of every tensor's value, and of every parameter's gradient (None if it has none)."""

    values: Mapping[str, Digest]
    gradients: Mapping[str, Digest | None]


@cache
def _places(names: tuple[str, ...]) -> Mapping[str, int]:
    """Return the place of each name. Two runs with the same tensors share this mapping, which is quickly compared."""
    return {name: place for place, name in enumerate(names)}


class DigestColumns:
    """The tensors of the digests in one frame: first the values of all tensors, then the gradients of the parameters.

    If a name occurs several times, its last digest counts.
    """

    def __init__(self, values: Sequence[str], gradients: Sequence[str]) -> None:
        self._values, self._gradients = _places(tuple(values)), _places(tuple(gradients))
        self._boundary = len(values) * RECORD_BYTES
        self.count = len(values) + len(gradients)

    def step(self, records: bytes) -> StepDigests:
        """Return the digests in the records of a step."""
        return StepDigests(
            ValueDigests(self._values, records[: self._boundary]),
            GradientDigests(self._gradients, records[self._boundary : self.count * RECORD_BYTES]),
        )


class PackedDigests(Mapping[str, Found_co]):
    """Digests in records, with the place of each name's record."""

    def __init__(self, places: Mapping[str, int], records: bytes) -> None:
        self._places = places
        self._records = records

    def __len__(self) -> int:
        return len(self._places)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __repr__(self) -> str:
        return repr(dict(self))

    def has_bits_of(self, other: PackedDigests[Any]) -> bool:
        """Return whether both have the same tensors with the same bits."""
        if self._places is not other._places and self._places != other._places:
            return False
        if self._records == other._records:  # so are nearly all of two equal runs, and bytes are compared quickly
            return True
        left, right = (np.frombuffer(side._records, np.uint64).reshape(-1, WORDS) for side in (self, other))
        return left.shape == right.shape and bool((left[:, :2] == right[:, :2]).all())

    def _digest(self, name: str) -> Digest:
        start = self._places[name] * RECORD_BYTES
        return unpack(self._records[start : start + RECORD_BYTES])


class ValueDigests(PackedDigests[Digest]):
    """The digests of the values of tensors."""

    def __getitem__(self, name: str) -> Digest:
        return self._digest(name)


class GradientDigests(PackedDigests[Digest | None]):
    """The digests of gradients, None for a gradient that does not exist."""

    def __getitem__(self, name: str) -> Digest | None:
        digest = self._digest(name)
        return None if digest.absent else digest


def have_equal_bits(a: Mapping[str, Digest | None], b: Mapping[str, Digest | None]) -> bool:
    """Return True if both are read from files and have the same tensors with the same bits, without decoding them.

    False means that they may differ.
    """
    return isinstance(a, PackedDigests) and isinstance(b, PackedDigests) and a.has_bits_of(b)
