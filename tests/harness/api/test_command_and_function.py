"""Each command and the function of its name: the same runs, the same findings, the same numbers, the same refusals.

One investigation of two small trainings serves all pairs. The command goes on with what the function has recorded, and
finds nothing missing: both plan the same runs, down to every field of each run's config.json.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

import numdrift
from numdrift.harness.cli.program import program
from numdrift.harness.errors import NumdriftError

from ...conftest import TINY

FAULT = "bad=cpu,kernel.tanh_backward=bf16"
MODES = ["cpu", FAULT]
WORDS = ["--steps", "3"]
OF_THE_CALL = {"training_runs", "reused", "steps_trained", "seconds", "started", "pid", "path", "run"}
"""What a second call says otherwise: what it cost, when it began and where it wrote."""


def command(*words: str | Path) -> tuple[Any, int]:
    """What the command writes with `--json -`, and its exit code; a refusal is raised as it is."""
    name, *rest = map(str, words)
    result = CliRunner().invoke(program, [name, "--json", "-", *rest], standalone_mode=False)
    if result.exception is not None:
        raise result.exception
    return json.loads(result.stdout), int(result.return_value or 0)


def same(value: Any) -> Any:
    """The content without what differs from call to call."""
    if isinstance(value, dict):
        return {name: same(one) for name, one in value.items() if name not in OF_THE_CALL}
    return [same(one) for one in value] if isinstance(value, list) else value


def config_of(run: Path) -> dict[str, Any]:
    config: dict[str, Any] = json.loads((run / "config.json").read_text())
    return config | {"journal": "", "files": {}}


pytestmark = pytest.mark.usefixtures("trainings_are_forked")


@pytest.fixture(scope="module")
def study(trainings_are_forked: None, tmp_path_factory: pytest.TempPathFactory) -> numdrift.Investigation:
    """An investigation of a training with a fault, by the function."""
    out = tmp_path_factory.mktemp("runs")
    return numdrift.investigate(TINY, MODES, WORDS, out=out, name="study", scripts=False, confirm=False)


def spoken(modes: Sequence[str]) -> list[str]:
    return [word for mode in modes for word in ("--mode", mode)]


@pytest.mark.slow
def test_investigate(study: numdrift.Investigation) -> None:
    out = study.path.parent
    found, code = command(
        "investigate", TINY, *spoken(MODES), "--out", out, "--name", "study", "--no-scripts", "--no-confirm",
        "--", *WORDS,
    )  # fmt: skip
    assert found["training_runs"] == 0 and found["reused"] > 2
    assert same(found) == same(json.loads((study.path / "investigation.json").read_text()))
    assert [pair["verdict"] for pair in found["pairs"]] == [pair.verdict for pair in study.pairs]
    assert code == study.exit_code == 1


def test_investigate_what_is_recorded(study: numdrift.Investigation) -> None:
    by_function = numdrift.investigate(study.path, localize=False)
    found, code = command("investigate", study.path, "--localize", "none")
    assert found["training_runs"] == 0 and code == by_function.exit_code
    assert same(found["pairs"][0]["verdict"]) == by_function.pairs[0].verdict == "beyond-rounding"


def test_localize(study: numdrift.Investigation) -> None:
    a, b = study.path / "cpu", study.path / "bad"
    by_function = numdrift.localize(a, b, scripts=True)
    found, code = command("localize", a, b)
    assert found["training_runs"] == 0 and code == by_function.exit_code
    culprits = [one["op"] for one in found["pairs"][0]["culprits"]]
    assert culprits == [one.op for one in by_function.pairs[0].culprits] == ["aten.tanh_backward"]


def test_compare(study: numdrift.Investigation) -> None:
    a, b = study.path / "cpu", study.path / "bad"
    by_function = numdrift.compare(a, b)
    found, code = command("compare", a, b)
    assert found["distances"] == json.loads(json.dumps([by_function.distances.to_json()]))
    assert found["pairs"][0]["verdict"] == by_function.verdict and code == 1


def test_run_with_every_option(tmp_path: Path) -> None:
    # given runs by the function
    batch = numdrift.run(
        TINY, ["cpu", FAULT], WORDS, out=tmp_path / "function", name="all", suffix="tag", record="ops", steps="0-1",
        keep_params="every=2", keep_budget=1.5, trace_kernels=["tanh_backward"], states="all", metrics=True,
        sketches=True, max_steps=2, max_seconds=600, strict=True, timeout=600, jobs=2,
        keep_files=True,
    )  # fmt: skip
    # when the command is given the same
    found, code = command(
        "run", TINY, *spoken(MODES), "--out", tmp_path / "command", "--name", "all", "--suffix", "tag",
        "--record", "ops", "--steps", "0-1", "--keep-params", "every=2", "--keep-budget", "1.5",
        "--trace-kernel", "tanh_backward", "--states", "all", "--metrics", "--sketches", "--max-steps", "2",
        "--max-seconds", "600", "--strict", "--timeout", "600", "--jobs", "2", "--keep-files", "--", *WORDS,
    )  # fmt: skip
    # then the processes were told the same, and the runs went alike
    assert code == batch.exit_code == 0
    for by_function, by_command in zip(batch.runs, found["runs"], strict=True):
        assert config_of(by_function.path) == config_of(Path(by_command["path"]))
        assert by_function.manifest.mode == by_command["mode"]
        assert by_function.journal.losses == numdrift.load_run(by_command["path"]).journal.losses


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: numdrift.run("nothing.py", "cpu"), ["run", "nothing.py", "--modes", "cpu"]),
        (
            lambda: numdrift.run(TINY, ["cpu"], graph_steps="1"),
            ["run", TINY, "--mode", "cpu", "--graph-steps", "1"],
        ),
        (
            lambda: numdrift.run(TINY, ["cpu"], suffix="a/b"),
            ["run", TINY, "--mode", "cpu", "--suffix", "a/b"],
        ),
        (lambda: numdrift.run(TINY, ["cpu", "cpu"]), ["run", TINY, "--mode", "cpu", "--mode", "cpu"]),
        (
            lambda: numdrift.investigate(TINY, max_steps=0),
            ["investigate", TINY, "--max-steps", "0"],
        ),
        (
            lambda: numdrift.investigate(TINY, nproc=2, against_single=True, max_seconds=9),
            ["investigate", TINY, "--nproc", "2", "--against-single", "--max-seconds", "9"],
        ),
        (
            lambda: numdrift.analyze(TINY, mode="compile", max_seconds=-1),
            ["analyze", TINY, "--mode", "compile", "--max-seconds", "-1"],
        ),
        (lambda: numdrift.investigate(TINY, ["cpu"]), ["investigate", TINY, "--mode", "cpu"]),
        (
            lambda: numdrift.investigate(TINY, against_single=True),
            ["investigate", TINY, "--against-single"],
        ),
        (lambda: numdrift.compare("here", "there"), ["compare", "here", "there"]),
        (lambda: numdrift.localize("here", "there"), ["localize", "here", "there"]),
        (
            lambda: numdrift.analyze("nothing.py", mode="cpu", output="x"),
            ["analyze", "nothing.py", "--mode", "cpu"],
        ),
        (lambda: numdrift.analyze(TINY, mode="lzay"), ["analyze", TINY, "--mode", "lzay"]),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, list) else "",
)
def test_a_refusal_is_the_same(
    call: Any, words: list[str | Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(NumdriftError) as by_function:
        call()
    with pytest.raises(NumdriftError) as by_command:
        command(*words)
    assert str(by_command.value) == str(by_function.value)
    assert by_command.value.exit_code == by_function.value.exit_code
    assert not (tmp_path / "runs").exists()
