"""Batches of experiments: what is done is not done again, and what has changed since another batch is shown."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from ..conftest import ROOT, Numdrift

EXPERIMENTS = """
[defaults]
modes = "cpu other=cpu"
localize = "none"
max_steps = 4
processors = 1

[[experiments]]
name = "tiny"
script = "tiny.py"
arguments = { narrow = "", wide = "--width 8" }
"""


@pytest.fixture
def experiments(tiny: Path, tmp_path: Path) -> Path:
    (tmp_path / "tiny.py").write_text(tiny.read_text())
    (tmp_path / "experiments.toml").write_text(EXPERIMENTS)
    return tmp_path / "experiments.toml"


def rows_in(path: Path) -> dict[str, dict[str, Any]]:
    return {row["task"]: row for row in json.loads(path.read_text())["rows"]}


@pytest.mark.exhaustive
def test_a_batch_goes_on_and_is_compared_with_another(numdrift: Numdrift, experiments: Path, tmp_path: Path) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    # when a batch of two tasks is executed, then again with a third, which fails
    first = numdrift("batch", "experiments.toml", "--json", "first.json", "--parquet", "first.parquet")
    experiments.write_text(
        f'{EXPERIMENTS}fails = "--steps 4 --at 1 --then raise"\n'.replace(
            "}\nfails", "}\n[[experiments]]\nname = 'fails'\nscript = 'tiny.py'\narguments"
        )
    )
    second = numdrift("batch", "experiments.toml", "--json", "second.json")

    # then
    assert first.returncode == 0, first.stderr
    assert "2 of 2 tasks to do, on the engine local" in first.stderr
    assert "2 tasks: 2 identical." in first.stdout and "tiny-wide" in first.stdout
    assert {name: row["verdict"] for name, row in rows_in(tmp_path / "first.json").items()} == {
        "tiny-narrow": "identical", "tiny-wide": "identical",
    }  # fmt: skip
    assert parquet.read_table(tmp_path / "first.parquet")["axis_arguments"].to_pylist() == ["narrow", "wide"]
    assert second.returncode == 3, second.stderr
    assert "1 of 3 tasks to do" in second.stderr and "tiny-" not in second.stderr
    rows = rows_in(tmp_path / "second.json")
    assert rows["fails"]["verdict"] == "failed" and "the step went wrong" in rows["fails"]["text"]
    assert json.loads((tmp_path / "second.json").read_text())["reused"] == 2

    # when one of the tasks is investigated anew with another suffix and another mode, and compared
    experiments.write_text(
        EXPERIMENTS.replace(', wide = "--width 8"', "").replace("other=cpu", "'other=cpu,args+=--width 8'")
    )
    refused = numdrift("batch", "experiments.toml")
    third = numdrift("batch", "experiments.toml", "--suffix", "new", "--against", "main", "--json", "third.json")
    again = numdrift("batch", "runs/experiments/new", "--against", "runs/experiments/main")
    same = numdrift("batch", "runs/experiments/main", "--against", "main")

    # then
    assert refused.returncode == 2
    assert "tiny-narrow was done with another version of tiny.py, or with other modes, options or" in refused.stderr
    assert third.returncode == again.returncode == 1, third.stderr
    changes = {change["task"]: change for change in json.loads((tmp_path / "third.json").read_text())["changes"]}
    assert "verdict" in changes["tiny-narrow"]["changed"]
    assert changes["tiny-wide"]["changed"] == changes["fails"]["changed"] == ["only in one"]
    assert "identical -> " in again.stdout and "(no row)" in again.stdout
    assert same.returncode == 0 and "nothing changed" in same.stdout


@pytest.mark.exhaustive
def test_the_batch_of_run_sh_is_executed(numdrift: Numdrift, tmp_path: Path) -> None:
    folder = tmp_path / "reproducers"
    folder.mkdir()
    for name in ("sam_tanh.py", "sam.py"):
        (folder / name).write_text((ROOT / "reproducers" / name).read_text())
    text = (ROOT / "reproducers/founding.toml").read_text()
    (folder / "founding.toml").write_text(text.replace("[defaults]", '[defaults]\nmax_steps = 2\nlocalize = "none"'))

    done = numdrift("batch", "reproducers/founding.toml", "--json", "found.json")

    assert done.returncode == 0, done.stderr
    rows = json.loads((tmp_path / "found.json").read_text())["rows"]
    assert [(row["task"], row["mode"]) for row in rows] == [
        (task, mode) for task in ("sam_tanh-main", "sam_tanh-short") for mode in ("compile", "lazy")
    ]
    assert {row["verdict"] for row in rows} <= {"identical", "rounding"}


@pytest.mark.slow
def test_an_interrupted_batch_goes_on(experiments: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "numdrift", "batch", "experiments.toml"]
    program = f"import os, signal; signal.signal(signal.SIGINT, signal.default_int_handler); os.execv({command[0]!r}, {command!r})"
    batch = tmp_path / "runs/experiments/main"
    process = subprocess.Popen([sys.executable, "-c", program], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not list(batch.glob("tiny-narrow/cpu/journal/events.jsonl")):
        assert time.monotonic() < deadline and process.poll() is None
        time.sleep(0.05)

    second = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)
    done = subprocess.run(command, cwd=tmp_path, env=os.environ, capture_output=True, text=True, check=False)

    assert second.returncode == 2 and "is already driven by process " in second.stderr
    assert process.returncode == 130 and "interrupted. The same command goes on from there." in told
    assert done.returncode == 0, done.stderr
    assert "interrupted" in (batch / "tiny-narrow/task.log").read_text()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["absent.toml"], "absent.toml cannot be read: No such file"),
        (["experiments.toml", "--suffix", "a b"], "--suffix 'a b' cannot be part of a file name"),
        (["experiments.toml", "--engine", "slurm"], "'slurm' is not one of"),
        (["experiments.toml", "--engine-option", "devices"], "is not KEY=VALUE"),
        (["experiments.toml", "--engine-option", "device=0"], "did you mean 'devices'?"),
        (["experiments.toml", "--against", "main"], "main is not a batch"),
        (["."], ". is not a batch; name the TOML file of its experiments"),
        ([".", "--jobs", "2"], ". is a folder, whose table is only shown"),
    ],
)
def test_a_batch_that_cannot_be_run_is_refused(
    numdrift: Numdrift, experiments: Path, tmp_path: Path, words: list[str], said: str
) -> None:
    done = numdrift("batch", *words)

    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "runs").exists()
