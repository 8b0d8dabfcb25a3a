"""The modes' devices beside each other, and the device's time beside the host's in every table."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from numdrift.harness.records.tools.device_profile import DeviceMemory
from numdrift.harness.records.tools.profile_record import KernelRow, RunProfile, read_profile
from numdrift.harness.runs.manifest import RunManifest
from numdrift.harness.runs.recorded_run import RecordedRun
from numdrift.harness.tools.profile.device_rows import by_copy, by_kernel, by_wait, device_means
from numdrift.harness.tools.profile.profile_made import profile_of
from numdrift.harness.tools.profile.side_by_side import TimeRow, by_block, by_line, by_module, by_op, by_phase

from .cuda_trace import ADD, BLOCKS, MUL, TRITON, cuda_step

MANIFEST = RunManifest(
    mode="cuda", spec="cuda", suffix="", reproducer="train.py", script_sha256="", arguments=[], record="losses",
    started="", position=0, pickle="", status="complete", steps=5,
)  # fmt: skip
PLAN = {"event": "plan", "kind": "trace", "steps": "3-4", "duration": None, "limit": 1000}
DEVICE = {"event": "device", "kind": "cuda", "problem": ""}


def profiled(folder: Path, device: Mapping[str, Any] | None = DEVICE, *, work: bool = True) -> RunProfile:
    """The profile of a run whose steps 3 and 4 were traced, both the same."""
    working = folder / "profile" / "working"
    working.mkdir(parents=True)
    memory = {"device": 0, "allocated": 1, "allocated_peak": 8000, "reserved": 1, "reserved_peak": 9000}
    untraced = {"event": "untraced", "step": 2, "seconds": 1.0, "memory": memory}
    events: list[Mapping[str, Any]] = [PLAN, *([device] if device else []), untraced]
    for step in (3, 4):
        name = f"step-{step:06d}.json"
        found = [one for one in cuda_step(step) if work or one.get("cat") not in ("kernel", "gpu_memcpy")]
        (working / name).write_text(json.dumps({"baseTimeNanoseconds": step * 10**7, "traceEvents": found}))
        told = {"event": "traced", "file": name, "bytes": 1, "whole": True, "step": step, "seconds": 1.0}
        events.append({**told, "blocks": BLOCKS, **({"memory": memory} if device else {})})
    (folder / "profile" / "events.jsonl").write_text("\n".join(json.dumps(one) for one in events) + "\n")
    return profile_of(RecordedRun(folder, MANIFEST))


@pytest.fixture
def cuda(tmp_path: Path) -> RunProfile:
    return profiled(tmp_path)


def cells(rows: list[TimeRow]) -> dict[str, tuple[float, float | None]]:
    """Microseconds of a step on the host, and on the device."""
    found: dict[str, tuple[float, float | None]] = {}
    for row in rows:
        cell = row.cells[0]
        assert cell is not None
        device = cell.device_milliseconds
        found[row.name] = (round(cell.milliseconds * 1000, 6), None if device is None else round(device * 1000, 6))
    return found


def test_a_phase_has_the_hosts_time_and_that_of_what_it_launched(cuda: RunProfile) -> None:
    assert cells(by_phase([cuda])) == {
        "data": (100, 8), "forward": (300, 212), "backward": (300, 200), "optimizer": (200, 260),
    }  # fmt: skip
    shares = [cell.device_share for row in by_phase([cuda]) if (cell := row.cells[0]) is not None]
    assert sum(share for share in shares if share is not None) == pytest.approx(1)


def test_every_table_has_both_times(cuda: RunProfile) -> None:
    assert cells(by_block([cuda])) == {"loss_backward": (300, 200)}
    assert cells(by_module([cuda]))["fc"][1] == 300
    assert cells(by_line([cuda]))["train.py:9"][1] == 300
    ops = cells(by_op([cuda]))
    assert ops["aten::addmm"] == (60, 100)
    assert ops["aten::_fused_adamw_"] == (90, 260)
    assert ops[TRITON] == (30, 30), "a generated kernel has the time of its launch, and its own"


def test_a_generated_kernel_is_of_the_modules_and_lines_that_it_was_made_of(cuda: RunProfile) -> None:
    made = replace(cuda, kernels=[KernelRow(TRITON, ["aten::tanh"], ["fc", "act"], ["train.py:10"])])
    assert cells(by_module([made]))["fc, act"] == (30, 30)
    assert cells(by_line([made]))["train.py:10"] == (30, 30)


def test_kernels_are_merged_by_their_short_names_and_whole_in_json(cuda: RunProfile) -> None:
    short = {row.name: row.cells[0] for row in by_kernel([cuda])}
    assert next(iter(short)) == "ampere_sgemm_32x32_sliced1x4_tn"
    cell = short["vectorized_elementwise_kernel<MulFunctor>"]
    assert cell is not None and (round(cell.milliseconds, 6), cell.calls) == (0.040, 1)
    assert {ADD, MUL} <= {row.name for row in by_kernel([cuda], whole=True)}


def test_copies_and_waits_name_their_line(cuda: RunProfile) -> None:
    copies = {row.name: row.cells[0] for row in by_copy([cuda])}
    assert set(copies) == {
        "to device: aten::copy_ in train.py:8",
        "from device: aten::_local_scalar_dense in train.py:12",
    }
    cell = copies["to device: aten::copy_ in train.py:8"]
    assert cell is not None and (cell.bytes, cell.calls) == (4096, 1)
    (first, _) = by_wait([cuda])
    assert first.name == "aten::item in train.py:12: cudaStreamSynchronize"
    assert first.cells[0] is not None and first.cells[0].share == pytest.approx(30 / 900)


def test_a_devices_means_are_those_of_a_step(cuda: RunProfile) -> None:
    means = device_means(cuda)
    assert means is not None
    assert means.busy == {0: pytest.approx(0.650)} and means.idle == {0: pytest.approx(0.350)}
    assert (means.kernels, means.launches) == (6, 5)
    assert means.copies["to device"].bytes == 4096
    assert (means.waits.calls, round(means.waits.milliseconds, 6)) == (2, 0.044)


def test_the_memory_is_the_steps_where_it_was_traced_and_the_runs_where_not(cuda: RunProfile) -> None:
    assert cuda.device is not None
    assert cuda.device.memory == [
        DeviceMemory(2, 0, 8000, 9000, 8000, 9000),
        DeviceMemory(3, 0, 3000, 5000, 8000, 9000),
        DeviceMemory(4, 0, 3000, 5000, 8000, 9000),
    ]


def test_a_profile_with_a_device_is_read_as_it_was_written(cuda: RunProfile, tmp_path: Path) -> None:
    assert read_profile(tmp_path / "profile" / "profile.json") == cuda


def test_a_host_beside_a_device_has_no_device_times(cuda: RunProfile, tmp_path: Path) -> None:
    host = profiled(tmp_path / "host", None, work=False)
    assert host.device is None and device_means(host) is None
    row = next(row for row in by_phase([host, cuda]) if row.name == "optimizer")
    assert [None if cell is None else cell.device_milliseconds for cell in row.cells] == [None, 0.260]


def test_a_device_that_nothing_is_told_of_says_why(tmp_path: Path) -> None:
    asked = profiled(tmp_path / "asked", work=False)
    assert asked.device is not None and "reported no work on cuda" in asked.device.problem
    assert not asked.has_device_times
    unable = profiled(tmp_path / "unable", {**DEVICE, "problem": "the profiler reports no times for it"}, work=False)
    assert unable.device is not None and unable.device.problem == "the profiler reports no times for it"
    assert cells(by_phase([unable]))["forward"] == (300, None)


def test_the_first_schema_had_the_devices_time_among_the_ops_and_loses_it(cuda: RunProfile, tmp_path: Path) -> None:
    path = tmp_path / "profile" / "profile.json"
    content = json.loads(path.read_text())
    old = {"op": ADD, "kind": "device", "phase": "forward", "module": "", "line": "", "calls": 1, "milliseconds": 9.0}
    path.write_text(json.dumps({**content, "schema": 1, "ops": [*content["ops"], old]}))
    assert ADD not in cells(by_op([read_profile(path)]))
