"""autocast and GradScaler that a script requests for an accelerator, applied to the mode's device.

If the machine lacks the accelerator, torch itself would disable both and only warn: training in float16 would become
training in float32.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from ...records.run.adoption_facts import NO_AUTOCAST
from ...torch_private.patches import Patches
from ..understood import ScriptNotes


class AutocastRedirection:
    """Redirects `torch.autocast`, `torch.amp.custom_fwd` and `GradScaler` from `install` to `close`.

    `kinds` are the accelerators that `device` replaces in this mode. If the script states no dtype, autocast uses the
    accelerator's default dtype.
    """

    def __init__(self, device: str, kinds: tuple[str, ...], notes: ScriptNotes) -> None:
        self._kind = device.partition(":")[0]
        self._kinds = kinds
        self._notes = notes
        self._patches = Patches("the script's autocast")
        self._has_autocast = torch.amp.is_autocast_available(self._kind)

    def install(self) -> None:
        begin, scale = torch.autocast.__init__, torch.amp.GradScaler.__init__

        @functools.wraps(begin)
        def begin_autocast(
            autocast: Any,
            device_type: str,
            dtype: torch.dtype | None = None,
            enabled: bool = True,
            cache_enabled: bool | None = None,
        ) -> None:
            is_redirected, is_reported = device_type in self._kinds, not torch.compiler.is_compiling()
            if is_redirected and dtype is None:
                dtype = torch.get_autocast_dtype(device_type)
            if self._has_autocast:
                if is_redirected:
                    device_type = self._kind
                    if enabled and is_reported:
                        name = str(dtype).removeprefix("torch.")
                        self._notes.note("autocast", f"autocast to {name} runs on {self._kind}")
            elif enabled and (is_redirected or device_type in ("cpu", self._kind)):
                if dtype != torch.float32 and is_reported:
                    self._notes.doubt(
                        f"{NO_AUTOCAST}{self._kind}, so this run computes in the dtype of its parameters: compare it "
                        "with another mode without autocast, or leave this mode out"
                    )
                # torch raises an error for a device without autocast, but accepts a disabled autocast on the CPU.
                device_type, enabled = "cpu", False
            begin(autocast, device_type, dtype=dtype, enabled=enabled, cache_enabled=cache_enabled)

        @functools.wraps(scale)
        def make_scaler(scaler: Any, device: str = "cuda", *args: Any, **kwargs: Any) -> None:
            enabled = kwargs.get("enabled", args[4] if len(args) > 4 else True)
            if device in self._kinds:
                device = self._kind
                if enabled:
                    self._notes.note("autocast", f"GradScaler scales on {self._kind}")
            scale(scaler, device, *args, **kwargs)

        with self._patches as patches:
            patches.replace(torch.autocast, "__init__", begin_autocast)
            patches.replace(torch.amp.GradScaler, "__init__", make_scaler)
            for name in ("custom_fwd", "custom_bwd"):
                patches.replace(torch.amp, name, self._decorating(getattr(torch.amp, name)))

    def close(self) -> None:
        self._patches.undo()

    def _decorating(self, original: Callable[..., Any]) -> Callable[..., Any]:
        """Wrap `custom_fwd` or `custom_bwd`, the decorators for the methods of autograd functions, so that they apply
        to the mode's device."""

        @functools.wraps(original)
        def decorate(method: Any = None, *, device_type: str, **kwargs: Any) -> Any:
            # The decorators accept any device. On a device without autocast they have no effect, since autocast is
            # never enabled there.
            is_redirected = self._has_autocast and device_type in self._kinds
            return original(method, device_type=self._kind if is_redirected else device_type, **kwargs)

        return decorate
