"""From a script to the op: `numdrift investigate` and `numdrift localize` name what makes modes differ, with proof."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ..conftest import ROOT, Numdrift
from .lazy_bits import lazy_is_eager

SAM_TANH = ROOT / "reproducers" / "sam_tanh.py"
REDRAWN = ROOT / "tests" / "e2e" / "scripts" / "redrawn.py"


def pairs_of(folder: Path) -> dict[str, Any]:
    found = json.loads((folder / "investigation.json").read_text())
    return {pair["b"]: pair for pair in found["pairs"]}


@pytest.mark.slow
def test_the_founding_case(numdrift: Numdrift, tmp_path: Path) -> None:
    # when
    modes = [*("--modes", "cpu,compile,lazy"), *("--mode", "bf16=lazy,kernel.tanh_backward=bf16")]
    asked = ("investigate", SAM_TANH, *modes, "--name", "s")
    done = numdrift(*asked, "--", "--epochs", "3", timeout=600)
    assert done.returncode == 1, done.stderr
    found = json.loads((tmp_path / "runs" / "s" / "investigation.json").read_text())
    pairs = pairs_of(tmp_path / "runs" / "s")

    # then lazy computes what eager computes, up to what a library makes of copies in place of transposed views
    is_eager = lazy_is_eager(numdrift, "runs/s", SAM_TANH, "--epochs", "3")
    assert pairs["lazy"]["verdict"] == ("identical" if is_eager else "rounding")
    named = {(one["op"], one["kind"], one["status"]) for one in pairs["lazy"]["culprits"]}
    assert named <= {("aten.addmm", "layout", "culprit"), ("aten.mm", "kernel", "culprit")} and bool(named) != is_eager

    # and compile differs by rounding, from the decomposed tanh_backward and from generated code
    compiled = pairs["compile"]
    assert compiled["verdict"] == "rounding" and "rounding" in done.stdout
    assert compiled["first_differing_step"] == 0
    assert 0 < compiled["score"] < 16
    assert compiled["closer_to_fp64"] in ("cpu", "compile", "equal")
    by_op = {culprit["op"]: culprit for culprit in compiled["culprits"]}
    backward = by_op["aten.tanh_backward"]
    assert backward["phase"] == "backward" and backward["kind"] == "kernel"
    assert backward["ops"] == {"a": ["tanh_backward"], "b": ["mul", "sub", "mul"]}
    assert set(backward["places"]) == {"layers.1", "layers.3"}
    assert backward["kernel"] == {"a": "aten", "b": "decomposed"}
    assert by_op["aten.tanh"]["phase"] == "forward"
    assert by_op["aten.tanh"]["kernel"] == {"a": "aten", "b": "inductor"}
    for culprit in compiled["culprits"]:
        assert culprit["significance"] == "rounding"
        assert culprit["status"] == "culprit"
        assert culprit["proof"]["swap_in"]["score_after"] > 0
        assert culprit["proof"]["swap_out"]["score_without_all"] == 0
        assert culprit["script"]["reproduces"], culprit["script"]

    # and trained to the end with eager's kernels it is eager
    assert compiled["without"]["identical"] and compiled["without"]["inside"]
    assert "compile equals cpu bit for bit" in done.stdout

    # and the planted kernel, and nothing else, is what is wrong in the other lazy run
    bf16 = pairs["bf16"]
    assert bf16["verdict"] == "beyond-rounding"
    [planted] = bf16["culprits"]
    assert (planted["op"], planted["phase"], planted["kind"]) == ("aten.tanh_backward", "backward", "kernel")
    assert planted["kernel"] == {"a": "aten", "b": "bf16"}
    assert planted["significance"] == planted["local_significance"] == "beyond-rounding"
    assert planted["proof"]["swap_out"] == {
        "holds": True,
        "score_before": planted["proof"]["swap_in"]["score_after"],
        "score_after": 0.0,
        "score_without_all": 0.0,
    }
    assert "aten.tanh_backward in the backward of" in done.stdout

    assert bf16["without"]["identical"] == is_eager and bf16["without"]["inside"]
    assert bf16["without"]["swaps"] == ["without kernel.tanh_backward=bf16"]

    # and its script shows it without numdrift
    script = tmp_path / planted["script"]["path"]
    assert len(script.read_text().splitlines()) <= 60
    alone = subprocess.run([sys.executable, "-I", script], capture_output=True, text=True, check=False)
    assert alone.returncode == 0, alone.stdout + alone.stderr

    # and a second call runs nothing again, and says the same
    repeated = json.loads(numdrift(*asked, "--json", "-", "--", "--epochs", "3").stdout)
    assert repeated["training_runs"] == 0
    assert repeated["pairs"] == found["pairs"]
    # and compare reads the evidence
    compared = numdrift("compare", "runs/s", "--json", "-")
    assert compared.returncode == 1
    assert json.loads(compared.stdout)["pairs"] == found["pairs"]
    again = numdrift("localize", "runs/s/cpu", "runs/s/bf16")
    assert again.returncode == 1, again.stderr
    assert "0 training runs" in again.stdout
    assert pairs_of(tmp_path / "runs" / "s").keys() == pairs.keys()

    # and other steps can be looked into, but none without a state
    assert numdrift("localize", "runs/s/cpu", "runs/s/bf16", "--step", "2", "--quiet").returncode == 1
    # one whose localization has gone, as after an interruption, is looked into again, although nobody holds its processes
    [gone] = (tmp_path / "runs" / "s" / "evidence").glob("bf16-localized-cpu-*2")
    shutil.rmtree(gone)
    assert numdrift("localize", "runs/s/cpu", "runs/s/bf16", "--step", "2", "--quiet").returncode == 1
    assert (gone / "localization.json").exists()
    refused = numdrift("localize", "runs/s/cpu", "runs/s/bf16", "--step", "7")
    assert refused.returncode == 2
    assert refused.stderr.splitlines()[-1].startswith("numdrift: step 7 was not started from the reference's state")


@pytest.mark.slow
def test_a_lazy_graph_that_is_executed_again_draws_again(numdrift: Numdrift, tmp_path: Path) -> None:
    done = numdrift("investigate", REDRAWN, "--mode", "cpu", "--mode", "lazy,mark_step=step", "--name", "r")
    assert done.returncode == 1, done.stderr
    pair = pairs_of(tmp_path / "runs" / "r")["lazy"]
    assert pair["verdict"] == "beyond-rounding"
    # then what was executed again is on the tape of the graphs that were executed, and proven there
    culprit = pair["culprits"][0]
    assert (culprit["kind"], culprit["op"], culprit["status"]) == ("structure", "aten.native_dropout", "culprit")
    assert culprit["module"] == "2" and "executed again, 5 times in all" in " ".join(culprit["reasons"])
    assert culprit["proof"]["swap_out"]["score_after"] <= pair["threshold"] < culprit["proof"]["swap_in"]["score_after"]
    # and a cut in another place is its remedy
    assert culprit["swapped"] == "mark_step=phase"
    assert pair["without"]["swaps"] == ["mark_step=phase"]


def test_localize_takes_two_runs_of_one_investigation(numdrift: Numdrift, tiny: Path, tmp_path: Path) -> None:
    for name in ("one", "two"):
        assert numdrift("run", tiny, "--modes", "cpu", "--name", name).returncode == 0
    refused = numdrift("localize", "runs/one/cpu", "runs/two/cpu")
    assert refused.returncode == 2
    assert "are not two runs of one investigation" in refused.stderr
    assert refused.stderr.count("\n") == 1
    same = numdrift("localize", "runs/one/cpu", "runs/one/cpu")
    assert same.returncode == 2
    missing = numdrift("localize", "runs/one/cpu", "runs/one/compile")
    assert missing.returncode == 2
    assert "runs/one/compile" in missing.stderr


ENDS_WITHOUT = """
import runpy, sys
from pathlib import Path

