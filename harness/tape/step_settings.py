"""What torch was set to in a recorded step, beyond the arguments of its ops: a kernel's bits may hang on it.

A script sets these when it likes (`torch.set_num_threads(1)` in its first line, another matmul precision from step
100 on), so they are noted with the step, and whoever executes its ops elsewhere or later puts them in place first.
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
    # torch cannot be asked. The flag is the thread's, so Python's own arithmetic tells.
    return sys.float_info.min / 2 == 0.0


def _deterministic() -> str:
    if not torch.are_deterministic_algorithms_enabled():
        return "off"
    return "warn" if torch.is_deterministic_algorithms_warn_only_enabled() else "on"


def _set_deterministic(wanted: str) -> None:
    torch.use_deterministic_algorithms(wanted != "off", warn_only=wanted == "warn")


SETTINGS: dict[str, KernelSetting] = {
    "threads": KernelSetting(torch.get_num_threads, torch.set_num_threads),
    "flush_denormal": KernelSetting(_flushes_denormals, torch.set_flush_denormal),
    "deterministic": KernelSetting(_deterministic, _set_deterministic),
    **KERNEL_SETTINGS,
}
"""Those of torch, in the order in which they are set."""


class DeviceSettings:
    """The settings of a vendor's device that its mode declares, each with how it is read and how it is set."""

    def __init__(self) -> None:
        self.known: dict[str, KernelSetting] = {}

    def declare(self, settings: Mapping[str, tuple[Callable[[], Any], Callable[[Any], Any]]]) -> Callable[[], None]:
        """Have these noted with each step; return what takes them out again.

        Raises UsageError for a name that is a setting already.
        """
        twice = sorted({*SETTINGS, *self.known}.intersection(settings))
        if twice:
            raise UsageError(
                f"the mode declares a setting {twice[0]!r}, which there is already: give it a name of its own"
            )
        self.known |= {name: KernelSetting(*functions) for name, functions in settings.items()}

        def withdraw() -> None:
            for name in settings:
                self.known.pop(name, None)

        return withdraw


device_settings = DeviceSettings()


class SettingLines:
    """The lines of the script by which settings got the values that they have, as `file:line`."""

    def __init__(self) -> None:
        self.known: dict[str, str] = {}

    def note(self, name: str, line: str) -> None:
        """Take note of who has set it last; "" where that is no line of the script."""
        self.known.pop(name, None)
        if line:
            self.known[name] = line


setting_lines = SettingLines()


def read_settings(names: Iterable[str] | None = None) -> dict[str, Any]:
    """What these are set to, all of them by default, as plain JSON values. What this torch does not know is left
    out."""
    settings, found = {**SETTINGS, **device_settings.known}, {}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch 2.9 warns whoever asks for a precision, and means who sets it
        for name in settings if names is None else names:
            with suppress(Exception):  # a backend that is not there, or two ways to set one thing that disagree
                found[name] = settings[name].read()
    return found


def current_settings() -> dict[str, Any]:
    """What is set now."""
    return read_settings()


@contextmanager
def settings_of_step(wanted: Mapping[str, Any]) -> Iterator[None]:
    """Have torch set as in a step; afterwards it is set as before. What cannot be set stays as it is."""
    before = current_settings()
    try:
        put_settings(wanted)
        yield
    finally:
        put_settings(before)


def put_settings(wanted: Mapping[str, Any]) -> None:
    """Set what differs, in the order of the settings: one of them may change others that come after it."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, setting in {**SETTINGS, **device_settings.known}.items():
            if name in wanted and read_settings([name]).get(name) != wanted[name]:
                with suppress(Exception):  # as it is read; torch itself refuses a wrong value of a damaged file
                    setting.put(wanted[name])
