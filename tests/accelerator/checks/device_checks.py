"""Devices: two of them, guarded, with copies between, and moved to as torch's own are."""

from __future__ import annotations

import copy
import ctypes
import io
import pickle
import signal
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

GUARDS = "_ZN3c104impl26device_guard_impl_registryE"
"""`c10::impl::device_guard_impl_registry`: a guard for each type of device."""

PRIVATE_USE, SET_DEVICE = 20, 3
"""The number of the device's type, and the place of `setDevice` in a guard's table of virtual functions."""


def tell_guard(device_type: int, index: int) -> None:
    """Call `setDevice` of the device's guard with any device."""
    library = ctypes.CDLL(str(Path(torch.__file__).parent / "lib" / "libc10.so"))
    guard = (ctypes.c_void_p * (PRIVATE_USE + 1)).in_dll(library, GUARDS)[PRIVATE_USE]
    assert guard
    table = ctypes.cast(guard, ctypes.POINTER(ctypes.POINTER(ctypes.c_void_p))).contents
    function = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_uint16)(table[SET_DEVICE] or 0)
    function(guard, device_type | index << 8)


def check_the_guard_takes_its_own_devices(standin: Any) -> None:
    tell_guard(PRIVATE_USE, 1)
    assert standin.current_device() == 1


def check_the_guard_ends_the_process_for_another_type(standin: Any) -> None:
    tell_guard(0, 0)


def check_there_are_two(standin: Any) -> None:
    assert standin.is_available()
    assert standin.device_count() == torch.accelerator.device_count() == 2
    assert str(torch.accelerator.current_accelerator()) == "standin"
    assert torch.empty(1, device="standin").device == torch.device("standin:0")
    with standin.device(1):
        assert torch.empty(1, device="standin").device == torch.device("standin:1")
        assert standin.current_device() == torch.accelerator.current_device_index() == 1
    standin.set_device("standin:1")
    assert torch.ones(1, device="standin").device.index == 1
    assert (torch.ones(1, device="standin:0") + 1).device.index == 0
    with pytest.raises(RuntimeError, match="invalid device ordinal 2"):
        torch.empty(1, device="standin:2")


def check_there_may_be_none(standin: Any) -> None:
    assert standin.device_count() == 0
    assert not standin.is_available()
    assert not torch.accelerator.is_available()
    torch.manual_seed(0)
    torch.ones(1, requires_grad=True).sum().backward()
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.empty(1, device="standin")


def check_devices_do_not_mix(standin: Any) -> None:
    first, second = torch.ones(2, 2, device="standin:0"), torch.ones(2, 2, device="standin:1")
    host = torch.ones(2, 2)
    for other in (second, host):
        for mix in (torch.add, torch.mm, torch.maximum, torch.atan2, torch.cdist):
            with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device, but found at least"):
                mix(first, other)
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.cat([first, second])
    assert (first + torch.tensor(2.0)).tolist() == [[3, 3], [3, 3]]
    assert first[torch.tensor([1])].tolist() == [[1, 1]]


def check_copies_and_gradients_cross(standin: Any) -> None:
    first = torch.arange(3.0, device="standin:0", requires_grad=True)
    second = torch.tensor([1.0, 2.0, 4.0], device="standin:1", requires_grad=True)
    (first.to("standin:1") * second).sum().backward()
    assert first.grad is not None
    assert first.grad.device.index == 0
    assert first.grad.tolist() == [1, 2, 4]
    assert second.grad is not None
    assert second.grad.tolist() == [0, 1, 2]
    host = torch.zeros(3)
    host.copy_(second.detach())
    assert host.tolist() == [1, 2, 4]


def check_copies_are_refused_where_they_are_called(standin: Any) -> None:
    tensor = torch.zeros(2, 3, device="standin")
    with pytest.raises(RuntimeError, match="must match the size"):
        tensor.copy_(torch.zeros(4))
    with pytest.raises(RuntimeError, match="output with shape"):
        tensor[0].copy_(torch.zeros(2, 3))
    square = torch.zeros(3, 3, device="standin")
    with pytest.raises(RuntimeError, match="single memory location"):
        square.copy_(square.t())
    assert tensor.copy_(torch.arange(3)).tolist() == [[0, 1, 2], [0, 1, 2]]


def check_copies_conjugate_and_negate(standin: Any) -> None:
    values = torch.tensor([1 + 2j, 3 - 4j])
    tensor = values.to("standin")
    assert torch.equal(tensor.conj().cpu(), values.conj())
    assert torch.equal(tensor.conj().clone().cpu(), values.conj())
    assert torch.equal(tensor.conj().imag.cpu(), values.conj().imag)
    assert torch.equal((tensor.conj() * 2).to(torch.complex128).cpu(), (values.conj() * 2).to(torch.complex128))


def check_the_names_that_torch_generates(standin: Any) -> None:
    tensor = torch.arange(3.0)
    assert tensor.standin(1).device == torch.device("standin:1")  # type: ignore[attr-defined]
    assert tensor.standin().is_standin  # type: ignore[attr-defined]
    layer = nn.Linear(2, 2).to("standin:1")
    assert layer.weight.device.index == 1
    assert nn.Linear(2, 2).standin().weight.is_standin  # type: ignore[operator]
    with torch.device("standin"):
        assert torch.ones(1).device.type == "standin"
    assert "device='standin:0'" in repr(tensor.standin())  # type: ignore[attr-defined]
    assert tensor.to("standin").numpy(force=True).tolist() == [0, 1, 2]


def check_tensors_are_saved_and_loaded(standin: Any) -> None:
    tensor = torch.arange(3.0, device="standin:1")
    saved = io.BytesIO()
    torch.save({"whole": tensor, "part": tensor[1:]}, saved)
    for place in (None, "cpu", "standin:0"):
        saved.seek(0)
        loaded = torch.load(saved, map_location=place)
        assert loaded["whole"].device == torch.device(place or "standin:1")
        assert loaded["whole"].tolist() == [0, 1, 2]
        loaded["part"].zero_()
        assert loaded["whole"].tolist() == [0, 0, 0]
    for other in (copy.deepcopy(tensor), pickle.loads(pickle.dumps(tensor))):
        assert other.device == tensor.device
        assert other.tolist() == tensor.tolist()


VARIABLES = {"check_there_may_be_none": {"STANDIN_COUNT": "0"}}
SIGNALS = {"check_the_guard_ends_the_process_for_another_type": signal.SIGABRT}
