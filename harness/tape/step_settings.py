"""The settings of torch in a recorded step. A kernel's results may depend on them, not only on the op's arguments.

A script may change the settings at any time (`torch.set_num_threads(1)` in its first line, a different matmul precision
from step 100 on). They are therefore recorded with each step, and set before its ops are executed elsewhere or later.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any

import torch

from ..errors import UsageError
from ..torch_private.kernel_settings import KERNEL_SETTINGS, KernelSetting


def _flushes_denormals() -> bool:
    # Torch does not report this setting. The flag belongs to the thread, so Python's own arithmetic shows it.
    return sys.float_info.min / 2 == 0.0


def _deterministic() -> str:
    if not torch.are_deterministic_algorithms_enabled():
        return "off"
    return "warn" if torch.is_deterministic_algorithms_warn_only_enabled() else "on"


def _set_deterministic(wanted: str) -> None:
    torch.use_deterministic_algorithms(wanted != "off", warn_only=wanted == "warn")


fills: Any = torch.utils.deterministic


def _set_filling(wanted: bool) -> None:
    fills.fill_uninitialized_memory = wanted


SETTINGS: dict[str, KernelSetting] = {
    "threads": KernelSetting(torch.get_num_threads, torch.set_num_threads),
    "flush_denormal": KernelSetting(_flushes_denormals, torch.set_flush_denormal),
    "deterministic": KernelSetting(_deterministic, _set_deterministic),
    "fill_uninitialized_memory": KernelSetting(lambda: fills.fill_uninitialized_memory, _set_filling),
    **KERNEL_SETTINGS,
}
"""The settings of torch, in the order in which they are set."""


class DeviceSettings:
    """The settings of a vendor's device that the vendor's mode declares, each with functions to read and to set it."""

    def __init__(self) -> None:
        self.settings: dict[str, KernelSetting] = {}

    def declare(self, settings: Mapping[str, tuple[Callable[[], Any], Callable[[Any], Any]]]) -> Callable[[], None]:
        """Record these settings with each step, and return a function that withdraws them.

        Raises UsageError for the name of an existing setting.
        """
        twice = sorted({*SETTINGS, *self.settings}.intersection(settings))
        if twice:
            raise UsageError(f"the mode declares the setting {twice[0]!r}, which already exists; give it another name")
        self.settings |= {name: KernelSetting(*functions) for name, functions in settings.items()}

        def withdraw() -> None:
            for name in settings:
                self.settings.pop(name, None)

        return withdraw


device_settings = DeviceSettings()


class SettingLines:
    """The lines of the script that set the settings to their present values, as `file:line`."""

    def __init__(self) -> None:
        self.lines: dict[str, str] = {}

    def note(self, name: str, line: str) -> None:
        """Note the line that last set a setting, "" if it is not a line of the script."""
        self.lines.pop(name, None)
        if line:
            self.lines[name] = line


setting_lines = SettingLines()


def read_settings(names: Iterable[str] | None = None) -> dict[str, Any]:
    """Return the values of these settings, by default of all settings, as plain JSON values.

    A setting that this torch does not have is left out.
    """
    settings, values = {**SETTINGS, **device_settings.settings}, {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch 2.9 warns about setting a precision even when it is read
        for name in settings if names is None else names:
            with suppress(Exception):  # a backend is missing, or two ways of setting the same thing disagree
                values[name] = settings[name].read()
    return values


def current_settings() -> dict[str, Any]:
    """Return the present values of all settings."""
    return read_settings()


@contextmanager
def settings_of_step(wanted: Mapping[str, Any]) -> Iterator[None]:
    """Set the settings of a step within the context. A setting that cannot be changed stays as it is."""
    before = current_settings()
    try:
        put_settings(wanted)
        yield
    finally:
        put_settings(before)


def put_settings(wanted: Mapping[str, Any]) -> None:
    """Set the settings that differ from the wanted ones, in the order of SETTINGS: each may change later settings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, setting in {**SETTINGS, **device_settings.settings}.items():
            if name in wanted and read_settings([name]).get(name) != wanted[name]:
                with suppress(Exception):  # as in `read_settings`; or torch refuses a value from a damaged file
                    setting.put(wanted[name])
