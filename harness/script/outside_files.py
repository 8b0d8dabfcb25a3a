"""Files outside a script's own folders: files that the script writes, and files of a different run that it reads.

If two runs share a file, they are no longer two runs of one script: the second may continue from the first one's
checkpoint. This module sees the files that Python itself opens, renames and removes, and those that `torch.save`
writes. It does not see files that a library opens in native code, or that a process started by the script opens.
"""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ..records.run.run_files import OUTSIDE, OwnFolders
from ..torch_private.patches import Patches

WRITING = os.O_WRONLY | os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_TRUNC
NO_FILES = ("/dev/", "/proc/", "/sys/")
MOST = 100
"""The largest number of files of each kind that are recorded."""


class OutsideFiles:
    """Records each of these files once, in a line of the journal.

    The line is written as soon as the file is opened, so that a killed run has it too. If `own` is true, the script's
    folders are private to the run, and only files elsewhere are recorded.
    """

    def __init__(self, files: OwnFolders, write: Callable[..., None], *, own: bool) -> None:
        self._own = tuple(f"{folder}/" for folder in files.folders) if own else ()
        self._ignored = tuple(f"{folder}/" for folder in files.ignored)
        self._since = files.since
        self._write = write
        self._noted: dict[str, set[str]] = {"written": set(), "removed": set(), "read": set()}
        self._busy = self._ended = False
        self._process = os.getpid()

    def start(self, patches: Patches) -> None:
        """Start to observe. The audit hook, which cannot be removed, does nothing after `end`."""
        patches.wrap(torch, "save", self._saving)
        sys.addaudithook(self._hook)

    def end(self) -> None:
        self._ended = True

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        # Python calls this for each import, `id` and requested frame, thousands of times a second, so this check must
        # come first.
        if event not in ("open", "os.rename", "os.remove"):
            return
        if self._busy or self._ended or os.getpid() != self._process:
            return
        self._busy = True
        try:
            if event == "open":
                path, _, flags = arguments
                if not isinstance(flags, int) or not flags & WRITING or flags & os.O_RDWR:
                    self._seen("read", path)
                if isinstance(flags, int) and flags & WRITING:
                    self._seen("written", path)
            elif event == "os.rename":
                self._seen("written", arguments[1])
            else:
                self._seen("removed", arguments[0])
        except Exception:  # noqa: BLE001, an error in a hook would make the script's own `open` fail
            self._ended = True
        finally:
            self._busy = False

    def _saving(self, torch_save: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(torch_save)
        def save(obj: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
            # if `f` is a path, C++ code writes the file, and the audit hook does not see this
            if isinstance(f, (str, os.PathLike)):
                self._hook("open", (f, "wb", os.O_WRONLY))
            return torch_save(obj, f, *args, **kwargs)

        return save

    def _seen(self, kind: str, path: Any) -> None:
        if not isinstance(path, (str, bytes, os.PathLike)):
            return  # the descriptor of a file that is already open
        text = os.path.realpath(os.fsdecode(path))
        noted = self._noted[kind]
        if text in noted or len(noted) >= MOST or "/__pycache__/" in text:
            return
        if text.startswith(self._ignored + self._own + NO_FILES):
            return
        if kind == "read" and (text in self._noted["written"] or not self._is_of_other_run(text)):
            return
        noted.add(text)
        self._write(OUTSIDE, what=kind, path=text)

    def _is_of_other_run(self, path: str) -> bool:
        """Return whether a file has been changed since the investigation's first run began."""
        try:
            return Path(path).stat().st_mtime >= self._since
        except OSError:
            return False
