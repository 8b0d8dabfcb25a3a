"""The rows of a report and its page, of two runs that were recorded in this process and findings that were made up."""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner

import numdrift
from numdrift.harness.cli.program import program
from numdrift.harness.errors import JournalError, UsageError
from numdrift.harness.records.results.findings import TensorScore
from numdrift.harness.report import pair_graphs
from numdrift.harness.report.markdown import markdown_of
from numdrift.harness.report.report_page import page_of
from numdrift.harness.report.rows import report_of
from numdrift.harness.report.where import heat_map, level_of, module_drift, module_of, module_rows
from numdrift.harness.tools.bundle.bundle_contents import DRAWN

from .outcomes import CODE, FAULT, SCRIPT, cause, made

HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>`|*{{ 7 * 7 }}"


def test_rows_hold_what_was_recorded(fault: Path) -> None:
    report = report_of(fault)
    losses = numdrift.load_run(fault / "base").losses()
    assert report.curves.rows[0].losses == losses.tolist() and report.curves.rows[0].reference is None
    assert report.curves.rows[1].reference == 0 and list(report.curves.steps) == list(range(5))
    (pair,) = report.pairs
    assert (pair.tone, pair.share) == ("bad", 1.5)
    first, suspect = pair.cards
    assert first.script == CODE and first.fault and first.proven and not suspect.proven
    assert [row.holds for row in first.proof] == [True, True, True]
    assert any("suspect has no proof" in said for said in pair.unchecked)
    assert all(not row.differs for row in report.environment if row.name in ("torch", "python"))
    assert report.command.startswith("numdrift investigate train.py --mode")


def test_a_script_outside_of_the_investigation_is_not_read(recorded: Path, tmp_path: Path) -> None:
    secret = tmp_path / "evidence" / "secret.py"
    secret.parent.mkdir()
    secret.write_text("secret", encoding="utf-8")
    for path in (str(secret), "evidence/../../../secret.py", "/etc/hostname", "evidence/../train.py"):
        stranger = replace(FAULT, culprits=(cause(script=replace(SCRIPT, path=path)),))
        assert [card.script for card in report_of(made(recorded, stranger)).pairs[0].cards] == [""]
    (recorded / "evidence" / "link.py").symlink_to(secret)
    linked = replace(FAULT, culprits=(cause(script=replace(SCRIPT, path="x/evidence/link.py")),))
    assert report_of(made(recorded, linked)).pairs[0].cards[0].script == ""


def test_the_page_is_the_same_again_and_small(fault: Path) -> None:
    page = page_of(report_of(fault))
    assert page == page_of(report_of(fault)) and len(page) < 200_000
    assert "<h2>Causes and proofs</h2>" in page and "proven fault from step 6 on" in page
    assert not re.search(r'(src|href)="(?!#)', page) and "url(" not in page
    assert DRAWN in page.encode()  # by which a bundle without data knows it


def test_a_module_that_does_not_drift_has_no_colour() -> None:
    still = TensorScore("gradient 0 layers.7.weight", 0.0)
    pair = replace(FAULT, steps=[replace(one, tensors=(*one.tensors, still)) for one in FAULT.steps])
    assert module_drift(pair) == {"layers.1": (1.5, 2), "layers.3": (2.33, 2), "layers.10": (0.2, 1)}


def test_graphs_stand_side_by_side_with_the_culprit_ringed(with_graphs: Path) -> None:
    (pair,) = report_of(with_graphs).pairs
    assert pair.graphs.why == "" and not any("graphs" in said for said in pair.unchecked)
    data = json.loads(re.findall(r'<script type="application/json" id="data">(.*?)</script>', pair.graphs.page)[0])
    marked = {
        side: [node["name"] for graph in data["graphs"][side] for node in graph["nodes"] if "mark" in node]
        for side in ("a", "b")
    }
    assert marked["a"] == ["tanh_backward"] and {"mul", "sub", "mul_1"} < set(marked["b"])
    assert data["drift"]["layers.1"] == ["1.5", 2] and data["drift"]["layers.3"] == ["2.33", 2]
    page = page_of(report_of(with_graphs))
    assert page.count("<iframe") == 1 and page.count("<script") == 3  # what the inner page holds is text here


def test_why_there_are_no_graphs_is_said(fault: Path, with_graphs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pair_graphs, "LARGEST", 1000)
    (large,) = report_of(with_graphs).pairs
    assert large.graphs.page == "" and "numdrift graph diff" in large.unchecked[-1]
    (with_graphs / "other" / "graphs" / "0-backward-pre.json").write_text("{", encoding="utf-8")
    (damaged,) = report_of(with_graphs).pairs
    assert damaged.graphs.page == "" and "the graphs cannot be shown" in damaged.unchecked[-1]
    shutil.rmtree(with_graphs / "other" / "graphs")
    report = report_of(with_graphs)
    assert report.pairs[0].unchecked[-1] == "the graphs were not recorded (--graphs records them)"
    assert "<iframe" not in page_of(report)
    (with_graphs / "other" / "graphs").mkdir()


def test_what_comes_of_a_run_is_text(recorded: Path) -> None:
    one = cause(
        op=f"aten.{HOSTILE}", places=(HOSTILE,), significance="beyond-rounding", reasons=(HOSTILE,), script=SCRIPT
    )
    hostile = replace(FAULT, culprits=(one,), text=(HOSTILE,), notes=(HOSTILE,), unexplained=HOSTILE)
    report = report_of(made(recorded, hostile))
    page = page_of(report)
    assert page.count("<script") == 3 and "<img" not in page and "{{ 7" in page
    written = markdown_of(report)
    assert "<img" not in re.sub(r"\\<", "", written) and "````python" in written
    assert all("<script>" not in line.replace("\\<script\\>", "") for line in written.splitlines())


def test_markdown_is_short_and_has_the_script(fault: Path) -> None:
    written = markdown_of(report_of(fault))
    opened = re.sub(r"<details>.*?</details>", "", written, flags=re.DOTALL)
    assert len(opened.splitlines()) < 60 and CODE in written and CODE not in opened
    assert written.splitlines()[2].startswith("**other computes tanh\\_backward less exactly")


def test_the_command_writes_the_page_and_ends_as_the_verdict(fault: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(fault.parent)
    told = CliRunner().invoke(program, ["report", "train", "--out", "."], standalone_mode=False)
    assert told.return_value == 1 and told.output.splitlines()[0].startswith("other computes tanh_backward")
    assert (fault / "report.html").read_text(encoding="utf-8") == page_of(report_of(fault))
    answered = CliRunner().invoke(program, ["report", "train", "--out", ".", "--json", "-"], standalone_mode=False)
    answer = json.loads(answered.output)["answers"][0]
    assert (answer["a"], answer["b"], answer["good"]) == ("base", "other", False)
    printed = CliRunner().invoke(program, ["report", "train", "--out", ".", "--markdown"], standalone_mode=False)
    assert printed.output == markdown_of(report_of(fault))


def test_without_findings_or_with_damaged_ones_it_says_so(recorded: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no findings: run `numdrift investigate"):
        report_of(tmp_path)
    (tmp_path / "investigation.json").write_text('{"schema": 99}', encoding="utf-8")
    with pytest.raises(JournalError, match="schema 99 is unknown"):
        report_of(tmp_path)


@pytest.mark.parametrize(
    ("tensor", "module"),
    [
        ("gradient 0 layers.1.weight", "layers.1"),
        ("state layers.1.weight.exp_avg", "layers.1"),
        ("buffer stage.bn1.running_mean", "stage.bn1"),
        ("parameter weight", ""),
        ("loss 0", ""),
    ],
)
def test_values_belong_to_modules(tensor: str, module: str) -> None:
    assert module_of(tensor) == module


def test_modules_are_a_tree_in_their_own_order_with_the_worst_of_their_parts() -> None:
    rows = [(row.name, row.depth, row.score) for row in module_rows(FAULT)]
    assert rows == [("layers", 0, 2.33), ("1", 1, 1.5), ("3", 1, 2.33), ("10", 1, 0.2)]
    heat = heat_map(FAULT)
    assert list(heat.steps) == [0, 6] and next(name for name, _ in heat.tensors) == "state layers.3.bias.exp_avg"
    assert [cell.level for cell in heat.tensors[1][1]] == [1, 2]
    assert [level_of(score, 21.1) for score in (0.0, 0.9, 4.0, 21.1, 21.2, float("inf"))] == [0, 1, 2, 3, 4, 4]
