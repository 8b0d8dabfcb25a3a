"""A folder that shows another folder's files together with those that a run has written there.

work      train.py  data/x.bin  out/old.pt          files of the run    out/new.pt
merged    train.py -> work/train.py    data -> work/data    out/old.pt -> work/out/old.pt    out/new.pt
"""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path


def merge(folder: Path, written: Path, target: Path) -> None:
    """Fill the empty folder `target` with links to the files of `folder` and copies of the `written` ones.

    A written file hides one of the same name. Both folders stay as they are if the target's files are replaced; the
    content of a file behind a link is that of `folder`.
    """
    for path in folder.iterdir():
        own = written / path.name
        if own.is_dir() and path.is_dir() and not path.is_symlink():
            (target / path.name).mkdir()
            merge(path, own, target / path.name)
        elif not own.exists() and not _is_within(target, path):
            (target / path.name).symlink_to(path)
    if not written.is_dir():
        return
    for path in written.iterdir():
        if not (target / path.name).exists():
            with suppress(shutil.Error):  # a socket, for example, which is no checkpoint
                if path.is_dir():
                    shutil.copytree(path, target / path.name, symlinks=True)
                else:
                    shutil.copy2(path, target / path.name)


def _is_within(path: Path, folder: Path) -> bool:
    return path.resolve().is_relative_to(folder.resolve())
