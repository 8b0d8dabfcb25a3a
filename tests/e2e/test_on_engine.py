"""Commands that an engine executes as a whole: the same output, files and exit code as here, and Ctrl-C as here."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from ..conftest import Numdrift

LOCAL_JOBS = ("--engine", "submitit", "--engine-option", "cluster=local")


@pytest.mark.slow
def test_an_investigation_in_a_job_is_that_of_this_machine(numdrift: Numdrift, tiny: Path, tmp_path: Path) -> None:
    pytest.importorskip("submitit")
    (tmp_path / "tiny.py").write_text(tiny.read_text())
    words = ("investigate", "tiny.py", "--mode", "cpu", "--mode", "b=cpu,args+=--width 8", "--quick", "--json", "-")

    here = numdrift(*words, "--name", "here", "--", "--steps", "3")
    job = numdrift(*words, *LOCAL_JOBS, "--needs", "processors=1", "--needs", "memory=1GiB", "--", "--steps", "3")

    assert job.returncode == here.returncode == 1, job.stderr
    found, expected = json.loads(job.stdout)["pairs"][0], json.loads(here.stdout)["pairs"][0]
    assert (found["verdict"], found["text"]) == (expected["verdict"], expected["text"])
    assert (
        "tiny: one task of the engine submitit, with 1 processor and 1 GiB of memory; it writes to runs/tiny"
        in job.stderr
    )
    assert "tiny runs on " in job.stderr and "cpu: ended, step 3" in job.stderr.replace("cpu-again", "")
    assert (tmp_path / "runs/tiny/report.html").exists()

    # when it is investigated again, then nothing trains again; a check and a run are executed in the same way
    again = numdrift(*words, *LOCAL_JOBS, "--name", "tiny", "--", "--steps", "3")
    recorded = numdrift("run", "tiny.py", "--modes", "cpu", *LOCAL_JOBS, "--max-steps", "2", "--name", "r")

    assert json.loads(again.stdout)["training_runs"] == 0
    assert recorded.returncode == 0 and "Wrote runs/r" in recorded.stdout and "complete      2" in recorded.stdout


@pytest.mark.slow
def test_a_script_that_fails_in_a_job_has_the_exit_code_and_the_message_of_this_machine(
    numdrift: Numdrift, tiny: Path
) -> None:
    pytest.importorskip("submitit")
    failed = numdrift("run", tiny, "--modes", "cpu", *LOCAL_JOBS, "--", "--at", "1", "--then", "raise")

    assert failed.returncode == 3 and "ValueError: the step went wrong" in failed.stderr


@pytest.mark.slow
def test_ctrl_c_ends_the_training_in_a_job_and_the_command_goes_on(tiny: Path, tmp_path: Path) -> None:
    pytest.importorskip("submitit")
    words = [
        "investigate",
        str(tiny),
        "--mode",
        "cpu",
        "--mode",
        "b=cpu",
        "--quick",
        "--name",
        "t",
        "--",
        "--steps",
        "4",
    ]
    command = [sys.executable, "-m", "numdrift", words[0], *LOCAL_JOBS, *words[1:], "--at", "2", "--then"]
    begun = f"import os, signal; signal.signal(signal.SIGINT, signal.default_int_handler); os.execv({sys.executable!r}, {[*command, 'hang']!r})"
    process = subprocess.Popen([sys.executable, "-c", begun], cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 120
    try:
        while len([path for path in tmp_path.glob("runs/t/*/journal/digests.bin") if path.stat().st_size]) < 2:
            assert time.monotonic() < deadline and process.poll() is None
            time.sleep(0.05)
    finally:
        process.send_signal(signal.SIGINT)
    _, told = process.communicate(timeout=60)

    assert process.returncode == 130
    assert "What is known so far, without further experiments" in told
    assert "numdrift: interrupted. The same command with --name t goes on from there." in told
    statuses = [json.loads(path.read_text())["status"] for path in tmp_path.glob("runs/t/*/run.json")]
    assert statuses == ["killed"] * 2


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--needs", "devices=1"], "--needs is for another machine: name the engine, as in --engine ray"),
        (["--engine-option", "cluster=local"], "--engine-option is for another machine"),
        ([*LOCAL_JOBS, "--needs", "gpus=1"], "a task has no 'gpus'; known: devices, memory, processors"),
        ([*LOCAL_JOBS, "--needs", "processors"], "--needs 'processors' is not KEY=VALUE, as in --needs processors=8"),
        ([*LOCAL_JOBS, "--needs", "memory=4"], "memory = 4 is not a size"),
        ([*LOCAL_JOBS, "--needs", "devices=1"], "submitit's local executor gives the same devices to all"),
        ([*LOCAL_JOBS, "--pass-through"], "--pass-through is not for --engine"),
        ([*LOCAL_JOBS, "--nnodes", "1"], "--nnodes is not for --engine"),
        (["--engine", "submitit", "--engine-option", "cluster=no"], "submitit has no executor 'no'"),
        ([*LOCAL_JOBS, "--shared", "memory://a"], "--shared is for --engine ray: submitit itself needs a shared file"),
        (["--shared", "memory://a"], "--shared is for another machine: name the engine"),
        (["--engine", "ray", "--shared", "memory://a", "--json", "found.json"], "use --json - > PATH"),
    ],
)
def test_what_no_engine_can_execute_is_refused(
    numdrift: Numdrift, tiny: Path, tmp_path: Path, words: list[str], said: str
) -> None:
    if "submitit" in words:
        pytest.importorskip("submitit")
    done = numdrift("run", tiny, "--modes", "cpu", *words)

    assert done.returncode == 2 and said in done.stderr and "Traceback" not in done.stderr
    assert not (tmp_path / "runs/tiny/cpu").exists()


def test_a_missing_script_is_reported_before_anything_is_submitted(numdrift: Numdrift, tmp_path: Path) -> None:
    done = numdrift("investigate", "absent.py", "--engine", "submitit", "--engine-option", "cluster=local")

    assert done.returncode == 2 and "there is no script absent.py" in done.stderr
    assert not (tmp_path / "runs").exists()
