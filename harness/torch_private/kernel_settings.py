"""The settings of torch that choose kernels, read and set by the functions behind `torch.backends`.

torch 2.9 has a precision for each library and kind of op (`precision.cuda.matmul`) beside the older switches
(`matmul_precision`, `cudnn_tf32`). Setting a switch sets the precisions as well. Setting a precision leaves the switch
out of date, and reading the switch then raises an error. In this module, switches therefore come before precisions.

    >>> setting = KERNEL_SETTINGS["mkldnn"]
    >>> before = setting.read()
    >>> setting.put(False), setting.read(), setting.put(before)
    (None, False, None)
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.nn.attention

EXACT = ("ieee", "none")
"""Precisions that compute products in all digits of float32."""

TF32 = "tf32"

PRECISIONS = (
    *("precision.generic.all", "precision.cuda.all", "precision.mkldnn.all"),
    *(f"precision.{library}.{sort}" for library in ("cuda", "mkldnn") for sort in ("matmul", "conv", "rnn")),
)
"""An unset precision follows the library's `all`, and an unset `all` follows the generic precision."""

ATTENTION = {"flash": "flash", "efficient": "mem_efficient", "math": "math", "cudnn": "cudnn"}
"""Kernels of attention, with torch's names for them. A vendor's own kernel is `overrideable`."""

ATTENTION_SETTINGS = (*(f"attention.{name}" for name in (*ATTENTION, "overrideable")), "attention.order")

REDUCTIONS = ("reduction.bf16", "reduction.fp16")
UNSPLIT = "unsplit"


@dataclass(frozen=True, slots=True)
class KernelSetting:
    """A setting. `read` returns a plain JSON value, and `put` takes one."""

    read: Callable[[], Any]
    put: Callable[[Any], Any]


def _found(name: str) -> Callable[..., Any] | None:
    """Return the present function of `torch._C` with this name, None in a torch that lacks it."""
    return getattr(torch._C, name, None)


def _setting(
    reader: str,
    writer: str,
    *place: str,
    shown: Callable[[Any], Any] = lambda value: value,
    arguments: Callable[[Any], Sequence[Any]] = lambda value: [value],
) -> KernelSetting | None:
    """Return the setting that two functions read and set, None if torch lacks one of them.

    `place` are the first arguments of both functions.
    """
    read, put = _found(reader), _found(writer)
    if read is None or put is None:
        return None
    return KernelSetting(lambda: shown(read(*place)), lambda value: put(*place, *arguments(value)))


def _precision(library: str, sort: str) -> KernelSetting | None:
    setting = _setting("_get_fp32_precision_getter", "_set_fp32_precision_setter", library, sort, shown=str)
    switch = {"cuda matmul": "cublas", "cuda conv": "cudnn"}.get(f"{library} {sort}")
    if setting is None and switch is not None:
        names = f"_get_{switch}_allow_tf32", f"_set_{switch}_allow_tf32"
        setting = _setting(
            *names, shown=lambda on: TF32 if on else EXACT[0], arguments=lambda precision: [precision == TF32]
        )
    return setting


def _reduction(sort: str) -> KernelSetting | None:
    """Return the setting that lets sums of 16-bit products be rounded to 16 bits: "on" or "off".

    In newer versions of torch, " unsplit" follows if the sums must not be split. Only one of torch's libraries supports
    this.
    """
    name = f"cublas_allow_{sort}_reduced_precision_reduction"
    read = _found(f"_get_{name}")
    splits = read is not None and isinstance(read(), tuple)

    def shown(value: Any) -> str:
        rounded, split = value if splits else (value, True)
        return ("on" if rounded else "off") + ("" if split else f" {UNSPLIT}")

    def arguments(text: str) -> list[bool]:
        rounded, _, suffix = text.partition(" ")
        return [rounded == "on", suffix != UNSPLIT] if splits else [rounded == "on"]

    return _setting(f"_get_{name}", f"_set_{name}", shown=shown, arguments=arguments)


