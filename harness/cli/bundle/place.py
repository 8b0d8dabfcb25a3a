"""A bundle that is named by its path or URL, as a file of this machine."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ...errors import UsageError
from ...tools.bundle.archive import download, is_url


@contextmanager
def local_copy(named: str) -> Iterator[Path]:
    """The archive itself, or a copy of what is at the URL while the context lasts. Raises UsageError."""
    if not is_url(named):
        if not Path(named).is_file():
            raise UsageError(f"there is no bundle {named}; `numdrift bundle INVESTIGATION` makes one")
        yield Path(named)
        return
    with tempfile.TemporaryDirectory() as temporary:
        archive = Path(temporary) / "bundle.zip"
        download(named, archive)
        yield archive
