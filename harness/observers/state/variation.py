"""Deliberate variations of a run: initial parameters moved by one ULP, and shifted seeds."""

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

from ...torch_private.patches import Patches

BITS = {8: torch.int64, 4: torch.int32, 2: torch.int16, 1: torch.int8}
"""The integer dtype for each element size in bytes."""

TORCH_SEEDS = range(-(2**63), 2**64)
NUMPY_SEEDS = range(2**32)


def perturb_(tensors: Sequence[torch.Tensor], seed: int) -> None:
    """Move each finite nonzero element by one unit in the last place, up or down at random, in place.

    Read as integers, the bits of floating-point numbers (without the sign) increase with the magnitude, so neighbouring
    numbers differ by one. The largest finite number moves towards zero. The random draws come from a separate
    generator seeded with `seed`.
    """

    def comparable(values: torch.Tensor) -> torch.Tensor:
        # For 8-bit floating-point dtypes, torch implements hardly any operations.
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
    """Adds an offset to every integer with which the script seeds a generator.

    A seed that one generator passes on to another (torch's to the accelerators') is shifted only once.
    """

    def __init__(self, offset: int) -> None:
        self._offset = offset
        self._running = threading.local()
        self._patches = Patches("the shift of seeds")

    def install(self) -> None:
        """Replace the seeding functions.

        NumPy's are replaced now if NumPy is already imported, otherwise when the script imports it.
        """
        # torch.manual_seed calls the devices' functions: `within` prevents a second shift.
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
        """Return the seed plus the offset, wrapped around at the end of the `valid` range.

        A seed that is not an integer, or not in the range, is returned unchanged.
        """
        if not isinstance(seed, numbers.Integral) or getattr(self._running, "inside", False):
            return seed
        if valid is None:
            return int(seed) + self._offset
        # An invalid seed is left to the function itself, which rejects it.
        moved = int(seed) + self._offset
        return seed if int(seed) not in valid else moved if moved in valid else moved % valid.stop

    def within(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call `function` without shifting the seeds that it passes on."""
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
                # Generators that torch creates itself, such as its default generator, are instances of the plain class.
                return isinstance(instance, plain)

        class Generator(plain, metaclass=GeneratorType):  # type: ignore[misc]
            """torch's generator with shifted seeds."""

            def manual_seed(self, seed: int) -> Any:
                return super().manual_seed(shift.shifted(seed, TORCH_SEEDS))

        Generator.__module__, Generator.__qualname__ = "torch", "Generator"  # for pickles
        return Generator


def shift_seeds(offset: int) -> None:
    """Add `offset` from now on to every integer with which torch's, Python's and NumPy's generators are seeded."""
    SeedShift(offset).install()


class _AtImport(importlib.abc.MetaPathFinder):
    """Calls a function with a module as soon as that module is imported."""

    def __init__(self, name: str, imported: Callable[[types.ModuleType], None]) -> None:
        self._name = name
        self._imported = imported

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: types.ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._name:
            return None
        sys.meta_path.remove(self)  # before `find_spec`, which would otherwise call this finder again
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return None
        execute = spec.loader.exec_module

        def execute_and_tell(module: types.ModuleType) -> None:
            execute(module)
            self._imported(module)

        spec.loader.exec_module = execute_and_tell  # type: ignore[method-assign]
        return spec
