"""The environment of mode `xla` is found where it lies beside, what runs in it is said, and what is wrong with it as well."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from numdrift.harness.errors import UsageError
from numdrift.harness.launch import xla_environment
from numdrift.harness.launch.checked_interpreter import check_interpreter
from numdrift.harness.launch.xla_environment import described, in_their_interpreters
from numdrift.harness.records.modes.mode_spec import parse_mode, parse_modes

FITTING = {"torch": "2.9.0+cu128", "torch_xla": "2.9.0"}


@pytest.fixture(autouse=True)
def alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing lies beside but what a test puts there."""
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "own/.venv"))
    monkeypatch.setattr(xla_environment, "PACKAGE", tmp_path / "sources/src/numdrift")


def environment(folder: Path, **versions: str) -> Path:
    """A Python that answers with these versions, in a .venv-xla of a folder."""
    python = folder / ".venv-xla/bin/python"
    python.parent.mkdir(parents=True)
    python.write_text(f"#!/bin/sh\necho '{json.dumps({'python': [3, 11]} | versions)}'\n")
    python.chmod(0o755)
    return python


@pytest.mark.parametrize("beside", ["here", "own", "sources"])
def test_it_is_found_here_beside_the_environment_and_beside_the_sources(beside: str, tmp_path: Path) -> None:
    python = environment(tmp_path / beside, **FITTING)
    (spec,) = in_their_interpreters(parse_modes("xla")).modes
    assert spec.python == str(python)


@pytest.mark.slow
def test_the_reference_runs_in_the_same_interpreter_unless_it_says_otherwise(tmp_path: Path) -> None:
    python = environment(tmp_path / "here", **FITTING)
    # given a plain reference
    found = in_their_interpreters(parse_modes("cpu,xla"))
    assert [spec.python for spec in found.modes] == [str(python)] * 2
    (said,) = found.sentences
    assert said.startswith("cpu and xla run in .venv-xla/bin/python: torch 2.9.0+cu128, torch_xla 2.9.0 (")
    assert "numdrift's own Python has torch" in said

    # given one that names its interpreter
    found = in_their_interpreters(parse_modes(None, [f"cpu,python={sys.executable}", "xla"]))
    assert [spec.python for spec in found.modes] == [sys.executable, str(python)]
    *where, meaning = found.sentences
    assert [line.partition(" runs in ")[0] for line in where] == ["cpu", "xla"]
    assert "from the version, not the mode; to find out whether the version or the mode is the cause, run" in meaning


def test_without_mode_xla_nothing_moves_and_nothing_is_said(tmp_path: Path) -> None:
    environment(tmp_path / "here", **FITTING)
    modes = parse_modes("cpu,compile,lazy")
    found = in_their_interpreters(modes)
    assert list(found.modes) == modes and not found.sentences


def refusal(spec: str) -> str:
    with pytest.raises(UsageError) as refused:
        in_their_interpreters([parse_mode(spec)])
    assert "\n" not in str(refused.value)
    return str(refused.value)


def test_without_an_environment_the_remedy_is_said() -> None:
    said = refusal("x=xla")
    assert said.startswith("mode 'x': torch_xla is not installed alongside torch ")
    assert "there is no .venv-xla here or beside numdrift's environment; create one with `bash scripts/xla`" in said


@pytest.mark.parametrize(
    ("versions", "said"),
    [
        ({"torch": "2.9.0"}, "has torch 2.9.0 but no torch_xla"),
        ({"torch": "2.8.0", "torch_xla": "2.8.1"}, "has torch_xla 2.8.1, but numdrift needs 2.9 or later"),
        (
            {"torch": "2.13.0", "torch_xla": "2.9.0"},
            "has torch_xla 2.9.0 and torch 2.13.0, but this torch_xla loads only with",
        ),
    ],
)
def test_an_environment_that_will_not_do_is_told(versions: dict[str, str], said: str, tmp_path: Path) -> None:
    python = environment(tmp_path / "here", **versions)
    assert refusal("xla").startswith(f"mode 'xla': python={python} {said}")
    assert refusal("xla").endswith("; `bash scripts/xla` creates .venv-xla with versions that work together")
    # and other modes may run there all the same
    check_interpreter(parse_mode(f"cpu,python={python}"))


def test_an_interpreter_is_described_with_what_it_has(tmp_path: Path) -> None:
    python = environment(tmp_path, **FITTING)
    assert described(parse_mode(f"xla,python={python}")) == f"{python}: torch 2.9.0+cu128, torch_xla 2.9.0"
    assert described(parse_mode("xla")) == ""
