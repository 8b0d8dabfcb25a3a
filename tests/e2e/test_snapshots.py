"""Snapshots from the command line: taken by what a user asks for, listed, shown, and executed again in other modes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from click.testing import CliRunner

from numdrift.harness.cli.program import program
from numdrift.harness.errors import NumdriftError, UsageError
from numdrift.harness.snapshots.snapshot_file import read_snapshot
from numdrift.harness.tools.snapshots.replay_answer import answer_of

from ..conftest import ROOT, Numdrift
from ..processes.forked import numdrift_in, python

SCRIPT = ROOT / "tests" / "e2e" / "scripts" / "snapshots.py"

Take = Callable[..., dict[str, Any]]


def take(folder: Path, *arguments: str | Path, code: int = 0) -> dict[str, dict[str, Any]]:
    """Take snapshots; gives the record of each run by its mode, with `files` and the digest that the script printed."""
    done = numdrift_in(folder, "snapshot", "take", SCRIPT, "--json", "-", *arguments)
    assert done.returncode == code, done.stderr
    runs = {}
    for run in json.loads(done.stdout)["runs"]:
        printed = (folder / run["path"] / "stdout.log").read_text()
        files = {Path(one["path"]).name: folder / one["path"] for one in run["snapshots"]}
        runs[run["mode"]] = {**run, "files": files, "printed": printed.strip()}
    return runs


def digest_without(folder: Path, *arguments: str) -> str:
    """What the script prints by itself."""
    done = python(folder, SCRIPT, *arguments, DEVICE="cpu")
    done.check_returncode()
    return done.stdout.strip()


@pytest.fixture(scope="module")
def by_callback(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """An eager training whose script chooses, and answers wrongly in its last two steps."""
    folder = tmp_path_factory.mktemp("callback")
    found = take(folder, "--modes", "cpu", "--", "--steps", "6", "--callback")["cpu"]
    return {**found, "folder": folder}


def test_the_script_chooses_by_a_callback(by_callback: dict[str, Any]) -> None:
    held = {name: read_snapshot(path).held for name, path in by_callback["files"].items()}
    assert held == {
        "0-forward-step000000-execution000000.safetensors": ("inputs",),
        "0-forward-step000001-execution000001.safetensors": ("outputs",),
        "0-forward-step000002-execution000002.safetensors": ("inputs", "outputs"),
    }
    notices = [one for one in by_callback["notices"] if "snapshot" in one]
    assert len(notices) == 2
    assert "step 4" in notices[0] and "it returned 'everything'" in notices[0]
    assert "step 5" in notices[1] and "LookupError: no answer is left" in notices[1]
    assert by_callback["status"] == "complete"


def test_an_eager_training_keeps_every_bit(by_callback: dict[str, Any]) -> None:
    assert by_callback["printed"] == digest_without(by_callback["folder"], "--steps", "6")


def test_what_was_taken_is_listed_shown_and_replayed(by_callback: dict[str, Any]) -> None:
    folder: Path = by_callback["folder"]
    listed = numdrift_in(folder, "snapshot", "list", "runs/snapshots", "--json", "-")
    (run,) = json.loads(listed.stdout)["runs"]
    assert [one["held"] for one in run["snapshots"]] == [["inputs"], ["outputs"], ["inputs", "outputs"]]
    path = by_callback["files"]["0-forward-step000002-execution000002.safetensors"]
    shown = numdrift_in(folder, "snapshot", "show", path)
    assert shown.returncode == 0, shown.stderr
    assert "parameter table.weight" in shown.stdout and "embedding 1x" in shown.stdout
    assert "It may be confidential: it contains the values of parameters (7)" in shown.stdout
    replayed = numdrift_in(folder, "snapshot", "replay", path)
    assert replayed.returncode == 0
    assert "identical, bit for bit" in replayed.stdout
    # and outputs alone cannot be executed
    path = by_callback["files"]["0-forward-step000001-execution000001.safetensors"]
    refused = numdrift_in(folder, "snapshot", "replay", path)
    assert (refused.returncode, refused.stdout) == (2, "")
    assert len(refused.stderr.splitlines()) == 1 and "holds no inputs" in refused.stderr


@pytest.mark.slow
def test_eager_steps_have_a_forward_a_backward_and_an_optimizer(tmp_path: Path) -> None:
    arguments = (
        "--steps",
        "1-2",
        "--graph",
        "backward",
        "--graph",
        "*-optimizer",
        "--then",
        "stop",
        "--limit-count",
        "4",
    )
    run = take(tmp_path, "--modes", "cpu", *arguments, "--", "--steps", "50")["cpu"]
    assert list(run["files"]) == [
        f"0-{phase}-step{step:06d}-execution{step:06d}.safetensors"
        for step in (1, 2)
        for phase in ("backward", "optimizer")
    ]
    assert any("the run was stopped in step 3" in one or "in step 2" in one for one in run["notices"])
    optimizer = read_snapshot(run["files"]["0-optimizer-step000001-execution000001.safetensors"])
    names = {one.name for one in optimizer.inputs}
    assert {"parameter head.weight", "gradient head.weight", "state head.weight.momentum_buffer"} <= names
    assert {one.name for one in optimizer.outputs} >= {
        "parameter head.weight afterwards",
        "state head.weight.momentum_buffer afterwards",
    }
    for path in run["files"].values():
        assert answer_of(path, "cpu").comparison.identical


def test_the_first_execution_that_is_not_finite(tmp_path: Path) -> None:
    run = take(tmp_path, "--modes", "cpu", "--on", "nonfinite", "--", "--steps", "9", "--nan-at", "2")["cpu"]
    assert list(run["files"]) == ["0-forward-step000002-execution000002.safetensors"]
    assert run["status"] == "complete" and run["printed"] == ""
    (path,) = run["files"].values()
    found = read_snapshot(path)
    assert found.reason == "nonfinite"
    assert any(bool(torch.isnan(one).any()) for one in found.output_values() if one is not None)
    assert answer_of(path).comparison.identical


@pytest.mark.slow
def test_after_the_first_the_training_may_go_on(tmp_path: Path) -> None:
    arguments = (
        "--modes",
        "cpu",
        "--on",
        "nonfinite",
        "--then",
        "go-on",
        "--",
        "--steps",
        "4",
        "--nan-at",
        "2",
    )
    run = take(tmp_path, *arguments, code=3)["cpu"]
    assert len(run["files"]) == 1
    assert run["status"] == "nonfinite" and run["printed"].startswith("digest")


def test_the_execution_that_gives_an_error(tmp_path: Path) -> None:
    arguments = ("--modes", "cpu", "--on", "error", "--", "--steps", "4", "--index-at", "2")
    run = take(tmp_path, *arguments, code=3)["cpu"]
    assert list(run["files"]) == ["0-forward-step000002-execution000002.safetensors"]
    (path,) = run["files"].values()
    found = read_snapshot(path)
    assert (found.reason, found.held) == ("error", ("inputs",))
    assert "index out of range" in found.error
    answer = answer_of(path)
    assert answer.holds and "it raises the same error: IndexError" in answer.text


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("--modes", "cpu", "--what", "input"), "the allowed words are inputs and outputs"),
        (("--modes", "cpu", "--steps", "x"), "--steps 'x'"),
        (("--modes", "cpu", "--executions", ""), "--executions names nothing"),
        (("--modes", "cpu", "--callback", "nowhere.py:f"), "there is no file nowhere.py"),
        (("--modes", "cpu", "--callback", "nowhere"), "is not FILE.py:FUNCTION"),
        (("--modes", "cpu", "--on", "drift"), "needs two modes"),
        ((), "no mode is named"),
    ],
)
def test_wrong_options_are_refused(arguments: tuple[str, ...], complaint: str, numdrift: Numdrift) -> None:
    done = numdrift("snapshot", "take", SCRIPT, *arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert complaint in done.stderr and len(done.stderr.splitlines()) == 1


def test_a_callback_of_the_founding_form_chooses_an_execution(tmp_path: Path) -> None:
    (tmp_path / "choose.py").write_text(
        "def choose(name, device_index, execution_count):\n    return 'outputs' if execution_count == 2 else ''\n"
    )
    run = take(tmp_path, "--modes", "cpu", "--callback", "choose.py:choose", "--graph", "0-forward")["cpu"]
    assert list(run["files"]) == ["0-forward-step000002-execution000002.safetensors"]
    (path,) = run["files"].values()
    assert read_snapshot(path).held == ("outputs",)


FULL = """
import resource
import torch

