"""The keys of a mode that are settings of torch's kernels: their values, and the devices that they affect."""

from __future__ import annotations

from collections.abc import Mapping

from .mode_registry import DEVICES_OF_THE_CPU, registry

ON_OFF = ("on", "off")

SETTING_KEYS: Mapping[str, tuple[str, ...]] = {
    # TF32 in products and convolutions (on), in neither (off) or in one of them; torch's default is convolutions
    "tf32": (*ON_OFF, "convolutions", "products"),
    "matmul_precision": ("highest", "high", "medium"),
    # the kernel of attention; math replaces a kernel that does not accept the inputs; torch's default is any
    "sdpa": ("math", "flash", "efficient", "cudnn", "any"),
    "cudnn": ON_OFF,
    "mkldnn": ON_OFF,
    "benchmark": ON_OFF,
    "reduced_precision_reduction": ON_OFF,
    # `on` lets an op without a kernel that repeats go on, `strict` does not; `warn` is an older name of `on`
    "deterministic": ("on", "warn", "strict", "off"),
}

HOST, CUDA = "cpu", "cuda"

ACCELERATORS_ONLY: Mapping[str, str] = {
    "tf32": "for products in reduced precision, use matmul_precision=high or medium",
    "cudnn": "the corresponding key is mkldnn",
    "benchmark": "only accelerators choose kernels by their speed",
    "reduced_precision_reduction": "only accelerators round sums of 16-bit products to 16 bits",
}
"""The keys without an effect on the CPU, each with a hint for the user."""

ATTENTION_OF_CPU = ("math", "flash", "any")


CUDA_AXES: Mapping[str, tuple[str, str]] = {
    "tf32": ("off", "convolutions"),
    "sdpa": ("math", "any"),
    "cudnn": ("off", "on"),
    "benchmark": ("off", "on"),
    "reduced_precision_reduction": ("off", "on"),
    "deterministic": ("on", "off"),
}
"""The keys that may change a kernel on a GPU, each with its most restrictive value and a less restrictive one."""

OTHER_AXES = {key: CUDA_AXES[key] for key in ("sdpa", "deterministic")}
"""The keys that torch itself handles for a vendor's device."""


def axes_of_device(device: str) -> Mapping[str, tuple[str, str]]:
    """Return the keys that may change a kernel on this kind of accelerator, each with two values."""
    return CUDA_AXES if device == CUDA else OTHER_AXES


def device_of(base: str, device: str | None) -> str:
    """Return the kind of device on which a mode with this base and this value of the key `device` computes."""
    return (device or registry.device(base)).partition(":")[0]


def refused_setting(values: Mapping[str, object], device: str) -> tuple[str, str] | None:
    """Return the first of these keys that a mode on a device may not state, and why; None if it may state them all.

    A key without an effect on the device is refused, and so are keys that contradict each other. Whether a key has an
    effect on a vendor's device is not checked.
    """
    stated = {key: str(values[key]) for key in SETTING_KEYS if values.get(key) is not None}
    facts = registry.capabilities(device)
    for key, value in stated.items():
        if facts.own_kernels:
            return key, f"{key} has no effect on {device}, which does not use torch's kernels"
        if device in DEVICES_OF_THE_CPU and key in ACCELERATORS_ONLY:
            return key, f"{key} has no effect on {device}; {ACCELERATORS_ONLY[key]}"
        if key == "sdpa" and not facts.has_values:
            return key, f"{key} has no effect on {device}, which decomposes attention"
        if key == "sdpa" and device == HOST and value not in ATTENTION_OF_CPU:
            return key, f"sdpa={value}: {device} has no such attention kernel; it has math and flash"
        if key == "mkldnn" and device == CUDA:
            return key, f"mkldnn has no effect on {device}; the corresponding key is cudnn"
    tf32, precision = stated.get("tf32"), stated.get("matmul_precision")
    if tf32 is not None and precision is not None and (tf32 in ("on", "products")) == (precision == "highest"):
        return "tf32", f"tf32={tf32} and matmul_precision={precision} contradict each other: leave one of them out"
    return None