def _all_settings() -> Iterator[tuple[str, KernelSetting | None]]:
    yield "matmul_precision", _setting("_get_float32_matmul_precision", "_set_float32_matmul_precision")
    yield "cudnn_tf32", _setting("_get_cudnn_allow_tf32", "_set_cudnn_allow_tf32")
    for name in PRECISIONS:
        _, library, sort = name.split(".")
        yield name, _precision(library, sort)
    for library in ("mkldnn", "cudnn"):
        yield library, _setting(f"_get_{library}_enabled", f"_set_{library}_enabled")
        yield f"{library}_deterministic", _setting(f"_get_{library}_deterministic", f"_set_{library}_deterministic")
    yield "cudnn_benchmark", _setting("_get_cudnn_benchmark", "_set_cudnn_benchmark")
    for name, torch_name in (*ATTENTION.items(), ("overrideable", "overrideable")):
        yield f"attention.{name}", _setting(f"_get_{torch_name}_sdp_enabled", f"_set_sdp_use_{torch_name}")
    yield (
        "attention.order",
        _setting(
            "_get_sdp_priority_order",
            "_set_sdp_priority_order",
            shown=lambda order: " ".join(str(int(backend)) for backend in order),
            arguments=lambda text: [[int(number) for number in text.split()]],
        ),
    )
    reduction = "math_sdp_allow_fp16_bf16_reduction"
    yield "attention.reduction", _setting(f"_get_{reduction}", f"_set_{reduction}")
    for name in REDUCTIONS:
        yield name, _reduction(name.rpartition(".")[2])
    accumulation = "cublas_allow_fp16_accumulation"
    yield "accumulation.fp16", _setting(f"_get_{accumulation}", f"_set_{accumulation}")


def kernel_settings() -> dict[str, KernelSetting]:
    """Return the settings of this torch, switches before precisions.

    The settings keep the present functions of torch, so later replacements of the functions do not affect them.
    """
    return {name: setting for name, setting in _all_settings() if setting is not None}


KERNEL_SETTINGS = kernel_settings()


def allow_tf32(library: str, wanted: bool) -> None:
    """Set the TF32 switch of `cublas` or `cudnn`, and the precisions that the switch includes."""
    put = _SWITCHES[library]
    if put is not None:
        put(wanted)


_SWITCHES = {library: _found(f"_set_{library}_allow_tf32") for library in ("cublas", "cudnn")}


@dataclass(frozen=True, slots=True)
class Setter:
    """A function by which scripts change settings: its holder, and the names of all settings that it may change."""

    holder: Any
    name: str
    changes: Sequence[str]


def setters() -> list[Setter]:
    """Return the functions by which scripts choose kernels, without those that this torch lacks.

    `torch.backends.cudnn.enabled = False` does not look its function up in `torch._C`, so the function is listed twice.
    """
    all_setters = [
        Setter(torch, "set_num_threads", ["threads"]),
        Setter(torch, "set_flush_denormal", ["flush_denormal"]),
    ]
    # `_sdpa_kernel` sets all kernels of attention by calling the setter of each.
    all_setters += [Setter(torch.nn.attention, "_sdpa_kernel", ATTENTION_SETTINGS)] * hasattr(
        torch.nn.attention, "_sdpa_kernel"
    )
    products = ["matmul_precision", *PRECISIONS]
    functions: list[tuple[str, Sequence[str]]] = [
        ("_set_deterministic_algorithms", ["deterministic"]),
        ("_set_deterministic_fill_uninitialized_memory", ["fill_uninitialized_memory"]),
        ("_set_float32_matmul_precision", products),
        ("_set_cublas_allow_tf32", products),
        ("_set_cudnn_allow_tf32", ["cudnn_tf32", *PRECISIONS]),
        ("_set_onednn_allow_tf32", PRECISIONS),
        ("_set_fp32_precision_setter", PRECISIONS),
        ("_set_sdp_priority_order", ["attention.order"]),
        ("_set_math_sdp_allow_fp16_bf16_reduction", ["attention.reduction"]),
        ("_set_cublas_allow_fp16_accumulation", ["accumulation.fp16"]),
        *((f"_set_sdp_use_{torch_name}", [f"attention.{name}"]) for name, torch_name in ATTENTION.items()),
        ("_set_sdp_use_overrideable", ["attention.overrideable"]),
        *(
            (f"_set_cublas_allow_{sort}_reduced_precision_reduction", [f"reduction.{sort}"])
            for sort in ("bf16", "fp16")
        ),
    ]
    for library in ("mkldnn", "cudnn"):
        functions += [
            (f"_set_{library}_enabled", [library]),
            (f"_set_{library}_deterministic", [f"{library}_deterministic"]),
        ]
    functions.append(("_set_cudnn_benchmark", ["cudnn_benchmark"]))
    all_setters += [Setter(torch._C, name, changes) for name, changes in functions if hasattr(torch._C, name)]
    # An attribute of `torch.backends.cudnn` is a property, which holds the function that sets it.
    changed_by = {function: changes for name, changes in functions if (function := _found(name)) is not None}
    for module in (torch.backends.cudnn, torch.backends.mkldnn):
        for attribute in vars(type(module)).values():
            function = getattr(attribute, "setter", None)
            if function in changed_by:
                all_setters.append(Setter(attribute, "setter", changed_by[function]))
    return all_setters
