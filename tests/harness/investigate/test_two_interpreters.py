"""A pair in two interpreters: what differs, whether the version alone may be to blame, and the command that tells."""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

from tests.harness.drift.recordings import a_manifest
from tests.harness.report.outcomes import VERSIONS, cause

from numdrift.harness.investigate.judging.two_interpreters import blamed_by_training, interpreters_of, with_versions
from numdrift.harness.investigate.words.culprit_words import lines_of, versions_of
from numdrift.harness.records.modes.mode_spec import parse_mode
from numdrift.harness.records.results.culprit import PART, STRUCTURE, Culprit
from numdrift.harness.records.results.findings import TrainedWithout
from numdrift.harness.records.run.interpreters import MODE, VERSION, VERSION_OR_MODE
from numdrift.harness.records.run.run_config import RunConfig
from numdrift.harness.runs.recorded_run import RecordedRun

NEW = {"torch": "2.13.0+cpu", "oneDNN": "3.12.0", "threads": 2, "executable": "/new/bin/python"}
OLD = {"torch": "2.9.0+cu128", "oneDNN": "3.7.1", "threads": 1, "executable": "/old/bin/python"}


def run(folder: Path, spec: str, environment: dict[str, Any], **manifest: Any) -> RecordedRun:
    mode = parse_mode(spec)
    path = folder / mode.name
    path.mkdir()
    config = RunConfig(script="train.py", mode=mode, journal=str(path / "journal"))
    (path / "config.json").write_text(json.dumps(config.to_json()))
    return RecordedRun(path, a_manifest(mode.name, environment=environment, **manifest))


def test_one_mode_in_two_versions_is_the_versions(tmp_path: Path) -> None:
    a, b = run(tmp_path, "new=cpu,threads=2", NEW), run(tmp_path, "old=cpu,threads=2,python=/old/bin/python", OLD)
    two = interpreters_of(a, b)
    assert two is not None and (two.blame, two.command) == (VERSION, "")
    # threads are what the mode states, whatever the process says
    assert two.differences == ["torch 2.13.0+cpu against 2.9.0+cu128", "oneDNN 3.12.0 against 3.7.1"]


def test_two_modes_in_two_versions_are_told_apart_by_a_reference_in_the_same_interpreter(tmp_path: Path) -> None:
    words = ["--lr", "0.1 "]
    a = run(tmp_path, "cpu,python=/new/bin/python", NEW, arguments=words)
    b = run(tmp_path, "xla,python=/old/bin/python", OLD, arguments=words)
    two = interpreters_of(a, b)
    assert two is not None and two.blame == VERSION_OR_MODE
    assert shlex.split(two.command) == [
        *("numdrift", "investigate", "train.py", "--mode", "cpu,python=/old/bin/python"),
        *("--mode", "xla,python=/old/bin/python", "--", *words),
    ]
    # a mode that names none was executed in numdrift's own
    (tmp_path / "own").mkdir()
    c = run(tmp_path / "own", "compile", NEW, arguments=words)
    two = interpreters_of(b, c)
    assert two is not None and "compile,python=/new/bin/python" in shlex.split(two.command)


def test_two_trainings_are_no_matter_of_the_version_alone(tmp_path: Path) -> None:
    a, b = run(tmp_path, "new=cpu", NEW), run(tmp_path, "old=cpu,python=/old/bin/python", OLD, arguments=["--lr", "1"])
    two = interpreters_of(a, b)
    assert two is not None and (two.blame, two.command) == (VERSION_OR_MODE, "")


def test_one_interpreter_says_nothing(tmp_path: Path) -> None:
    a, b = run(tmp_path, "cpu", NEW), run(tmp_path, "xla", {**NEW, "threads": 1})
    assert interpreters_of(a, b) is None
    assert with_versions([cause()], None) == [cause()]


def test_a_training_with_the_kernels_of_its_own_version_tells_that_the_mode_is_to_blame(tmp_path: Path) -> None:
    a, b = run(tmp_path, "cpu", NEW), run(tmp_path, "compile,python=/old/bin/python", OLD)
    two, swaps = interpreters_of(a, b), ("kernel.sum=aten", "kernel.tanh=aten")
    known = blamed_by_training(two, TrainedWithout(swaps=swaps, identical=True))
    assert known is not None and (known.blame, known.command) == (MODE, "")
    # other bits, another kernel or no training leave it open
    for without in (
        TrainedWithout(swaps=swaps),
        TrainedWithout(swaps=("kernel.sum=sequential",), identical=True),
        TrainedWithout(text="no key of a mode takes it out", left=("convolution",)),
        None,
    ):
        assert blamed_by_training(two, without) == two
    (culprit,) = with_versions([cause()], known)
    assert versions_of(culprit).endswith(": the kernel differs because of the mode, not the version")


def told(culprit: Culprit, blame: str) -> Culprit:
    return replace(culprit, torch=VERSIONS, blame=blame)


def test_a_culprit_names_the_op_of_both_versions() -> None:
    norm = cause(op="aten.native_group_norm", ops={"a": ("native_group_norm",), "b": ("native_group_norm",)})
    said = "aten.native_group_norm of torch 2.13.0+cpu against aten.native_group_norm of torch 2.9.0+cu128: the kernel "
    assert versions_of(told(norm, VERSION)) == f"{said}differs because of the version"
    assert versions_of(told(norm, VERSION_OR_MODE)) == f"{said}may differ because of the version or the mode"
    assert f"{said}differs because of the version" in lines_of(told(norm, VERSION), "new", "old")
    assert versions_of(norm) == ""

    other = cause(kind=STRUCTURE, op="aten.mul", ops={"a": ("mul",), "b": ()})
    said = "aten.mul of torch 2.13.0+cpu against nothing of torch 2.9.0+cu128: the executed op differs because of the version"
    assert versions_of(told(other, VERSION)) == said


def test_culprits_that_are_no_op_have_no_version(tmp_path: Path) -> None:
    a, b = run(tmp_path, "new=cpu", NEW), run(tmp_path, "old=cpu,python=/old/bin/python", OLD)
    op, part = with_versions([cause(), cause(kind=PART, op=None, name="a part")], interpreters_of(a, b))
    assert (op.torch, op.blame) == ({"a": "2.13.0+cpu", "b": "2.9.0+cu128"}, VERSION)
    assert (part.torch, part.blame) == ({}, "")
    # and the file says so, of those alone
    assert op.to_json()["blame"] == VERSION and "torch" not in cause().to_json() and "torch" not in part.to_json()
    assert Culprit.from_json(op.to_json()).torch == op.torch
