"""What a device did in a step, read from a trace of CUDA's form whose sums are known."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from numdrift.harness.records.tools.device_profile import DeviceProfile
from numdrift.harness.tools.profile.device_launches import direction_of
from numdrift.harness.tools.profile.device_times import DeviceTimes, united
from numdrift.harness.tools.profile.step_times import TraceReading, step_times

from .cuda_trace import (
    ADAM,
    ADD,
    AUTOGRAD,
    BLOCKS,
    FROM_DEVICE,
    GEMM,
    HOST,
    MUL,
    OTHER_STREAM,
    STREAM,
    TO_DEVICE,
    TRITON,
    call,
    cuda_range,
    cuda_step,
    op,
    plug_in_step,
    work,
)
from .events import slice_


def device(events: list[dict[str, Any]]) -> DeviceProfile:
    times = DeviceTimes()
    times.add(3, events, TraceReading(events, lazy=False, blocks=BLOCKS))
    return times.profile("cuda", "", {})


def by(events: list[dict[str, Any]], what: str) -> dict[str, float]:
    """Microseconds of the device's work."""
    found: Counter[str] = Counter()
    for row in device(events).work:
        found[getattr(row, what)] += round(row.milliseconds * 1000)
    return dict(found)


def test_each_kernel_has_its_own_time() -> None:
    assert by(cuda_step(), "name") == {
        GEMM: 300, TRITON: 30, ADD: 40, MUL: 40, ADAM: 260, TO_DEVICE: 8, FROM_DEVICE: 2,
    }  # fmt: skip


def test_a_kernel_is_of_the_op_that_launched_it_whenever_it_ran() -> None:
    assert by(cuda_step(), "op") == {
        "aten::addmm": 100,
        TRITON: 30,
        "Torch-Compiled Region: 0/0": 80,
        "aten::mm": 200,
        "aten::_fused_adamw_": 260,
        "aten::copy_": 8,
        "aten::_local_scalar_dense": 2,
    }


def test_a_kernel_is_of_the_phase_module_and_line_of_its_launch() -> None:
    assert by(cuda_step(), "phase") == {"data": 8, "forward": 212, "backward": 200, "optimizer": 260}
    assert by(cuda_step(), "module") == {"": 380, "fc": 300}, "the backward of a module is the module's"
    assert by(cuda_step(), "line") == {
        "train.py:8": 8, "train.py:9": 300, "train.py:12": 2, "train.py:14": 260, "": 110,
    }  # fmt: skip


def test_streams_that_overlap_are_busy_once_and_work_after_the_steps_end_is_of_the_step() -> None:
    (step,) = device(cuda_step()).steps
    assert (step.step, step.device) == (3, 0)
    assert step.milliseconds == pytest.approx(0.680)
    assert step.busy_milliseconds == pytest.approx(0.650), "two kernels of the graph run at once for 30"
    assert step.idle_milliseconds == pytest.approx(0.350), "of 1100, less what is busy and 100 of the recording"


def test_a_graph_of_kernels_is_one_launch() -> None:
    (step,) = device(cuda_step()).steps
    assert (step.kernels, step.launches) == (6, 5)


def test_copies_have_their_way_and_bytes_and_line() -> None:
    copies = {row.direction: row for row in device(cuda_step()).work if row.sort == "copy"}
    assert (copies["to device"].bytes, copies["to device"].line) == (4096, "train.py:8")
    assert (copies["from device"].bytes, copies["from device"].calls) == (4, 1), "numdrift's own is not counted"


def test_waits_of_the_host_name_what_asked_for_them() -> None:
    waits = [(row.op, row.call, row.line, round(row.milliseconds * 1000)) for row in device(cuda_step()).waits]
    assert waits == [
        ("aten::item", "cudaStreamSynchronize", "train.py:12", 30),
        ("aten::to", "cudaStreamSynchronize", "train.py:8", 14),
    ]


def test_the_script_waits_itself_and_in_a_copy_to_memory_that_is_not_pinned() -> None:
    events = [
        cuda_range("ProfilerStep#3", 0, 100),
        cuda_range("phase: forward", 0, 100),
        call("cudaDeviceSynchronize", 10, 30, 1, 0),
        op("aten::empty", 31, 39, 3),
        call("cudaFree", 32, 38, 3, 3),
        call("cudaFreeAsync", 38, 39, 4, 3),
        op("aten::to", 40, 70, 2, line="train.py:3"),
        call("cudaMemcpyAsync", 45, 65, 2, 2),
        *work("Memcpy DtoH (Device -> Pageable)", 50, 60, 2, 2, bytes=64),
    ]
    waits = [(row.op, row.call, row.phase, row.line) for row in device(events).waits]
    assert sorted(waits) == [
        ("", "cudaDeviceSynchronize", "forward", ""),
        ("aten::empty", "cudaFree", "forward", ""),
        ("aten::to", "cudaMemcpyAsync", "forward", "train.py:3"),
    ]


