"""Each run has a working folder of its own: no run sees what another wrote, and the user's files stay as they are."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from numdrift import load_run
from numdrift.harness.launch.preloaded import SWITCH

from ..conftest import ROOT, Numdrift
from ..processes.forked import numdrift_in, nursery

SCRIPT = ROOT / "tests" / "e2e" / "scripts" / "keeps_files.py"
MODES = ("--mode", "cpu", "--mode", "b=cpu")

NAMESPACE = """
import ctypes, sys
libc = ctypes.CDLL(None)
sys.exit(libc.unshare(0x00020000) != 0 and libc.unshare(0x10020000) != 0)
"""
"""Leaves the mounts of everybody else: by itself, or with a user namespace."""


def gives_namespaces() -> bool:
    """Whether this system gives processes mounts of their own, and knows overlays: asked of the system, not of us."""
    if sys.platform != "linux" or "overlay" not in Path("/proc/filesystems").read_text():
        return False
    return subprocess.run([sys.executable, "-c", NAMESPACE], check=False).returncode == 0


pytestmark = pytest.mark.skipif(not gives_namespaces(), reason="this system has no mounts of a process's own")


@pytest.fixture
def here(tmp_path: Path) -> Path:
    """The script in the current folder, with files that it removes, changes and renames."""
    shutil.copy(SCRIPT, tmp_path / "train.py")
    (tmp_path / "data.txt").write_text("data")
    (tmp_path / "gone.txt").write_text("gone")
    (tmp_path / "old").mkdir()
    (tmp_path / "old" / "one.txt").write_text("one")
    return tmp_path


def manifest(folder: Path, run: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "runs" / run / "run.json").read_text())
    return found


def everything(folder: Path) -> dict[str, str]:
    """The user's files with their contents."""
    files = [path for path in folder.rglob("*") if path.is_file() and path.relative_to(folder).parts[0] != "runs"]
    return {str(path.relative_to(folder)): path.read_text() for path in files}


@pytest.mark.slow
def test_no_run_sees_what_another_wrote(numdrift: Numdrift, here: Path) -> None:
    before = everything(here)
    done = numdrift("run", "train.py", *MODES, "--name", "s")
    assert done.returncode == 0, done.stderr
    # the second mode has not resumed from the first one's checkpoint, and the folder is what it was
    one, other = (load_run(here / "runs" / "s" / mode) for mode in ("cpu", "b"))
    assert one.journal.losses == other.journal.losses
    assert everything(here) == before
    # each saw its own folder, at its own path
    assert "resumed" not in (other.path / "stdout.log").read_text()
    seen = "['data.txt', 'older', 'snapshot.pt', 'train.py']"
    assert (other.path / "stdout.log").read_text().splitlines()[-1] == seen
    # what it wrote is told, and thrown away
    files = manifest(here, "s/b")["files"]
    assert files["own"] is True
    assert {(each["path"], each["what"]) for each in files["written"]} == {
        ("snapshot.pt", "written"),
        ("data.txt", "changed"),
        ("gone.txt", "removed"),
        ("older/one.txt", "written"),
        ("old", "removed"),
    }
    assert "cpu, b: wrote snapshot.pt (" in done.stdout and "--keep-files" in done.stdout
    assert "data.txt, older/one.txt, removed gone.txt, old in its own working folder" in done.stdout
    assert not (other.path / "written").exists() and not (other.path / "files").exists()


@pytest.mark.slow
def test_what_a_run_wrote_is_kept_on_demand(numdrift: Numdrift, here: Path) -> None:
    done = numdrift("run", "train.py", "--modes", "cpu", "--name", "s", "--keep-files")
    assert done.returncode == 0, done.stderr
    kept = here / "runs/s/cpu/files"
    found = sorted(str(path.relative_to(kept)) for path in kept.rglob("*") if path.is_file())
    assert found == ["data.txt", "older/one.txt", "snapshot.pt"]
    assert (kept / "data.txt").read_text() == "written over"
    assert not (here / "snapshot.pt").exists() and "files/ of each run" in done.stdout


@pytest.mark.slow
def test_in_place_the_script_writes_to_the_users_folder(numdrift: Numdrift, here: Path) -> None:
    done = numdrift("run", "train.py", *MODES, "--name", "s", "--in-place")
    assert done.returncode == 0, done.stderr
    assert (here / "snapshot.pt").exists() and not (here / "old").exists()
    assert (here / "runs/s/b/stdout.log").read_text().startswith("resumed")
    # that one run had a file from the other is said, in `compare` as well
    snapshot = (here / "snapshot.pt").resolve()
    assert f"b read {snapshot}, which cpu had written" in done.stdout
    compared = numdrift("compare", "runs/s/cpu", "runs/s/b")
    assert f"b read {snapshot}, which cpu had written" in compared.stdout
    # and with --pass-through it is python's own behaviour
    (here / "snapshot.pt").unlink()
    passed = numdrift("run", "train.py", "--modes", "cpu", "--name", "p", "--pass-through")
    assert passed.returncode == 0 and (here / "snapshot.pt").exists()


@pytest.mark.slow
def test_what_is_written_elsewhere_is_named(numdrift: Numdrift, here: Path, tmp_path_factory: Any) -> None:
    elsewhere = tmp_path_factory.mktemp("elsewhere") / "snapshot.pt"
    asked = ("investigate", "train.py", *MODES, "--name", "s", "--", "--checkpoint", elsewhere)
    done = numdrift(*asked, timeout=300)
    # the two run side by side: whichever comes to it later has it from the other
    both = [manifest(here, f"s/{mode}")["files"] for mode in ("cpu", "b")]
    assert [[each["path"] for each in files["outside"]] for files in both] == [[str(elsewhere)]] * 2
    assert (
        f"read {elsewhere}, which " in done.stdout and "had written: differences may come from that file" in done.stdout
    )
    assert done.returncode == 1


