"""torch_xla (PJRT) as the bring-up tools ask it.

Support: torch_xla's counters of fallbacks, and the HLO that each call adds to the pending graph. Work: its own metrics
at each moment of the training, by which a piece of work is put down to its step.
"""

from __future__ import annotations

import importlib
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch

from numdrift.kernels.expectation import tensors_in

from ...errors import NotAvailable
from ...hooks.backend_adapter import Tell
from ...records.backend_work import FROM_DEVICE, RECORDING, TO_DEVICE, OperatorCall, Work, WorkKind
from ...torch_private.xla import XLA_KEY, own_reads, start_xla, sync_xla, xla_counter, xla_hlo, xla_versions
from ..called_operators import KeptFailure, line_in
from ..dispatched_support import Added, DeviceBackend, KernelCall, observe_device
from ..eager.adapter import EagerAdapter
from .mode import require_xla

# Support

GIVEN = ("parameter", "constant", "tuple", "get-tuple-element")
"""HLO instructions that compute nothing."""

_LINE = re.compile(r"^\s*(?:ROOT )?%?([\w.-]+) = (\([^=]*?\)|\S+) ([\w-]+)\((.*?)\)(.*)$")
_OPERAND = re.compile(r"%?([A-Za-z_][\w.-]*)\s*$")


def _added(once: KernelCall, args: Sequence[Any]) -> Added:
    """Run a call; its instructions are those of its results' graph that its arguments' graph lacks."""
    before = Counter(_instructions(args))
    outputs = once.run()
    try:
        made = Counter(_instructions(list(tensors_in(outputs)) or args))
    except RuntimeError as error:
        return Added(outputs, (), (str(error).splitlines() or [type(error).__name__])[0])
    return Added(outputs, tuple((made - before).elements()))


def _instructions(values: Sequence[Any]) -> list[str]:
    tensors = [one for one in tensors_in(values) if one.device.type == "xla"]
    return hlo_instructions(xla_hlo(tensors)) if tensors else []


def hlo_instructions(text: str) -> list[str]:
    """The instructions in HLO text without their names: `f32[4]{0} add(f32[4]{0}, f32[4]{0})`."""
    shapes: dict[str, str] = {}
    found = []
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is None:
            continue
        name, shape, op, operands, rest = match.groups()
        shapes[name] = shape
        if op in GIVEN:
            continue
        taken = []
        # Operands are cut at the commas outside of brackets: a shape `f32[4,2]{1, 0}` has some of its own.
        for operand in re.split(r", (?![^\[{(]*[\]})])", operands):
            # HLO text names an operand with its shape, `f32[4]{0} %p.1`, or without it.
            named = _OPERAND.search(operand)
            if named is None:
                taken.append(operand.strip())
            else:
                taken.append(operand[: named.start()].strip(" %") or shapes.get(named[1], named[1]))
        attributes = re.sub(r", (metadata|sharding|frontend_attributes)=\{.*?\}", "", rest)
        # A computation that is called has a number of its own in each graph.
        attributes = re.sub(r"(to_apply|calls)=%?([A-Za-z_]\w*)(\.\d+)*", r"\1=\2", attributes)
        found.append(f"{shape} {op}({', '.join(taken)}){attributes}")
    return found


# Work

NANOSECONDS = 1e-9

TIMES: Mapping[str, tuple[WorkKind, str]] = {
    "CompileTime": ("compile", "mark_step"),
    "ExecuteTime": ("execute", "mark_step"),
    "EagerOpCompileTime": ("compile", "op"),
    "EagerOpExecuteTime": ("execute", "op"),
    "TransferToDeviceTime": ("transfer", TO_DEVICE),
    "TransferFromDeviceTime": ("transfer", FROM_DEVICE),
}
"""torch_xla's metrics of times, in nanoseconds, and what they are here; its "eager" ones are those of `execute=op`."""

SIZES: Mapping[str, str] = {
    "ExecuteTime": "TensorsGraphSize",
    "TransferToDeviceTime": "OutboundData",
    "TransferFromDeviceTime": "InboundData",
}
"""Its metrics of sizes, of which each has a sample for each sample of these times: nodes of a graph, bytes."""

