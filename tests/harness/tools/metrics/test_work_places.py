"""The lines that copy to and from a device, and those whose functions are compiled again."""

from __future__ import annotations

import json
from pathlib import Path

from numdrift.harness.tools.metrics.metrics_summary import MetricsSummary, summarize
from numdrift.harness.tools.metrics.work_places import CopyPlace, Recompilation

from .test_metrics_summary import metrics, part, work

TO, FROM = "to device", "from device"
GUARD = "tensor 'x' size mismatch at index 0. expected 3, actual 4"


def on_device(folder: Path) -> MetricsSummary:
    """Two steps on a device, each with a batch that is copied and a loss that is read, after a model that is moved."""
    batch = work("transfer", TO, 0.001, 4096, None, "train.py:7")
    read = [*work("transfer", FROM, 0.005, 4, None, "train.py:11"), "item"]
    left = [*work("transfer", FROM, 0.0001, 64, None, "train.py:12"), "non-blocking"]
    again = [*work("compile", "graph 0/1", 2.0, 5, False, "train.py:9"), GUARD]
    memory = {"device": 10, "device_peak": 30, "device_reserved": 40, "device_reserved_peak": 50}
    return summarize(
        metrics(
            folder,
            part("setup", [work("transfer", TO, 0.0015, 8192, None, "train.py:4")]),
            part("step", [batch, read, left, again], step=0, memory=memory),
            part("step", [batch, read], step=1, memory=memory | {"device_peak": 35}),
            spec="cuda",
        )
    )


def test_copies_are_told_by_line_the_longest_first(tmp_path: Path) -> None:
    assert on_device(tmp_path).copies == [
        CopyPlace(FROM, "train.py:11", "item", 2, 2, 8, 0.01),
        CopyPlace(TO, "train.py:7", "", 2, 2, 8192, 0.002),
        CopyPlace(TO, "train.py:4", "", 1, 0, 8192, 0.0015),
        CopyPlace(FROM, "train.py:12", "non-blocking", 1, 1, 64, 0.0001),
    ]


def test_the_host_waits_for_what_it_needs_at_once(tmp_path: Path) -> None:
    assert [(one.text, one.waits) for one in on_device(tmp_path).copies] == [
        ("item() (or float(), or an `if`) at train.py:11", True),
        ("copy to device at train.py:7", False),
        ("copy to device at train.py:4", False),
        ("non-blocking copy from device at train.py:12", False),
    ]


def test_a_recompilation_has_its_line_and_the_guard_that_did_not_hold(tmp_path: Path) -> None:
    assert on_device(tmp_path).recompilations == [Recompilation("train.py:9", GUARD, 1, 2.0)]


def test_the_json_has_them_and_the_memory_of_the_device(tmp_path: Path) -> None:
    found = json.loads(json.dumps(on_device(tmp_path).to_json()))
    assert (found["device_peak_bytes"], found["device_reserved_peak_bytes"]) == (35, 50)
    assert found["copies"][0]["call"] == "train.py:11"
    assert found["recompilations"][0]["reason"] == GUARD
    assert [one["recompiled"] for one in found["by_step"]] == [0, 1, 0]


def test_a_run_that_was_recorded_before_there_were_causes_is_read(tmp_path: Path) -> None:
    found = summarize(metrics(tmp_path, part("step", [work("compile", "graph 0/0", 1.0, 5, False, "a.py:1")], step=0)))
    assert found.recompilations == [] and len(found.compiled) == 1
