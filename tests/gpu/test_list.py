"""The list of `scripts/gpu`: its data, how it judges, what it keeps and what it shows."""

from __future__ import annotations

import importlib.util
import json
import math
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from numdrift.harness.records.modes.mode_spec import parse_mode

from ..processes.forked import python
from . import needs, worker
from .benchmark import ROWS, main
from .commands import ROOT, Commands
from .costs import A_STEP
from .device import COMPILED, CUDA, Device, parts_of
from .evidence import Evidence
from .investigations import GPT, INVESTIGATIONS
from .judged import judged
from .laboratory import Laboratory
from .measurements import FUNCTIONS, MEASUREMENTS
from .outcome import Outcome, Results, ResultsFile, read_results
from .page import page
from .rows import ExpectedCause, Investigation, Script
from .shown import line_of, seconds_of

ON_CUDA = Device(CUDA, "compile,device=cuda")
ROW = Investigation(
    "x", "planted faults", "a fault", GPT, ("cuda", "b=compile@cuda,env.FAULT=scale"), ("beyond-rounding",)
)


def laboratory(folder: Path, seconds: float = 60.0) -> Laboratory:
    return Laboratory(ON_CUDA, Commands({}, time.monotonic() + seconds), folder)


# What the list holds.


def test_names_are_unique_and_what_rows_name_is_there() -> None:
    names = [row.name for row in ROWS]
    assert len(names) == len(set(names))
    assert all(need in needs.NEEDS for row in ROWS for need in row.needs)
    assert {row.function for row in MEASUREMENTS} == set(FUNCTIONS)


@pytest.mark.parametrize("row", INVESTIGATIONS, ids=lambda row: row.name)
def test_an_investigation_can_be_stated(row: Investigation) -> None:
    text = (ROOT / row.script.path).read_text()
    assert all(cause.line in text for cause in row.causes)
    modes = [parse_mode(ON_CUDA.mode(mode)) for mode in row.modes]
    assert len({mode.name for mode in modes}) == 2
    assert all(f'FAULT == "{mode.env["FAULT"]}"' in text for mode in modes if mode.env)


def test_a_mode_is_one_of_the_device() -> None:
    standin = Device("standin", "compile,device=standin,backend=aot_eager")
    assert standin.mode("cuda") == "standin"
    assert standin.mode("cuda:7") == "standin:7"
    assert standin.mode("a=cuda,tf32=on") == "a=standin,tf32=on"
    assert standin.mode("b=compile@cuda,env.X=1") == "b=compile,device=standin,backend=aot_eager,env.X=1"
    assert standin.mode("cpu") == "cpu"
    assert parts_of("a=compile@cuda,k=v") == ("a", COMPILED, ",k=v")


def test_plain_trainings_are_told_from_the_modes() -> None:
    plain, compiled = ON_CUDA.bare(ROW)
    assert plain.command() == ([GPT.path, "--device", "cuda"], {})
    assert compiled.command() == ([GPT.path, "--device", "cuda", "--compile"], {"FAULT": "scale"})
    assert plain.key != compiled.key
    assert Script("reproducers/sam_tanh.py").bare("cpu") == ([], {"DEVICE": "cpu"})


# How a row is judged.


def pair(**changes: Any) -> dict[str, Any]:
    source = str(ROOT / GPT.path)
    line = next(
        n for n, text in enumerate((ROOT / GPT.path).read_text().splitlines(), 1) if "dot_product_attention(" in text
    )
    culprit = {"status": "culprit", "kind": "arguments", "op": "aten._flash_attention", "phase": "forward", "ops": {}}
    culprit |= {"source": f"{source}:{line}", "proof": {}}
    found = {"verdict": "beyond-rounding", "text": ["beyond-rounding: much"], "culprits": [culprit]}
    return {**found, "first_differing_step": 0, "explained": 1.0, **changes}


EXPECTED = ExpectedCause("attention", "scaled_dot_product_attention(")