def test_a_block_has_what_was_launched_within_it_also_from_another_thread() -> None:
    times = DeviceTimes()
    events = cuda_step()
    times.add(3, events, TraceReading(events, lazy=False, blocks=BLOCKS))
    assert times.blocks == {"loss_backward": 200}


def test_the_memory_of_a_step_is_its_peak_without_the_recordings() -> None:
    (memory,) = device(cuda_step()).memory
    assert (memory.step, memory.device, memory.allocated_peak, memory.reserved_peak) == (3, 0, 3000, 5000)


def test_the_hosts_times_are_the_same_with_a_device_and_without() -> None:
    events = cuda_step()
    of_host = [one for one in events if one.get("cat") in ("cpu_op", "user_annotation")]
    with_device, without = (step_times(one, lazy=False, blocks=BLOCKS) for one in (events, of_host))
    assert with_device.ops == without.ops
    assert {key.op for key in with_device.ops}.isdisjoint({GEMM, ADD, MUL, ADAM, TO_DEVICE})
    assert sum(spent.time for spent in with_device.phases.values()) == 900


def test_a_plug_in_without_runtime_calls_is_linked_by_the_ops_numbers() -> None:
    assert by(plug_in_step(), "op") == by(cuda_step(), "op")
    assert by(plug_in_step(), "phase") == by(cuda_step(), "phase")
    profile = device(plug_in_step())
    assert [one.launches for one in profile.steps] == [None], "launches that nobody told of are not counted"
    assert profile.waits == []


def test_a_call_on_a_thread_that_the_trace_does_not_know_is_found_by_the_ops_number() -> None:
    events = [
        {**one, "tid": 9_999_999} if one.get("cat") == "cuda_runtime" and one["tid"] == AUTOGRAD[1] else one
        for one in cuda_step()
    ]
    assert by(events, "op") == by(cuda_step(), "op")


def test_what_is_launched_outside_of_ops_is_of_the_phase() -> None:
    events = [
        cuda_range("ProfilerStep#3", 0, 100),
        cuda_range("phase: forward", 10, 50),
        call("cuLaunchKernel", 20, 25, 1, 0),
        *work("own_kernel", 30, 40, 1, 0),
        slice_("unlinked", 50, 5, "kernel", STREAM, {"device": 0, "stream": 7}),
    ]
    rows = {row.name: (row.op, row.phase) for row in device(events).work}
    assert rows == {"own_kernel": ("", "forward"), "unlinked": ("", "other")}


def test_two_devices_are_told_apart() -> None:
    events = [
        cuda_range("ProfilerStep#3", 0, 100),
        op("aten::mm", 10, 60, 1),
        call("cudaLaunchKernel", 20, 25, 1, 1),
        *work("a", 30, 40, 1, 1),
        call("cudaLaunchKernel", 30, 35, 2, 1),
        *work("b", 40, 70, 2, 1, (1, 7)),
    ]
    steps = {one.device: one for one in device(events).steps}
    assert {number: one.busy_milliseconds for number, one in steps.items()} == {0: 0.010, 1: 0.030}
    assert {number: one.idle_milliseconds for number, one in steps.items()} == {0: 0.090, 1: 0.070}


def test_a_compiler_that_tries_kernels_has_them_in_its_phase() -> None:
    events = [
        cuda_range("ProfilerStep#0", 0, 100),
        cuda_range("phase: forward", 0, 100),
        op("CachingAutotuner.benchmark_all_configs (dynamo_timed)", 10, 60, 1),
        call("cuLaunchKernelEx", 20, 25, 1, 1),
        *work("triton_a", 30, 40, 1, 1),
    ]
    assert by(events, "phase") == {"compile": 10}


@pytest.mark.parametrize(
    ("name", "direction"),
    [
        (TO_DEVICE, "to device"),
        ("Memcpy DtoH (Device -> Pageable)", "from device"),
        ("Memcpy DtoD (Device -> Device)", ""),
        ("Memcpy PtoP (Device -> Device)", ""),
        ("Memcpy M2D", "to device"),
        ("Memcpy D2M (Device -> Memory)", "from device"),
        ("CopyHostToDevice", "to device"),
        ("CopyDeviceToHost", "from device"),
        ("copy_", ""),
    ],
)
def test_the_way_of_a_copy_is_in_its_name(name: str, direction: str) -> None:
    assert direction_of(name) == direction


def test_intervals_that_overlap_or_touch_are_one() -> None:
    assert united([(5, 6), (0, 2), (1, 3), (3, 4)]) == [(0, 4), (5, 6)]
    assert united([]) == []


def test_a_trace_without_a_step_has_no_work() -> None:
    assert device([*work("a", 0, 1, 1, 1, OTHER_STREAM), op("aten::mm", 0, 1, 1, HOST)]).work == []
