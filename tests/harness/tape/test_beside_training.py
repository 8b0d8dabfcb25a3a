from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from numdrift.harness.launch.guest_process import guest_command
from numdrift.harness.tape.files.tape_file import exact_file, noise_file, tape_file, write_tape
from numdrift.harness.tape.files.tensor_file import read_tensors
from numdrift.harness.tape.replaying.beside_training import awaits_replays, measure
from numdrift.harness.tape.replaying.ensemble import measure_noise, write_noise
from numdrift.harness.tape.replaying.in_double import exact_values
from numdrift.harness.tape.tape import Tape

from .trainings import started


def left_by_training(folder: Path, tape: Tape) -> None:
    """What a training leaves of a step: its tape, and that it reproduces its own bits."""
    write_tape(tape_file(folder, tape.step), tape)
    write_noise(folder, measure_noise(tape, 0))


def noise_of(folder: Path, step: int) -> dict[str, object]:
    found: dict[str, object] = json.loads(noise_file(folder, step).read_text())
    return found


def test_a_step_is_replayed_and_held_against_double(tmp_path: Path) -> None:
    tape = started("mlp").taped(3)
    left_by_training(tmp_path, tape)
    assert awaits_replays(tmp_path, 3)
    # when
    measure(tmp_path, 3, replays=8, threads=1)
    # then it is the noise that the training would have measured, in one thread
    expected = measure_noise(tape, 8, threads=1)
    found = noise_of(tmp_path, 3)
    assert found["replays"] == 8 and found["equal"] is True
    assert found["tensors"] == expected.to_json()["tensors"]
    assert not awaits_replays(tmp_path, 3)
    values, _ = read_tensors(exact_file(tape_file(tmp_path, 3)))
    exact, _ = exact_values(tape)
    assert values.keys() == exact.keys()
    assert all(torch.allclose(values[name], one, rtol=1e-9, atol=1e-9) for name, one in exact.items())


def test_a_step_by_other_kernels_is_left_to_the_process_that_has_them(tmp_path: Path) -> None:
    # given a step that gave other bits than this process's kernels give
    tape = started("mlp").taped(3)
    one, *others = tape.watched
    write_tape(tape_file(tmp_path, 3), replace(tape, watched=(replace(one, value=one.value * 1.5), *others)))
    write_noise(tmp_path, measure_noise(tape, 0))
    before = noise_of(tmp_path, 3)
    # when
    measure(tmp_path, 3, replays=8, threads=1)
    # then
    assert noise_of(tmp_path, 3) == before and awaits_replays(tmp_path, 3)


def test_what_was_measured_of_a_tape_that_is_gone_is_not_written(tmp_path: Path) -> None:
    """A training that is made anew replaces its folder while its former tape is measured."""
    tape, made_anew = started("mlp").taped(3), tmp_path / "anew"
    made_anew.mkdir()
    left_by_training(made_anew, tape)
    left_by_training(tmp_path, tape)
    before = noise_of(tmp_path, 3)

    class Replaced(type(tmp_path)):  # type: ignore[misc]
        """The folder, in which the tape is another one from the second look on."""

        looks = 0

        def stat(self, *, follow_symlinks: bool = True) -> object:
            if self.suffix == ".safetensors" and self.name.startswith("tape-"):
                Replaced.looks += 1
                if Replaced.looks > 1:
                    shutil.copyfile(tape_file(made_anew, 3), tmp_path / "copy")
                    (tmp_path / "copy").replace(tmp_path / self.name)
            return super().stat(follow_symlinks=follow_symlinks)

    measure(Replaced(tmp_path), 3, replays=2, threads=1)
    assert Replaced.looks > 1 and noise_of(tmp_path, 3) == before


def test_the_process_waits_for_the_steps_and_ends_with_the_last(tmp_path: Path) -> None:
    tapes = [started("mlp").taped(step) for step in (2, 5)]
    left_by_training(tmp_path, tapes[0])
    write_tape(tape_file(tmp_path, 4), tapes[1])  # of which the training has not said yet whether it replays
    config = tmp_path / "noise.json"
    told = {"tapes": str(tmp_path), "steps": [2, 4, 5], "replays": 3, "threads": 1, "ended": str(tmp_path / "ended")}
    config.write_text(json.dumps(told))
    command = guest_command(config, module="numdrift.harness.tape.replaying.beside_training")
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            until = time.monotonic() + 60
            while awaits_replays(tmp_path, 2) and time.monotonic() < until:
                time.sleep(0.05)
            assert noise_of(tmp_path, 2)["replays"] == 3
            assert process.poll() is None  # it waits for the others
            # a damaged tape costs its own answer
            write_noise(tmp_path, measure_noise(replace(tapes[1], step=4), 0))
            tape_file(tmp_path, 4).write_bytes(b"no tape")
            left_by_training(tmp_path, tapes[1])
            _, said = process.communicate(timeout=60)
        finally:
            process.kill()
    assert noise_of(tmp_path, 5)["replays"] == 3
    assert "step 4 could not be measured here" in said
    assert process.returncode == 3


@pytest.mark.slow
def test_the_process_ends_once_no_further_tape_comes(tmp_path: Path) -> None:
    # given one step by other kernels, which stays open, one that is to be measured, and one that never comes
    tape = started("mlp").taped(2)
    one, *others = tape.watched
    write_tape(tape_file(tmp_path, 2), replace(tape, watched=(replace(one, value=one.value * 1.5), *others)))
    write_noise(tmp_path, measure_noise(tape, 0))
    left_by_training(tmp_path, started("mlp").taped(5))
    config, ended = tmp_path / "noise.json", tmp_path / "ended"
    ended.touch()
    told = {"tapes": str(tmp_path), "steps": [2, 5, 9], "replays": 3, "threads": 1, "ended": str(ended)}
    config.write_text(json.dumps(told))
    # when
    command = guest_command(config, module="numdrift.harness.tape.replaying.beside_training")
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    # then
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert awaits_replays(tmp_path, 2) and noise_of(tmp_path, 5)["replays"] == 3


@pytest.mark.slow
def test_a_configuration_that_says_nothing_is_refused(tmp_path: Path) -> None:
    config = tmp_path / "noise.json"
    config.write_text("{}")
    command = guest_command(config, python=sys.executable, module="numdrift.harness.tape.replaying.beside_training")
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 3
    assert done.stderr.startswith(f"numdrift: {config}: does not say what to measure")
