"""Why a device is not here, in a line that says what helps."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from numdrift.harness.backends import device_presence
from numdrift.harness.errors import NotAvailable


@pytest.fixture(autouse=True)
def no_device(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def said(device: str = "cuda") -> str:
    with pytest.raises(NotAvailable) as refused:
        device_presence.require_device(device)
    text = str(refused.value)
    assert "\n" not in text
    return text


def test_a_torch_without_cuda_on_a_machine_with_a_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: False)
    monkeypatch.setattr(device_presence, "DRIVER", tmp_path)  # a driver is there
    text = said()
    assert "is built without CUDA, on a machine that has an NVIDIA driver" in text
    assert "install a build of torch with CUDA" in text


@pytest.mark.parametrize("hidden", ["", "-1"])
def test_gpus_that_a_variable_hides(hidden: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.cuda, "is_built", lambda: True)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", hidden)
    text = said()
    assert f"CUDA_VISIBLE_DEVICES={hidden} hides all CUDA devices" in text and "unset it" in text


def test_a_machine_without_a_gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(device_presence, "DRIVER", tmp_path / "none")
    assert "finds none on this machine" in said()


def test_a_number_that_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    device_presence.require_device("cuda:1")
    text = said("cuda:3")
    assert "torch finds cuda:0, cuda:1" in text and "name one of these" in text


def test_a_vendors_package_that_is_not_installed() -> None:
    text = said("npu")
    assert "torch_npu" in text and "install the package torch_npu" in text
