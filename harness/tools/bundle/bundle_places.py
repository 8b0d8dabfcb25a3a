"""Where bundles go to and come from: a local path, or any URL that fsspec knows (`s3://`, `gs://`,
`https://`)."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import fsspec  # type: ignore[import-untyped]

from ...errors import CollisionError, NotAvailable, UsageError

URL = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)


def is_url(place: str) -> bool:
    return URL.match(place) is not None


def upload(archive: Path, url: str, *, force: bool = False) -> None:
    """Copy a bundle to a URL. Raises CollisionError, NotAvailable and UsageError."""
    system, path = _system(url)
    try:
        if not force and system.exists(path):
            raise CollisionError(Path(url), "choose another name, or replace it with --force")
        with archive.open("rb") as source, system.open(path, "wb") as target:
            shutil.copyfileobj(source, target)
    except UsageError:
        raise
    except Exception as error:
        raise UsageError(f"{url} cannot be written: {_line(error)}") from error


def download(url: str, archive: Path) -> None:
    """Copy a bundle from a URL. Raises NotAvailable and UsageError."""
    system, path = _system(url)
    try:
        with system.open(path, "rb") as source, archive.open("wb") as target:
            shutil.copyfileobj(source, target)
    except Exception as error:
        raise UsageError(f"{url} cannot be read: {_line(error)}") from error


def _system(url: str) -> tuple[Any, str]:
    try:
        system, path = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise NotAvailable(url, _line(error)) from None
    except Exception as error:
        raise UsageError(f"{url} is no place for a bundle: {_line(error)}") from error
    return system, path


def _line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