@pytest.mark.slow
def test_an_investigation_repeats_what_resumes(numdrift: Numdrift, here: Path) -> None:
    before = everything(here)
    done = numdrift("investigate", "train.py", *MODES, "--name", "s", timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "identical" in done.stdout and everything(here) == before
    assert not list((here / "runs").rglob("written"))


@pytest.mark.slow
def test_a_recorded_run_is_repeated_as_it_was(
    numdrift: Numdrift, here: Path, monkeypatch: pytest.MonkeyPatch, tmp_path_factory: Any
) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    assert numdrift("run", "train.py", *MODES, "--name", "s").returncode == 0
    # from another folder, and with another number of threads in the shell
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    command = ["-m", "numdrift", "investigate", str(here / "runs" / "s")]
    shell = os.environ | {SWITCH: "0", "OMP_NUM_THREADS": "2"}
    done = nursery("1").run(command, cwd=elsewhere, env=shell, timeout=300)
    assert done.returncode == 0, done.stdout + done.stderr
    again = json.loads((here / "runs/s/evidence/cpu-again/run.json").read_text())
    assert again["environment"]["environment"]["OMP_NUM_THREADS"] == "1"
    # and where its folder is gone, that is said before anything starts
    config = here / "runs/s/cpu/config.json"
    config.write_text(config.read_text().replace(f'"folder": "{here}"', '"folder": "/no/such/folder"'))
    shutil.rmtree(here / "runs/s/evidence")
    refused = numdrift("investigate", here / "runs" / "s")
    assert refused.returncode == 2 and "/no/such/folder" in refused.stderr and "no longer exists" in refused.stderr


@pytest.mark.slow
def test_ranks_share_the_folder_of_their_run(numdrift: Numdrift, here: Path) -> None:
    # The ranks are started, not forked: a rank that began late would resume from what the other rank has written.
    done = numdrift("run", "train.py", *MODES, "--name", "s", "--nproc", "2", timeout=300)
    assert done.returncode == 0, done.stderr
    run = here / "runs/s/b"
    for log in (run / "stdout.log", run / "rank1" / "stdout.log"):
        assert "resumed" not in log.read_text() and "snapshot.pt" in log.read_text()
    assert not (here / "snapshot.pt").exists()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["a, b:c", "ünder\\score"])
def test_paths_of_any_name(name: str, here: Path) -> None:
    folder = here / name
    folder.mkdir()
    shutil.copy(SCRIPT, folder / "train.py")
    done = numdrift_in(folder, "run", "train.py", "--modes", "cpu", "--name", "s")
    assert done.returncode == 0, done.stderr
    assert manifest(folder, "s/cpu")["files"]["own"] is True and not (folder / "snapshot.pt").exists()


@pytest.mark.slow
def test_where_no_folder_can_be_its_own_that_is_said(
    numdrift: Numdrift, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TORCH_HOME", str(here))  # what libraries share cannot be a run's own
    done = numdrift("run", "train.py", "--modes", "cpu", "--name", "s")
    assert done.returncode == 0, done.stderr
    assert manifest(here, "s/cpu")["files"]["own"] is False
    assert "no run has a working folder of its own here" in done.stdout and (here / "snapshot.pt").exists()


@pytest.mark.slow
def test_a_script_that_removes_its_own_record_is_told_so(numdrift: Numdrift, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(CLEANING)
    done = numdrift("run", "train.py", *MODES, "--name", "s")
    assert done.returncode == 3 and "Traceback" not in done.stderr
    assert done.stderr.count("the script has removed the folder of its own run") == 2
    # what lay beside is as it was
    assert manifest(tmp_path, "s/b")["status"] == "crashed"


CLEANING = """
import shutil
import torch
weight = torch.ones(2, requires_grad=True)
optimizer = torch.optim.SGD([weight], lr=0.1)
weight.square().sum().backward()
optimizer.step()
shutil.rmtree("runs", ignore_errors=True)
"""


MOUNTED = """
set -e
mkdir out
mount -t tmpfs none out
echo kept > out/data.txt
"$@"
ls out
"""


@pytest.mark.slow
@pytest.mark.skipif(os.geteuid() != 0, reason="mounts a folder")
def test_what_is_mounted_below_is_the_runs_own_too(here: Path) -> None:
    (here / "mounted.sh").write_text(MOUNTED)
    command = [
        sys.executable,
        "-m",
        "numdrift",
        "run",
        "train.py",
        *MODES,
        "--name",
        "s",
        "--",
        "--checkpoint",
        "out/s.pt",
    ]
    asked = ["unshare", "--mount", "bash", "mounted.sh", *command]
    done = subprocess.run(asked, cwd=here, capture_output=True, text=True, check=False, timeout=300)
    if "unshare failed" in done.stderr or ("mount" in done.stderr and done.returncode == 1):
        pytest.skip("this system gives no mounts")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "data.txt"
    files = manifest(here, "s/b")["files"]
    assert files["own"] is True and "out/s.pt" in [each["path"] for each in files["written"]]
    assert "resumed" not in (here / "runs/s/b/stdout.log").read_text()
