"""Settings as modes state them, and the value of a key that stands for what torch is set to."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
import torch

from numdrift.harness.records.modes.mode_spec import ModeSpec, parse_mode
from numdrift.harness.records.modes.setting_keys import SETTING_KEYS
from numdrift.harness.tape.stated_settings import (
    SETTINGS_OF_KEY,
    in_key_words,
    put_stated,
    same_value,
    stated_settings,
    value_of_key,
)
from numdrift.harness.tape.step_settings import current_settings, put_settings
from numdrift.harness.torch_private.kernel_settings import ATTENTION


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    before = current_settings()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
    put_settings(before)


@pytest.mark.parametrize(("key", "value"), [(key, value) for key, values in SETTING_KEYS.items() for value in values])
def test_a_key_sets_what_it_stands_for(key: str, value: str) -> None:
    before = current_settings()
    spec = ModeSpec.from_json({"name": "fast", "base": "cuda", key: value})
    put_stated(spec)
    after = current_settings()
    assert value_of_key(key, after) == ("on" if value == "warn" else value)
    changed = {name for name in before if not same_value(before[name], after.get(name))}
    # the switch of products is set with their precision
    stated = (name for names in stated_settings(spec).values() for name in names)
    assert changed <= {*stated, *(("matmul_precision",) if key == "tf32" else ())}
    assert before.keys() == after.keys(), "everything can still be read"


def test_what_torch_is_set_to_by_default_has_a_value_of_each_key() -> None:
    found = {key: value_of_key(key, current_settings()) for key in SETTING_KEYS}
    assert found == {
        "tf32": "convolutions", "matmul_precision": "highest", "sdpa": "any", "cudnn": "on", "mkldnn": "on",
        "benchmark": "off", "reduced_precision_reduction": "on", "deterministic": "off",
    }  # fmt: skip
    put_stated(ModeSpec("b", "cpu", threads=1))
    assert value_of_key("threads", current_settings()) == "1" and torch.get_num_threads() == 1


@pytest.mark.parametrize(
    ("mode", "raises", "attention"),
    [
        ("cuda,deterministic=on", False, {"math"}),
        ("cuda,deterministic=strict", True, {"math", "flash", "efficient"}),
        # of these kernels torch takes the form that repeats in its strict mode alone
        ("cuda,deterministic=on,sdpa=flash", True, {"math", "flash"}),
        ("compile,device=cuda,deterministic=on,sdpa=any", False, {"math", "flash", "efficient", "cudnn"}),
        ("cpu,deterministic=on", False, {"math", "flash", "efficient", "cudnn"}),
        ("cpu,deterministic=on,sdpa=flash", False, {"math", "flash"}),
    ],
)
def test_a_deterministic_mode_takes_the_kernels_that_repeat(mode: str, raises: bool, attention: set[str]) -> None:
    put_settings({"cudnn_benchmark": True})
    put_stated(parse_mode(mode))
    found = current_settings()
    assert found["deterministic"] == ("on" if raises else "warn") and not found["fill_uninitialized_memory"]
    assert {name for name in ATTENTION if found[f"attention.{name}"]} == attention
    on_cuda = "cuda" in mode
    assert (found["cudnn_benchmark"], found["cudnn_deterministic"]) == (not on_cuda, on_cuda)


def test_a_mode_that_chooses_by_speed_does_so_deterministically() -> None:
    put_stated(parse_mode("cuda,deterministic=on,benchmark=on"))
    assert current_settings()["cudnn_benchmark"]


def test_memory_that_no_op_has_written_is_not_filled() -> None:
    torch.use_deterministic_algorithms(True)
    size = 1 << 24  # 64 MiB, which the C library maps anew each time: zeros unless somebody fills them
    assert torch.empty(size).isnan().all()
    put_stated(parse_mode("cpu,deterministic=on"))
    assert torch.empty(size).isfinite().all()


def test_two_keys_that_set_one_thing_agree() -> None:
    put_stated(ModeSpec("b", "cuda", tf32="on", matmul_precision="medium"))
    found = current_settings()
    assert value_of_key("tf32", found) == "on" and value_of_key("matmul_precision", found) == "medium"


def test_what_no_key_stands_for_has_no_value() -> None:
    put_settings({"attention.math": False, "precision.cuda.rnn": "ieee", "reduction.fp16": "off unsplit"})
    found = current_settings()
    assert [value_of_key(key, found) for key in ("sdpa", "tf32", "reduced_precision_reduction")] == [""] * 3
    assert value_of_key("sdpa", {}) == ""


def test_settings_are_told_by_the_keys_that_stand_for_them() -> None:
    torch.set_float32_matmul_precision("high")
    found = current_settings()
    changed = ["matmul_precision", "precision.cuda.matmul", "precision.mkldnn.matmul"]
    assert in_key_words(changed, found, ["matmul_precision"]) == ["matmul_precision=high"]
    assert in_key_words(["mkldnn", "flush_denormal"], found) == ["mkldnn=on", "flush_denormal=off"]
    put_settings({"attention.math": False})
    assert in_key_words(["attention.math"], current_settings()) == ["attention.math=off"]


def test_every_key_of_a_setting_is_one_of_the_modes() -> None:
    assert set(SETTINGS_OF_KEY) == {*SETTING_KEYS, "threads"}
