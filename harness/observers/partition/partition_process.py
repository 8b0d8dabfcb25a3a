"""The process that partitions a single module and compares it with the unpartitioned module.

It creates the module with a factory, and calls it with example inputs. Its request is a JSON file with the factory, the
mode, the limits and the options. The record is written beside that file.
"""

from __future__ import annotations

import copy
import importlib
import importlib.util
import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from ...errors import NumdriftError, UsageError, nearest
from ...records.modes.mode_spec import ModeSpec
from ...records.tools.partition_record import GraphPartition, PartitionConfig
from ...search import carriers
from ..state.batches import tensors_in
from .partition_journal import PARTITION, CarrierRow, Part, PartitionWriter, TensorCheck
from .partitioned_module import PartitionedModule, adapter_of, arguments_of, partitioned

EXAMPLES = "example_inputs"
SEED = 0


def main(path: Path) -> int:
    """Execute the request in the file. Return the exit code."""
    request = json.loads(path.read_text(encoding="utf-8"))
    writer = PartitionWriter(path.parent / PARTITION)
    spec = ModeSpec.from_json(request["mode"])
    try:
        adapter = adapter_of(spec)
        writer.begin(str(spec), adapter.name)
        torch.manual_seed(SEED if spec.seed is None else spec.seed)
        if spec.threads is not None:
            torch.set_num_threads(spec.threads)
        if spec.dtype is not None:
            raise UsageError(
                f"mode {spec.name!r}: create the module in {spec.dtype} in its factory and leave dtype out"
            )
        module, inputs = _module_and_arguments(request["target"])
        if request["inference"]:
            module.eval()

        def tried(
            config: PartitionConfig, report: Callable[[GraphPartition], None], only: frozenset[Part] | None = None
        ) -> tuple[PartitionedModule, list[TensorCheck]]:
            """Partition the module in its initial state, and compare it with the unpartitioned module."""
            torch.compiler.reset()
            plain, module_copy = copy.deepcopy(module), copy.deepcopy(module)
            result = partitioned(module_copy, inputs, adapter, config, report, only)
            return result, _checks(plain, result, module_copy, inputs)

        def drift(only: frozenset[Part]) -> float:
            # The config has no limits, because a part that moves to the CPU splits the graph into more subgraphs.
            _, checks = tried(PartitionConfig(), lambda _: None, only)
            return max((check.relative for check in checks if not check.identical), default=0.0)

        with torch.set_grad_enabled(not request["inference"]):
            config = PartitionConfig.from_json(request["config"])
            result, checks = tried(config, lambda graph: writer.write("graph", **graph.to_json()))
            for check in checks:
                writer.write("check", **asdict(check))
            if request["bisect"]:
                calls = result.calls
                bisection = carriers(sorted(calls), lambda sets: [drift(only) for only in sets])
                rows = [
                    CarrierRow(tuple(calls[part] for part in carrier.parts), carrier.alone, carrier.without)
                    for carrier in bisection.carriers
                ]
                writer.write(
                    "bisection", whole=bisection.whole, asked=bisection.count, carriers=[asdict(row) for row in rows]
                )
    except NumdriftError as error:
        writer.failed(str(error), error.exit_code)
        return error.exit_code
    writer.write("end")
    return 0


def _module_and_arguments(target: str) -> tuple[torch.nn.Module, Any]:
    """Return a factory's module, and the arguments with which to call the module. Raises UsageError."""
    place, _, name = target.rpartition(":")
    if place.endswith(".py"):
        path = Path(place).absolute()
        spec = importlib.util.spec_from_file_location(path.stem, path)
        if spec is None or spec.loader is None or not path.exists():
            raise UsageError(f"there is no file {place}; write the module as FILE.py:FACTORY")
        sys.path.insert(0, str(path.parent))  # the file may import its neighbours
        source = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = source
        spec.loader.exec_module(source)
    else:
        sys.path.insert(0, str(Path.cwd()))
        try:
            source = importlib.import_module(place)
        except ModuleNotFoundError as error:
            raise UsageError(f"{place} cannot be imported from {Path.cwd()}: {error}") from error
    if not hasattr(source, name):
        public = [attribute for attribute in vars(source) if not attribute.startswith("_")]
        raise UsageError(f"{place} has no {name!r}; {nearest(name, public)}")
    factory = getattr(source, name)
    module = factory if isinstance(factory, torch.nn.Module) else factory()
    if not isinstance(module, torch.nn.Module):
        raise UsageError(f"{target} returns a {type(module).__name__}, not a torch.nn.Module")
    inputs = getattr(module, EXAMPLES, getattr(source, EXAMPLES, None))
    if inputs is None:
        raise UsageError(
            f"{target}: no example inputs; define {EXAMPLES} on the module, or in {place} as a variable or function: "
            "a tensor, a tuple of arguments, or a dict of keyword arguments"
        )
    return module, inputs() if callable(inputs) and not isinstance(inputs, torch.Tensor) else inputs


def _checks(
    plain: torch.nn.Module, partitioned_copy: torch.nn.Module, module: torch.nn.Module, inputs: Any
) -> list[TensorCheck]:
    """Compare the outputs of both modules, and the gradients of their parameters."""

    def held(kind: str, name: str, expected: torch.Tensor, value: torch.Tensor) -> TensorCheck:
        wide = torch.complex128 if expected.is_complex() else torch.float64
        a, b = expected.to(wide), value.to(wide)
        largest = (a - b).abs().max().item() if a.numel() else 0.0
        scale = a.abs().max().item() if a.numel() else 0.0
        return TensorCheck(kind, name, torch.equal(expected, value), largest, scale)

    expected, values = _executed(plain, inputs), _executed(partitioned_copy, inputs)
    outputs = enumerate(zip(expected, values, strict=True))
    checks = [held("output", str(at), reference, result) for at, (reference, result) in outputs]
    for (name, reference_parameter), (_, parameter) in zip(
        plain.named_parameters(), module.named_parameters(), strict=True
    ):
        if reference_parameter.grad is not None and parameter.grad is not None:
            checks.append(held("gradient", name, reference_parameter.grad, parameter.grad))
    return checks


def _executed(module: torch.nn.Module, inputs: Any) -> Sequence[torch.Tensor]:
    """Call the module with a fixed seed and return the outputs.

    If outputs have gradients, run the backward of their weighted sum.
    """
    args, kwargs = arguments_of(inputs)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(SEED)
        outputs = list(tensors_in(module(*args, **kwargs)))
    losses = []
    for output in outputs:
        if output.requires_grad:
            # Weights differ from element to element, because the gradient of a softmax's plain sum is zero.
            flat = output.double().flatten()
            losses.append((flat * torch.linspace(0.5, 1.5, flat.numel(), dtype=torch.float64)).sum())
    if losses:
        torch.stack(losses).sum().backward()
    return [output.detach() for output in outputs]
