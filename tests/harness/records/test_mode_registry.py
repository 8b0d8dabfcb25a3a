from __future__ import annotations

import pytest

from numdrift.harness.records.mode_registry import ModeRegistry, registry


def registry_with(*names: str) -> ModeRegistry:
    made = ModeRegistry()
    for name in names:
        made.register(name, f"package.{name}:Mode", f"the mode {name}")
    return made


def test_a_duplicate_shows_both_and_changes_nothing() -> None:
    # given
    modes = registry_with("cpu")
    # when
    with pytest.raises(ValueError, match="cpu") as raised:
        modes.register("cpu", "other:Mode", "another")
    # then
    assert "package.cpu:Mode" in str(raised.value) and "other:Mode" in str(raised.value)
    assert modes.entry("cpu").summary == "the mode cpu"


def test_a_miss_suggests_the_nearest() -> None:
    with pytest.raises(KeyError, match=r"no mode 'compil'; did you mean 'compile'\? \(known: compile, cpu\)"):
        registry_with("cpu", "compile").entry("compil")


def test_names_keep_the_order_of_registration() -> None:
    assert registry_with("xla", "cpu").names() == ("xla", "cpu")


@pytest.mark.parametrize("name", registry.names())
def test_every_base_loads_a_mode(name: str) -> None:
    mode = registry.load(name)
    assert all(callable(getattr(mode, method)) for method in ("prepare", "adopt", "close", "read"))
