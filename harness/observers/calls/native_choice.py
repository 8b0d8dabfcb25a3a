"""The choice between native code and a dispatch mode of Python for recording the ops of a training."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import AbstractContextManager

from ...errors import AlreadyPatched, NotAvailable
from ...torch_private.patches import Patches
from ...torch_private.profiling.dispatch_changes import before_dispatch_changes
from .native_library import NativeLibrary
from .native_ops import NativeOps
from .operation_recorder import OperationRecorder

SCRIPT_CHANGES_DISPATCH = "the script uses a dispatch mode, torch.compile or a higher-order op"


class NativeChoice:
    """Lets native code record as soon as it is compiled, until the script does something that only Python's way sees.

    Each change is written as the event `ops` with the first step (`step`), the way (`native`), and the reason why it is
    not native code (`reason`).
    """

    def __init__(
        self, recorder: OperationRecorder, write: Callable[..., None], guard: AbstractContextManager[None]
    ) -> None:
        self._recorder = recorder
        self._write = write
        self._guard = guard
        self._library: NativeLibrary | None = NativeLibrary()
        self._native: NativeOps | None = None
        self._patches: Patches | None = None
        self._step = self._thread = 0

    def choose(self, step: int) -> None:
        """Choose before a step is recorded."""
        self._step, self._thread = step, threading.get_ident()
        if self._library is None or self._native is not None:
            return
        try:
            if self._patches is None:
                self._patches = before_dispatch_changes("the recorded ops", self._dispatch_changes)
        except (NotAvailable, AlreadyPatched) as error:
            self._stay_in_python(str(error))
            return
        self._native = self._library.ops()
        if self._native is not None:
            self._recorder.native = self._native
            self._write("ops", step=step, native=True, reason="")
        elif self._library.reason:
            self._stay_in_python(self._library.reason)

    def forget(self) -> None:
        """Choose and write nothing more."""
        library, self._library = self._library, None
        if library is not None:
            library.close()

    def close(self) -> None:
        if self._patches is not None:
            self._patches.undo()
        if self._native is not None:
            self._native.hide()
        if self._library is not None:
            self._library.close()

    def _dispatch_changes(self) -> None:
        # Autograd may have restored the thread's dispatch keys since native code stopped recording.
        if self._native is not None:
            self._native.hide()
        if self._library is not None and threading.get_ident() == self._thread:
            with self._guard:
                self._stay_in_python(SCRIPT_CHANGES_DISPATCH)
                self._recorder.record_in_python()

    def _stay_in_python(self, reason: str) -> None:
        library, self._library = self._library, None
        if library is not None:
            library.close()
        self._write("ops", step=self._step, native=False, reason=reason)
