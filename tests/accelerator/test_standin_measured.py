"""Profile and metrics of a device: the stand-in's own times, copies, waits and memory, in the tables and in the traces."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from ..harness.tools.profile.test_device_tracks import check_for_viewers
from .conftest import Standin

SCRIPT = """\
import torch
import numdrift

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Tanh(), torch.nn.Linear(64, 1)).to("cuda")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
for step in range(8):
    x = torch.randn(32, 64).to("cuda")  # batch
    with numdrift.phase("build"):
        loss = model(x).square().mean()  # forward
    if loss.item() > 1e3:  # read
        print("high")
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
print([parameter.double().sum().item() for parameter in model.parameters()])
"""


def line(what: str) -> str:
    return f"train.py:{next(number for number, text in enumerate(SCRIPT.splitlines(), 1) if f'# {what}' in text)}"


@pytest.fixture
def script(standin: Standin) -> Path:
    path = standin.folder / "train.py"
    path.write_text(SCRIPT)
    return path


def read(path: Path) -> Any:
    return json.loads(path.read_text())


@pytest.mark.slow
def test_the_profile_has_the_devices_time_by_kernel_op_module_line_and_phase(standin: Standin, script: Path) -> None:
    done = standin("profile", script, "--modes", "cpu,standin", "--type", "operator", "--name", "p", "--json", "p.json")
    assert done.returncode == 0, done.stderr
    header = next(row for row in done.stdout.splitlines() if row.startswith("phase "))
    assert re.sub(r" +", " ", header) == "phase cpu ms % standin host ms % standin device ms %"
    # then every table has the device's share of the work
    found = read(standin.folder / "p.json")
    tables = {name: {row["name"]: row["cells"][1] for row in rows} for name, rows in found["tables"].items()}
    launched = {
        "phases": ("forward", "backward", "optimizer"),
        "blocks": ("build",),
        "modules": ("0", "1", "2"),
        "lines": (line("forward"),),
        "ops": ("aten::addmm",),
    }
    for name, rows in launched.items():
        for row in rows:
            cell = tables[name][row]
            assert cell is not None and cell["device_milliseconds"] > 0, (name, row)
    assert sum(cell["device_share"] for cell in tables["phases"].values() if cell) == pytest.approx(1)
    assert any("addmm" in name for name in tables["kernels"])
    assert [row["cells"][0]["device_milliseconds"] for row in found["tables"]["phases"] if row["cells"][0]] == [
        None
    ] * 4
    # and the means of the device, whose plug-in tells of no launches
    host, device = found["devices"]
    assert host is None and device["kernels"] > 10 and device["launches"] is None
    assert 0 < device["busy"]["0"] <= device["milliseconds"] + 1e-9
    memory = next(one for one in found["runs"] if one["mode"] == "standin")["device"]["memory"]
    assert [one["step"] for one in memory] == [0, 1, 2, 3, 4, 5] and memory[0]["allocated_peak"] > 2**15


@pytest.mark.slow
def test_the_trace_has_the_devices_kernels_and_opens(standin: Standin, script: Path) -> None:
    done = standin("profile", script, "--mode", "standin", "--name", "p", "--quiet")
    assert done.returncode == 0, done.stderr
    events = read(standin.folder / "runs/p/standin/profile/trace.json")["traceEvents"]
    kernels = [one for one in events if one.get("cat") == "kernel"]
    steps = {one["name"]: one["ts"] for one in events if one["name"].startswith("ProfilerStep")}
    assert len(steps) == 3 and len(kernels) >= 3 * 10
    assert min(one["ts"] for one in kernels) >= min(steps.values())
    check_for_viewers([one for one in events if one["ph"] != "f" or one["name"] != "fwdbwd"])


@pytest.mark.slow
def test_profiling_and_measuring_change_no_bit(standin: Standin, script: Path) -> None:
    for name, how in (("plain", ["run"]), ("traced", ["profile"]), ("measured", ["run", "--metrics"])):
        done = standin(*how, script, "--mode", "standin", "--name", name, "--quiet")
        assert done.returncode == 0, done.stderr
    printed = [
        (standin.folder / "runs" / name / "standin" / "stdout.log").read_text()
        for name in ("plain", "traced", "measured")
    ]
    assert printed[0].count(",") == 3 and printed[0] == printed[1] == printed[2]


@pytest.mark.slow
def test_the_metrics_have_the_lines_that_copy_and_wait_and_the_devices_memory(standin: Standin, script: Path) -> None:
    done = standin("run", script, "--mode", "standin", "--metrics", "--name", "m", "--quiet")
    assert done.returncode == 0, done.stderr
    shown = standin("metrics", "m", "--steps", "--json", "m.json", "--trace", "trace.json")
    assert shown.returncode == 0, shown.stderr
    assert f"item() (or float(), or an `if`) at {line('read')}: 8 times in 8 steps, 32 B" in shown.stdout
    assert "the host waits there for the device" in shown.stdout
    (run,) = read(standin.folder / "m.json")["runs"]
    copies = {(one["direction"], one["call"], one["cause"]): one for one in run["copies"]}
    assert copies["to device", line("batch"), ""]["bytes"] == 8 * 32 * 64 * 4
    assert copies["from device", line("read"), "item"]["count"] == 8
    assert len(copies) == 4, "the model's move and the last line besides, and nothing that numdrift itself reads"
    assert run["device_peak_bytes"] > 2**15 and run["device_reserved_peak_bytes"] >= run["device_peak_bytes"]
    assert run["fragmentation"] == [], "a fallback that stays on the device is none"
    events = read(standin.folder / "trace.json")["traceEvents"]
    check_for_viewers(events)
    assert {"device memory allocated", "memory resident"} <= {one["name"] for one in events if one["ph"] == "C"}
