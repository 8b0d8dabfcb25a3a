"""`numdrift profile`: traces of steps in every mode, the tables of them, and TensorBoard, which opens them."""

from __future__ import annotations

import importlib.util
import json
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser

from ..conftest import ROOT, Numdrift
from ..processes.forked import numdrift_in

NAMED_BLOCKS = ROOT / "tests" / "e2e" / "scripts" / "named_blocks.py"
MODES = ("cpu", "compile", "lazy")
ENOUGH_SECONDS = 120


@dataclass(frozen=True)
class Profiled:
    """The same script run in each mode: recorded, and profiled with all details."""

    folder: Path
    told: str
    found: dict[str, Any]

    def printed(self, investigation: str, mode: str) -> str:
        return (self.folder / "runs" / investigation / mode / "stdout.log").read_text()

    def trace(self, mode: str) -> dict[str, Any]:
        text = (self.folder / "runs" / "operator" / mode / "profile" / "trace.json").read_text()
        found: dict[str, Any] = json.loads(text)
        return found

    def table(self, name: str) -> dict[str, list[dict[str, float] | None]]:
        return {row["name"]: row["cells"] for row in self.found["tables"][name]}


@pytest.fixture(scope="module")
def profiled(tmp_path_factory: pytest.TempPathFactory) -> Profiled:
    folder = tmp_path_factory.mktemp("profiled")
    modes = ",".join(MODES)
    plain = numdrift_in(folder, "run", NAMED_BLOCKS, "--modes", modes, "--name", "plain")
    assert plain.returncode == 0, plain.stderr
    traced = numdrift_in(
        folder, "profile", NAMED_BLOCKS, "--modes", modes, "--type", "operator", "--name", "operator",
        "--tensorboard", "logs", "--json", "found.json", "--top", "100",
    )  # fmt: skip
    assert traced.returncode == 0, traced.stderr
    return Profiled(folder, traced.stdout, json.loads((folder / "found.json").read_text()))


def check_trace(trace: dict[str, Any]) -> None:
    """What Perfetto and chrome://tracing need of a trace: complete events that lie within each other on each thread, and
    links whose two ends are there."""
    events = trace["traceEvents"]
    assert {one["ph"] for one in events} <= {"X", "M", "i", "s", "f"}
    complete = [one for one in events if one["ph"] == "X"]
    for one in complete:
        assert isinstance(one["name"], str) and one["name"], one
        assert isinstance(one["ts"], (int, float)) and one["dur"] >= 0, one
        assert "pid" in one and "tid" in one
    starts = [one["id"] for one in events if one["ph"] == "s"]
    assert sorted(starts) == sorted(one["id"] for one in events if one["ph"] == "f")
    assert len(set(starts)) == len(starts)
    open_: dict[Any, list[float]] = {}
    for one in sorted(complete, key=lambda one: (one["ts"], -one["dur"])):
        ends = open_.setdefault((one["pid"], one["tid"]), [])
        while ends and ends[-1] <= one["ts"]:
            ends.pop()
        end = one["ts"] + one["dur"]
        assert not ends or end <= ends[-1] + 0.002, f"{one['name']} ends after what it lies in"
        ends.append(end)


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_profiling_changes_no_bit(profiled: Profiled, mode: str) -> None:
    digest = profiled.printed("plain", mode)
    assert len(digest.strip()) == 64
    assert profiled.printed("operator", mode) == digest


@pytest.mark.slow
@pytest.mark.parametrize("mode", MODES)
def test_a_trace_has_the_steps_with_blocks_and_phases(profiled: Profiled, mode: str) -> None:
    trace = profiled.trace(mode)
    check_trace(trace)
    names = [one["name"] for one in trace["traceEvents"] if one.get("cat") == "user_annotation"]
    for step in (3, 4, 5):
        assert f"ProfilerStep#{step}" in names
    for block in ("model_build", "loss_backward", "optimizer_step", "phase: forward", "phase: backward"):
        assert names.count(block) >= 3, block
    assert not (profiled.folder / "runs" / "operator" / mode / "profile" / "working").exists()


