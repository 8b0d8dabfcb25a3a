"""The benchmark's investigations as tasks of an engine: which are executed, and what becomes of their verdicts."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from . import investigations as module
from .case import Trial, trials
from .investigations import Investigation, executed_by_engine, investigations

INVESTIGATE = """#!{python}
# -m numdrift investigate SCRIPT --mode SPEC ... --name NAME --out FOLDER ...: finds every fault, and ends as `fails` says
import json, sys
from pathlib import Path
words = sys.argv[1:]
name, folder = (words[words.index(flag) + 1] for flag in ("--name", "--out"))
with Path({log!r}).open("a") as log:
    log.write(name + "\\n")
if Path({fails!r}).exists():
    print("numdrift: the disk is full", file=sys.stderr)
    sys.exit(70)
modes = [word.partition("=")[0] for flag, word in zip(words, words[1:]) if flag == "--mode"]
pairs = [{{"a": modes[0], "b": mode, "verdict": "beyond-rounding", "text": [name], "score": 99.0}} for mode in modes[1:]]
Path(folder, name, "investigation.json").write_text(json.dumps({{"pairs": pairs}}))
sys.exit(1)
"""


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program in place of Python's, which notes the investigations that it is asked for."""
    path = tmp_path / "investigate"
    facts = {"log": str(tmp_path / "log"), "fails": str(tmp_path / "fails")}
    path.write_text(INVESTIGATE.format(python=sys.executable, **facts))
    path.chmod(0o755)
    monkeypatch.setattr(module, "sys", SimpleNamespace(executable=str(path), stderr=sys.stderr))
    return tmp_path


def of_model(model: str, kind: str) -> list[Investigation]:
    return list(investigations(model, [trial for trial in trials(model) if trial.case.kind == kind]))


def test_a_model_is_one_investigation_and_each_case_that_is_the_reference_another() -> None:
    found = of_model("settings", "kernel")

    assert [len(investigation.trials) for investigation in found] == [1, 1, 1]
    assert found[0].specs[0] == "cpu" and found[1].specs[1] in ("plain=cpu", "plain=compile")
    assert [trial for investigation in found for trial in investigation.trials] == sorted_by_reference("settings")


def sorted_by_reference(model: str) -> list[Trial]:
    return sorted((t for t in trials(model) if t.case.kind == "kernel"), key=lambda trial: trial.against is not None)


def test_what_the_folder_holds_is_not_executed_again(program: Path) -> None:
    planned = of_model("settings", "kernel")
    out = program / "out"

    first = executed_by_engine(planned[:2], out, 1, "local", {})
    judged = executed_by_engine(planned, out, 1, "local", {})

    executed = (program / "log").read_text().split()
    assert sorted(executed) == sorted(investigation.name for investigation in planned)  # two of them at the same time
    assert executed[2] == planned[2].name
    assert [judgement.verdict for judgement in judged] == ["beyond-rounding"] * 3 and len(first) == 2
    assert [judgement.text for judgement in judged] == [investigation.name for investigation in planned]
    # when an investigation has another case, then it is executed again, and the others are not
    other = [trial for trial in trials("settings") if trial.against is None][:2]
    executed_by_engine([*investigations("settings", other), *planned[1:]], out, 1, "local", {})
    assert (program / "log").read_text().split()[3:] == ["settings"]


def test_an_investigation_without_findings_is_named_and_executed_again(program: Path) -> None:
    planned, out = of_model("settings", "kernel")[:1], program / "out"
    (program / "fails").touch()

    with pytest.raises(
        SystemExit, match="the investigation of settings ended with exit code 70: numdrift: the disk is"
    ):
        executed_by_engine(planned, out, 1, "local", {})
    (program / "fails").unlink()

    assert len(executed_by_engine(planned, out, 1, "local", {})) == 1
    assert (program / "log").read_text().split() == ["settings", "settings"]
