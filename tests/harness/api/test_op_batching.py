"""Ops that the tasks of an engine check: which are checked, and what becomes of those without a result."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from numdrift.harness.api import op_batching
from numdrift.harness.api.api_running import listener
from numdrift.harness.api.checking import CheckRequest
from numdrift.harness.api.op_batching import OPS_OF_A_TASK, OpEngine, ops_checked_on_engine
from numdrift.harness.records.codec import json_text
from numdrift.harness.records.modes.mode_spec import parse_modes
from numdrift.harness.records.results.call_check import CallCheck, CheckedMode

NAMES = [f"op{number:02}" for number in range(OPS_OF_A_TASK + 2)] + ["norm.nuc"]

CHECK = """#!{python}
# -m numdrift check --ops PATTERN ... --json PATH
import json, re, sys
from pathlib import Path
words = sys.argv[1:]
with Path({log!r}).open("a") as log:
    log.write(" ".join(words[4:]) + "\\n")
ops = [name for name in {names!r} if re.search(words[4], name)]
if "op09" in ops:
    print("numdrift: the disk is full", file=sys.stderr)
    sys.exit(3)
rows = [{{"op": op, "mode": "compile", "verdict": "rounding"}} for op in ops]
Path(words[words.index("--json") + 1]).write_text(json.dumps({{"pattern": "", "reference": "cpu", "rows": rows, "schema": 1}}))
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a program in place of Python's, which notes its words and writes rows."""
    program = tmp_path / "check"
    program.write_text(CHECK.format(python=sys.executable, log=str(tmp_path / "log"), names=NAMES))
    program.chmod(0o755)
    monkeypatch.setattr(op_batching, "sys", SimpleNamespace(executable=str(program)))
    monkeypatch.setattr(op_batching, "matching", lambda pattern: NAMES)
    return tmp_path


def test_ops_are_checked_in_groups_and_in_order(folder: Path) -> None:
    options = {"shrink": True, "budget": "30", "localize": "all", "name": "lib", "jobs": 1}
    request = CheckRequest.of(
        None, parse_modes("cpu,compile"), (), options | {"out": str(folder / "runs"), "input_seeds": 2}
    )
    progress = listener(False)

    found = ops_checked_on_engine(request, ".", OpEngine("local", {}, options), progress)

    assert [row.op for row in found.rows] == NAMES
    verdicts = {row.op: row.verdict for row in found.rows}
    assert verdicts == dict.fromkeys(NAMES[:8], "rounding") | dict.fromkeys(NAMES[8:], "failed")
    assert found.rows[-1].text == "the disk is full" and found.exit_code == 3
    assert progress.texts[0] == "11 of 11 ops to check, on the engine local" and len(progress.texts) == 12
    words = (folder / "log").read_text().splitlines()
    common = "--mode cpu --mode compile,fallback_random=on --shrink --budget 30 --jobs 1 --samples 2 --name lib"
    assert len(words) == 2 and all(set(common.split()) <= set(line.split()) for line in words), words
    assert (folder / "runs/lib/ops.json").exists()


def test_ops_that_were_checked_are_not_checked_again(folder: Path) -> None:
    # given an op that `check --ops` has checked on this machine
    options = {"out": str(folder)}
    request = CheckRequest.of(None, parse_modes("cpu,compile"), (), options)
    done = folder / "ops" / NAMES[0]
    for mode, spec in (("cpu", "cpu"), ("compile", "compile,fallback_random=on")):
        (done / mode).mkdir(parents=True)
        (done / mode / "run.json").write_text(json_text({"spec": spec}))
    checked = CheckedMode("compile", "identical", "the same")
    (done / "check.json").write_text(json_text(CallCheck("op00", "cpu", (), (), (checked,))))

    found = ops_checked_on_engine(request, ".", OpEngine("local", {}, options), listener(False))

    assert found.reused == 1 and found.rows[0].verdict == "identical"
    assert "op00" not in (folder / "log").read_text()
    assert [row.verdict for row in found.rows].count("rounding") == 8  # the second group now begins with op09
