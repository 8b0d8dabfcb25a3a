"""A step on a CUDA device as Kineto writes it: times in microseconds, chosen so that every sum is done in the head.

host     data         forward                                  backward      numdrift   optimizer
0        copy_ to     addmm  triton  graph of two  item        mm (thread    item       fused AdamW
         the device                  kernels                   of autograd)                          1000
device   30..38       150..250  250..280  300..340  360..362   460..660      720..722   840..1100
                                          310..350 (stream 13)
"""

from __future__ import annotations

from typing import Any

from .events import range_, slice_

HOST, AUTOGRAD = (100, 100), (100, 200)
STREAM, OTHER_STREAM = (0, 7), (0, 13)

GEMM = "ampere_sgemm_32x32_sliced1x4_tn"
TRITON = "triton_poi_fused_tanh_0"
ADD = "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul> >(int)"
MUL = "void at::native::vectorized_elementwise_kernel<4, at::native::MulFunctor<float>, std::array<char*, 3ul> >(int)"
ADAM = (
    "void at::native::(anonymous namespace)::multi_tensor_apply_kernel<at::native::FusedAdamMathFunctor<float, 4> >(x)"
)
TO_DEVICE, FROM_DEVICE = "Memcpy HtoD (Pageable -> Device)", "Memcpy DtoH (Device -> Pinned)"
BLOCKS = {"loss_backward": 1}


def op(
    name: str, start: float, end: float, number: int, thread: tuple[int, int] = HOST, *, line: str = "", node: int = -1
) -> dict[str, Any]:
    """An op with its number; `node` is that of the autograd node that it belongs to."""
    facts: dict[str, Any] = {"External id": number, **({"Call line": line} if line else {})}
    if node >= 0:
        facts |= {"Sequence number": node, "Fwd thread id": int(thread == AUTOGRAD)}
    return slice_(name, start, end - start, "cpu_op", thread, facts)


def call(
    name: str, start: float, end: float, correlation: int, number: int, thread: tuple[int, int] = HOST
) -> dict[str, Any]:
    """A call of the runtime, or of the driver, that an op with this number has made."""
    category = "cuda_driver" if name.startswith("cu") and not name.startswith("cuda") else "cuda_runtime"
    facts = {"External id": number, "cbid": 211, "correlation": correlation}
    return slice_(name, start, end - start, category, thread, facts)


def work(
    name: str, start: float, end: float, correlation: int, number: int, stream: tuple[int, int] = STREAM, **facts: Any
) -> list[dict[str, Any]]:
    """What the device did, and the end of the arrow from its launch."""
    category = "gpu_memcpy" if name.startswith("Memcpy") else "kernel"
    links = {"External id": number, "device": stream[0], "stream": stream[1], "correlation": correlation}
    arrow = {"ph": "f", "id": correlation, "pid": stream[0], "tid": stream[1], "ts": start, "cat": "ac2g", "bp": "e"}
    return [slice_(name, start, end - start, category, stream, {**links, **facts}), {**arrow, "name": "ac2g"}]


def memory(at: float, allocated: int, change: int, kind: int = 1, reserved: int = 5000) -> dict[str, Any]:
    """An instant at which memory of a device (kind 1) or of the host (kind 0) was allocated or freed."""
    facts = {"Total Reserved": reserved, "Total Allocated": allocated, "Bytes": change}
    place = {"Device Id": 0 if kind else -1, "Device Type": kind, "Addr": 1, "finished": False}
    named = {"ph": "i", "cat": "cpu_instant_event", "s": "t", "name": "[memory]", "pid": HOST[0], "tid": HOST[1]}
    return {**named, "ts": at, "args": {**facts, **place}}


def named(what: str, process: int, thread: int, **facts: Any) -> dict[str, Any]:
    return {"ph": "M", "name": what, "ts": 0.0, "pid": process, "tid": thread, "args": facts}


def cuda_range(name: str, start: float, time: float, thread: tuple[int, int] = HOST) -> dict[str, Any]:
    return {**range_(name, start, time), "pid": thread[0], "tid": thread[1]}


