"""The random generators that a script draws from without making one: torch's, Python's and NumPy's."""

from __future__ import annotations

import random
import sys
from collections.abc import Mapping
from typing import Any

import torch

from .operations import WITHOUT_VALUES


def device_generator(device: str) -> Any:
    """torch's module of an accelerator that has a generator of its own, None where the CPU's serves."""
    kind = device.partition(":")[0]
    return None if kind in ("cpu", *WITHOUT_VALUES) else getattr(torch, kind, None)


def tensor_states(device: str) -> dict[str, torch.Tensor]:
    """The states of torch's generators as bytes: `torch`, and that of the mode's device by its kind."""
    states = {"torch": torch.get_rng_state()}
    module = device_generator(device)
    if module is not None:
        states[device.partition(":")[0]] = module.get_rng_state()
    return states


def plain_states() -> dict[str, Any]:
    """The states of Python's and NumPy's generators as JSON values; `numpy` is absent where it is not loaded."""
    states: dict[str, Any] = {"python": random.getstate()}
    numpy = sys.modules.get("numpy")
    if numpy is not None:
        state = numpy.random.get_state()
        if isinstance(state, tuple):  # a script may exchange the generator for one of another form
            name, keys, *rest = state
            states["numpy"] = [name, keys.tolist(), *rest]
    return states


def set_states(tensors: Mapping[str, torch.Tensor], plain: Mapping[str, Any], device: str) -> list[str]:
    """Put recorded states in place; gives the generators that have none there or no counterpart here."""
    setters: dict[str, Any] = {"torch": torch.set_rng_state}
    module = device_generator(device)
    if module is not None:
        setters[device.partition(":")[0]] = module.set_rng_state
    for name, setter in setters.items():
        if name in tensors:
            setter(tensors[name])
    missing = set(tensors) ^ set(setters)
    version, internal, gauss = plain["python"]
    random.setstate((version, tuple(internal), gauss))
    numpy = sys.modules.get("numpy")
    if numpy is not None and "numpy" in plain:
        name, keys, *rest = plain["numpy"]
        numpy.random.set_state((name, numpy.array(keys, dtype=numpy.uint32), *rest))
    elif numpy is not None or "numpy" in plain:
        missing.add("numpy")
    return [f"generator {name}" for name in sorted(missing)]
