"""autocast and GradScaler for an accelerator keep their meaning on the mode's device.

torch itself disables both, with a warning, where the accelerator is not there: a training in float16 would
silently be one in float32.
"""

from __future__ import annotations

import functools
from typing import Any

import torch

from ..records.adoption_facts import NO_AUTOCAST
from ..torch_private.patches import Patches
from .understood import ScriptNotes


class AutocastRedirection:
    """Redirects `torch.autocast`, `torch.amp.custom_fwd` and `GradScaler` from `install` to `close`.

    `kinds` are the accelerators that are `device` in this mode. The dtype is the accelerator's, where the
    script does not say one.
    """

    def __init__(self, device: str, kinds: tuple[str, ...], notes: ScriptNotes) -> None:
        self._kind = device.partition(":")[0]
        self._kinds = kinds
        self._notes = notes
        self._patches = Patches("the script's autocast")
        self._has_autocast = torch.amp.is_autocast_available(self._kind)

    def install(self) -> None:
        with self._patches:
            self._redirect_autocast()
            self._redirect_scaler()
            for name in ("custom_fwd", "custom_bwd"):
                self._redirect_functions(name)

    def close(self) -> None:
        self._patches.undo()

    def _redirect_autocast(self) -> None:
        original = torch.autocast.__init__

        @functools.wraps(original)
        def create(
            autocast: Any,
            device_type: str,
            dtype: torch.dtype | None = None,
            enabled: bool = True,
            cache_enabled: bool | None = None,
        ) -> None:
            there = device_type in self._kinds
            if there and dtype is None:
                dtype = torch.get_autocast_dtype(device_type)
            if self._has_autocast:
                if there:
                    device_type = self._kind
                    self._tell_autocast(enabled, dtype)
            elif enabled and (there or device_type in ("cpu", self._kind)):
                self._tell_no_autocast(dtype)
                device_type, enabled = "cpu", False
            original(autocast, device_type, dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)

        self._patches.replace(torch.autocast, "__init__", create)

    def _tell_autocast(self, enabled: bool, dtype: torch.dtype | None) -> None:
        if enabled and not torch.compiler.is_compiling():
            self._notes.note("autocast", f"autocast to {_name(dtype)} is done on {self._kind}")

    def _tell_no_autocast(self, dtype: torch.dtype | None) -> None:
        if dtype != torch.float32 and not torch.compiler.is_compiling():
            self._notes.doubt(
                f"{NO_AUTOCAST}{self._kind}, so this run computes in its parameters' dtype: compare it "
                "with a mode that has no autocast either, or leave this mode out"
            )

    def _redirect_scaler(self) -> None:
        original = torch.amp.GradScaler.__init__

        @functools.wraps(original)
        def create(scaler: Any, device: str = "cuda", *args: Any, **kwargs: Any) -> None:
            enabled = kwargs.get("enabled", args[4] if len(args) > 4 else True)
            if device in self._kinds:
                device = self._kind
                if enabled:
                    self._notes.note("autocast", f"GradScaler scales on {self._kind}")
            original(scaler, device, *args, **kwargs)

        self._patches.replace(torch.amp.GradScaler, "__init__", create)

    def _redirect_functions(self, name: str) -> None:
        original = getattr(torch.amp, name)

        @functools.wraps(original)
        def decorate(method: Any = None, *, device_type: str, **kwargs: Any) -> Any:
            there = self._has_autocast and device_type in self._kinds
            return original(method, device_type=self._kind if there else device_type, **kwargs)

        self._patches.replace(torch.amp, name, decorate)


def _name(dtype: torch.dtype | None) -> str:
    return str(dtype).removeprefix("torch.")
