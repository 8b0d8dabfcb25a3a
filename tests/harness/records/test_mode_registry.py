from __future__ import annotations

from pathlib import Path

import pytest

from numdrift.harness.records.modes.mode_registry import OWN, VENDORS, ModeEntry, ModeRegistry, registry


def registry_with(*names: str) -> ModeRegistry:
    made = ModeRegistry()
    for name in names:
        made.register(ModeEntry(name, f"package.{name}:Mode", f"the mode {name}"))
    return made


def test_a_duplicate_shows_both_and_changes_nothing() -> None:
    # given
    modes = registry_with("cpu")
    # when
    with pytest.raises(ValueError, match="cpu") as raised:
        modes.register(ModeEntry("cpu", "other:Mode", "another"))
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


@pytest.mark.parametrize("name", [entry.name for entry in OWN] + list(VENDORS))
def test_the_capabilities_of_a_base_are_those_of_its_class(name: str) -> None:
    assert registry.capabilities(name) == registry.load(name).capabilities


def test_a_vendor_names_a_device_by_an_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # given a device without a class, torch's name of one, and a class for a device and for none
    facts = tmp_path / "vendor-1.0.dist-info"
    facts.mkdir()
    (facts / "METADATA").write_text("Metadata-Version: 2.1\nName: vendor\nVersion: 1.0\n")
    (facts / "entry_points.txt").write_text(
        "[numdrift.devices]\nnew = vendor\nxpu = vendor.xpu\nown = vendor.own\n"
        "[numdrift.modes]\nown = vendor.mode:Own\ntoy = vendor.toy:Toy\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    # when
    modes = registry_with("cpu")
    modes.register(ModeEntry("xpu", "package:Eager", "eager", device="xpu"))
    # then
    assert set(modes.names()) == {"cpu", "xpu", "new", "own", "toy"}
    assert {name: modes.device(name) for name in ("new", "xpu", "own", "toy", "elsewhere")} == {
        "new": "new", "xpu": "xpu", "own": "own", "toy": "cpu", "elsewhere": "elsewhere",
    }  # fmt: skip
    assert [modes.module_of(device) for device in ("new", "xpu", "own", "cpu")] == [
        "vendor",
        "vendor.xpu",
        "vendor.own",
        "",
    ]
    assert modes.entry("own").target == "vendor.mode:Own"
