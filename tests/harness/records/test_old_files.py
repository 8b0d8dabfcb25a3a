"""Files that version 0.1 left: they are read, and what was known of them is written again as it was."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import numdrift
from numdrift.harness.records.codec import json_text, plain, read
from numdrift.harness.records.results.culprit import Culprit
from numdrift.harness.records.results.findings import Findings, Verdict
from numdrift.harness.records.results.localization_record import read_localization
from numdrift.harness.records.run.run_config import RunConfig
from numdrift.harness.records.run.run_files import OwnFolders
from numdrift.harness.runs.manifest import read_manifest

OLD = Path(__file__).parent / "old"


def content(name: str) -> Any:
    return json.loads((OLD / name).read_text())


def without_kernel(culprit: Culprit) -> dict[str, Any]:
    return {name: one for name, one in culprit.to_json().items() if name != "kernel"}


def test_culprits_are_written_as_they_were_but_for_the_kernels() -> None:
    old = [one for pair in content("investigation.json")["pairs"] for one in pair["culprits"]]
    old += [one for mode in ("tc", "pl") for one in content(f"localization-{mode}.json")["culprits"]]
    assert {one["kind"] for one in old} == {"kernel", "mark-step"}
    again = [without_kernel(one) for one in read(list[Culprit], old)]
    assert json_text(again) == json_text(old)  # in the same order too


def test_a_localization_is_read(tmp_path: Path) -> None:
    (tmp_path / "localization.json").write_text((OLD / "localization-pl.json").read_text())
    found = read_localization(tmp_path)
    assert found is not None and found.step == 0
    assert [(one.kind, one.kernel, one.is_proven) for one in found.culprits] == [
        ("mark-step", None, True),
        ("kernel", None, True),
    ]


def test_an_investigation_is_read(tmp_path: Path) -> None:
    (tmp_path / "investigation.json").write_text((OLD / "investigation.json").read_text())
    found = numdrift.load_investigation(tmp_path)
    (pair,) = found.pairs
    cut, kernel = pair.culprits
    assert (cut.kind, cut.op, cut.swap_in_holds) == ("mark-step", None, True)
    assert (kernel.kind, kernel.op, kernel.script) == (
        "kernel",
        "aten.tanh_backward",
        Path("runs/s/evidence/lazy-localized-cpu-000000/culprit-1.py"),
    )
    assert kernel.text[0].startswith("aten.tanh_backward in the backward of layers.3, layers.1")


def test_a_manifest_is_read_and_written_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "run.json").write_text((OLD / "run.json").read_text())
    run = read_manifest(tmp_path)
    assert (run.mode, run.steps, run.status) == ("compile", 3, "complete")
    run.write(tmp_path / "run.json")
    assert (tmp_path / "run.json").read_text() == (OLD / "run.json").read_text()


def test_a_config_is_read_and_says_the_same() -> None:
    config = RunConfig.load(OLD / "config.json")
    assert config.mode.name == "compile-held-cpu-2" and str(config.outcomes) == "2"
    # which that version did not have
    later = {
        "max_steps": None,
        "max_seconds": None,
        "checkpoints": 0,
        "keep_inputs": False,
        "prepares": False,
        "rejoin": "",
        "measured": None,
        "calls": None,
        "keep_files": False,
        "in_place": False,
        "folder": "",
        "files": plain(OwnFolders()),
        "unseeded_seed": 0,
        "quick_tapes": False,
        "import_paths": [],
        "revision": "",
        "beside": "",
        "earlier": [],
        "kill": False,
        "subject": None,
        "overhead": None,
        "as_is": False,
        "sampled": False,
    }
    assert config.to_json() == content("config.json") | later


def test_findings_are_read_as_records_and_written_as_they_were() -> None:
    old = content("investigation.json")
    found = Findings.from_json(old)
    (pair,) = found.pairs
    assert pair.steps and all(one.compared >= len(one.tensors) > 0 for one in pair.steps)
    assert pair.without is not None and pair.without.left == ["mark-step"]
    assert [run.status for run in found.runs.values()] == ["complete", "complete"]
    again = found.to_json()
    for one in again["pairs"]:
        for culprit in one["culprits"]:
            culprit.pop("kernel", None)
    assert json_text(again) == json_text(old)


def test_a_verdict_is_read_as_it_was_written() -> None:
    verdict = Verdict("beyond-rounding", "much", step=3, score=math.inf, tensor="loss 0", notes=("a note",))
    assert read(Verdict, json.loads(json_text(verdict))) == verdict
