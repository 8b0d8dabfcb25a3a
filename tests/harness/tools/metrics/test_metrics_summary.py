"""What metrics come to: percentiles, fragmentation in sentences, and the text form of torch's own reports."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numdrift.harness.errors import JournalError, MetricsNotFound
from numdrift.harness.records.tools.backend_work import FILE
from numdrift.harness.runs.manifest import RunManifest
from numdrift.harness.runs.recorded_run import RecordedRun
from numdrift.harness.tools.metrics.metrics_report import duration, metrics_report
from numdrift.harness.tools.metrics.metrics_summary import PERCENTILES, Distribution, summarize
from numdrift.harness.tools.metrics.run_metrics import RunMetrics, metrics_of

START = {
    "event": "start",
    "schema": 1,
    "backend": "lazy (TorchScript)",
    "executes_at_once": False,
    "unavailable": "",
}


def work(
    kind: str, name: str, seconds: float | None = None, size: int | None = None, cached: bool | None = None, call: str = "", at: float = 0.0
) -> list[Any]:  # fmt: skip
    return [kind, name, seconds, size, cached, call, at]


def part(event: str, works: list[list[Any]], **fields: Any) -> dict[str, Any]:
    timed = {"at": 0.0, "seconds": 1.0, "phases": {}, "counters": {}, "memory": {}}
    return {"event": event, "work": works, **timed, **fields}


def recorded(tmp_path: Path, *events: dict[str, Any], spec: str = "lazy", ending: str = "") -> RecordedRun:
    lines = "".join(json.dumps(event) + "\n" for event in events)
    (tmp_path / FILE).write_text(lines + ending)
    manifest = RunManifest(
        mode=spec.partition(",")[0], spec=spec, suffix="", reproducer="train.py", script_sha256="", arguments=[],
        record="params", started="", position=0, pickle="", pid=1,
    )  # fmt: skip
    return RecordedRun(tmp_path, manifest)


def metrics(tmp_path: Path, *events: dict[str, Any], spec: str = "lazy") -> RunMetrics:
    return metrics_of(recorded(tmp_path, START, *events, spec=spec))


@pytest.mark.parametrize(
    ("seconds", "written"),
    [
        (9.969486408, "09s969ms486.408us"),  # the founding text's
        (0.18606297, "186ms062.970us"),
        (0.010130597, "010ms130.597us"),
        (108.403e-6, "108.403us"),
        (0.0, "000.000us"),
        (1.7, "01s700ms000.000us"),
        (90061.5, "01d01h01m01s500ms000.000us"),
        (0.9999999996, "01s000ms000.000us"),
    ],
)
def test_a_duration_is_written_as_torch_does(seconds: float, written: str) -> None:
    assert duration(seconds) == written


def test_percentiles_are_those_of_the_founding_text() -> None:
    # given the two transfers of the founding text
    values = Distribution([0.006181995, 0.004948602])
    # then its line comes out
    shares = [f"{share}%={duration(values.percentile(share) or 0)}" for share in PERCENTILES]
    assert "; ".join(shares) == (
        "1%=004ms948.602us; 5%=004ms948.602us; 10%=004ms948.602us; 20%=004ms948.602us; 50%=006ms181.995us; "
        "80%=006ms181.995us; 90%=006ms181.995us; 95%=006ms181.995us; 99%=006ms181.995us"
    )


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=200))
def test_percentiles_are_values_and_do_not_fall(values: list[float]) -> None:
    found = [Distribution(values).percentile(share) for share in PERCENTILES]
    assert all(one in values for one in found)
    assert found == sorted(found, key=lambda one: -1.0 if one is None else one)
    share = sum(one < (found[4] or 0) for one in values) / len(values)
    assert share <= 0.5


def test_what_was_not_measured_is_in_no_distribution() -> None:
    assert Distribution.of([None, 1.0, None]).values == [1.0]
    assert Distribution([]).percentile(50) is None


def test_a_report_has_the_familiar_form(tmp_path: Path) -> None:
    # given
    run = metrics(
        tmp_path,
        part("step", [
            work("compile", "mark_step", 9.969486408, 9, False),
            work("execute", "mark_step", 0.18606297, 9),
            work("compile", "mark_step", None, 9, True, at=10.0),
            work("execute", "mark_step", 0.18606297, 9, at=10.0),
        ], step=0, counters={"lazy::addmm": 2}),
    )  # fmt: skip
    # when
    lines = metrics_report(run).splitlines()
    # then
    assert lines[:4] == [
        "Metric: CompileTime",
        "  TotalSamples: 1",
        "  Accumulator: 09s969ms486.408us",
        "  Percentiles: " + "; ".join(f"{share}%=09s969ms486.408us" for share in PERCENTILES),
    ]
    executed = lines.index("Metric: ExecuteTime")
    assert lines[executed + 1 : executed + 5] == [
        "  TotalSamples: 2",
        "  Accumulator: 372ms125.940us",
        "  ValueRate: 037ms212.594us / second",
        "  Rate: 0.2 / second",
    ]
    assert "Metric: TransferToServerTime" not in lines
    assert lines[-2:] == ["Counter: lazy::addmm", "  Value: 2"]


def test_what_fragments_a_graph_is_said_with_line_and_cost(tmp_path: Path) -> None:
    # given an op that falls back twice in each of two steps, a graph for it each time, and a value that is read
    falls_back = [
        work("compile", "fallback aten::lerp.Scalar", 0.5, 9, False, "train.py:24"),
        work("execute", "fallback aten::lerp.Scalar", None, 9, None, "train.py:24"),
        work("transfer", "from device", None, 4, None, "train.py:24"),
        work("fallback", "aten::lerp.Scalar", 0.001, None, None, "train.py:24"),
    ]
    reads = [
        work("compile", "item", 0.002, 9, False, "train.py:30"),
        work("execute", "item", None, 9, None, "train.py:30"),
    ]
    # when
    found = summarize(
        metrics(
            tmp_path,
            part("setup", []),
            part("step", falls_back * 2 + reads, step=0),
            part("step", falls_back * 2, step=1),
        )
    )
    # then
    assert [(one.what, one.call, one.count, one.steps, one.graphs) for one in found.fragmentation] == [
        ("aten::lerp.Scalar", "train.py:24", 4, 2, 4),
        ("item", "train.py:30", 1, 1, 1),
    ]
    assert math.isclose(found.fragmentation[0].seconds or 0, 0.004)
    assert found.fragmentation[0].text == (
        "aten::lerp.Scalar at train.py:24 falls back to the CPU: 4 times in 2 steps, 4 ms in all; it fragments the graph (graphs cut: 4)"
    )
    assert (
        found.fragmentation[1].text
        == "item() (or float(), or an `if`) at train.py:30 cuts the graph: once, 2 ms in all"
    )
    assert found.to_json()["by_step"][1]["compiled"] == 3


def test_a_compiler_leaves_ops_to_torch_and_breaks_graphs(tmp_path: Path) -> None:
    works = [
        work("fallback", "aten::sort.stable", call="train.py:9"),
        *[work("fallback", "aten::mul.Tensor", call="train.py:7")] * 2,
        work("fallback", "graph break: print", call="train.py:8"),
    ]
    found = summarize(metrics(tmp_path, part("step", works, step=0), spec="compile"))
    assert {one.text for one in found.fragmentation} == {
        "aten::sort.stable at train.py:9 runs as torch's own kernel: Inductor has no kernel for it and fuses nothing with it",
        "aten::mul.Tensor at train.py:7 runs as torch's own kernel (2 calls): Inductor has no kernel for it and fuses nothing with it",
        "graph break: print at train.py:8, once: it fragments the graph",
    }


def test_the_parts_of_a_step_add_up(tmp_path: Path) -> None:
    works = [
        work("compile", "mark_step", 0.5),
        work("execute", "mark_step", 0.2),
        work("fallback", "aten::x", 0.6),
    ]
    (step,) = metrics(tmp_path, part("step", works, step=0, phases={"recording": 0.1})).steps
    assert math.isclose(step.other, 0.2)


def test_a_run_that_was_killed_is_read_up_to_its_last_step(tmp_path: Path) -> None:
    run = recorded(tmp_path, START, part("setup", []), part("step", [], step=0), ending='{"event":"step","at')
    found = metrics_of(run)
    assert [step.step for step in found.steps] == [0]
    assert not found.has_ended


def test_a_file_of_somebody_else_is_refused(tmp_path: Path) -> None:
    with pytest.raises(JournalError, match="line 2"):
        metrics_of(recorded(tmp_path, START, {"event": "step"}))
    with pytest.raises(JournalError, match="schema 7"):
        metrics_of(recorded(tmp_path, START | {"schema": 7}))


def test_a_run_without_metrics_says_how_to_get_them(tmp_path: Path) -> None:
    run = recorded(tmp_path)
    (tmp_path / FILE).unlink()
    with pytest.raises(MetricsNotFound, match="--metrics"):
        metrics_of(run)
