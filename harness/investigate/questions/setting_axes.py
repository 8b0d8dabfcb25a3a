"""Other ways in which a mode may execute a step: stages and settings of the compiler, and settings of the device.

compile                  backend=eager ... inductor, contract=fast, inductor.cpp.simdlen=1, ...
compile,device=cuda      backend=eager ... inductor, inductor.triton.cudagraphs=on, ..., tf32=off, sdpa=math, ...
cuda                     tf32=off, sdpa=math, cudnn=off, ...

A setting is tried if torch has it. A setting of generated C++ is never tried on a device that executes no C++.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

from ...errors import NotAvailable, UsageError
from ...records.modes.mode_spec import LADDER, PLAIN_KEYS, ModeSpec
from ...records.modes.setting_keys import axes_of_device, device_of, refused_setting

UNCOMPILED = "none"
"""The value of `backend` for the mode without torch.compile."""

Axes = Mapping[str, tuple[str, str]]
"""Settings, each with the value that is not the default, and the default."""

GRAPH_CACHE = "graph_cache"
"""The setting for torch's caches of compiled graphs. It only matters where these caches change what a mode computes."""

CPU_SETTINGS: Axes = {
    GRAPH_CACHE: ("off", "on"),
    "contract": ("fast", "off"),
    "emulate_casts": ("on", "off"),
    "inductor.cpp.simdlen": ("1", "none"),
    "inductor.max_fusion_size": ("1", "64"),
    "inductor.split_reductions": ("off", "on"),
    "inductor.pattern_matcher": ("off", "on"),
}
"""Settings of code for the CPU: graphs from caches, contracted a*b+c, eager's casts, vectors, fusion, split reductions,
rewritten patterns."""

DEVICE_SETTINGS: Axes = {
    GRAPH_CACHE: ("off", "on"),
    "contract": ("off", "fast"),
    "emulate_casts": ("on", "off"),
    "inductor.eager_numerics.division_rounding": ("on", "off"),
    "inductor.eager_numerics.disable_ftz": ("on", "off"),
    "inductor.eager_numerics.use_pytorch_libdevice": ("on", "off"),
    "inductor.triton.persistent_reductions": ("off", "on"),
    "inductor.split_reductions": ("off", "on"),
    "inductor.max_fusion_size": ("1", "64"),
    "inductor.pattern_matcher": ("off", "on"),
    "inductor.triton.cudagraphs": ("on", "off"),
    "inductor.max_autotune": ("on", "off"),
}
"""Settings of code for a device: graphs from caches, contracted a*b+c, eager's casts, eager's division, subnormal
numbers and functions, reductions in one block or split, fusion, rewritten patterns, recorded launches. The slowest to
try comes last: kernels that are chosen by their speed."""


def axes_of(spec: ModeSpec) -> Axes:
    """Return the settings to try in a mode."""
    of_device = {} if spec.accelerator is None else axes_of_device(device_of(spec.base, spec.device))
    if not spec.is_inductor:
        return {} if spec.capabilities.compiles else of_device
    return CPU_SETTINGS if spec.accelerator is None else {**DEVICE_SETTINGS, **of_device}


def variants_of(spec: ModeSpec, reference: ModeSpec) -> Iterator[tuple[str, ModeSpec]]:
    """Yield each of the other stages and settings as `KEY=VALUE`, with the mode that has it."""
    if spec.is_inductor:
        text = f"backend={UNCOMPILED}"
        uncompiled = with_setting(spec, text)
        if replace(uncompiled, name="", timeout=None) != replace(reference, name="", timeout=None):
            yield text, uncompiled
        for stage in LADDER[:-1]:
            text = f"backend={stage}"
            yield text, with_setting(spec, text)
    for key, (alternative, default) in axes_of(spec).items():
        group, _, inner = key.partition(".")
        current = spec.inductor.get(inner) if group == "inductor" else getattr(spec, key)
        value = default if current is not None and _meaning(current) == _meaning(alternative) else alternative
        variant = with_setting(spec, f"{key}={value}")
        if refused_setting(variant.to_json(), device_of(spec.base, spec.device)) is None:
            yield f"{key}={value}", variant


def _meaning(value: str) -> str:
    return {"true": "on", "false": "off"}.get(value, value)


def is_possible(text: str, spec: ModeSpec) -> bool:
    """Check whether the installed torch has this stage or setting. Imports torch if only torch knows."""
    group, _, option = text.partition(".")
    if group != "inductor" or spec.accelerator is None:  # every torch has the other stages and settings
        return True
    compiling: Any = importlib.import_module("numdrift.harness.torch_private.compiler.compiling")
    try:
        compiling.inductor_option(*option.split("="))
    except (UsageError, NotAvailable):
        return False
    return True


def with_setting(spec: ModeSpec, text: str) -> ModeSpec:
    """Return the mode with one key set as in `KEY=VALUE`, or with several keys, separated by commas."""
    first, comma, others = text.partition(",")  # no value contains a comma
    if comma:
        return with_setting(with_setting(spec, first), others)
    key, _, value = text.partition("=")
    group, _, inner = key.partition(".")
    if group == "inductor":
        return replace(spec, inductor={**spec.inductor, inner: value})
    if key != "backend":
        return ModeSpec.from_json({**spec.to_json(), key: PLAIN_KEYS[key](value)})
    uncompiled = value == UNCOMPILED
    return replace(  # a stage before Inductor, without the settings that only Inductor understands
        spec,
        base=(spec.device or "cpu").partition(":")[0] if uncompiled else spec.base,
        backend=None if uncompiled else value,
        contract=None,
        emulate_casts=None,
        fallback_random=None,
        allow_rnn=None if uncompiled else spec.allow_rnn,  # dynamo captures the graph of every stage
        graph_cache=None if uncompiled else spec.graph_cache,
        dynamic=None if uncompiled else spec.dynamic,
        inductor={},
        decompose={},
        kernel={key: value for key, value in spec.kernel.items() if "@" not in key},
    )


def stand_in(spec: ModeSpec) -> ModeSpec | None:
    """Return the stand-in for a mode whose individual ops cannot be followed: the mode without its compiler or its lazy
    graphs. None for a mode that itself executes op by op."""
    if spec.capabilities.compiles:
        return with_setting(spec, f"backend={UNCOMPILED}")
    return None if spec.capabilities.has_values else spec.with_values()


def folder_name(text: str) -> str:
    """Return the form of `KEY=VALUE` in the names of folders."""
    return text.replace("=", ".")