CACHED = {"CachedCompile": "mark_step"}
"""Its counter of compilations that it had done before, ops included."""


def xla_metrics() -> Any:
    """The module of torch_xla's metrics. Raises NotAvailable."""
    try:
        return importlib.import_module("torch_xla.debug.metrics")
    except ImportError as error:
        raise NotAvailable("torch_xla's metrics", str(error)) from error


def xla_report() -> str:
    return str(xla_metrics().metrics_report())


def xla_counters() -> dict[str, int]:
    metrics = xla_metrics()
    return {name: int(metrics.counter_value(name) or 0) for name in metrics.counter_names()}


class XlaWork:
    """Tells `told` of torch_xla's work from `__enter__` to `__exit__`; what that gives tells of what is not
    told yet."""

    def __init__(self, script: str, told: Callable[[Work], None]) -> None:
        self._script = script
        self._told = told
        self._metrics = xla_metrics()
        self._taken = {name: self._samples(name)[0] for name in (*TIMES, *SIZES.values())}
        self._counted = xla_counters()
        self._kept = KeptFailure()

    def __enter__(self) -> Callable[[], None]:
        own_reads.append(self._reads)
        return self._tell

    def __exit__(self, *raised: object) -> None:
        own_reads.remove(self._reads)
        with self._kept:
            self._take()

    def _tell(self) -> None:
        self._kept.tell()
        self._take()

    @contextmanager
    def _reads(self) -> Iterator[None]:
        """numdrift reads values for itself: what that executes is recording, its transfers are nobody's."""
        with self._kept:
            self._take()
        yield
        with self._kept:
            self._take(own=True)

    def _take(self, *, own: bool = False) -> None:
        for name, (kind, what) in TIMES.items():
            times = self._new(name)
            sizes = self._new(SIZES[name]) if name in SIZES else []
            if own and kind == "transfer":
                continue
            cached = False if kind == "compile" else None
            paired = len(sizes) == len(times)
            for place, nanoseconds in enumerate(times):
                size = int(sizes[place]) if paired else None
                at = RECORDING if own else what
                self._told(Work(kind, at, nanoseconds * NANOSECONDS, size, cached, line_in(self._script)))
        before, self._counted = self._counted, xla_counters()
        for name, value in self._counted.items():
            for _ in range(value - before.get(name, 0)):
                if name in CACHED:
                    self._told(Work("compile", RECORDING if own else CACHED[name], None, None, True))
                elif name.startswith("aten::"):
                    self._told(Work("fallback", name))

    def _new(self, name: str) -> list[float]:
        """The samples of a metric that came since the last time."""
        count, samples = self._samples(name)
        new, self._taken[name] = count - self._taken[name], count
        return samples[len(samples) - min(new, len(samples)) :]

    def _samples(self, name: str) -> tuple[int, list[float]]:
        """How many there were, and the newest of them (torch_xla keeps 1,024)."""
        found = self._metrics.metric_data(name)
        return (0, []) if found is None else (int(found[0]), [float(value) for _, value in found[2]])


class XlaAdapter(EagerAdapter):
    name = "xla"
    instruction_set = "hlo"
    executes_at_once = False
    part = "xla lowering"
    settle = staticmethod(sync_xla)
    counters = staticmethod(xla_counters)
    report = staticmethod(xla_report)

    def started_device(self) -> str:
        require_xla()
        start_xla()
        return "xla"

    def versions(self) -> Mapping[str, str]:
        return {"torch": torch.__version__, **xla_versions()}

    def observe_support(self, script: str, told: Callable[[OperatorCall], None]) -> AbstractContextManager[None]:
        backend = DeviceBackend(XLA_KEY, "xla", self.part, xla_counter, _added)
        return observe_device(backend, script, told)

    def without_execution(self) -> AbstractContextManager[None]:
        raise NotAvailable(
            f"a dry run in mode {self.spec.name!r}",
            "torch_xla executes a graph wherever a value is read",
            "take --mode lazy or --mode compile, or leave --dry out",
        )

    def observe_work(self, script: str, told: Callable[[Work], None]) -> AbstractContextManager[Tell]:
        return XlaWork(script, told)
