from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from numdrift.harness.errors import JournalError
from numdrift.harness.launch.guest_process import PACKAGE
from numdrift.harness.runs.step_outcomes import read_exact
from numdrift.harness.tape.files.tape_file import write_tape
from numdrift.harness.tape.files.tensor_file import read_tensors, write_tensors
from numdrift.harness.tape.replaying.in_double import exact_values, write_exact
from numdrift.harness.tape.tape import Tape

from .trainings import recorded, started


def judged(folder: Path, tapes: list[Path]) -> subprocess.CompletedProcess[str]:
    config = folder / "referee.json"
    config.write_text(json.dumps({"tapes": [str(path) for path in tapes], "kernels": []}))
    command = [
        sys.executable,
        str(PACKAGE / "harness/recorder/bootstrap.py"),
        str(PACKAGE),
        str(config),
        "numdrift.harness.recorder.referee_process",
    ]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


def data_dependent() -> Tape:
    """A step in which float32 selects as many elements as double does not."""
    with recorded() as recorder:
        root = torch.full((3,), 3.0).sqrt()
        selected = torch.masked_select(root, root.square() == 3.0)
        recorder.watch("loss 0", selected.reshape(selected.numel(), 1).expand(-1, 2).reshape(-1).sum())
        recorder.watch("loss 1", selected.view(-1) + torch.ones(selected.shape))
    return recorder.tape()


def test_the_referee_writes_the_exact_values_beside_each_tape(tmp_path: Path) -> None:
    # given a tape that double can execute, one that it can in part, and one in which it makes another choice
    tapes = {"transformer": started("transformer").taped(3), "lstm": started("lstm").taped(4)}
    paths = []
    for tape in tapes.values():
        paths.append(tmp_path / f"tape-{tape.step:06d}.safetensors")
        write_tape(paths[-1], tape)
    # when
    done = judged(tmp_path, paths)
    # then
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    values, facts = read_tensors(tmp_path / "exact-000003.safetensors")
    assert facts == {
        "schema": 1,
        "step": 3,
        "calls": len(tapes["transformer"].calls),
        "not_exact": [],
        "reason": None,
    }
    expected, _ = exact_values(tapes["transformer"])
    assert set(values) == set(expected)
    assert all(values[name].dtype == torch.float64 for name in values)
    assert all(torch.allclose(values[name], one, rtol=1e-13, atol=1e-18) for name, one in expected.items())
    _, facts = read_tensors(tmp_path / "exact-000004.safetensors")
    assert facts["not_exact"] == ["aten.mkldnn_rnn_layer.default", "aten.mkldnn_rnn_layer_backward.default"]


def test_a_step_that_double_takes_otherwise_has_a_reason(tmp_path: Path) -> None:
    path = tmp_path / "tape-000000.safetensors"
    write_tape(path, data_dependent())
    assert judged(tmp_path, [path]).returncode == 0
    values, facts = read_tensors(tmp_path / "exact-000000.safetensors")
    assert values == {} and facts["reason"].startswith("the step does not replay in double")


def test_a_damaged_tape_is_said_in_one_line_and_the_others_are_judged(tmp_path: Path) -> None:
    good, bad = tmp_path / "tape-000001.safetensors", tmp_path / "tape-000000.safetensors"
    write_tape(good, started("sam").taped(1))
    bad.write_bytes(b"no tape")
    done = judged(tmp_path, [bad, good, tmp_path / "tape-000009.safetensors"])
    assert done.returncode == 3
    lines = done.stderr.strip().splitlines()
    assert len(lines) == 2 and str(bad) in lines[0] and "tape-000009" in lines[1]
    assert (tmp_path / "exact-000001.safetensors").exists()


def test_a_configuration_without_tapes_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "referee.json"
    config.write_text("{}")
    done = subprocess.run(
        [
            sys.executable,
            str(PACKAGE / "harness/recorder/bootstrap.py"),
            str(PACKAGE),
            str(config),
            "numdrift.harness.recorder.referee_process",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 3 and done.stderr == f"numdrift: {config}: names no tapes\n"


def test_of_a_large_value_the_distance_from_the_outcome_is_kept(tmp_path: Path) -> None:
    # given
    torch.manual_seed(0)
    weight = torch.randn(512, 640)
    with recorded() as recorder:
        recorder.watch("gradient 0 w", torch.tanh(weight @ weight.T) @ weight)
        recorder.watch("loss 0", weight.square().mean())
    tape = recorder.tape()
    # when
    (tmp_path / "tapes").mkdir()
    (tmp_path / "outcomes").mkdir()
    assert write_exact(tape, tmp_path / "tapes" / "exact-000000.safetensors") is None
    write_tensors(tmp_path / "outcomes" / "outcome-000000.safetensors", tape.expected(), {"step": 0})
    # then
    exact = read_exact(tmp_path, 0)
    assert exact is not None and exact.dtypes == {"gradient 0 w": "float64", "loss 0": "float64"}
    assert dict(exact.tensors).keys() == {"gradient 0 w", "loss 0"} and len(exact.tensors) == 2
    true = (torch.tanh(weight.double() @ weight.double().T) @ weight.double()).numpy()
    recorded_value = tape.expected()["gradient 0 w"].numpy().astype(np.float64)
    farthest = np.abs(exact.tensors["gradient 0 w"] - true).max()
    error = np.abs(recorded_value - true).max()
    assert error > 0 and farthest <= 2**-24 * error
    size = (tmp_path / "tapes" / "exact-000000.safetensors").stat().st_size
    assert size < weight.nbytes + 2000


def test_a_distance_without_its_outcome_is_refused(tmp_path: Path) -> None:
    for folder in ("tapes", "outcomes"):
        (tmp_path / folder).mkdir()
    outcome = tmp_path / "outcomes" / "outcome-000000.safetensors"
    write_tensors(tmp_path / "tapes" / "exact-000000.safetensors", {"w": torch.ones(3)}, {"step": 0, "apart": ["w"]})
    with pytest.raises(JournalError, match="step 0 was not kept"):
        read_exact(tmp_path, 0)
    for other in ({"w": torch.ones(2)}, {"v": torch.ones(3)}):
        write_tensors(outcome, other, {"step": 0})
        with pytest.raises(JournalError, match="does not belong to the step's outcome"):
            read_exact(tmp_path, 0)
