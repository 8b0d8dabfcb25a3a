"""The settings of torch that each key of a mode sets and, conversely, the value of a key that sets given settings.

tf32=on                 precision.cuda.matmul, .conv and .rnn are tf32
sdpa=math               attention.flash, .efficient and .cudnn are off
matmul_precision=high   matmul_precision is high, which also sets precision.cuda.matmul and precision.mkldnn.matmul
deterministic=on        deterministic is warn, and on CUDA cuDNN does not choose by time and attention is math
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import torch

from ..records.modes.mode_spec import ModeSpec
from ..records.modes.setting_keys import CUDA, SETTING_KEYS, device_of
from ..torch_private.kernel_settings import ATTENTION, ATTENTION_SETTINGS, EXACT, REDUCTIONS, TF32, allow_tf32
from .step_settings import put_settings, read_settings

FILL = "fill_uninitialized_memory"
PRODUCTS, CONVOLUTIONS = "precision.cuda.matmul", ("precision.cuda.conv", "precision.cuda.rnn")

SETTINGS_OF_KEY: Mapping[str, Sequence[str]] = {
    "tf32": ("cudnn_tf32", PRODUCTS, *CONVOLUTIONS),
    "matmul_precision": ("matmul_precision", PRODUCTS, "precision.mkldnn.matmul"),
    "sdpa": ATTENTION_SETTINGS,
    "cudnn": ("cudnn",),
    "mkldnn": ("mkldnn",),
    "benchmark": ("cudnn_benchmark",),
    "reduced_precision_reduction": REDUCTIONS,
    "deterministic": ("deterministic",),
    "threads": ("threads",),
}
"""All settings that each key of a mode sets. `tf32` comes first, since `matmul_precision` may set TF32, too."""

ALSO_SET: Mapping[str, Sequence[str]] = {
    "deterministic": (
        *(FILL, "cudnn_benchmark", "cudnn_deterministic"),
        *("attention.flash", "attention.efficient", "attention.cudnn"),
    )
}
"""Further settings that a key may set, depending on the device, the value and the other keys."""


def stated_settings(spec: ModeSpec) -> dict[str, Sequence[str]]:
    """Return the keys that a mode states, each with the names of all settings that it sets."""
    stated = {key: names for key, names in SETTINGS_OF_KEY.items() if getattr(spec, key) is not None}
    if "deterministic" in stated:
        stated["deterministic"] = (*stated["deterministic"], *_repeating_kernels(spec))
    return stated


def put_stated(spec: ModeSpec) -> None:
    """Set the settings of torch that the keys of a mode state."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch 2.9 warns about the older switches for its precisions
        if spec.threads is not None:
            torch.set_num_threads(spec.threads)
        if spec.matmul_precision is not None:
            torch.set_float32_matmul_precision(spec.matmul_precision)
        if spec.tf32 is not None:
            products, convolutions = spec.tf32 in ("on", "products"), spec.tf32 in ("on", "convolutions")
            if (read_settings([PRODUCTS]).get(PRODUCTS) == TF32) != products:  # else keep matmul_precision's value
                if products:
                    allow_tf32("cublas", True)
                else:  # set the CPU's precision too: if it differs from CUDA's, torch refuses to report one for both
                    torch.set_float32_matmul_precision("highest")
            allow_tf32("cudnn", convolutions)
            # Without TF32, the switch leaves convolutions at the general precision. A script may have set that to TF32.
            for name, precision in read_settings(CONVOLUTIONS).items():
                if precision == TF32 and not convolutions:
                    put_settings({name: EXACT[0]})
        if spec.deterministic is not None:
            torch.use_deterministic_algorithms(spec.deterministic != "off", warn_only=not _is_strict(spec))
        put_settings({**_repeating_kernels(spec), **_plain(spec)})


def _is_strict(spec: ModeSpec) -> bool:
    """Check whether an op raises an error if it has no kernel that repeats.

    Only then do the flash kernel and the memory-efficient kernel of attention repeat (pytorch/pytorch#182551).
    """
    return spec.deterministic == "strict" or (
        spec.sdpa in ("flash", "efficient") and device_of(spec.base, spec.device) == CUDA
    )