def as_expected(*causes: ExpectedCause, said: str = "") -> Investigation:
    return Investigation("x", "faults", "", GPT, ("cuda", "b=cuda"), ("beyond-rounding",), causes, said)


def test_the_first_proven_cause_has_to_be_the_one_that_is_expected() -> None:
    found = judged(as_expected(EXPECTED), pair())
    assert (found.verdict, found.wrong) == ("beyond-rounding", "")
    assert found.cause.startswith("aten._flash_attention (forward), gpt.py:")

    suspect = {"status": "suspect", "kind": "kernel", "op": "aten._flash_attention"}
    assert judged(as_expected(EXPECTED), pair(culprits=[suspect])).wrong == "no cause is proven"
    elsewhere = ExpectedCause("attention", "optimizer.step()")
    assert judged(as_expected(elsewhere), pair()).wrong == "expected attention at `optimizer.step()` as the cause"
    assert not judged(as_expected(elsewhere, EXPECTED), pair()).wrong


def test_a_setting_is_a_cause_by_its_key() -> None:
    setting = {"name": "tf32", "what": "all", "values": {"a": "off", "b": "on"}}
    found = pair(culprits=[{"status": "culprit", "kind": "setting", "op": None, "setting": setting}])
    assert judged(as_expected(ExpectedCause(setting="tf32")), found).cause == "tf32: off against on"
    assert not judged(as_expected(ExpectedCause(setting="tf32")), found).wrong
    assert judged(as_expected(ExpectedCause(setting="sdpa")), found).wrong == "expected the setting sdpa as the cause"
    assert judged(as_expected(ExpectedCause("mm")), found).wrong


def test_another_verdict_and_what_is_not_accounted_for_are_wrong() -> None:
    assert (
        "expected beyond-rounding: rounding: little"
        in judged(as_expected(), pair(verdict="rounding", text=["rounding: little"])).wrong
    )
    assert "does not speak of 'q.'" in judged(as_expected(said="q."), pair()).wrong
    assert "account for" in judged(as_expected(), pair(explained=0.5)).wrong
    assert not judged(as_expected(), pair(explained=0.5, unexplained="a suspect has no proof")).wrong


def test_identical_runs_have_no_cause() -> None:
    row = Investigation("x", "settings", "", GPT, ("cuda", "b=cuda"), causes=(ExpectedCause(setting="sdpa"),))
    assert not judged(row, pair(verdict="identical", culprits=[], first_differing_step=None)).wrong


# What becomes of a row.


def test_a_row_whose_needs_are_not_met_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    row = Investigation("x", "settings", "what", GPT, ("cuda", "b=cuda"), needs=("cuda", "sklearn"))
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    outcome, _ = worker.outcome_of(laboratory(tmp_path), row)
    assert outcome.skipped == "scikit-learn is not installed here"
    standin = Laboratory(Device("standin", ""), Commands({}, 0), tmp_path)
    assert worker.outcome_of(standin, row)[0].skipped == "of CUDA alone, not of standin"


def test_a_row_that_fails_is_a_row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert worker.outcome_of(laboratory(tmp_path, 0), ROW)[0].wrong == "was not run: the time was over"

    def broken(*_: object) -> None:
        raise ValueError("broken")

    monkeypatch.setitem(FUNCTIONS, "kernels", broken)
    [row] = [row for row in MEASUREMENTS if row.name == "kernels"]
    outcome, said = worker.outcome_of(laboratory(tmp_path), row)
    assert outcome.wrong == "scripts/gpu fails: ValueError: broken" and "Traceback" in said


def test_a_command_is_ended_with_all_that_it_has_started() -> None:
    waits = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import time; print(1, flush=True); time.sleep(60)'])"
    done = Commands({}, time.monotonic() + 60).python("-c", waits, limit=1.0)
    assert done.code is None and done.why() == f"was ended after {done.seconds:.0f} s"
    assert done.seconds < 30

    done = Commands({"X": "1"}, time.monotonic() + 60).python(
        "-c", "import os; exit('no ' + os.environ['X'])", limit=20
    )
    assert done.why() == "exit code 1: no 1"


