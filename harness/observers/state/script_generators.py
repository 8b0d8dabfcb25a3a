"""The default random generators that a script draws from: torch's, Python's and NumPy's.

Their states are read, restored, and digested at each step.
"""

from __future__ import annotations

import ctypes
import hashlib
import random
import sys
from collections.abc import Mapping
from typing import Any

import torch

from ...records.modes.mode_registry import DEFERRED_DEVICES
from ...torch_private.dispatching import without_dispatch_modes, without_function_modes
from ..values.digest import Digester, hash_text

MERSENNE_TWISTER_BYTES = 625 * 4
"""Size in bytes of NumPy's `struct s_mt19937_state`: 624 words and the position among them."""


def generator_states(device: str) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Return the generators' states: as bytes, and as JSON values.

    The keys of the first dictionary are `torch` and, if the mode's device has its own generator, the kind of that
    device. Those of the second are `python`, and `numpy` if NumPy is loaded.
    """
    tensors = {"torch": torch.get_rng_state()}
    module = _device_generator(device)
    if module is not None:
        tensors[device.partition(":")[0]] = module.get_rng_state()
    plain: dict[str, Any] = {"python": random.getstate()}
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        state = numpy.random.get_state()
        if isinstance(state, tuple):  # a script may replace the generator with one that has a different kind of state
            name, keys, *rest = state
            plain["numpy"] = [name, keys.tolist(), *rest]
    return tensors, plain


def set_generators(tensors: Mapping[str, torch.Tensor], plain: Mapping[str, Any], device: str) -> list[str]:
    """Load recorded states. Return the generators without a recorded state or without a counterpart in this process.

    The generator of an accelerator has no counterpart on another device and is not reported as missing.
    """
    setters: dict[str, Any] = {"torch": torch.set_rng_state}
    module = _device_generator(device)
    if module is not None:
        setters[device.partition(":")[0]] = module.set_rng_state
    for name, setter in setters.items():
        if name in tensors:
            setter(tensors[name])
    missing = {"torch"} - set(tensors)
    version, internal, gauss = plain["python"]
    random.setstate((version, tuple(internal), gauss))  # JSON turned the tuple into a list, which `random` rejects
    numpy = sys.modules.get("numpy")
    if numpy is not None and "numpy" in plain:
        name, keys, *rest = plain["numpy"]
        numpy.random.set_state((name, numpy.array(keys, dtype=numpy.uint32), *rest))
    elif numpy is not None or "numpy" in plain:
        missing.add("numpy")
    return [f"generator {name}" for name in sorted(missing)]


class GeneratorDigests:
    """Digests of the generators' states, cheap enough for every step.

    The keys are `torch`, `python`, `numpy` if it is loaded, and the kind of the device. A digest has sixteen
    hexadecimal digits; equal states have equal digests in every process. Python's and NumPy's generators also
    keep the second of a pair of normal numbers; Python's digest includes it, NumPy's does not.
    """

    def __init__(self, device: str, digester: Digester) -> None:
        self._digester = digester
        self._kind = device.partition(":")[0]
        self._of_device = _device_generator(device)
        self._numpy_generator: Any = None
        self._numpy_address = 0

    def read(self) -> dict[str, str]:
        """Return the digests of the current states. Nothing is drawn."""
        # The hash of a tuple of numbers is the same in every process.
        _, state, normal = random.getstate()
        of_python = hash((state, 0.0 if normal is None else normal)) % 2**64
        digests = {"torch": self._of_tensor(torch.get_rng_state), "python": f"{of_python:016x}"}
        numpy: Any = sys.modules.get("numpy.random")
        if numpy is not None:
            # The memory of the state is read directly: `get_state` creates 624 Python numbers, which takes longer than
            # everything else. The address belongs to the current generator, which a script may replace.
            generator: Any = numpy.get_bit_generator() if hasattr(numpy, "get_bit_generator") else None
            if type(generator).__name__ == "MT19937":
                if generator is not self._numpy_generator:
                    self._numpy_generator = generator
                    self._numpy_address = int(generator.ctypes.state_address)
                data = ctypes.string_at(self._numpy_address, MERSENNE_TWISTER_BYTES)
            else:
                data = str(numpy.get_state(legacy=False)).encode()
            digests["numpy"] = hashlib.blake2b(data, digest_size=8).hexdigest()
        if self._of_device is not None:
            digests[self._kind] = self._of_tensor(self._of_device.get_rng_state)
        return digests

    def _of_tensor(self, state: Any) -> str:
        with without_dispatch_modes(), without_function_modes():
            return hash_text(self._digester.digest([state()]))


def _device_generator(device: str) -> Any:
    """Return torch's module of an accelerator that has its own generator, or None if the CPU's generator is used."""
    kind = device.partition(":")[0]
    return None if kind in ("cpu", *DEFERRED_DEVICES) else getattr(torch, kind, None)
