"""A command and its trainings that are forked give what they give in processes of their own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from numdrift import load_run

from ..conftest import ROOT
from .forked import numdrift_in, nursery
from .plain import PLAIN, save_plain


def started(folder: Path, *arguments: str | Path, **variables: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "numdrift", *map(str, arguments)],
        cwd=folder,
        env=os.environ | {"COLUMNS": "200"} | variables,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.exhaustive
@pytest.mark.parametrize(("script", "steps"), [("sam_tanh", 3), ("resnet_digits", 2)])
def test_a_forked_training_has_the_bits_of_a_started_one(script: str, steps: int, tmp_path: Path) -> None:
    # given the same training in each mode: started, forked off the nursery, and off the command's preloaded process
    path, modes = ROOT / f"reproducers/{script}.py", ",".join(PLAIN)
    asked = ("run", path, "--modes", modes, "--record", "ops", "--name", "r", "--", "--epochs", str(steps))
    own, forked, preloaded = folders = [tmp_path / name for name in ("started", "forked", "preloaded")]
    for folder in folders:
        folder.mkdir()
    ends = [
        started(own, *asked, NUMDRIFT_PRELOAD="0"),
        numdrift_in(forked, *asked),
        numdrift_in(preloaded, *asked, NUMDRIFT_PRELOAD="1"),
    ]
    assert [end.returncode for end in ends] == [0, 0, 0], [end.stderr for end in ends]
    for mode in PLAIN:
        one, *others = (load_run(folder / "runs" / "r" / mode) for folder in folders)
        # then every digest, value and printed character is the same, and so is what is known of the environment
        for other in others:
            assert one.journal.losses == other.journal.losses
            assert list(one.journal.digests()) == list(other.journal.digests())
            for name, value in one.journal.values(0).items():
                assert value.tobytes() == other.journal.values(0)[name].tobytes(), name
            for log in ("stdout.log", "stderr.log"):
                assert (one.path / log).read_bytes() == (other.path / log).read_bytes()
            assert one.manifest.environment == other.manifest.environment
        # and plain Python, which is started as well, computes the same
        save_plain(tmp_path / f"{mode}.npz", script, mode, steps, alone=True)
        plain, last = np.load(tmp_path / f"{mode}.npz"), one.journal.values(steps - 1)
        assert [step.loss for step in one.journal.steps] == plain["losses"].tolist()
        parameters = [name for name in plain if name.startswith("param/")]
        assert parameters
        for name in parameters:
            assert plain[name].tobytes() == last[name.removeprefix("param/")].tobytes(), name
    # and so is what the command says, but for the seconds
    tables = [[line.rsplit(None, 1)[0] for line in end.stdout.splitlines()] for end in ends]
    assert tables[0] == tables[1] == tables[2]


FACTS = """
import json, os, sys, threading
import torch
print(json.dumps({
    "pid": os.getpid(), "parent": os.getppid(), "session": os.getsid(0), "argv": sys.argv, "path": sys.path[0],
    "threads": [torch.get_num_threads(), threading.active_count()], "open": sorted(os.listdir("/proc/self/fd"))[:3],
    "numdrift": sorted(name for name in sys.modules if name.startswith("click")), "seed": torch.initial_seed(),
}))
"""


@pytest.mark.slow
def test_a_forked_training_is_a_process_as_any_other(tmp_path: Path) -> None:
    (tmp_path / "facts.py").write_text(FACTS)
    found: list[dict[str, Any]] = []
    for run in (numdrift_in, started):
        run(tmp_path, "run", "facts.py", "--modes", "cpu", "--name", run.__name__)
        journal = tmp_path / "runs" / run.__name__ / "cpu"
        found.append(json.loads((journal / "stdout.log").read_text()))
    forked, own = found
    assert forked["session"] == forked["pid"] != forked["parent"]
    for what in own.keys() - {"pid", "parent", "session"}:
        assert forked[what] == own[what], what


@pytest.mark.parametrize(
    ("how", "code"), [("raise SystemExit(7)", 7), ("raise SystemExit('no')", 1), ("1 / 0", 1), ("", 0)]
)
def test_a_forked_script_ends_as_a_started_one(how: str, code: int, tmp_path: Path) -> None:
    (tmp_path / "ends.py").write_text(f"import atexit\natexit.register(print, 'at the end')\nprint('begun')\n{how}\n")
    done = nursery(os.environ.get("OMP_NUM_THREADS", "")).run(["ends.py"], cwd=tmp_path, env=os.environ, timeout=60)
    assert (done.returncode, done.stdout) == (code, b"begun\nat the end\n")
    assert bool(done.stderr) == ("SystemExit(7)" not in how and bool(how))


@pytest.mark.slow
def test_what_may_be_read_at_an_import_is_not_forked(tmp_path: Path) -> None:
    """One thread is what OpenMP is told when it is loaded."""
    (tmp_path / "threads.py").write_text("import torch; print(torch.get_num_threads())\n")
    done = numdrift_in(tmp_path, "run", "threads.py", "--mode", "cpu,threads=1", "--name", "r")
    assert (tmp_path / "runs/r/cpu/stdout.log").read_text() == "1\n", done.stderr


@pytest.mark.slow
def test_a_command_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    (tmp_path / "sleeps.py").write_text("import time\nprint('begun', flush=True)\ntime.sleep(600)\n")
    with pytest.raises(subprocess.TimeoutExpired):
        nursery(os.environ.get("OMP_NUM_THREADS", "")).run(["sleeps.py"], cwd=tmp_path, env=os.environ, timeout=5)