# Of all trainings of an investigation only the one without the culprits fails.
if any(Path("runs").rglob("*without*")):
    raise ValueError("planted")
sys.argv = [TINY, "--steps", "4"]
runpy.run_path(TINY, run_name="__main__")
"""


@pytest.mark.slow
def test_a_training_without_the_culprits_that_fails_takes_nothing_from_what_is_proven(
    numdrift: Numdrift, tiny: Path, tmp_path: Path
) -> None:
    script = tmp_path / "train.py"
    script.write_text(ENDS_WITHOUT.replace("TINY", repr(str(tiny))))
    modes = ["--mode", "cpu", "--mode", "bad=cpu,kernel.tanh_backward=bf16"]
    done = numdrift("investigate", script, *modes, "--no-scripts", "--name", "f")
    assert done.returncode == 1, done.stdout + done.stderr
    pair = pairs_of(tmp_path / "runs" / "f")["bad"]
    assert pair["verdict"] == "beyond-rounding"
    assert [one["op"] for one in pair["culprits"]] == ["aten.tanh_backward"]
    assert pair["culprits"][0]["proof"]["swap_out"]["holds"]
    assert pair["without"]["status"] == "crashed" and not pair["without"]["identical"]
    said = "trained to the end without kernel.tanh_backward=bf16, bad ended in its first step: crashed, ValueError: planted"
    assert said in pair["without"]["text"] and said in done.stdout
