"""What the bring-up tools say of mode `xla`: operators and HLO, and the work of its graphs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from numdrift import load_run

from ..conftest import ROOT, Numdrift

pytestmark = pytest.mark.slow


def test_an_operator_that_falls_back_is_named_and_the_others_have_their_hlo(numdrift: Numdrift, tmp_path: Path) -> None:
    script, report = ROOT / "reproducers/analyze_unsupported.py", tmp_path / "result.json"
    done = numdrift("analyze", script, "--mode", "xla", "--analyze-verbosity", "1", "--output", report)
    assert done.returncode == 0, done.stderr
    found = json.loads(report.read_text())
    assert (found["torch_xla_version"], found["support_percentage"]) == ("2.9.0", "83.33%")
    assert found["supported_operators"]["aten"] == {"aten::add": 1, "aten::mul": 1}
    (unsupported,) = found["unsupported_operators"]["aten"]
    assert (unsupported["kind"], unsupported["failureAt"]) == ("aten::_fft_r2c", "xla lowering")
    assert "f32[4]{0} add(f32[4]{0}, f32[4]{0})" in found["supported_operators"]["hlo"]


def test_layers_of_known_shapes_are_not_compiled_again_op_by_op(numdrift: Numdrift, tmp_path: Path) -> None:
    script = ROOT / "tests/e2e/scripts/two_layers.py"
    modes = ("--mode", "xla", "--mode", "op=xla,execute=op")
    how = ("--metrics", "--record", "losses", "--name", "t", "--jobs", "2")
    done = numdrift("run", script, *modes, *how, "--", "--layers", "4", "--show", "output2,output1")
    assert done.returncode == 0, done.stderr
    whole, op = (
        json.loads(numdrift("metrics", tmp_path / "runs/t", "--mode", mode, "--json", "-").stdout)["runs"][0]
        for mode in ("xla", "op")
    )
    # whole graphs: one for each print, and one for what is left of each of three steps
    assert (whole["compiled"]["count"], whole["cache"]["hits"], whole["executed"]["count"]) == (5, 0, 5)
    # ops: what copies the parameters, then two for each layer, of which the fourth has the shapes of the second
    assert (op["compiled"]["count"], op["cache"]["hits"], op["executed"]["count"]) == (12, 5, 17)


def test_a_kernel_is_swapped_and_xla_contracts_what_is_written_with_two_roundings(
    numdrift: Numdrift, tmp_path: Path
) -> None:
    kernels = ("mac", "decomposed")
    single = [word for one in kernels for word in ("--mode", f"{one}=xla,kernel.tanh_backward={one}")]
    script = ROOT / "tests/xla/scripts/plain.py"
    done = numdrift("run", script, "--mode", "xla", *single, "--name", "t", "--jobs", "2")
    assert done.returncode == 0, done.stderr
    runs = {mode: load_run(tmp_path / "runs/t" / mode) for mode in ("xla", *kernels)}
    assert [runs[one].manifest.swaps[0]["calls"]["backward"] for one in kernels] == [5, 5]
    digests = {mode: list(run.journal.digests()) for mode, run in runs.items()}
    assert digests["mac"] != digests["xla"] == digests["decomposed"]


def test_a_profile_has_the_cuts(numdrift: Numdrift, tmp_path: Path) -> None:
    script = ROOT / "tests/xla/scripts/plain.py"
    done = numdrift("profile", script, "--modes", "xla", "--name", "p")
    assert done.returncode == 0, done.stderr
    assert "mark_step" in (tmp_path / "runs/p/xla/profile/trace.json").read_text()