def cuda_step(step: int = 3) -> list[dict[str, Any]]:
    """The events of the step."""
    return [
        named("process_name", 0, 0, name="python"),
        named("process_labels", 0, 0, labels="GPU 0"),
        named("thread_name", 0, 7, name="stream 7"),
        named("thread_sort_index", 0, 7, sort_index=7),
        named("thread_name", 0, 13, name="stream 13"),
        cuda_range(f"ProfilerStep#{step}", 0, 1000),
        cuda_range("phase: data", 0, 100),
        op("aten::to", 10, 60, 1, line="train.py:8"),
        op("aten::_to_copy", 12, 58, 2),
        op("aten::copy_", 20, 56, 3),
        call("cudaMemcpyAsync", 25, 40, 10, 3),
        *work(TO_DEVICE, 30, 38, 10, 3, bytes=4096),
        call("cudaStreamSynchronize", 41, 55, 11, 3),
        memory(15, 1000, 400),
        cuda_range("phase: forward", 100, 300),
        cuda_range("module: fc", 110, 90),
        op("aten::linear", 120, 190, 4, line="train.py:9", node=5),
        op("aten::addmm", 125, 185, 5, node=5),
        call("cudaLaunchKernel", 130, 140, 20, 5),
        *work(GEMM, 150, 250, 20, 5, grid=[4, 1, 1], block=[128, 1, 1]),
        op(TRITON, 210, 240, 6),
        call("cuLaunchKernelEx", 215, 225, 21, 6),
        *work(TRITON, 250, 280, 21, 6),
        op("Torch-Compiled Region: 0/0", 260, 300, 7),
        call("cudaGraphLaunch", 265, 295, 22, 7),
        *work(ADD, 300, 340, 22, 7),
        *work(MUL, 310, 350, 22, 7, OTHER_STREAM),
        call("cudaStreamWaitEvent", 296, 299, 25, 7),
        op("aten::item", 350, 395, 8, line="train.py:12"),
        op("aten::_local_scalar_dense", 352, 394, 9),
        call("cudaMemcpyAsync", 355, 360, 23, 9),
        *work(FROM_DEVICE, 360, 362, 23, 9, bytes=4),
        call("cudaStreamSynchronize", 361, 391, 24, 9),
        cuda_range("loss_backward", 400, 300),
        cuda_range("phase: backward", 400, 300),
        op("autograd::engine::evaluate_function: AddmmBackward0", 420, 500, 10, AUTOGRAD, node=5),
        op("AddmmBackward0", 422, 498, 11, AUTOGRAD, node=5),
        op("aten::mm", 430, 490, 12, AUTOGRAD),
        call("cudaLaunchKernel", 440, 450, 30, 12, AUTOGRAD),
        *work(GEMM, 460, 660, 30, 12),
        memory(500, 3000, 2000),
        memory(600, 1500, -1500),
        memory(610, 99_999, 5, kind=0),
        cuda_range("phase: numdrift", 700, 100),
        op("aten::item", 710, 790, 13),
        call("cudaMemcpyAsync", 715, 720, 40, 13),
        *work(FROM_DEVICE, 720, 722, 40, 13, bytes=4),
        call("cudaStreamSynchronize", 725, 785, 41, 13),
        memory(730, 9000, 7500),
        cuda_range("phase: optimizer", 800, 200),
        op("aten::_fused_adamw_", 810, 900, 14, line="train.py:14"),
        call("cudaLaunchKernel", 820, 830, 50, 14),
        *work(ADAM, 840, 1100, 50, 14),
        # After the step the tracing waits for the device. Before it there was a kernel that nobody was seen to launch.
        call("cudaDeviceSynchronize", 1005, 1100, 60, 0),
        slice_("leftover", -50, 20, "kernel", STREAM, {"device": 0, "stream": 7, "correlation": 3}),
        device_range("phase: forward", 149, 282 - 149),
        device_range("phase: data", 29, 10),
        device_range("phase: backward", 281, 662 - 281),
    ]  # fmt: skip


def device_range(name: str, start: float, time: float) -> dict[str, Any]:
    """A range as the device sees it, which Kineto makes a little longer than the work in it."""
    return slice_(name, start, time, "gpu_user_annotation", STREAM, {"External id": 99})


def plug_in_step() -> list[dict[str, Any]]:
    """The same of a plug-in that tells of no calls of its runtime: its work is linked to ops by their numbers alone."""
    events = []
    for event in cuda_step():
        if str(event.get("cat")).startswith("cuda_"):
            continue
        arguments = {name: one for name, one in event.get("args", {}).items() if name != "correlation"}
        events.append({**event, "args": arguments})
    return events