def _repeating_kernels(spec: ModeSpec) -> dict[str, Any]:
    """Return the other settings that make a deterministic mode repeat.

    torch fills new memory with NaN in such a mode, which takes 12 to 15 % of the time (ultralytics#26181) and hides
    reads of memory that no op has written. On CUDA, cuDNN must not choose kernels by their speed, and its attention
    does not repeat.
    """
    if spec.deterministic in (None, "off"):
        return {}
    settings: dict[str, Any] = {FILL: False}
    if device_of(spec.base, spec.device) == CUDA:
        settings |= {"cudnn_benchmark": False, "cudnn_deterministic": True}
        kernels = {"flash": _is_strict(spec), "efficient": _is_strict(spec), "cudnn": False}
        settings |= {f"attention.{name}": on for name, on in kernels.items()} if spec.sdpa is None else {}
    return settings


def _plain(spec: ModeSpec) -> dict[str, Any]:
    """Return the values of the settings whose keys set nothing else."""
    switches = {"cudnn": spec.cudnn, "mkldnn": spec.mkldnn, "cudnn_benchmark": spec.benchmark}
    wanted: dict[str, Any] = {name: value == "on" for name, value in switches.items() if value is not None}
    if spec.sdpa is not None:
        wanted |= {f"attention.{name}": spec.sdpa in (name, "any") or name == "math" for name in ATTENTION}
        wanted["attention.overrideable"] = spec.sdpa != "math"
    if spec.reduced_precision_reduction is not None:
        wanted |= dict.fromkeys(read_settings(REDUCTIONS), spec.reduced_precision_reduction)
    return wanted


def value_of_key(key: str, settings: Mapping[str, Any]) -> str:
    """Return the value of a key that states these settings, "" if no value does."""
    names = [name for name in SETTINGS_OF_KEY[key] if name in settings]
    if not names:
        return ""
    read = _READ.get(key)
    value = read(settings) if read is not None else settings[names[0]]
    value = ("on" if value else "off") if isinstance(value, bool) else str(value)
    return value if value in SETTING_KEYS.get(key, (value,)) else ""


def _tf32(settings: Mapping[str, Any]) -> str:
    products = settings.get(PRODUCTS) == TF32
    convolutions = {settings[name] == TF32 for name in CONVOLUTIONS if name in settings}
    if len(convolutions) > 1:
        return ""
    named = {(True, True): "on", (False, False): "off", (True, False): "products", (False, True): "convolutions"}
    return named[products, True in convolutions]


def _attention(settings: Mapping[str, Any]) -> str:
    enabled = [name for name in ATTENTION if settings.get(f"attention.{name}", True)]
    if "math" not in enabled or len(enabled) == len(ATTENTION):
        return "any" if len(enabled) == len(ATTENTION) else ""
    others = [name for name in enabled if name != "math"]
    return {0: "math", 1: "".join(others)}.get(len(others), "")


def _reductions(settings: Mapping[str, Any]) -> str:
    values = {str(settings.get(name, "")) for name in REDUCTIONS}
    return values.pop() if len(values) == 1 else ""


def _precision(settings: Mapping[str, Any]) -> str:
    """Return the value of the switch `matmul_precision`.

    If precisions were set one by one, torch does not report the value of the switch. It then follows from the precision
    of the CPU's matrix products.
    """
    products = settings.get("precision.mkldnn.matmul", EXACT[0])
    by_itself = {**dict.fromkeys(EXACT, "highest"), TF32: "high", "bf16": "medium"}.get(str(products), "")
    return str(settings.get("matmul_precision", by_itself))


_READ: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "tf32": _tf32,
    "sdpa": _attention,
    "reduced_precision_reduction": _reductions,
    "matmul_precision": _precision,
    "deterministic": lambda settings: {"on": "strict", "warn": "on"}.get(settings["deterministic"], "off"),
}


def same_value(first: Any, second: Any) -> bool:
    """Return whether two values of a setting mean the same; an unset precision is exact."""
    return first == second or (first in EXACT and second in EXACT)


def in_key_words(names: Collection[str], settings: Mapping[str, Any], keys: Sequence[str] = ()) -> list[str]:
    """Return settings as a mode states them, `KEY=VALUE`. If no key states a setting, KEY is the setting's name.

    If one of the given `keys` states some of the settings, the remaining settings are left out, since several keys and
    switches may set the same setting.
    """
    words, left = list[str](), dict.fromkeys(names)
    for key in keys or SETTINGS_OF_KEY:
        named = [name for name in SETTINGS_OF_KEY[key] if name in left]
        value = value_of_key(key, settings) if named else ""
        if value:
            words.append(f"{key}={value}")
            for name in named:
                left.pop(name)
    return words if words and keys else words + [f"{name}={in_plain_words(settings.get(name))}" for name in left]


def in_plain_words(value: Any) -> str:
    """Return the value of a setting as a mode writes it."""
    return ("on" if value else "off") if isinstance(value, bool) else str(value)
