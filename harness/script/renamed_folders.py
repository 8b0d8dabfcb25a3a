"""Folders that a script renames in a working folder of its own.

An overlay renames no folder that was there before it (EXDEV, as between two disks). Where `os.rename` or `os.replace`
meets that, the folder is copied and removed, as `shutil.move` would do.
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


def _renaming(systems: Callable[..., None]) -> Callable[..., None]:
    @functools.wraps(systems)
    def rename(src: Any, dst: Any, **folders: Any) -> None:
        try:
            systems(src, dst, **folders)
        except OSError as error:
            source, target = Path(os.fsdecode(src)), Path(os.fsdecode(dst))
            is_taken = target.is_dir() and any(target.iterdir())
            if error.errno != errno.EXDEV or folders or is_taken or not source.is_dir():
                raise
            shutil.copytree(source, target, symlinks=True, dirs_exist_ok=True)
            shutil.rmtree(source)

    return rename
