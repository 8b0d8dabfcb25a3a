"""The verdict of cpu against `xla`: rounding where there is nothing else, and a fault of torch_xla's own where there is one."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from ..conftest import ROOT, Numdrift

pytestmark = pytest.mark.slow


def test_sam_on_a_tanh_mlp_differs_by_rounding_alone(numdrift: Numdrift, tmp_path: Path) -> None:
    script = ROOT / "reproducers/sam_tanh.py"
    done = numdrift("investigate", script, "--modes", "cpu,xla", "--quick", "--name", "t", "--", "--epochs", "4")
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "runs/t/investigation.json").read_text())
    (pair,) = found["pairs"]
    assert (pair["verdict"], pair["first_differing_step"]) == ("rounding", 0)
    assert pair["score"] < 4


@pytest.mark.exhaustive
def test_the_variance_that_batch_normalization_keeps_is_found_to_be_another(numdrift: Numdrift, tmp_path: Path) -> None:
    # torch_xla 2.9 keeps the biased variance of each batch, torch the unbiased one
    script = ROOT / "tests/xla/scripts/normalized.py"
    done = numdrift("investigate", script, "--modes", "cpu,xla", "--no-confirm", "--no-scripts", "--name", "t")
    assert done.returncode == 1, done.stderr
    found = json.loads((tmp_path / "runs/t/investigation.json").read_text())
    (pair,) = found["pairs"]
    assert (pair["verdict"], pair["first_significant_step"]) == ("beyond-rounding", 0)
    assert "buffer 1.running_var" in pair["text"][0]
    # Its cause is proven both ways; everything else that differs there is rounding.
    (blamed,) = (one for one in pair["culprits"] if one["significance"] == "beyond-rounding")
    assert (blamed["op"], blamed["phase"], blamed["module"]) == ("aten.native_batch_norm", "forward", "1")
    assert (blamed["status"], blamed["kernel"]["a"]) == ("culprit", "aten")
    assert blamed["proof"]["swap_in"]["holds"] and blamed["proof"]["swap_out"]["holds"]
    assert pair["explained"] >= 0.99


@pytest.mark.exhaustive
def test_a_training_that_draws_on_the_device_draws_as_the_cpu_unless_it_is_told_to_draw_itself(
    numdrift: Numdrift, tmp_path: Path
) -> None:
    script = ROOT / "tests/xla/scripts/draws.py"
    modes = ("--mode", "cpu", "--mode", "xla", "--mode", "own=xla,fallback_random=off")
    done = numdrift("investigate", script, *modes, "--quick", "--name", "t")
    assert done.returncode == 1, done.stderr
    found = json.loads((tmp_path / "runs/t/investigation.json").read_text())
    drawn, own = found["pairs"]
    assert drawn["verdict"] == "rounding"
    # what the device mixes into a batch is a part of the step, and off by rounding
    assert "the batch of step 0 differs: argument 0, float32 [64, 8] (rounding)" in drawn["notes"]
    assert own["verdict"] == "different-setup"
    assert "the modes draw different random numbers in step 0" in own["text"][0]
    assert "run an xla mode with fallback_random=on" in own["text"][0]
