"""`numdrift plot --what envelope` and `--what drift`: pictures of what an investigation found."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from numdrift.harness.api.plotting import drawn_pairs
from numdrift.harness.cli.program import program
from numdrift.harness.drift.curve_envelope import loss_envelope
from numdrift.harness.drift.loss_distance import LossSeries
from numdrift.harness.errors import JournalError, UsageError
from numdrift.harness.runs.manifest import RunManifest

STEPS = [
    {
        "step": step, "score": "inf" if step else 0.5, "tensor": "loss 0", "taped": not step,
        "tensors": [{"name": "loss 0", "score": "inf" if step else 0.5}, {"name": "gradient 0 w", "score": 2}],
    }
    for step in (0, 7)
]  # fmt: skip

NO_SCORE = {"name": "w", "score": "nan"}


def curve() -> dict[str, Any]:
    a, b = LossSeries(range(3), [1.0, 0.5, 0.25]), LossSeries(range(3), [1.0, 0.5, 0.26])
    return loss_envelope(a, b, [a] * 8).to_json()


def pair(b: str = "compile", **more: Any) -> dict[str, Any]:
    return {"a": "cpu", "b": b, "verdict": "rounding", "steps": STEPS, "curve": None, **more}


def investigation(folder: Path, *pairs: dict[str, Any], **more: Any) -> Path:
    """A folder with one run of no interest, and findings."""
    run = folder / "runs" / "train" / "cpu"
    run.mkdir(parents=True)
    RunManifest(
        mode="cpu", spec="cpu", suffix="", reproducer="train.py", script_sha256="", arguments=(), record="params",
        started="2025-01-01T00:00:00", position=0, pickle="", status="complete",
    ).write(run / "run.json")  # fmt: skip
    found = {"schema": 1, "reproducer": "a/train.py", "pairs": list(pairs), **more}
    (run.parent / "investigation.json").write_text(json.dumps(found))
    return run.parent


def plot(folder: Path, *arguments: str) -> Result:
    return CliRunner().invoke(program, ["plot", str(folder), "--out", str(folder.parent), *arguments])


def refusal(done: Result) -> str:
    """The message of a usage error, which the command line prints as it is."""
    assert isinstance(done.exception, UsageError), done.output
    return str(done.exception)


def pictures(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.glob("*.*") if path.suffix in (".png", ".svg"))


def test_each_pair_gets_its_picture(tmp_path: Path) -> None:
    # given
    folder = investigation(tmp_path, pair("compile"), pair("lazy"))
    # when
    done = plot(folder, "--what", "drift")
    # then
    assert done.exit_code == 0, done.output
    assert pictures(folder) == [
        f"cpu_vs_{mode}_drift.{kind}" for mode in ("compile", "lazy") for kind in ("png", "svg")
    ]
    assert done.output.count("Wrote ") == 4


def test_the_envelope_is_drawn_of_the_pairs_that_have_one(tmp_path: Path) -> None:
    folder = investigation(tmp_path, pair("compile", curve=curve()), pair("lazy"))
    done = plot(folder, "--what", "envelope")
    assert done.exit_code == 0, done.output
    assert pictures(folder) == ["cpu_vs_compile_envelope.png", "cpu_vs_compile_envelope.svg"]
    assert "lazy against cpu has no envelope to draw" in done.output


def test_pictures_are_replaced_only_by_force(tmp_path: Path) -> None:
    folder = investigation(tmp_path, pair())
    assert plot(folder, "--what", "drift").exit_code == 0
    assert "exists already" in refusal(plot(folder, "--what", "drift"))
    assert plot(folder, "--what", "drift", "--force").exit_code == 0


@pytest.mark.parametrize("modes", [["compile"], ["compile", "lazy"]])
def test_output_names_the_files(tmp_path: Path, modes: list[str]) -> None:
    folder = investigation(tmp_path, *[pair(mode) for mode in modes])
    target = tmp_path / "mine"
    assert plot(folder, "--what", "drift", "--output", str(target)).exit_code == 0
    expected = ["mine"] if len(modes) == 1 else [f"mine_cpu_vs_{mode}" for mode in modes]
    assert sorted(path.stem for path in tmp_path.glob("*.png")) == expected


@pytest.mark.parametrize(
    ("pairs", "arguments", "said"),
    [
        ([pair()], ["--what", "envelope"], "--envelope 8"),
        ([pair(steps=[])], ["--what", "drift"], "no pair of"),
        ([], ["--what", "drift"], "no pair of"),
        ([pair()], ["--what", "drift", "--suffix", "x"], "--suffix"),
    ],
    ids=["no envelope", "no steps", "no pairs", "suffix"],
)
def test_what_cannot_be_drawn_is_wrong_usage(
    tmp_path: Path, pairs: list[dict[str, Any]], arguments: list[str], said: str
) -> None:
    folder = investigation(tmp_path, *pairs)
    assert said in refusal(plot(folder, *arguments))
    assert pictures(folder) == []


def test_findings_that_are_not_there_are_named_with_their_command(tmp_path: Path) -> None:
    folder = investigation(tmp_path)
    (folder / "investigation.json").unlink()
    with pytest.raises(UsageError, match="numdrift investigate"):
        drawn_pairs(folder)


def test_pairs_are_read_with_numbers_as_text(tmp_path: Path) -> None:
    (found,) = drawn_pairs(investigation(tmp_path, pair("a/b c", curve=curve())))
    assert found.title == "train.py · a/b c against cpu · rounding"
    assert found.names == ("cpu", "a_b_c")
    assert [(step.step, step.taped, dict(step.scores)) for step in found.steps] == [
        (0, True, {"loss 0": 0.5, "gradient 0 w": 2.0}),
        (7, False, {"loss 0": float("inf"), "gradient 0 w": 2.0}),
    ]
    assert found.envelope is not None and found.envelope.onset == 2


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "null",
        '{"schema": 2, "reproducer": "x", "pairs": []}',
        '{"schema": 1}',
        '{"schema": 1, "reproducer": 3, "pairs": []}',
        '{"schema": 1, "reproducer": "x", "pairs": [{"a": "cpu"}]}',
        '{"schema": 1, "reproducer": "x", "pairs": [{"a": "cpu", "b": "lazy", "steps": [{"step": 0}]}]}',
        json.dumps({"schema": 1, "reproducer": "x", "pairs": [pair(steps=[STEPS[0] | {"tensors": [NO_SCORE]}])]}),
        '{"schema": 1, "reproducer": "x", "pairs": [{"a": "cpu", "b": "lazy", "curve": {"steps": [0]}}]}',
    ],
)
def test_damaged_findings_name_their_file(tmp_path: Path, text: str) -> None:
    folder = investigation(tmp_path)
    (folder / "investigation.json").write_text(text)
    with pytest.raises(JournalError, match=r"investigation\.json"):
        drawn_pairs(folder)
