"""What torch was set to in a recorded step, beyond the arguments of its ops: a kernel's bits may hang on it.

A script sets these when it likes (`torch.set_num_threads(1)` in its first line, another matmul precision from step
100 on), so they are noted with the step, and whoever executes its ops elsewhere or later puts them in place first.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import torch


def _flushes_denormals() -> bool:
    # torch cannot be asked. The flag is the thread's, so Python's own arithmetic tells.
    return sys.float_info.min / 2 == 0.0


def _deterministic() -> str:
    if not torch.are_deterministic_algorithms_enabled():
        return "off"
    return "warn" if torch.is_deterministic_algorithms_warn_only_enabled() else "on"


def _set_deterministic(wanted: str) -> None:
    torch.use_deterministic_algorithms(wanted != "off", warn_only=wanted == "warn")


def _attribute(holder: Any, name: str) -> tuple[Callable[[], Any], Callable[[Any], None]]:
    return lambda: getattr(holder, name), lambda wanted: setattr(holder, name, wanted)


SETTINGS: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "threads": (torch.get_num_threads, torch.set_num_threads),
    "flush_denormal": (_flushes_denormals, torch.set_flush_denormal),
    "deterministic": (_deterministic, _set_deterministic),
    "matmul_precision": (torch.get_float32_matmul_precision, torch.set_float32_matmul_precision),
    "mkldnn": _attribute(torch.backends.mkldnn, "enabled"),
    "mkldnn_deterministic": _attribute(torch.backends.mkldnn, "deterministic"),
    "cudnn": _attribute(torch.backends.cudnn, "enabled"),
    "cudnn_benchmark": _attribute(torch.backends.cudnn, "benchmark"),
    "cudnn_deterministic": _attribute(torch.backends.cudnn, "deterministic"),
}
"""Each with how it is read and how it is set."""


def current_settings() -> dict[str, Any]:
    """What is set now, as plain JSON values. What this torch does not know is left out."""
    found = {}
    for name, (read, _) in SETTINGS.items():
        with suppress(Exception):  # a backend that is not there, or a torch that has it elsewhere
            found[name] = read()
    return found


@contextmanager
def settings_of_step(wanted: Mapping[str, Any]) -> Iterator[None]:
    """Have torch set as in a step; afterwards it is set as before. What cannot be set stays as it is."""
    before = current_settings()
    differing = [name for name in before if name in wanted and wanted[name] != before[name]]
    try:
        for name in differing:
            _put(name, wanted[name])
        yield
    finally:
        for name in differing:
            _put(name, before[name])


def _put(name: str, value: Any) -> None:
    with suppress(Exception):  # as in `current_settings`; torch itself refuses a wrong value of a damaged file
        SETTINGS[name][1](value)
