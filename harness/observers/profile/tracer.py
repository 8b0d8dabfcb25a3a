"""Traces of torch.profiler, one after another, each in its own file.

If the process is killed, the earlier files remain.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ...records.tools.profile_record import Kind, lines_of
from ...torch_private.profiling.device_work import is_accelerator, wait_for_device
from ...torch_private.profiling.torch_profiler import (
    lines_of_ops,
    open_ranges,
    own_module_calls,
    profiler_runs,
    traced_activities,
    watch_profilers,
    without_profiler_messages,
)


class Tracer:
    """Traces one step at a time.

    The script's own profiler has priority: when it begins, `yielded` is called, and tracing ends.

    The device finishes all its work before a trace begins, and again before the trace ends. So a trace holds exactly
    the work of its step.

    `left_open` is true if a range was open at the end of the last trace: no further trace may begin then.
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
        self._undo = watch_profilers(self._profiler_begins)

    @property
    def running(self) -> bool:
        return self._running is not None

    def start(self) -> bool:
        """Begin a trace. Return False if the script itself is being profiled."""
        if profiler_runs():
            return False
        if not self._warm:
            self._warm = True
            # The first profiler of a process takes a long time, and would add its own slices to the trace.
            with without_profiler_messages(), own_module_calls():
                self._running = self._begin()
                self.stop(None)
        self._running = self._begin()
        return True

    def stop(self, path: Path | None) -> int:
        """End the trace. Write it, unless `path` is None. Return the size of the file in bytes."""
        running, self._running = self._running, None
        wait_for_device(self._device)
        running.stop()
        try:
            if path is None:
                return 0
            # The file has a temporary name until it is complete, so a killed process leaves no partial trace.
            partly = path.with_name(f"{path.name}.part")
            running.export_chrome_trace(str(partly))
            if self._detailed:
                # Torch cuts the folders of `sys.path` off the paths.
                script = self._script
                lines = lines_of_ops(running, lambda file: file == script or script.endswith(f"/{file}"))
                lines_of(path).write_text(json.dumps(lines), encoding="utf-8")
            partly.replace(path)
            content = path.read_bytes()
            self.left_open = open_ranges(content)
            return len(content)
        finally:
            running.profiler = None  # its reference cycles would keep every step in memory

    def close(self) -> None:
        if self._running is not None:
            self.stop(None)
        self._undo()

    def _begin(self) -> Any:
        wait_for_device(self._device)
        self._starting = True  # this profiler is not the script's
        try:
            profiler = torch.profiler.profile(
                activities=self._activities,
                record_shapes=self._detailed,
                with_stack=self._detailed,
                profile_memory=is_accelerator(self._device),  # the metrics report the host's memory step by step
            )
            profiler.start()
        finally:
            self._starting = False
        return profiler

    def _profiler_begins(self, profiler: Any) -> None:
        if not self._starting and self._running is not None:
            self._yielded()