@pytest.mark.slow
def test_the_tables_say_where_the_time_goes_in_each_mode(profiled: Profiled) -> None:
    phases, blocks = profiled.table("phases"), profiled.table("blocks")
    for place, mode in enumerate(MODES):
        cells = [row[place] for row in phases.values()]
        assert sum(cell["share"] for cell in cells if cell) == pytest.approx(1, abs=1e-6), mode
        for name in ("data", "forward", "backward", "optimizer"):
            assert phases[name][place] is not None, (name, mode)
        built = blocks["model_build"][place]
        assert built is not None and built["calls"] == 1
    within = [cell is not None for cell in blocks["last_layer"]]
    assert within == [True, False, True], "a compiled model is one graph, with a block in it or without"
    for name in ("mark_step", "graph execution"):
        assert [cell is not None for cell in phases[name]] == [False, False, True], name


@pytest.mark.slow
def test_ops_have_modules_and_lines_forwards_and_backwards(profiled: Profiled) -> None:
    text = NAMED_BLOCKS.read_text().splitlines()
    of_fc1 = f"{NAMED_BLOCKS.name}:{next(n for n, line in enumerate(text, 1) if 'self.fc1(x)' in line)}"
    runs = {one["mode"]: one for one in profiled.found["runs"]}
    cpu = [one for one in runs["cpu"]["ops"] if one["module"] == "fc1" and one["line"] == of_fc1]
    assert {"forward", "backward"} <= {one["phase"] for one in cpu}
    assert "aten::addmm" in {one["op"] for one in cpu}
    lazy = [one for one in runs["lazy"]["ops"] if one["op"] == "aten::addmm"]
    assert {one["kind"] for one in lazy} == {"dispatch", "execution"}
    kernels = {one["name"]: one for one in runs["compile"]["kernels"]}
    shown = {one["op"] for one in runs["compile"]["ops"] if one["kind"] == "kernel"}
    assert shown and shown <= set(kernels)
    assert any("fc1" in kernels[name]["modules"] and of_fc1 in kernels[name]["lines"] for name in shown)


@pytest.mark.slow
def test_what_was_left_out_is_said_and_the_tables_are_shown_again(profiled: Profiled) -> None:
    assert "compile: traced steps 3 to 5" in profiled.told
    assert "left out steps 0 to 2, compiling in 0" in profiled.told
    again = numdrift_in(profiled.folder, "profile", "runs/operator", "--top", "100")
    assert again.returncode == 0, again.stderr
    tables = [line for line in profiled.told.splitlines() if not line.startswith("Wrote")]
    assert [line for line in again.stdout.splitlines() if not line.startswith("Wrote")] == tables
    refused = numdrift_in(profiled.folder, "profile", "runs/operator", "--modes", "cpu")
    assert refused.returncode == 2 and "will not be run again" in refused.stderr


