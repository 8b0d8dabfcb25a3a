"""The measurements of the list, as data."""

from __future__ import annotations

from collections.abc import Callable

from .costs import device_memory, overhead
from .laboratory import Laboratory, Measured
from .rows import Measurement
from .single_commands import kernels, left_alone, metrics, profile, refused, snapshot

FUNCTIONS: dict[str, Callable[[Laboratory, str, float], Measured]] = {
    function.__name__: function
    for function in (kernels, snapshot, profile, metrics, refused, left_alone, overhead, device_memory)
}

BOTH = ("cuda", "compile@cuda")

MEASUREMENTS = (
    Measurement("kernels", "every kernel of the catalogue, measured", ("cuda",), "none fails", "kernels"),
    Measurement(
        "snapshot", "a step as snapshots, executed again", ("cuda", "cpu"), "identical on the device, within rounding on the CPU",
        "snapshot", limit=180,
    ),
    Measurement("profile", "two steps traced", BOTH, "device times", "profile"),
    Measurement("metrics", "copies and device memory of five steps", BOTH, "both are counted", "metrics"),
    Measurement("refused", "a device that does not exist", ("cpu", "cuda:7"), "exit code 3 and one line; cpu goes on", "refused"),
    Measurement(
        "left-alone", "mode cpu on a machine with a GPU", ("cpu", "cuda"), "no process on the GPU", "left_alone",
        needs=("cuda", "nvidia-smi"), alone=True,
    ),
    Measurement(
        "memory", "device memory of an investigation", ("cuda", "faulty=cuda,env.FAULT=scale"),
        "at most 3 times the bare script's", "device_memory", limit=180, alone=True,
    ),
    Measurement(
        "overhead", "a recorded step, compared with the bare script", ("cuda",), "measured", "overhead", limit=240, alone=True
    ),
)  # fmt: skip