def test_stopped_commands_end_and_none_is_left() -> None:
    commands = Commands({}, time.monotonic() + 60)
    commands.stop()
    assert commands.left == 0
    assert commands.python("-c", "import time; time.sleep(60)", limit=30).code in (-signal.SIGTERM, None)


# What is kept and shown.


def outcome(name: str, **changes: Any) -> Outcome:
    plain = {"group": "planted faults", "what": "a fault", "modes": ["cuda", "b=cuda,tf32=on"], "expected": "rounding"}
    return Outcome(name, **{**plain, "found": "rounding", "seconds": 50.0, **changes})


def test_results_are_kept_row_by_row(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    file = ResultsFile(path, Results({"torch": "2.11"}))
    file.add(outcome("b", bare=["k"], within=[4, 30]), 50.0)
    assert [row.name for row in read_results(path).rows] == ["b"]
    file.add(outcome("a", wrong="bad"), 60.0)
    file.add_bare("k", 4.0, 61.0)
    file.order(["a", "b"], 62.0)
    kept = read_results(path)
    assert kept == file.results and [row.name for row in kept.rows] == ["a", "b"]
    assert kept.seconds == 62.0 and not kept.is_as_expected

    assert kept.rows[1].late(kept.bare) == "took 50 s, at most 46 s are allowed"
    assert not kept.rows[1].late({"k": 5.0}) and not kept.rows[1].late({})
    assert kept.count() == "0 rows as expected, 2 not, 0 skipped, 62 s"
    assert seconds_of(kept.rows[1], kept) == "50 (12.5 of 4)"


def test_a_file_that_is_none_of_ours_is_told(tmp_path: Path) -> None:
    for text in ("{", "{}", '{"schema": 7}'):
        (tmp_path / "results.json").write_text(text)
        with pytest.raises(SystemExit, match="holds no results"):
            read_results(tmp_path / "results.json")


def test_a_second_run_does_what_the_first_had_not(tmp_path: Path) -> None:
    rows = [
        outcome("a"),
        outcome("b", wrong="bad"),
        outcome("c", skipped="none here"),
        outcome("d", bare=["k"], within=[1, 0]),
    ]
    first = Results(MACHINE, rows, {"k": 4.0}, 50.0)
    known = first.to_go_on_with(MACHINE | {"date": "2026-12-02"})
    assert [row.name for row in known.rows] == ["a"]
    assert known.bare == {"k": 4.0} and known.machine["date"] == "2026-12-02"
    # when the others are run, in 20 s
    file = ResultsFile(tmp_path / "results.json", known)
    file.add(outcome("b"), 20.0)
    assert file.results.seconds == 70.0
    assert "in 2 sessions" in page(file.results)
    # then another machine's results are none to go on with
    with pytest.raises(SystemExit, match="NVIDIA H100, this is NVIDIA A10"):
        first.to_go_on_with(MACHINE | {"gpu": "NVIDIA A10"})


MACHINE = {
    "date": "2026-12-01", "device": "cuda", "torch": "2.11.0+cu130", "python": "3.12.3", "cores": "16", "jobs": "6",
    "gpu": "NVIDIA H100", "driver": "580", "gpu memory": "81559 MiB",
}  # fmt: skip


def test_the_page_has_every_row_and_what_is_wrong(tmp_path: Path) -> None:
    rows = [
        outcome("a", cause="aten.mm (forward), x.py:1"),
        outcome("b", wrong="a | b"),
        outcome("c", skipped="of CUDA alone"),
        outcome("d", group="other", expected="none fails", found="0 failed"),
    ]
    text = page(Results(MACHINE, rows, {}, 250.0))
    assert "on one NVIDIA H100 (driver 580, 81559 MiB), 16 cores" in text
    assert "on 2026-12-01 with torch 2.11.0+cu130" in text
    assert "2 rows came out as expected, 1 did not, and 1 was skipped; the list took 250 s." in text
    assert "none was skipped" in page(Results(MACHINE, rows[:2], {}, 250.0))
    assert "| a fault | `cuda` `cuda,tf32=on` | rounding | aten.mm (forward), x.py:1 | 50 | yes |" in text
    assert "- *b* (a fault): a \\| b" in text and "- *c* (a fault): of CUDA alone" in text
    assert "| a fault | `cuda` `cuda,tf32=on` | none fails | 0 failed | 50 | yes |" in text
    assert line_of(rows[2]) == "c: skipped, of CUDA alone" and line_of(rows[1]).startswith("b: WRONG, rounding, 50 s")


def test_what_a_folder_has_is_shown_and_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Results(MACHINE, [outcome("a")], {}, 50.0).save(tmp_path / "results.json")
    assert main(["--show", str(tmp_path), "--page", str(tmp_path / "gpu.md")]) == 0
    assert "1 rows as expected" in capsys.readouterr().out
    assert (tmp_path / "gpu.md").read_text().startswith("# On a GPU")
    Results(MACHINE, [outcome("a", wrong="no")], {}, 50.0).save(tmp_path / "results.json")
    assert main(["--show", str(tmp_path)]) == 1


def test_an_unknown_row_and_no_jobs_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in ((["--only", "nope"], "there is no row 'nope'"), (["--jobs", "0"], "--jobs must be at least 1")):
        with pytest.raises(SystemExit):
            main(words)
        assert said in capsys.readouterr().err


def test_evidence_grows_row_by_row(tmp_path: Path) -> None:
    (tmp_path / "runs" / "a").mkdir(parents=True)
    (tmp_path / "runs" / "a" / "investigation.json").write_text("{}")
    (tmp_path / "runs" / "a" / "stderr.log").write_text("why")
    evidence = Evidence(tmp_path)
    evidence.add("none", "said", tmp_path / "runs" / "none", wrong=True)
    evidence.add("a", "said", tmp_path / "runs" / "a", wrong=True)
    names = subprocess.run(
        [sys.executable, "-m", "zipfile", "-l", tmp_path / "evidence.zip"], capture_output=True, text=True, check=True
    ).stdout
    assert all(name in names for name in ("none/said.txt", "a/said.txt", "a/investigation.json", "a/stderr.log"))


# The trainings, and a row of the list as it is run.


@pytest.mark.parametrize("name", ["transformer", "convnet", "experts", "masked", "gpt"])
@pytest.mark.slow
def test_a_training_runs_without_numdrift(name: str) -> None:
    script = ROOT / f"tests/gpu/trainings/{name}.py"
    done = python(ROOT, script, "--device", "cpu", "--steps", "8")
    assert done.returncode == 0, done.stderr
    losses = [float(line.split()[-1]) for line in done.stdout.splitlines() if "loss" in line]
    assert losses and all(map(math.isfinite, losses))
    assert name != "gpt" or A_STEP.search(done.stdout)


@pytest.mark.slow
def test_rows_run_on_the_stand_in(tmp_path: Path) -> None:
    words = ["--device", "standin", "--jobs", "1", "--only", "refused,nan", "--out", str(tmp_path / "out")]
    done = subprocess.run(
        ["bash", str(ROOT / "scripts/gpu"), *words, "--page", str(tmp_path / "gpu.md")],
        env=os.environ | {"PYTHON": sys.executable},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = {row["name"]: row for row in json.loads((tmp_path / "out" / "results.json").read_text())["rows"]}
    assert found["refused"]["found"] == "exit code 3, 1 line" and not found["refused"]["wrong"]
    assert found["nan"]["skipped"] == "of CUDA alone, not of standin"
    assert (tmp_path / "gpu.md").exists()
