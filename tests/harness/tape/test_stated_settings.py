"""Settings as modes state them, and the value of a key that stands for what torch is set to."""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import pytest
import torch

from numdrift.harness.records.modes.mode_spec import ModeSpec
from numdrift.harness.records.modes.setting_keys import SETTING_KEYS
from numdrift.harness.tape.stated_settings import (
    SETTINGS_OF_KEY,
    in_key_words,
    put_stated,
    same_value,
    stated_names,
    value_of_key,
)
from numdrift.harness.tape.step_settings import current_settings, put_settings


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
    assert value_of_key(key, after) == value
    changed = {name for name in before if not same_value(before[name], after.get(name))}
    # the switch of products is set with their precision
    assert changed <= {*stated_names(spec), *(("matmul_precision",) if key == "tf32" else ())}
    assert before.keys() == after.keys(), "everything can still be read"


def test_what_torch_is_set_to_by_default_has_a_value_of_each_key() -> None:
    found = {key: value_of_key(key, current_settings()) for key in SETTING_KEYS}
    assert found == {
        "tf32": "convolutions", "matmul_precision": "highest", "sdpa": "any", "cudnn": "on", "mkldnn": "on",
        "benchmark": "off", "reduced_precision_reduction": "on", "deterministic": "off",
    }  # fmt: skip
    put_stated(ModeSpec("b", "cpu", threads=1))
    assert value_of_key("threads", current_settings()) == "1" and torch.get_num_threads() == 1


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
