"""Settings of torch's kernels, from the command line to the training without them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from ..conftest import ROOT, Numdrift

SCRIPT = ROOT / "tests" / "e2e" / "scripts" / "two_settings.py"
LINE = next(number for number, line in enumerate(SCRIPT.read_text().splitlines(), 1) if "mkldnn" in line)


@pytest.mark.slow
def test_a_setting_is_one_cause_with_the_line_that_set_it_and_the_training_without_it_is_the_reference(
    numdrift: Numdrift, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # On a busy machine several threads now and then compute the first call of a function wrongly (pytorch#188792).
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    done = numdrift(
        *("investigate", SCRIPT, "--mode", "cpu", "--mode", "plain=cpu,env.PLAIN=1"),
        *("--mode", "stated=cpu,mkldnn=off", "--mode", "deaf=cpu,env.PLAIN=1,mkldnn=on", "--name", "i"),
    )
    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads((tmp_path / "runs" / "i" / "investigation.json").read_text())
    plain, stated, deaf = found["pairs"]
    for pair in (plain, stated):
        [culprit] = pair["culprits"]
        assert (culprit["kind"], culprit["status"], culprit["sites"]) == ("setting", "culprit", 4)
        assert culprit["setting"]["values"] == {"a": "on", "b": "off"} and culprit["swapped"] == "mkldnn=on"
        assert culprit["proof"]["swap_in"]["holds"] and culprit["proof"]["swap_out"]["holds"]
        assert pair["explained"] == 1.0
        # trained to the end with the setting of the reference
        assert pair["without"]["identical"] and pair["without"]["swaps"] == ["mkldnn=on"]
        script = tmp_path / culprit["script"]["path"]
        assert culprit["script"]["reproduces"] and "torch.backends.mkldnn.enabled = False" in script.read_text()
        subprocess.run([sys.executable, script], check=True, capture_output=True, cwd=script.parent)
    assert plain["culprits"][0]["source"] == f"{SCRIPT}:{LINE}"
    said = f"all 4 calls of convolution and convolution_backward differ because mkldnn is off ({SCRIPT.name}:{LINE})"
    assert said in done.stdout
    assert "mkldnn is off (set by the mode), on in cpu" in done.stdout
    # what the mode states is not undone by the script
    assert deaf["verdict"] == "identical" and not deaf["culprits"]
    assert "mkldnn=off, overridden by the mode's mkldnn=on" in done.stderr


def test_a_setting_without_an_effect_is_refused_in_one_line(numdrift: Numdrift, tmp_path: Path) -> None:
    done = numdrift("run", SCRIPT, "--mode", "cpu", "--mode", "fast=cpu,tf32=on")
    assert done.returncode == 2 and not (tmp_path / "runs").exists()
    assert done.stderr.count("\n") == 1 and "matmul_precision=high or medium" in done.stderr
