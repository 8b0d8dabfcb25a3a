from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from tests.harness.drift.recordings import a_manifest

from numdrift.harness.investigate.judging.investigate_command import command_for
from numdrift.harness.records.modes.mode_spec import parse_mode
from numdrift.harness.records.run.run_config import RunConfig
from numdrift.harness.runs.recorded_run import RecordedRun

SWAPPED = "compile-without-cpu=compile,kernel.sum=aten"


def run(path: Path, spec: str, **manifest: Any) -> RecordedRun:
    path.mkdir(parents=True)
    mode = parse_mode(spec)
    config = RunConfig(script="train.py", mode=mode, journal=str(path / "journal"))
    (path / "config.json").write_text(json.dumps(config.to_json()))
    return RecordedRun(path, a_manifest(mode.name, **manifest))


def test_an_investigation_is_taken_up_again(tmp_path: Path) -> None:
    a, b = (run(tmp_path / "runs" / "study" / mode, mode, suffix="main") for mode in ("cpu", "compile"))
    assert command_for(a, b) == f"numdrift investigate {tmp_path}/runs/study --suffix main"


def test_an_experiment_against_a_run_names_the_script_and_both_modes(tmp_path: Path) -> None:
    a = run(tmp_path / "study" / "cpu", "cpu", arguments=["--lr", "0.1 "])
    b = run(
        tmp_path / "study" / "evidence" / "compile-without-cpu",
        SWAPPED,
        arguments=["--lr", "0.1 "],
        reproducer="/home/train.py",
    )
    words = shlex.split(command_for(a, b))
    assert words[:5] == ["numdrift", "investigate", "train.py", "--mode", "cpu"]
    assert parse_mode(words[6]) == parse_mode(SWAPPED)
    assert words[7:] == ["--", "--lr", "0.1 "]


def test_a_module_of_several_processes(tmp_path: Path) -> None:
    facts = {"module": "pack.train", "world_size": 2}
    a, b = run(tmp_path / "one" / "cpu", "cpu", **facts), run(tmp_path / "two" / "compile", "compile", **facts)
    assert command_for(a, b) == "numdrift investigate -m pack.train --mode cpu --mode compile --nproc 2"


@pytest.mark.parametrize(
    ("spec", "facts"), [("cpu", {}), ("compile", {"script_sha256": "1"}), ("compile", {"arguments": ["--lr"]})]
)
def test_where_no_one_script_is_meant_it_is_left_to_fill_in(tmp_path: Path, spec: str, facts: dict[str, Any]) -> None:
    a, b = run(tmp_path / "one" / "cpu", "cpu"), run(tmp_path / "two" / spec, spec, **facts)
    assert command_for(a, b) == "numdrift investigate SCRIPT"