@pytest.fixture(scope="module")
def tensorboard(profiled: Profiled) -> Iterator[str]:
    """The address of a TensorBoard that shows the log directory."""
    if importlib.util.find_spec("tensorboard") is None or importlib.util.find_spec("torch_tb_profiler") is None:
        pytest.skip("tensorboard and torch-tb-profiler are not installed: pip install 'numdrift[dev]'")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    served = subprocess.Popen(
        [sys.executable, "-m", "tensorboard.main", "--logdir", "logs", "--host", "127.0.0.1", "--port", str(port),
         "--load_fast=false"],
        cwd=profiled.folder, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    yield f"http://127.0.0.1:{port}"
    served.terminate()
    served.wait(30)


def asked(address: str, what: str) -> Any:
    with urllib.request.urlopen(f"{address}/data/plugin/pytorch_profiler/{what}", timeout=60) as answer:
        return json.loads(answer.read())


def waited_for(address: str, runs: set[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    until = time.monotonic() + ENOUGH_SECONDS
    while time.monotonic() < until and set(found.get("runs", ())) != runs:
        time.sleep(1)
        try:
            found = asked(address, "runs")
        except OSError:
            continue
    return found


@pytest.mark.slow
def test_tensorboard_opens_every_mode(profiled: Profiled, tensorboard: str, browser: Browser) -> None:
    runs = {f"operator_{mode}" for mode in MODES}
    assert set(waited_for(tensorboard, runs)["runs"]) == runs
    for run in sorted(runs):
        assert {"Overview", "Operator", "Trace", "Module"} <= set(asked(tensorboard, f"views?run={run}"))
        (worker,) = asked(tensorboard, f"workers?run={run}&view=Operator")
        rows = asked(tensorboard, f"operation/table?run={run}&worker={worker}&span=1&group_by=Operation")
        assert any("aten::" in row["name"] for row in rows["data"]), run
    page = browser.new_page()
    page.goto(f"{tensorboard}/#pytorch_profiler")
    shown = page.frame_locator("iframe").get_by_text("operator_compile", exact=True).first
    shown.wait_for(timeout=60_000)
    page.close()


@pytest.mark.slow
@pytest.mark.parametrize(("then", "steps", "partly"), [("raise", [3, 4], True), ("kill", [3], False)])
def test_a_script_that_ends_within_the_steps_leaves_what_was_traced(
    then: str, steps: list[int], partly: bool, numdrift: Numdrift, tmp_path: Path
) -> None:
    done = numdrift(
        "profile", NAMED_BLOCKS, "--modes", "cpu", "--name", "ends", "--json", "found.json", "--keep-working",
        "--", "--at", "4", "--then", then,
    )  # fmt: skip
    assert done.returncode == 3
    assert "Traceback" not in done.stderr
    (run,) = json.loads((tmp_path / "found.json").read_text())["runs"]
    assert (run["steps"], run["partial"]) == (steps, partly)
    assert "only in part" in done.stdout if partly else "the process was killed" in done.stdout
    check_trace(json.loads(Path(tmp_path, run["trace"]).read_text()))
    assert (tmp_path / "runs/ends/cpu/profile/working").is_dir()


@pytest.mark.slow
def test_fewer_steps_than_asked_for_is_one_line(numdrift: Numdrift) -> None:
    done = numdrift("profile", NAMED_BLOCKS, "--modes", "cpu", "--steps", "20-22", "--quiet")
    assert done.returncode == 2
    assert done.stderr == (
        "numdrift: cpu: nothing was traced: the script has 8 steps, but none of the requested steps 20-22; choose from "
        "--steps 0-7\n"
    )


@pytest.mark.slow
def test_a_mode_that_is_not_here_leaves_the_others_theirs(numdrift: Numdrift, tmp_path: Path) -> None:
    done = numdrift("profile", NAMED_BLOCKS, "--modes", "cpu,mps", "--steps", "1", "--name", "both")
    assert done.returncode == 3
    said = [line for line in done.stderr.splitlines() if line.startswith("numdrift:")]
    assert len(said) == 1 and "device 'mps' is not available" in said[0]
    assert "cpu: traced step 1" in done.stdout
    assert (tmp_path / "runs/both/cpu/profile/trace.json").exists()


def test_a_script_without_a_step_is_one_line(numdrift: Numdrift, tmp_path: Path) -> None:
    (tmp_path / "nothing.py").write_text("print('nothing')\n")
    done = numdrift("profile", "nothing.py", "--modes", "cpu", "--quiet")
    assert done.returncode == 3
    assert len(done.stderr.splitlines()) == 1
    assert "the script reached no step" in done.stderr and "numdrift.step()" in done.stderr


@pytest.mark.slow
def test_a_trace_that_grows_too_large_says_where_it_ends(numdrift: Numdrift) -> None:
    done = numdrift("profile", NAMED_BLOCKS, "--modes", "cpu", "--steps", "0-7", "--limit", "0.05")
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines()[0].endswith("ended after step 0, its trace had reached the size limit (--limit)")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "no mode is named"),
        (["--modes", "cpu", "--steps", "x"], "'x' is not a step"),
        (["--modes", "cpu", "--steps", ""], "--steps names no step"),
        (["--modes", "cpu", "--limit", "0"], "--limit"),
        (["--modes", "cpu", "--type", "all"], "--type"),
        (["--modes", "gpu"], "gpu"),
    ],
)
def test_wrong_usage_is_one_line(arguments: list[str], said: str, numdrift: Numdrift) -> None:
    done = numdrift("profile", NAMED_BLOCKS, *arguments)
    assert done.returncode == 2
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
