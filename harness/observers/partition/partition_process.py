"""The process that partitions a module by itself: made by a factory, called with examples, and held against
itself.

It is told by a JSON file: the factory, the mode, the limits, and where to write.
"""

from __future__ import annotations

import copy
import importlib
import importlib.util
import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import torch

from ...errors import NumdriftError, UsageError, nearest
from ...hooks.backend_adapter import Adapter
from ...records.mode_spec import ModeSpec
from ...records.partition_record import GraphPartition, PartitionConfig
from ...search import carriers
from .partition_journal import PARTITION, CarrierRow, PartitionWriter, TensorCheck
from .partition_parts import Part, PartCall
from .partitioned_module import PartitionedModule, adapter_of, arguments_of, partitioned

EXAMPLES = "example_inputs"
SEED = 0


def main(path: Path) -> int:
    """Do what the file says; gives the exit code."""
    asked = json.loads(path.read_text(encoding="utf-8"))
    writer = PartitionWriter(path.parent / PARTITION)
    spec = ModeSpec.from_json(asked["mode"])
    try:
        adapter = adapter_of(spec)
        writer.begin(str(spec), adapter.name)
        _prepare(spec)
        module, inputs = _made(asked["target"])
        if asked["inference"]:
            module.eval()
        with torch.set_grad_enabled(not asked["inference"]):
            config = PartitionConfig.from_json(asked["config"])
            trial = _Trial(module, inputs, adapter)
            made, checks = trial.of(config, writer.graph)
            for found in checks:
                writer.check(found)
            if asked["bisect"]:
                _bisect(trial, made.calls, writer)
    except NumdriftError as error:
        writer.failed(str(error), error.exit_code)
        return error.exit_code
    writer.end()
    return 0


class _Trial:
    """A module partitioned again and again, each time from the same state, and held against itself
    unpartitioned."""

    def __init__(self, module: torch.nn.Module, inputs: Any, adapter: Adapter) -> None:
        self._module = module
        self._inputs = inputs
        self._adapter = adapter

    def of(
        self,
        config: PartitionConfig,
        told: Callable[[GraphPartition], None],
        only: frozenset[Part] | None = None,
    ) -> tuple[PartitionedModule, Sequence[TensorCheck]]:
        torch.compiler.reset()
        plain, module = copy.deepcopy(self._module), copy.deepcopy(self._module)
        made = partitioned(module, self._inputs, self._adapter, config, told, only)
        return made, list(_checks(plain, made, module, self._inputs))


def _bisect(trial: _Trial, calls: Mapping[Part, PartCall], writer: PartitionWriter) -> None:
    """Without limits: a part on the CPU makes subgraphs that nobody asked for."""

    def drift(only: frozenset[Part]) -> float:
        _, checks = trial.of(PartitionConfig(), lambda _: None, only)
        return max((one.relative for one in checks if not one.identical), default=0.0)

    found = carriers(sorted(calls), lambda sets: [drift(only) for only in sets])
    rows = [CarrierRow(tuple(calls[part] for part in one.parts), one.alone, one.without) for one in found.carriers]
    writer.bisection(found.whole, found.asked, rows)


def _prepare(spec: ModeSpec) -> None:
    torch.manual_seed(SEED if spec.seed is None else spec.seed)
    if spec.threads is not None:
        torch.set_num_threads(spec.threads)
    if spec.dtype is not None:
        raise UsageError(f"mode {spec.name!r}: make the module in {spec.dtype} in its factory, and leave dtype out")


def _made(target: str) -> tuple[torch.nn.Module, Any]:
    """The module that a factory gives, and what it is called with. Raises UsageError."""
    place, _, name = target.rpartition(":")
    source = _loaded(place)
    if not hasattr(source, name):
        public = [one for one in vars(source) if not one.startswith("_")]
        raise UsageError(f"{place} has no {name!r}; {nearest(name, public)}")
    factory = getattr(source, name)
    module = factory if isinstance(factory, torch.nn.Module) else factory()
    if not isinstance(module, torch.nn.Module):
        raise UsageError(
            f"{target} gives a {type(module).__name__}; a function or class that makes a torch.nn.Module is needed"
        )
    inputs = getattr(module, EXAMPLES, getattr(source, EXAMPLES, None))
    if inputs is None:
        raise UsageError(
            f"{target}: nothing says what the module is called with; give it an attribute, or {place} "
            f"a variable or function, "
            f"named {EXAMPLES}: a tensor, a tuple of arguments, or a dict of named ones"
        )
    return module, inputs() if callable(inputs) and not isinstance(inputs, torch.Tensor) else inputs


def _loaded(place: str) -> ModuleType:
    """The file at a path, or the module of a name as it is found from this folder. Raises UsageError."""
    if not place.endswith(".py"):
        sys.path.insert(0, str(Path.cwd()))
        try:
            return importlib.import_module(place)
        except ModuleNotFoundError as error:
            raise UsageError(f"{place} cannot be imported from {Path.cwd()}: {error}") from error
    path = Path(place).absolute()
    found = importlib.util.spec_from_file_location(path.stem, path)
    if found is None or found.loader is None or not path.exists():
        raise UsageError(f"there is no file {place}; give it as FILE.py:FACTORY")
    sys.path.insert(0, str(path.parent))
    module = importlib.util.module_from_spec(found)
    sys.modules[path.stem] = module
    found.loader.exec_module(module)
    return module


def _checks(
    plain: torch.nn.Module, made: torch.nn.Module, module: torch.nn.Module, inputs: Any
) -> Iterator[TensorCheck]:
    """The outputs of both, and the gradients of their parameters."""
    expected, found = _executed(plain, inputs), _executed(made, inputs)
    for at, (one, other) in enumerate(zip(expected, found, strict=True)):
        yield _held("output", str(at), one, other)
    for (name, one), (_, other) in zip(plain.named_parameters(), module.named_parameters(), strict=True):
        if one.grad is not None and other.grad is not None:
            yield _held("gradient", name, one.grad, other.grad)


def _executed(module: torch.nn.Module, inputs: Any) -> Sequence[torch.Tensor]:
    """The outputs of one call from the same random numbers; where they have gradients, those of a weighted
    sum are computed."""
    args, kwargs = arguments_of(inputs)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        outputs = list(_tensors(module(*args, **kwargs)))
    losses = [_weighted_sum(one) for one in outputs if one.requires_grad]
    if losses:
        torch.stack(losses).sum().backward()
    return [one.detach() for one in outputs]


def _weighted_sum(output: torch.Tensor) -> torch.Tensor:
    """Weights differ from element to element: of a softmax the plain sum has no gradient."""
    flat = output.double().flatten()
    return (flat * torch.linspace(0.5, 1.5, flat.numel(), dtype=torch.float64)).sum()


def _tensors(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, dict):
        for one in value.values():
            yield from _tensors(one)
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from _tensors(one)


def _held(what: str, name: str, expected: torch.Tensor, found: torch.Tensor) -> TensorCheck:
    wide = torch.complex128 if expected.is_complex() else torch.float64
    a, b = expected.to(wide), found.to(wide)
    largest = (a - b).abs().max().item() if a.numel() else 0.0
    scale = a.abs().max().item() if a.numel() else 0.0
    return TensorCheck(what, name, torch.equal(expected, found), largest, scale)
