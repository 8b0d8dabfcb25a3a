"""torch_xla's work, as far as it can be tested without torch_xla: its metrics module is stood in for."""

from __future__ import annotations

import sys
from types import ModuleType

import pytest

from numdrift.harness.backends.xla.adapter import XlaWork
from numdrift.harness.errors import NotAvailable
from numdrift.harness.records.backend_work import Work


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


def test_without_torch_xla_the_reason_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch_xla.debug.metrics", None)
    with pytest.raises(NotAvailable, match="torch_xla"):
        XlaWork(__file__, print)
