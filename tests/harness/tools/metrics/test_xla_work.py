"""torch_xla's work, as far as it can be tested without torch_xla: its metrics module is stood in for."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest
import torch

from numdrift.harness.backends.xla.adapter import XlaWork
from numdrift.harness.errors import NotAvailable
from numdrift.harness.records.backend_work import FROM_DEVICE, RECORDING, Work
from numdrift.harness.torch_private.xla import read_xla


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


def test_only_what_is_new_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    # given a graph that was compiled before
    metrics = Metrics()
    metrics.samples["CompileTime"] = [5e9]
    monkeypatch.setitem(sys.modules, "torch_xla.debug.metrics", metrics)
    monkeypatch.setitem(sys.modules, "torch_xla.debug", ModuleType("torch_xla.debug"))
    monkeypatch.setitem(sys.modules, "torch_xla", ModuleType("torch_xla"))
    works: list[Work] = []
    # when
    with XlaWork(__file__, works.append) as tell:
        metrics.samples["CompileTime"].append(2e9)
        metrics.samples["ExecuteTime"] = [3e6]
        metrics.counters = {"aten::sort": 2, "CachedCompile": 1, "xla::add": 7}
        tell()
        tell()
    # then
    assert [(one.kind, one.name, one.seconds, one.cached) for one in works] == [
        ("compile", "mark_step", 2.0, False),
        ("execute", "mark_step", pytest.approx(0.003), None),
        ("fallback", "aten::sort", None, None),
        ("fallback", "aten::sort", None, None),
        ("compile", "mark_step", None, True),
    ]


def test_sizes_are_put_down_and_what_numdrift_reads_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    # given
    metrics = Metrics()
    monkeypatch.setitem(sys.modules, "torch_xla.debug.metrics", metrics)
    monkeypatch.setitem(sys.modules, "torch_xla.debug", ModuleType("torch_xla.debug"))
    monkeypatch.setitem(sys.modules, "torch_xla", ModuleType("torch_xla"))
    works: list[Work] = []
    read = torch.zeros(1)

    class Read:
        def cpu(self) -> torch.Tensor:
            metrics.samples["TransferFromDeviceTime"] = [1e3, 2e3]
            metrics.samples["InboundData"] = [4.0, 64.0]
            metrics.samples["ExecuteTime"] = [3e6, 5e6]
            metrics.samples["TensorsGraphSize"] = [12.0, 7.0]
            return read

    with XlaWork(__file__, works.append) as tell:
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


def test_without_torch_xla_the_reason_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch_xla.debug.metrics", None)
    with pytest.raises(NotAvailable, match="torch_xla"):
        XlaWork(__file__, print)
