"""What a culprit's card has of the file beside its script: the numbers as they are, and nothing of what is damaged."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from numdrift.harness.records.codec import plain
from numdrift.harness.records.results.culprit import Culprit
from numdrift.harness.records.results.culprit_detail import DETAIL, CulpritDetail, ErrorsOverInputs, ExecutedSide
from numdrift.harness.records.tools.graph_record import FOLDER, INDEX, Graph, Node
from numdrift.harness.report.culprit_rows import CulpritRows, culprit_rows
from numdrift.harness.report.report_page import page_of
from numdrift.harness.report.rows import report_of
from numdrift.harness.report.run_kernels import RunKernels
from numdrift.harness.runs.recorded_run import load_run

from .outcomes import DETAILED, ERRORS, FAULT, SCRIPT, cause, made

LABELS = {"a": "base", "b": "other"}


def rows_of(tmp_path: Path, detail: object, one: Culprit | None = None, **kernels: RunKernels) -> CulpritRows:
    path = tmp_path / "culprit-1.json"
    content = {"schema": 1, **plain(detail)} if isinstance(detail, CulpritDetail) else detail
    path.write_text(content if isinstance(content, str) else json.dumps(content), encoding="utf-8")
    return culprit_rows(path, one or cause(), LABELS, kernels)


def test_both_sides_and_their_errors_are_shown_as_they_are(tmp_path: Path) -> None:
    rows = rows_of(tmp_path, DETAILED, cause(kernel={"a": "aten", "b": "decomposed"}))
    a, b = rows.sides
    assert (a.name, a.how) == ("base", "torch's own kernel of g*(1 - y*y) from the output y")
    assert (b.formula, b.how) == ("grad_output * (1 - output * output)", "decomposed by the compiler")
    assert b.code.splitlines()[0] == "def side_b(output, grad_output):" and b.code.endswith("\n    return [t3]")
    assert rows.plot is not None and rows.damage == ""
    assert [name for name, _ in rows.plot.axes] == ["output", "grad_output", "result in double"]
    assert rows.plot.errors == [(LABELS[side], list(ERRORS.errors[side])) for side in "ab"]
    assert rows.plot.caption == "5 of 640 elements, the largest errors of both sides among them"
    assert b.label == "Errors of other in ULP over output: at most 40.8"


def test_what_is_not_finite_is_no_point_and_is_counted(tmp_path: Path) -> None:
    errors = replace(
        ERRORS, errors={**ERRORS.errors, "b": [math.inf, math.nan, 0.5, 10**400, 0.0]}, not_finite={"a": 0, "b": 3}
    )
    plot = rows_of(tmp_path, replace(DETAILED, errors=errors)).plot
    assert plot is not None and plot.errors[1][1] == [None, None, 0.5, None, 0.0]
    assert plot.caption.endswith("; not finite: 3 in other")


def test_without_a_file_there_is_nothing(tmp_path: Path) -> None:
    assert culprit_rows(tmp_path / "culprit-1.json", cause(), LABELS, {}) == CulpritRows()
    assert culprit_rows(None, cause(), LABELS, {}) == CulpritRows()


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("{", "cannot be read"),
        ("[" * 100_000, "cannot be read"),
        ('{"schema": 2}', "schema that this version of numdrift cannot read"),
        ('{"schema": 1, "sides": 3}', "sides is 3, not an object"),
        (
            json.dumps({"schema": 1, "errors": {**plain(ERRORS), "exact": ["x"]}}),
            "errors.exact[0] is 'x', not a number",
        ),
        ('{"schema": 1}' + " " * 3_000_000, "larger than any"),
    ],
)
def test_a_damaged_file_is_one_line(content: str, why: str, tmp_path: Path) -> None:
    rows = rows_of(tmp_path, content)
    assert rows.sides == () and rows.plot is None
    assert rows.damage.startswith("culprit-1.json is not shown: ") and why in rows.damage
    assert len(rows.damage.splitlines()) == 1 and str(tmp_path) not in rows.damage


WRONG: Mapping[str, Callable[[ErrorsOverInputs], ErrorsOverInputs]] = {
    "differ in length": lambda one: replace(one, exact=one.exact[1:]),
    "lack a side": lambda one: replace(one, errors={"a": one.errors["a"]}),
    "an unknown side": lambda one: replace(one, largest={}),
    "impossible number": lambda one: replace(one, elements=3),
    "number of elements": lambda one: replace(one, exact=[], errors={"a": [], "b": []}, inputs={}),
    "number of elements or inputs": lambda one: replace(one, inputs={str(at): one.exact for at in range(100)}),
}


@pytest.mark.parametrize("why", WRONG)
def test_errors_that_do_not_belong_together_are_one_line_and_the_code_stays(why: str, tmp_path: Path) -> None:
    rows = rows_of(tmp_path, replace(DETAILED, errors=WRONG[why](ERRORS)))
    assert rows.plot is None and why in rows.damage and [row.formula for row in rows.sides][1]
    assert [row.label for row in rows.sides] == ["", ""]


def test_a_kernel_that_the_mode_has_put_there_says_its_formula(recorded: Path, tmp_path: Path) -> None:
    run = load_run(recorded / "other")
    swap = {"op": "tanh_backward", "kernel": "bf16", "formula": "bf16: g*(1 - y*y)"}
    swapped = RunKernels(replace(run, manifest=replace(run.manifest, swaps=[swap])))
    rows = rows_of(tmp_path, DETAILED, cause(kernel={"a": "aten", "b": "bf16"}), other=swapped)
    assert [(row.how, row.formula) for row in rows.sides][1] == ("the kernel bf16", "bf16: g*(1 - y*y)")


def graphs(folder: Path, code: str) -> None:
    """A graph before and after a compiler, of which one generated kernel executes the culprit."""
    before = [Node("mul", "mul", phase="backward", module="layers.1", original="aten.tanh_backward")]
    kernels = [
        Node("other", "cpp_fused_add", "inductor", covers=("add",), code="void other() {}"),
        Node("fused", "cpp_fused_tanh_backward", "inductor", covers=("mul",), code=code),
    ]
    found = [("0-backward-pre", "pre", "", before), ("0-backward-post", "post", "0-backward-pre", kernels)]
    (folder / FOLDER).mkdir()
    lines = []
    for name, stage, pre, nodes in found:
        graph = Graph(name, "other", stage, "backward", 0, pre=pre, nodes=tuple(nodes))
        (folder / FOLDER / f"{name}.json").write_text(json.dumps(graph.to_json()), encoding="utf-8")
        entry = {"event": "graph", "name": name, "stage": stage, "phase": "backward", "step": 0, "nodes": 1, "pre": pre}
        lines.append(json.dumps(entry))
    (folder / FOLDER / INDEX).write_text("\n".join(lines) + "\n", encoding="utf-8")


def test_the_source_of_a_generated_kernel_is_shown_where_the_run_has_kept_it(recorded: Path, tmp_path: Path) -> None:
    run = load_run(recorded / "other")
    graphs(tmp_path, "void kernel() {}")
    one = cause(module="layers.1", source=None, kernel={"a": "aten", "b": "decomposed"})
    a, b = rows_of(tmp_path, DETAILED, one, other=RunKernels(replace(run, path=tmp_path))).sides
    assert (b.generated, b.source) == ("cpp_fused_tanh_backward", "void kernel() {}") and a.source == ""
    (tmp_path / FOLDER / "0-backward-post.json").write_text("{", encoding="utf-8")
    assert rows_of(tmp_path, DETAILED, one, other=RunKernels(replace(run, path=tmp_path))).sides[1].source == ""


HOSTILE = "</script><script>alert(1)</script><img src=x onerror=alert(2)>{{ 7 * 7 }}"


def test_names_and_code_of_a_stranger_are_text(recorded: Path) -> None:
    sides = {side: ExecutedSide("calls", (HOSTILE,), (HOSTILE,), (HOSTILE,)) for side in "ab"}
    errors = replace(ERRORS, result=HOSTILE, dtypes={"a": HOSTILE, "b": HOSTILE}, inputs={HOSTILE: ERRORS.exact})
    path = recorded / "evidence" / "lazy-localized-cpu-000006" / "culprit-1.json"
    kept = path.read_text(encoding="utf-8")
    try:
        path.write_text(json.dumps({"schema": 1, **plain(CulpritDetail(sides, errors))}), encoding="utf-8")
        page = page_of(report_of(made(recorded, replace(FAULT, culprits=(cause(script=SCRIPT),)))))
        assert page.count("<script") == 3 and "<img" not in page and "{{ 7" in page
    finally:
        path.write_text(kept, encoding="utf-8")


def test_a_file_outside_of_the_evidence_is_not_read(recorded: Path, tmp_path: Path) -> None:
    folder = recorded / "evidence" / "stranger"
    folder.mkdir()
    secret = tmp_path / "secret.json"
    secret.write_text(json.dumps({"schema": 1, **plain(DETAILED)}), encoding="utf-8")
    (folder / "culprit-1.json").symlink_to(secret)
    (folder / "culprit-1.py").write_text("", encoding="utf-8")
    for path in ("x/evidence/stranger/culprit-1.py", str(tmp_path / "secret.py"), "evidence/../../secret.py"):
        stranger = made(recorded, replace(FAULT, culprits=(cause(script=replace(SCRIPT, path=path)),)))
        assert report_of(stranger).pairs[0].cards[0].detail == CulpritRows()


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    path = tmp_path / "culprit-1.json"
    path.write_text(json.dumps({"schema": 1, **plain(DETAILED)}), encoding="utf-8")
    read: Any = DETAIL.read(path)
    assert plain(read) == plain(DETAILED)
