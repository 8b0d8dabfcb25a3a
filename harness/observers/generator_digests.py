"""Digests of the random generators' states, cheap enough for every step."""

from __future__ import annotations

import ctypes
import hashlib
import random
import sys
from typing import Any

import torch

from ..torch_private.dispatching import without_dispatch_modes, without_function_modes
from .digest import Digester
from .script_generators import device_generator

MERSENNE_TWISTER_BYTES = 625 * 4
"""Of NumPy's `struct s_mt19937_state`: 624 words and the position among them."""


class GeneratorDigests:
    """Digests of the generators that a script draws from without making one: `torch`, `python`, `numpy` where
    it is loaded, and the device's by its kind.

    Sixteen hexadecimal digits each, equal for equal states in every process. What Python's and NumPy's keep
    besides (the second of a pair of normal numbers) is part of Python's digest and not of NumPy's.
    """

    def __init__(self, device: str, digester: Digester) -> None:
        self._digester = digester
        self._kind = device.partition(":")[0]
        self._of_device = device_generator(device)
        self._numpy_generator: Any = None
        self._numpy_address = 0

    def read(self) -> dict[str, str]:
        """Read the states as they are now. Draws nothing."""
        found = {"torch": self._of_tensor(torch.get_rng_state), "python": _of_python()}
        numpy = sys.modules.get("numpy.random")
        if numpy is not None:
            found["numpy"] = self._of_numpy(numpy)
        if self._of_device is not None:
            found[self._kind] = self._of_tensor(self._of_device.get_rng_state)
        return found

    def _of_tensor(self, state: Any) -> str:
        with without_dispatch_modes(), without_function_modes():
            return hash_text(self._digester.digest([state()]))

    def _of_numpy(self, numpy: Any) -> str:
        """The state's memory: `get_state` makes 624 Python numbers of it, which takes longer than all the
        rest."""
        generator: Any = numpy.get_bit_generator() if hasattr(numpy, "get_bit_generator") else None
        if type(generator).__name__ != "MT19937":
            return _hex(str(numpy.get_state(legacy=False)).encode())
        if generator is not self._numpy_generator:
            self._numpy_generator = generator
            self._numpy_address = int(generator.ctypes.state_address)
        return _hex(ctypes.string_at(self._numpy_address, MERSENNE_TWISTER_BYTES))


def hash_text(record: bytes) -> str:
    """The hash at the beginning of a digest record, as hexadecimal digits."""
    return f"{int.from_bytes(record[:8], 'little'):016x}"


def _of_python() -> str:
    # The hash of a tuple of numbers is the same in every process.
    _, state, normal = random.getstate()
    return f"{hash((state, 0.0 if normal is None else normal)) % 2**64:016x}"


def _hex(data: bytes) -> str:
    return hashlib.blake2b(data, digest_size=8).hexdigest()
