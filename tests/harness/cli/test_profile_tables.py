"""What `numdrift profile` prints of a mode on a device: no time of the host stands under the device's name."""

from __future__ import annotations

import io
from dataclasses import replace
from pathlib import Path

from rich.console import Console

from numdrift.harness.cli.profile_tables import show_profiles
from numdrift.harness.records.tools.device_profile import (
    DeviceMemory,
    DeviceProfile,
    DeviceStep,
    DeviceWorkRow,
    WaitRow,
)
from numdrift.harness.records.tools.profile_record import BlockRow, OpRow, PhaseRow, RunProfile
from numdrift.harness.runs.manifest import RunManifest
from numdrift.harness.runs.recorded_run import RecordedRun

HOST = RunProfile(
    mode="cpu", type="operator", asked="3", steps=[3], partial=False, untraced=[], over="steps", bytes=2**20,
    step_milliseconds=[10.0], own_milliseconds=0.0, phases=[PhaseRow("forward", 10.0, 1.0)],
    blocks=[BlockRow("loss", 1, 4.0, 0.4)], ops=[OpRow("aten::mm", "op", "forward", "fc", "train.py:9", 2, 5.0)],
    executions=[], kernels=[], notices=[],
)  # fmt: skip
KERNEL = "void at::native::reduce_kernel<512, at::native::MeanOps<float> >(x)"
WORK = [
    DeviceWorkRow("gemm", "kernel", "aten::mm", "forward", "fc", "train.py:9", 2, 3.0),
    DeviceWorkRow(KERNEL, "kernel", "aten::mean", "forward", "", "train.py:9", 1, 0.5),
    DeviceWorkRow("Memcpy HtoD (Pageable -> Device)", "copy", "aten::copy_", "data", "", "train.py:7", 3, 0.5, "to device", 3072),
]  # fmt: skip
DEVICE = DeviceProfile(
    "cuda",
    "",
    WORK,
    [WaitRow("cudaStreamSynchronize", "aten::item", "forward", "", "train.py:12", 1, 2.0)],
    [DeviceStep(3, 0, 4.0, 3.5, 6.5, 3, 3)],
    [DeviceMemory(3, 0, 2**20, 2**21, 2**22, 2**22)],
)
CUDA = replace(HOST, mode="cuda", blocks=[BlockRow("loss", 1, 4.0, 0.4, 3.0)], device=DEVICE)
SILENT = replace(HOST, mode="npu", device=DeviceProfile("npu", "the profiler of torch 2.13.0 reports no times for npu"))


def printed(*profiles: RunProfile) -> str:
    out = io.StringIO()
    manifest = RunManifest(
        mode="cuda", spec="cuda", suffix="", reproducer="train.py", script_sha256="", arguments=[], record="losses",
        started="", position=0, pickle="",
    )  # fmt: skip
    runs = [RecordedRun(Path("runs/a", one.mode), manifest) for one in profiles]
    show_profiles(runs, profiles, Console(file=out, width=200, markup=False, highlight=False), 12)
    return out.getvalue()


def table(text: str, what: str) -> list[list[str]]:
    """The rows of a table with its header, each cut at wide gaps."""
    lines = text.splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith(what + " "))
    end = next((number for number in range(begin, len(lines)) if not lines[number].strip()), len(lines))
    return [line.split() for line in lines[begin:end]]


def test_host_and_device_have_columns_of_their_own() -> None:
    header, *rows = table(printed(HOST, CUDA), "phase")
    assert " ".join(header) == "phase cpu ms % cuda host ms % cuda device ms %"
    assert ["forward", "10.000", "100.0", "10.000", "100.0", "3.500", "87.5"] in rows
    assert rows[-1] == ["step", "10.000", "100", "10.000", "100", "4.000", "100"]


def test_every_table_has_the_devices_time() -> None:
    text = printed(CUDA)
    assert ["aten::mm", "5.000", "50.0", "3.000", "75.0", "2"] in table(text, "op")
    assert ["loss", "4.000", "40.0", "3.000", "75.0", "1"] in table(text, "block")
    assert ["fc", "5.000", "50.0", "3.000", "75.0", "2"] in table(text, "module")
    assert ["train.py:9", "5.000", "50.0", "3.500", "87.5", "2"] in table(text, "line")


def test_kernels_copies_and_waits_have_tables() -> None:
    text = printed(CUDA)
    assert ["reduce_kernel<MeanOps>", "0.500", "12.5", "1"] in table(text, "kernel")
    assert "to device: aten::copy_ in train.py:7  " in text and "3 KiB" in text
    assert "aten::item in train.py:12: cudaStreamSynchronize" in text
    facts = {" ".join(row[:-1]): row[-1] for row in table(text, "device")}
    assert (facts["busy ms"], facts["idle ms"], facts["kernels"], facts["launches"]) == ("3.500", "6.500", "3", "3")
    assert facts["memory peak 1"] == facts["reserved 2"] == "MiB"


def test_times_that_there_are_none_of_are_said_to_be_not_available() -> None:
    text = printed(SILENT)
    header, *rows = table(text, "phase")
    assert " ".join(header) == "phase npu host ms % npu device ms"
    assert rows[-1] == ["step", "10.000", "100", "not", "available"]
    assert "npu: device times are not available, so all times are the host's: the profiler of torch 2.13.0" in text
    assert " ".join(table(text, "op")[0]) == "op npu host ms % calls"


def test_a_host_alone_is_shown_as_ever() -> None:
    text = printed(HOST)
    assert " ".join(table(text, "phase")[0]) == "phase cpu ms %"
    assert "device" not in text and "host" not in text


def test_a_traced_step_that_compiled_is_said_to() -> None:
    again = replace(HOST, steps=[3, 4], step_milliseconds=[5.0, 5.0], compiled=[0, 1])
    assert printed(again).splitlines()[0].startswith("cpu: traced steps 3 to 4, compiling in 4, 1.0 MiB")
