"""A packed reference: modes are compared with a training that cannot be repeated here."""

from __future__ import annotations

import json
import shutil
import zipfile
from pathlib import Path

import pytest

from ..conftest import Numdrift

TRAIN = """
import argparse
import torch

parser = argparse.ArgumentParser()
parser.add_argument("--steps", type=int, default=2)
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.Tanh(), torch.nn.Linear(16, 1))
optimizer = torch.optim.Adam(model.parameters(), lr=0.01)
# no drawn numbers: torch.randn has other bits with other instructions
data = (torch.arange(128 * 8) * 7 % 13 / 6 - 1).view(8, 16, 8)
for step in range(parser.parse_args().steps):
    loss = model(data[step]).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
"""
OTHER_BITS = "env.ATEN_CPU_CAPABILITY=default,env.MKL_ENABLE_INSTRUCTIONS=SSE4_2"


@pytest.mark.slow
def test_modes_are_compared_with_a_training_of_another_place(numdrift: Numdrift, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    done = numdrift("reference", "train.py", "--to", "ref.zip", "--steps", "0,3-4", "--", "--steps", "5")
    assert done.returncode == 0 and "ref.zip has 3 of 5 steps (0, 3, 4)" in done.stdout, done.stdout + done.stderr
    names = zipfile.ZipFile(tmp_path / "ref.zip").namelist()
    assert not [name for name in names if name.endswith((".py", ".pkl", ".log")) or "/tape-" in name]
    # given another place: nothing of the reference's runs is there, and the script has changed in a comment
    shutil.rmtree(tmp_path / "runs")
    (tmp_path / "train.py").write_text(TRAIN + "# changed\n")
    # when modes are compared with it, of other instructions and with a wrong kernel
    modes = ["here=cpu", f"other=cpu,{OTHER_BITS}", "bad=cpu,kernel.tanh_backward=bf16"]
    words = [word for mode in modes for word in ("--mode", mode)]
    done = numdrift("investigate", "train.py", *words, "--against", "ref.zip", "--name", "i")
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    assert "the script gets the reference's arguments: --steps 5" in done.stderr
    pairs = {pair["b"]: pair for pair in json.loads((tmp_path / "runs/i/investigation.json").read_text())["pairs"]}
    assert (pairs["here"]["verdict"], pairs["bad"]["verdict"]) == ("identical", "beyond-rounding")
    assert pairs["other"]["verdict"] in ("identical", "rounding")
    assert pairs["bad"]["first_significant_step"] == 0 and {step["step"] for step in pairs["bad"]["steps"]} == {0, 3, 4}
    assert "was trained elsewhere (ref.zip)" in pairs["bad"]["unexplained"]
    # then the reference was not trained, it is not trained again, and its ops are not looked into
    assert not [path.name for path in (tmp_path / "runs/i/evidence").iterdir() if path.name.startswith("cpu-tape")]
    again = numdrift("investigate", "train.py", *words, "--against", "ref.zip", "--name", "i", "--json", "again.json")
    assert again.returncode == 1 and json.loads((tmp_path / "again.json").read_text())["training_runs"] == 0
    done = numdrift("localize", "runs/i/cpu", "runs/i/bad")
    assert done.returncode == 2 and "was trained elsewhere (ref.zip)" in done.stderr, done.stderr


@pytest.mark.slow
def test_the_cause_is_found_where_the_reference_has_its_ops(
    numdrift: Numdrift, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    done = numdrift("reference", "train.py", "--to", "ref.zip", "--steps", "0", "--keep", "ops", "--", "--steps", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    shutil.rmtree(tmp_path / "runs")
    # given a machine with other instructions, on which the ops of the reference give other bits
    for pair in OTHER_BITS.replace("env.", "").split(","):
        monkeypatch.setenv(*pair.split("="))
    modes = ("--mode", "here=cpu", "--mode", "bad=cpu,kernel.tanh_backward=bf16")
    done = numdrift("investigate", "train.py", *modes, "--against", "ref.zip", "--name", "i")
    assert done.returncode == 1 and "Traceback" not in done.stderr, done.stderr
    pairs = {pair["b"]: pair for pair in json.loads((tmp_path / "runs/i/investigation.json").read_text())["pairs"]}
    assert pairs["here"]["verdict"] in ("identical", "rounding")
    [culprit] = pairs["bad"]["culprits"]
    line = next(number for number, text in enumerate(TRAIN.splitlines(), 1) if "loss.backward" in text)
    forward = next(number for number, text in enumerate(TRAIN.splitlines(), 1) if "model(data" in text)
    assert (culprit["op"], culprit["status"]) == ("aten.tanh_backward", "culprit")
    assert culprit["source"].endswith((f"train.py:{line}", f"train.py:{forward}"))
    assert pairs["bad"]["explained"] > 0.99


@pytest.mark.slow
def test_what_is_no_reference_is_refused(numdrift: Numdrift, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(TRAIN)
    (tmp_path / "damaged.zip").write_bytes(b"PK\\x03\\x04 nothing")
    assert numdrift("run", "train.py", "--modes", "cpu", "--name", "plain").returncode == 0
    assert numdrift("bundle", "runs/plain", "--to", "plain.zip").returncode == 0
    for archive, said in {
        "nothing.zip": "there is no reference nothing.zip; `numdrift reference SCRIPT --to nothing.zip` makes one",
        "damaged.zip": "damaged.zip",
        "plain.zip": "plain.zip is no reference; `numdrift reference SCRIPT",
    }.items():
        name = archive.partition(".")[0] + "-against"
        done = numdrift("investigate", "train.py", "--mode", "here=cpu", "--against", archive, "--name", name)
        assert done.returncode in (2, 3) and said in done.stderr and "Traceback" not in done.stderr, done.stderr
    done = numdrift("reference", "train.py", "--to", "plain.zip")
    assert done.returncode == 2 and "plain.zip exists already" in done.stderr, done.stderr
