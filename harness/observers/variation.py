"""Runs that are varied on purpose: initial parameters moved by rounding, and other seeds."""

from __future__ import annotations

import functools
import importlib.abc
import importlib.machinery
import importlib.util
import numbers
import random
import sys
import threading
import types
from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..torch_private.patches import Patches

BITS = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.int8}
"""The integer dtype for elements of so many bytes."""

TORCH_SEEDS = range(-(2**63), 2**64)
NUMPY_SEEDS = range(2**32)


def perturb_(tensors: Sequence[torch.Tensor], seed: int) -> None:
    """Move each finite element other than zero by one unit in the last place, up or down at random, in place.

    The bits of a floating-point number, without its sign, count up with its magnitude: the neighbours are one
    off. The largest finite number moves towards zero. The draws are those of a generator of their own.
    """

    def comparable(values: torch.Tensor) -> torch.Tensor:
        # Eight bits wide, torch has hardly any operation.
        return values.to(torch.float32) if values.element_size() == 1 else values

    generator = torch.Generator(device="cpu").manual_seed(seed)
    with torch.no_grad():
        for tensor in tensors:
            real = torch.view_as_real(tensor) if tensor.is_complex() else tensor
            if not (real.is_floating_point() and real.layout == torch.strided and real.numel()):
                continue
            values = real.detach().cpu().contiguous()
            bits = values.view(BITS[values.element_size()])
            ups = torch.randint(0, 2, values.shape, generator=generator, dtype=torch.int8, device="cpu")
            steps = (2 * ups - 1).to(bits.dtype)
            stays_finite = comparable((bits + steps).view(values.dtype)).isfinite()
            steps = torch.where(stays_finite, steps, -1)
            movable = comparable(values).isfinite() & (comparable(values) != 0)
            real.copy_(torch.where(movable, bits + steps, bits).view(values.dtype))


class SeedShift:
    """Adds an offset to every whole number that the script seeds a generator with.

    A seed that one generator hands on to another (torch's to the accelerators') is shifted once.
    """

    def __init__(self, offset: int) -> None:
        self._offset = offset
        self._running = threading.local()
        self._patches = Patches("seeds that are shifted")

    def install(self) -> None:
        """Replace the functions; NumPy's when the script imports it, if it is not there yet."""
        # torch.manual_seed calls those of the devices: `within` keeps a seed from being shifted twice.
        for module, name in (
            (torch, "manual_seed"),
            (torch.random, "manual_seed"),
            (torch.cuda, "manual_seed"),
            (torch.cuda, "manual_seed_all"),
        ):
            self._replace(module, name, TORCH_SEEDS)
        self._replace(random, "seed", None)
        self._patches.wrap(torch, "Generator", self._shifted_generator)
        if "numpy.random" in sys.modules:
            self.shift_numpy(sys.modules["numpy.random"])
        else:
            sys.meta_path.insert(0, _AtImport("numpy.random", self.shift_numpy))

    def shift_numpy(self, module: types.ModuleType) -> None:
        self._replace(module, "seed", NUMPY_SEEDS)
        self._replace(module, "default_rng", None)

    def shifted(self, seed: Any, valid: range | None) -> Any:
        """Return the seed with the offset, wrapped around beyond the `valid` ones; a seed that is no whole number, or
        not valid, stays."""
        if not isinstance(seed, numbers.Integral) or getattr(self._running, "inside", False):
            return seed
        if valid is None:
            return int(seed) + self._offset
        # An invalid seed is left for the function itself to refuse.
        moved = int(seed) + self._offset
        return seed if int(seed) not in valid else moved if moved in valid else moved % valid.stop

    def within(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function whose own seeding is left alone."""
        before = getattr(self._running, "inside", False)
        self._running.inside = True
        try:
            return function(*args, **kwargs)
        finally:
            self._running.inside = before

    def _replace(self, module: Any, name: str, valid: range | None) -> None:
        original = getattr(module, name)

        @functools.wraps(original)
        def seed_(*args: Any, **kwargs: Any) -> Any:
            if args:
                args = (self.shifted(args[0], valid), *args[1:])
            for key in ("seed", "a"):
                if key in kwargs:
                    kwargs[key] = self.shifted(kwargs[key], valid)
            return self.within(original, *args, **kwargs)

        self._patches.replace(module, name, seed_)

    def _shifted_generator(self, plain: Any) -> type:
        shift = self

        class GeneratorType(type(plain)):  # type: ignore[misc]
            def __instancecheck__(cls, instance: object) -> bool:
                # Generators that torch makes itself, such as its default one, are of the plain class.
                return isinstance(instance, plain)

        class Generator(plain, metaclass=GeneratorType):  # type: ignore[misc]
            """torch's generator, its seeds shifted."""

            def manual_seed(self, seed: int) -> Any:
                return super().manual_seed(shift.shifted(seed, TORCH_SEEDS))

        Generator.__module__, Generator.__qualname__ = "torch", "Generator"  # for pickles
        return Generator


def shift_seeds(offset: int) -> None:
    """From now on add `offset` to every whole number that torch's, Python's and NumPy's generators are seeded with."""
    SeedShift(offset).install()


class _AtImport(importlib.abc.MetaPathFinder):
    """Has a function called with a module as soon as that is imported."""

    def __init__(self, name: str, imported: Callable[[types.ModuleType], None]) -> None:
        self._name = name
        self._imported = imported

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)  # before `find_spec`, which would ask it again
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_tell(module: types.ModuleType) -> None:
            execute(module)
            self._imported(module)

        spec.loader.exec_module = execute_and_tell  # type: ignore[method-assign]
        return spec
