"""Folders that a script renames in its private working folder.

An overlay cannot rename a folder that is older than the overlay (the error is EXDEV, as between two disks). If
`os.rename` or `os.replace` fails with this error, the folder is copied and removed, as `shutil.move` does.
"""

from __future__ import annotations

import errno
import functools
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ..torch_private.patches import Patches


def install(patches: Patches) -> None:
    for name in ("rename", "replace"):
        patches.wrap(os, name, _renaming)


def _renaming(original: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(original)
    def rename(src: Any, dst: Any, **folders: Any) -> None:
        try:
            original(src, dst, **folders)
        except OSError as error:
            source, target = Path(os.fsdecode(src)), Path(os.fsdecode(dst))
            is_taken = target.is_dir() and any(target.iterdir())
            if error.errno != errno.EXDEV or folders or is_taken or not source.is_dir():
                raise
            shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
            shutil.rmtree(source)

    return rename
