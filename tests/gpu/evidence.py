"""What a run of the list leaves for whoever has to find out why a row is wrong: one archive, which grows row by row."""

from __future__ import annotations

import threading
import zipfile
from collections.abc import Iterator
from pathlib import Path

KEPT = ("investigation.json", "localization.json")
OF_WRONG = ("run.json", "stderr.log", "events.jsonl")
"""Files of the runs of a row that is wrong."""

LARGEST = 1 << 20
"""Bytes of a file that are kept, the last ones."""


class Evidence:
    """An archive in a folder, which is whole after each row; each run of the list has its own."""

    def __init__(self, folder: Path, run: int = 1) -> None:
        self._path = folder / (f"evidence-{run}.zip" if run > 1 else "evidence.zip")
        self._lock = threading.Lock()
        self._path.unlink(missing_ok=True)

    def add(self, name: str, said: str, folder: Path, *, wrong: bool) -> None:
        """Keep what a row's commands said, and what its runs have written."""
        with self._lock, zipfile.ZipFile(self._path, "a", zipfile.ZIP_DEFLATED) as archive:
            archive.writestr(f"{name}/said.txt", said)
            for path in files(folder, (*KEPT, *OF_WRONG) if wrong else KEPT):
                archive.writestr(f"{name}/{path.relative_to(folder)}", path.read_bytes()[-LARGEST:])


def files(folder: Path, names: tuple[str, ...]) -> Iterator[Path]:
    """Yield the files of these names in a folder; none where the row has made none."""
    if folder.is_dir():
        yield from (path for path in sorted(folder.rglob("*")) if path.name in names and path.is_file())
