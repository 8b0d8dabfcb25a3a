"""What a device is asked for: the profiler's activity, a wait, its memory."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from torch.profiler import ProfilerActivity

from numdrift.harness.torch_private.profiling.device_work import (
    device_activity,
    is_accelerator,
    lacks_times,
    memory_of,
    wait_for_device,
)
from numdrift.harness.torch_private.profiling.torch_profiler import open_ranges, traced_activities

KINDS = ("CPU", "CUDA", "XPU", "MTIA", "HPU", "PrivateUse1")


@pytest.fixture
def every_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """A torch whose profiler knows all of them."""
    known = {getattr(ProfilerActivity, kind) for kind in KINDS}
    monkeypatch.setattr(torch.profiler, "supported_activities", lambda: known)


@pytest.mark.parametrize(
    ("device", "activity"),
    [
        ("cuda", "CUDA"),
        ("cuda:1", "CUDA"),
        ("xpu:0", "XPU"),
        ("mtia", "MTIA"),
        ("hpu", "HPU"),
        ("privateuseone:0", "PrivateUse1"),
    ],
)
def test_the_activity_of_a_device_is_traced_beside_the_hosts(device: str, activity: str, every_device: None) -> None:
    assert traced_activities(device) == [ProfilerActivity.CPU, getattr(ProfilerActivity, activity)]
    assert lacks_times(device) == ""


def test_a_plug_in_is_known_by_the_name_that_it_gave_its_device(
    every_device: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch._C, "_get_privateuse1_backend_name", lambda: "ipu")
    assert device_activity("ipu:0") is ProfilerActivity.PrivateUse1


@pytest.mark.parametrize("device", ["cpu", "lazy", "xla", "meta"])
def test_the_host_and_lazy_devices_have_none(device: str, every_device: None) -> None:
    assert not is_accelerator(device)
    assert traced_activities(device) == [ProfilerActivity.CPU]
    assert memory_of(device) == {}


def test_a_device_that_the_profiler_does_not_know_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.profiler, "supported_activities", lambda: {ProfilerActivity.CPU})
    assert traced_activities("cuda") == [ProfilerActivity.CPU]
    assert lacks_times("cuda") == f"the profiler of torch {torch.__version__} reports no times for cuda"
    assert "registers no activity profiler" in lacks_times("privateuseone")


class Device:
    """A device module of two devices, of which the second has memory, too."""

    def __init__(self, *, initialized: bool = True) -> None:
        self.initialized = initialized
        self.waits: list[int | None] = []

    def is_initialized(self) -> bool:
        return self.initialized

    def device_count(self) -> int:
        return 2

    def current_device(self) -> int:
        return 1

    def synchronize(self, number: int | None = None) -> None:
        self.waits.append(number)

    def memory_allocated(self, place: Any = None) -> int:
        return 100

    def max_memory_allocated(self, place: Any = None) -> int:
        return 300

    def memory_reserved(self, place: Any = None) -> int:
        return 400 if place in (None, 1) else 0

    def max_memory_reserved(self, place: Any = None) -> int:
        raise NotImplementedError


def test_every_device_that_has_memory_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device()
    monkeypatch.setattr(torch, "ipu", device, raising=False)
    wait_for_device("ipu")
    assert device.waits == [None, 1]


def test_a_device_that_nobody_has_used_stays_untouched(monkeypatch: pytest.MonkeyPatch) -> None:
    device = Device(initialized=False)
    monkeypatch.setattr(torch, "ipu", device, raising=False)
    wait_for_device("ipu")
    wait_for_device("nothing")
    assert device.waits == []
    assert memory_of("ipu") == {}


def test_the_memory_is_what_the_device_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch, "ipu", Device(), raising=False)
    assert memory_of("ipu") == {"device": 1, "allocated": 100, "allocated_peak": 300, "reserved": 400}
    monkeypatch.setattr(torch, "ipu", SimpleNamespace(current_allocated_memory=lambda: 7), raising=False)
    assert memory_of("ipu") == {"device": 0, "allocated": 7}
    monkeypatch.setattr(torch, "ipu", SimpleNamespace(), raising=False)
    assert memory_of("ipu") == {}


def test_an_allocation_leaves_nothing_open() -> None:
    allocation = b'{"name": "[memory]", "args": {"Total Allocated": 4, "Addr": 1, "finished": false, "Ev Idx": 3}}'
    range_ = b'{"name": "x", "args": {"External id": 4, "finished": false, "Ev Idx": 3}}'
    assert not open_ranges(b"[" + allocation + b"]")
    assert open_ranges(b"[" + allocation + b", " + range_ + b", " + allocation + b"]")
