"""torch_xla's work, as far as it can be tested without torch_xla: its metrics module is stood in for, and its copies."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any

import pytest
import torch

from numdrift.harness.backends.xla.xla_work import XlaWork
from numdrift.harness.errors import NotAvailable
from numdrift.harness.records.tools.backend_work import FROM_DEVICE, RECORDING, Work
from numdrift.harness.torch_private.deferred.xla import read_xla


class Metrics(ModuleType):
    """`torch_xla.debug.metrics` with samples in nanoseconds and counters to be set."""

    def __init__(self) -> None:
        super().__init__("torch_xla.debug.metrics")
        self.samples: dict[str, list[float]] = {}
        self.counters: dict[str, int] = {}

    def metric_data(self, name: str) -> tuple[int, float, list[tuple[float, float]]] | None:
        values = self.samples.get(name)
        return None if values is None else (len(values), sum(values), [(0.0, one) for one in values])

    def counter_names(self) -> list[str]:
        return list(self.counters)

    def counter_value(self, name: str) -> int:
        return self.counters[name]


@pytest.fixture
def metrics(monkeypatch: pytest.MonkeyPatch) -> Metrics:
    metrics = Metrics()
    monkeypatch.setitem(sys.modules, "torch_xla.debug.metrics", metrics)
    monkeypatch.setitem(sys.modules, "torch_xla.debug", ModuleType("torch_xla.debug"))
    monkeypatch.setitem(sys.modules, "torch_xla", ModuleType("torch_xla"))
    return metrics


def no_copies(copied: object) -> Callable[[], None]:
    return lambda: None


def test_only_what_is_new_is_told(metrics: Metrics) -> None:
    # given a graph that was compiled before
    metrics.samples["CompileTime"] = [5e9]
    works: list[Work] = []
    # when
    with XlaWork(__file__, works.append, no_copies) as tell:
        metrics.samples["CompileTime"].append(2e9)
        metrics.samples["ExecuteTime"] = [3e6]
        metrics.counters = {"aten::sort": 2, "CachedCompile": 1, "xla::add": 7}
        tell()
        tell()
    # then
    assert [(one.kind, one.name, one.seconds, one.cached) for one in works] == [
        ("compile", "mark_step", 2.0, False),
        ("execute", "mark_step", pytest.approx(0.003), None),
        ("compile", "mark_step", None, True),
        ("fallback", "aten::sort", None, None),
        ("fallback", "aten::sort", None, None),
    ]


def test_sizes_are_put_down_and_what_numdrift_reads_is_not(metrics: Metrics) -> None:
    works: list[Work] = []
    read = torch.zeros(1)

    class Read:
        def cpu(self) -> torch.Tensor:
            metrics.samples["TransferFromDeviceTime"] = [1e3, 2e3]
            metrics.samples["InboundData"] = [4.0, 64.0]
            metrics.samples["ExecuteTime"] = [3e6, 5e6]
            metrics.samples["TensorsGraphSize"] = [12.0, 7.0]
            return read

    with XlaWork(__file__, works.append, no_copies) as tell:
        # when the script has read a value, and then numdrift
        metrics.samples = {
            "TransferFromDeviceTime": [1e3],
            "InboundData": [4.0],
            "ExecuteTime": [3e6],
            "TensorsGraphSize": [12.0],
        }
        assert read_xla([Read()]) == [read]  # type: ignore[list-item]
        tell()
    # then
    assert [(one.kind, one.name, one.size) for one in works] == [
        ("execute", "mark_step", 12),
        ("transfer", FROM_DEVICE, 4),
        ("execute", RECORDING, 7),
    ]


def test_a_graph_is_put_down_to_what_executed_it(metrics: Metrics) -> None:
    # given a script whose copies are led through here
    works: list[Work] = []
    led: list[Callable[[bool, FrameType | None, Callable[[], Any]], Any]] = []

    def around(copied: Callable[[bool, FrameType | None, Callable[[], Any]], Any]) -> Callable[[], None]:
        led.append(copied)
        return lambda: None

    def executes(size: float) -> None:
        metrics.samples.setdefault("TensorsGraphSize", []).append(size)
        metrics.samples.setdefault("ExecuteTime", []).append(1e6)

    with XlaWork(__file__, works.append, around) as tell:
        (copied,) = led
        here = sys._getframe()
        # when a graph is handed over by a mark_step, and has been executed once a value of it is read
        metrics.samples["TensorsGraphSize"] = [9.0]
        copied(True, here, lambda: metrics.samples.setdefault("ExecuteTime", []).append(2e6))
        # when a value of another is read, by print and by item()
        copied(True, here, lambda: executes(5.0))
        metrics.counters = {"aten::_local_scalar_dense": 1}
        copied(True, here, lambda: executes(6.0))
        # when an op is handed to the CPU: its argument goes there, its result comes back
        metrics.counters = {"aten::_local_scalar_dense": 1, "aten::_fft_r2c": 1}
        copied(True, here, lambda: executes(7.0))
        copied(False, here, lambda: None)
        # when a graph is still under way at the end
        tell()
        metrics.samples["TensorsGraphSize"].append(8.0)
    # then each says why
    assert [(one.kind, one.name, one.size) for one in works] == [
        ("execute", "mark_step", 9),
        ("execute", "read", 5),
        ("execute", "item", 6),
        ("execute", "fallback aten::_fft_r2c", 7),
        ("fallback", "aten::_fft_r2c", None),
        ("execute", "mark_step", 8),
    ]
    assert all(one.call.startswith("test_xla_work.py:") for one in works[1:5])


def test_without_torch_xla_the_reason_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch_xla.debug.metrics", None)
    with pytest.raises(NotAvailable, match="torch_xla"):
        XlaWork(__file__, print, no_copies)
