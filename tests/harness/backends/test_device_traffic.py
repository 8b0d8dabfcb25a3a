"""Copies to a device as they are told: once each, with the script's line, and none of numdrift's own.

The device is torch's `meta`, which every machine has; copies back and reads of values are tried on the stand-in
(tests/accelerator).
"""

from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest
import torch

from numdrift.harness.backends import device_traffic
from numdrift.harness.backends.compiled.adapter import CompileAdapter
from numdrift.harness.backends.device_traffic import DeviceTraffic
from numdrift.harness.backends.eager.adapter import EagerAdapter
from numdrift.harness.errors import NotAvailable
from numdrift.harness.records.modes.mode_spec import ModeSpec
from numdrift.harness.records.tools.backend_work import Work
from numdrift.harness.tape.placed import __file__ as OWN_FILE


def moves(values: torch.Tensor) -> torch.Tensor:
    moved = values.to("meta")
    torch.empty(2, device="meta").copy_(torch.ones(2), non_blocking=True)
    values.clone().copy_(torch.ones(4))
    return moved


def line_of(function: Callable[..., object], text: str) -> str:
    lines, first = inspect.getsourcelines(function)
    number = first + next(number for number, line in enumerate(lines) if text in line)
    return f"test_device_traffic.py:{number}"


def observed(act: Callable[[], object]) -> list[Work]:
    works: list[Work] = []
    with DeviceTraffic(__file__, "meta", works.append) as tell:
        act()
        tell()
    return works


def test_a_copy_is_told_with_bytes_and_line_and_whether_the_host_waits() -> None:
    # when
    works = observed(lambda: moves(torch.ones(4)))
    # then copies that stay on the host are none
    assert [(one.kind, one.name, one.size, one.call, one.cause) for one in works] == [
        ("transfer", "to device", 16, line_of(moves, "values.to"), ""),
        ("transfer", "to device", 8, line_of(moves, "non_blocking"), "non-blocking"),
    ]
    assert all(one.seconds is not None and one.seconds > 0 for one in works)
    # and nothing is told of any more
    moves(torch.ones(4))
    assert len(works) == 2


def test_a_copy_keeps_its_target_and_its_gradient() -> None:
    target = torch.zeros(4, device="meta")
    leaf = torch.ones(4, requires_grad=True)
    works = observed(lambda: target.copy_(leaf))
    assert len(works) == 1
    assert target.grad_fn is not None and target.requires_grad


def test_what_numdrift_itself_copies_is_left_out() -> None:
    code = compile("def copy(tensor):\n    return tensor.to('meta')", OWN_FILE, "exec")
    names: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {}
    exec(code, names)  # noqa: S102, a file of the harness that copies
    assert observed(lambda: names["copy"](torch.ones(3))) == []


def test_a_device_that_torch_does_not_know_is_not_observed() -> None:
    with EagerAdapter(ModeSpec("own", "own")).observe_work(__file__, lambda _: None) as tell:
        tell()
    with pytest.raises((NotAvailable, RuntimeError)):
        DeviceTraffic(__file__, "own", lambda _: None).__enter__()


def test_the_host_alone_is_led_through_no_call_of_ours() -> None:
    before = torch._C._dispatch_dump("aten::copy_")
    with EagerAdapter(ModeSpec("cpu", "cpu")).observe_work(__file__, lambda _: None):
        assert torch._C._dispatch_dump("aten::copy_") == before
    with CompileAdapter(ModeSpec("compile", "compile")).observe_work(__file__, lambda _: None):
        assert torch._C._dispatch_dump("aten::copy_") == before


def test_an_op_of_a_fallback_is_told_where_it_needs_copies_to_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    # given a device whose fallback takes every op
    monkeypatch.setattr(device_traffic, "has_fallback", lambda device: True)
    monkeypatch.setattr(device_traffic, "is_taken_by_fallback", lambda operation, key: True)
    there = torch.ones(4, device="meta")
    # when an op is done on the device, and another one needs a copy
    works = observed(lambda: (there + 1, torch.ones(4).to("meta")))
    # then the first was the device's own after all
    assert [(one.kind, one.name) for one in works] == [("transfer", "to device"), ("fallback", "aten::_to_copy")]
