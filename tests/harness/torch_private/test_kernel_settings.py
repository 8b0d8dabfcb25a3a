"""Settings of torch's kernels, by the functions of two generations of torch."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
import torch

from numdrift.harness.tape.step_settings import current_settings, put_settings
from numdrift.harness.torch_private.kernel_settings import KERNEL_SETTINGS, allow_tf32, kernel_settings, setters

NEW_PRECISIONS = hasattr(torch._C, "_set_fp32_precision_setter")


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = current_settings()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch 2.9 warns of the switches
        yield
    put_settings(before)
    assert current_settings() == before


def test_each_setting_gives_what_it_was_set_to() -> None:
    others = {True: False, False: True, "highest": "high", "off": "on", "on": "off"}
    others |= {"none": "ieee", "ieee": "tf32", "tf32": "ieee", "1 2 0 3 4": "2 1 0 3 4"}
    assert {"mkldnn", "cudnn_benchmark", "attention.math", "reduction.bf16", "precision.cuda.conv"} <= set(
        KERNEL_SETTINGS
    )
    for name, setting in KERNEL_SETTINGS.items():
        wanted = others[setting.read()]
        setting.put(wanted)
        assert setting.read() == wanted, name
        put_settings({name: others.get(wanted, wanted)})


@pytest.mark.skipif(not NEW_PRECISIONS, reason="this torch has the switches alone")
def test_a_switch_sets_the_precisions_and_can_be_read_afterwards() -> None:
    # what torch refuses to read: the switch, after a precision was set by itself
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    with pytest.raises(RuntimeError, match="mix of the legacy and new APIs"):
        bool(torch.backends.cuda.matmul.allow_tf32)
    assert "matmul_precision" not in current_settings()
    # when it is set as a mode's key sets it
    for wanted in (True, False):
        allow_tf32("cublas", wanted)
        # then both can be read
        assert torch.backends.cuda.matmul.allow_tf32 is wanted
        assert torch.backends.cuda.matmul.fp32_precision == ("tf32" if wanted else "ieee")
        assert current_settings()["matmul_precision"] == ("high" if wanted else "highest")


def test_a_torch_before_2_9_has_the_precisions_that_its_switches_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    # given a torch that has no precisions, and one number for reductions
    for name in ("_get_fp32_precision_getter", "_set_fp32_precision_setter"):
        monkeypatch.delattr(torch._C, name, raising=False)
    allowed = [True]
    name = "cublas_allow_bf16_reduced_precision_reduction"
    monkeypatch.setattr(torch._C, f"_get_{name}", lambda: allowed[0])
    monkeypatch.setattr(torch._C, f"_set_{name}", lambda wanted: allowed.__setitem__(0, wanted))
    # when
    found = kernel_settings()
    # then
    assert "precision.mkldnn.matmul" not in found and "precision.cuda.rnn" not in found
    allow_tf32("cublas", True)
    assert found["precision.cuda.matmul"].read() == "tf32"
    found["precision.cuda.matmul"].put("ieee")
    assert found["precision.cuda.matmul"].read() == "ieee" and not torch.backends.cuda.matmul.allow_tf32
    found["precision.cuda.conv"].put("ieee")
    assert not torch.backends.cudnn.allow_tf32
    assert found["reduction.bf16"].read() == "on"
    found["reduction.bf16"].put("off")
    assert allowed == [False]


def test_sums_of_16_bit_products_stay_split_as_cuda_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    # given a torch whose products are those of a library that cannot but split them
    name, allowed = "cublas_allow_fp16_reduced_precision_reduction", [(True, True)]

    def put(rounded: bool, split: bool) -> None:
        if not split:
            raise RuntimeError("allow_splitk=False requires the cuBLASLt backend")
        allowed[0] = (rounded, split)

    monkeypatch.setattr(torch._C, f"_get_{name}", lambda: allowed[0])
    monkeypatch.setattr(torch._C, f"_set_{name}", put)
    found = kernel_settings()["reduction.fp16"]
    # when and then
    assert found.read() == "on"
    found.put("off")
    assert allowed == [(False, True)] and found.read() == "off"
    with pytest.raises(RuntimeError, match="cuBLASLt"):
        found.put("off unsplit")
    allowed[0] = (True, False)
    assert found.read() == "on unsplit"


def test_what_a_torch_lacks_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    before = len(setters())
    monkeypatch.delattr(torch._C, "_set_sdp_priority_order")
    monkeypatch.delattr(torch._C, "_get_cudnn_benchmark")
    assert not {"attention.order", "cudnn_benchmark"}.intersection(kernel_settings())
    assert len(setters()) == before - 1
