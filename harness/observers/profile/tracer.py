"""One trace after another with torch.profiler, each in a file of its own, so that a killed process leaves the
others."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ...records.profile_record import Kind, lines_of
from ...torch_private.device_work import is_accelerator, wait_for_device
from ...torch_private.torch_profiler import (
    lines_of_ops,
    open_ranges,
    own_module_calls,
    profiler_runs,
    traced_activities,
    watch_profilers,
    without_profiler_messages,
)


class Tracer:
    """Traces one step at a time. A profiler of the script's own has priority: `yielded` is called, and nothing is
    traced.

    A device has finished all its work when a trace begins and before it ends: all the work in a trace is of its step,
    and all the work of the step is in it.

    `left_open` is true when a range was under way at the end of the last trace: no other trace may begin then.
    """

    def __init__(self, kind: Kind, device: str, script: str, yielded: Callable[[], None]) -> None:
        self._detailed = kind == "operator"
        self._device = device
        self._activities = traced_activities(device)
        self._script = script
        self._yielded = yielded
        self._running: Any = None
        self._starting = False
        self._warm = False
        self.left_open = False
        self._undo = watch_profilers(self._profiler_begins)  # those of the script

    @property
    def running(self) -> bool:
        return self._running is not None

    def start(self) -> bool:
        """Begin a trace; false where the script itself is being profiled."""
        if profiler_runs():
            return False
        if not self._warm:
            self._warm = True
            # The first profiler of a process takes long, and slices of its own would be in the trace.
            with without_profiler_messages(), own_module_calls():
                self._running = self._begin()
                self.stop(None)
        self._running = self._begin()
        return True

    def stop(self, path: Path | None) -> int:
        """End the trace and write it, unless `path` is None; return the bytes of the file."""
        running, self._running = self._running, None
        wait_for_device(self._device)
        running.stop()
        try:
            if path is None:
                return 0
            # Under another name until it is whole: a killed process leaves no torn trace.
            partly = path.with_name(f"{path.name}.part")
            running.export_chrome_trace(str(partly))
            if self._detailed:
                # Torch shortens paths by the folders of `sys.path`.
                script = self._script
                lines = lines_of_ops(running, lambda file: file == script or script.endswith(f"/{file}"))
                lines_of(path).write_text(json.dumps(lines), encoding="utf-8")
            partly.replace(path)
            content = path.read_bytes()
            self.left_open = open_ranges(content)
            return len(content)
        finally:
            running.profiler = None  # its cycles would keep every step in memory

    def close(self) -> None:
        if self._running is not None:
            self.stop(None)
        self._undo()

    def _begin(self) -> Any:
        wait_for_device(self._device)
        self._starting = True  # this one is not the script's
        try:
            profiler = torch.profiler.profile(
                activities=self._activities,
                record_shapes=self._detailed,
                with_stack=self._detailed,
                profile_memory=is_accelerator(self._device),  # the metrics report the host's step by step
            )
            profiler.start()
        finally:
            self._starting = False
        return profiler

    def _profiler_begins(self, profiler: Any) -> None:
        if not self._starting and self._running is not None:
            self._yielded()