torch.manual_seed(0)
model = torch.nn.Linear(256, 256)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
resource.setrlimit(resource.RLIMIT_FSIZE, (128 << 10, resource.RLIM_INFINITY))  # bytes; a snapshot has more
for step in range(4):
    optimizer.zero_grad()
    model(torch.randn(4, 256)).square().mean().backward()
    optimizer.step()
print("trained to the end")
"""


def test_a_file_that_cannot_be_written_to_its_end(numdrift: Numdrift, tmp_path: Path) -> None:
    (tmp_path / "full.py").write_text(FULL)
    # when
    done = numdrift("snapshot", "take", "full.py", "--modes", "cpu", "--steps", "1-2", "--quiet")
    # then the training has gone on, and one line says that it did
    assert done.returncode == 3
    assert len(done.stderr.splitlines()) == 1
    said = done.stderr
    assert "0-forward (step 1, execution 1) is incomplete (File too large); the training continues" in said
    assert "trained to the end" in (tmp_path / "runs/full/cpu/stdout.log").read_text()
    # and the snapshot is marked, and no piece of it is there
    listed = numdrift("snapshot", "list", "runs/full")
    assert "incomplete: File too large" in listed.stdout
    assert not list((tmp_path / "runs").rglob("*.safetensors*"))
    shown = numdrift("snapshot", "show", "runs/full/cpu/snapshots/0-forward-step000001-execution000001.safetensors")
    assert (shown.returncode, len(shown.stderr.splitlines())) == (2, 1)
    assert "is incomplete: File too large" in shown.stderr


@pytest.mark.parametrize(
    ("script", "code", "said"),
    [
        ("print('nothing')", 3, ["no execution was seen"]),
        ("raise ValueError('no data')", 3, ["ValueError: no data"]),
        ("import torch\nprint(torch.nn.Linear(2, 2)(torch.ones(1, 2)))", 0, []),
    ],
)
def test_a_script_without_a_step(script: str, code: int, said: list[str], numdrift: Numdrift, tmp_path: Path) -> None:
    (tmp_path / "short.py").write_text(script + "\n")
    done = numdrift("snapshot", "take", "short.py", "--modes", "cpu", "--quiet")
    assert done.returncode == code, done.stderr
    assert len(done.stderr.splitlines()) == len(said)
    assert all(words in done.stderr for words in said)
    assert len(list((tmp_path / "runs").rglob("*.safetensors"))) == (code == 0)


@pytest.mark.usefixtures("trainings_are_forked")
@pytest.mark.parametrize(
    ("mode", "code", "said"),
    [
        ("gpu", 2, "there is no mode 'gpu'"),
        ("compile,backend=inductr", 2, "did you mean 'inductor'"),
        ("mps", 3, "device 'mps' is not available"),
    ],
)
def test_a_replay_in_a_mode_that_is_not_here(mode: str, code: int, said: str, by_callback: dict[str, Any]) -> None:
    path = by_callback["files"]["0-forward-step000002-execution000002.safetensors"]
    done = CliRunner().invoke(program, ["snapshot", "replay", str(path), "--mode", mode])
    assert isinstance(done.exception, NumdriftError)
    assert (done.exception.exit_code, done.output) == (code, "")
    assert said in str(done.exception)
    described = CliRunner().invoke(program, ["snapshot", "replay", "--help"]).output
    codes = {2: "there is no such mode", 3: "the mode's device or package is not on this machine"}
    assert f"{code} " in described and codes[code] in " ".join(described.split())


def test_a_damaged_snapshot_is_one_line(by_callback: dict[str, Any]) -> None:
    path = by_callback["files"]["0-forward-step000002-execution000002.safetensors"]
    content = path.read_bytes()
    damaged = by_callback["folder"] / "damaged.safetensors"
    for bad, said in (
        (content[:3000], "is truncated"),
        (content[:-5] + bytes([content[-5] ^ 1]) + content[-4:], "has changed since it was written"),
    ):
        damaged.write_bytes(bad)
        for command in ("show", "replay"):
            done = CliRunner().invoke(program, ["snapshot", command, str(damaged)])
            assert isinstance(done.exception, UsageError) and done.output == "", command
            assert said in str(done.exception) and "\n" not in str(done.exception)


def test_files_that_are_no_snapshots_are_refused(numdrift: Numdrift, tmp_path: Path) -> None:
    (tmp_path / "empty.safetensors").write_bytes(b"")
    for command in ("show", "replay"):
        for path in ("empty.safetensors", "nowhere.safetensors", "."):
            done = numdrift("snapshot", command, path)
            assert (done.returncode, done.stdout) == (2, ""), (command, path)
            assert len(done.stderr.splitlines()) == 1


@pytest.mark.slow
def test_nothing_that_was_asked_for_is_said(tmp_path: Path) -> None:
    done = numdrift_in(tmp_path, "snapshot", "take", SCRIPT, "--modes", "cpu", "--graph", "sideways")
    assert done.returncode == 2
    assert "0-forward (4x), 0-backward (4x), 0-optimizer (4x) in 4 steps" in done.stderr


@pytest.mark.slow
def test_a_callback_in_a_file_that_cannot_be_loaded(tmp_path: Path) -> None:
    (tmp_path / "choose.py").write_text("raise OSError('not today')\n\ndef choose(*facts): ...\n")
    done = numdrift_in(tmp_path, "snapshot", "take", SCRIPT, "--modes", "cpu", "--callback", "choose.py:choose")
    assert done.returncode == 2 and "OSError: not today" in done.stderr
    assert "digest" in (tmp_path / "runs/snapshots/cpu/stdout.log").read_text()


# compiled and lazy executions


@pytest.fixture(scope="module")
def compiled_and_lazy(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    folder = tmp_path_factory.mktemp("compiled")
    return {**take(folder, "--modes", "compile,lazy", "--steps", "1", "--", "--steps", "3"), "folder": folder}


@pytest.mark.slow
def test_compiled_graphs_are_kept(compiled_and_lazy: dict[str, Any]) -> None:
    files = compiled_and_lazy["compile"]["files"]
    assert list(files) == [
        "0-forward-step000001-execution000001.safetensors",
        "0-backward-step000001-execution000001.safetensors",
    ]
    forward = read_snapshot(files["0-forward-step000001-execution000001.safetensors"])
    inputs, outputs = ([one.name for one in ports] for ports in (forward.inputs, forward.outputs))
    assert {"parameter mixed.weight", "buffer normed.running_mean", "input 0", "input 1"} <= set(inputs)
    assert "output 0" in outputs and "buffer normed.running_mean afterwards" in outputs
    assert any(one.startswith("saved ") for one in outputs)
    backward = read_snapshot(files["0-backward-step000001-execution000001.safetensors"])
    assert {"gradient mixed.weight", "gradient table.weight"} <= {one.name for one in backward.outputs}
    assert all(call.compiled is not None for call in backward.tape.calls)


@pytest.mark.slow
@pytest.mark.parametrize("mode", ["compile", "cpu", "lazy"])
def test_a_compiled_graph_is_executed_again(mode: str, compiled_and_lazy: dict[str, Any]) -> None:
    for path in compiled_and_lazy["compile"]["files"].values():
        answer = answer_of(path, mode)
        assert answer.holds, answer.text
        assert answer.comparison.identical or mode != "compile", answer.text


@pytest.mark.slow
def test_lazy_executions_are_kept_and_executed_again(compiled_and_lazy: dict[str, Any]) -> None:
    files = compiled_and_lazy["lazy"]["files"]
    assert len(files) == 2
    for path in files.values():
        assert not read_snapshot(path).unplayable
        for mode in ("lazy", "cpu"):
            assert answer_of(path, mode).comparison.identical, (path.name, mode)


@pytest.mark.slow
def test_compiled_and_lazy_trainings_keep_every_bit(compiled_and_lazy: dict[str, Any]) -> None:
    folder = compiled_and_lazy["folder"]
    done = numdrift_in(folder, "run", SCRIPT, "--modes", "compile,lazy", "--name", "plain", "--", "--steps", "3")
    assert done.returncode == 0, done.stderr
    for mode in ("compile", "lazy"):
        plain = (folder / "runs/plain" / mode / "stdout.log").read_text().strip()
        assert compiled_and_lazy[mode]["printed"] == plain, mode


@pytest.mark.slow
def test_in_compiled_code_what_is_not_finite_and_what_fails(tmp_path: Path) -> None:
    arguments = (
        "--modes",
        "compile",
        "--on",
        "nonfinite",
        "--name",
        "n",
        "--",
        "--steps",
        "9",
        "--nan-at",
        "1",
    )
    run = take(tmp_path, *arguments)["compile"]
    assert list(run["files"]) == ["0-forward-step000001-execution000001.safetensors"]
    arguments = (
        "--modes",
        "compile",
        "--on",
        "error",
        "--name",
        "e",
        "--",
        "--steps",
        "9",
        "--index-at",
        "1",
    )
    run = take(tmp_path, *arguments, code=3)["compile"]
    (path,) = run["files"].values()
    assert "forward" in path.name and read_snapshot(path).error
    own, other = answer_of(path), answer_of(path, "cpu")
    assert own.holds and "index out of bounds" in own.text
    assert other.holds and "it raises an error as well: IndexError" in other.text


@pytest.mark.slow
def test_the_first_step_that_drifts(tmp_path: Path) -> None:
    run = take(tmp_path, "--modes", "cpu,compile", "--on", "drift", "--", "--steps", "4")["compile"]
    assert run["files"]
    (step,) = {read_snapshot(path).execution.step for path in run["files"].values()}
    assert step in range(4)


@pytest.mark.slow
def test_rank_0_alone_takes_snapshots_unless_others_are_named(tmp_path: Path) -> None:
    script = ROOT / "tests/e2e/scripts/ranks.py"
    for ranks, folders in (("0", ["cpu"]), ("1", ["cpu/rank1"])):
        done = numdrift_in(
            tmp_path, "snapshot", "take", script, "--modes", "cpu", "--nproc", "2", "--steps", "0", "--graph", "forward",
            "--rank", ranks, "--name", f"r{ranks}", OMP_NUM_THREADS="1",  # as ranks have, which are forked then
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        found = sorted(path for path in (tmp_path / f"runs/r{ranks}").rglob("*.safetensors"))
        assert [path.relative_to(tmp_path / f"runs/r{ranks}").parent.parent.as_posix() for path in found] == folders
