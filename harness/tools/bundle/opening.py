"""Open a bundle from an untrusted source: write only files that its manifest lists, and only inside the folder."""

from __future__ import annotations

import hashlib
import json
import shutil
import tempfile
import zipfile
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Any

from ...errors import CollisionError, JournalError, UsageError
from .archive import DAMAGE, PIECE, Bundle, Packed, open_archive, read_manifest

RESERVE = 64 * 2**20
"""The number of bytes of disk space that must stay free."""


def describe(archive: Path) -> Bundle:
    """Read the manifest of a bundle. Raises JournalError and UsageError."""
    try:
        with archive.open("rb") as file, open_archive(file, archive) as opened:
            return read_manifest(opened, archive)
    except OSError as error:
        raise UsageError(f"{archive} cannot be read: {error.strerror}") from None


def read_packed(archive: Path, name: str) -> Any:
    """Return the JSON in a small file of a bundle, None if it has no such file. Raises JournalError and UsageError."""
    try:
        with archive.open("rb") as file, open_archive(file, archive) as opened:
            packed = next((packed for packed in read_manifest(opened, archive).files if packed.path == name), None)
            if packed is None:
                return None
            with tempfile.TemporaryDirectory(prefix="numdrift-") as folder:
                path = Path(folder) / "content"
                _unpack(opened, packed, path, archive)
                return json.loads(path.read_bytes())
    except OSError as error:
        raise UsageError(f"{archive} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise JournalError(archive, f"is damaged: {name}: {error}") from None


def extract(
    archive: Path,
    folder: Path,
    *,
    force: bool = False,
    unpacked: Callable[[int, int], None] = lambda done, of: None,
) -> Bundle:
    """Check every file against its SHA-256, and unpack either all files into `folder` or none.

    `unpacked` receives the number of bytes unpacked so far and the total. Raises JournalError for a damaged or altered
    bundle, CollisionError if the folder exists (without `force`), and UsageError for lack of space."""
    part = folder.with_name(f"{folder.name}.part")
    try:
        with archive.open("rb") as file, open_archive(file, archive) as opened:
            bundle = read_manifest(opened, archive)
            if folder.exists() and not force:
                raise CollisionError(folder, "choose another place with --to, or replace it with --force")
            folder.parent.mkdir(parents=True, exist_ok=True)
            # A small archive may unpack to more than fits on the disk; no member is read beyond its declared size.
            free = shutil.disk_usage(folder.parent).free
            if bundle.bytes + RESERVE > free:
                raise UsageError(
                    f"the bundle needs {bundle.bytes / 2**20:,.0f} MiB, but {folder.parent} has only "
                    f"{free / 2**20:,.0f} MiB left; choose another place with --to"
                )
            shutil.rmtree(part, ignore_errors=True)
            done = 0
            for packed in bundle.files:
                _unpack(opened, packed, part / _inside(archive, packed.path), archive)
                done += packed.bytes
                unpacked(done, bundle.bytes)
        # The old folder is removed only after all files are unpacked and checked.
        if folder.exists():
            shutil.rmtree(folder)
        part.replace(folder)
        return bundle
    except OSError as error:
        raise UsageError(f"{error.filename or folder}: {error.strerror}; choose another place with --to") from None
    finally:
        with suppress(OSError):
            shutil.rmtree(part)


def _inside(archive: Path, name: str) -> PurePosixPath:
    """Return the path of a member within the folder. Raises JournalError for a path that leads out of it."""
    path = PurePosixPath(name)
    plain = name and "\\" not in name and "\0" not in name and ":" not in name
    if not plain or path.is_absolute() or ".." in path.parts or str(path) != name:
        raise JournalError(archive, f"is refused: its file {name!r} would be written outside the folder")
    return path


def _unpack(archive: zipfile.ZipFile, packed: Packed, path: Path, named: Path) -> None:
    """Write one member, reading at most one byte more than its size in the manifest."""
    path.parent.mkdir(parents=True, exist_ok=True)
    hashed, left = hashlib.sha256(), packed.bytes
    try:
        with archive.open(packed.path) as member, path.open("xb") as file:
            # One byte more than declared is read, to detect a longer member.
            while piece := member.read(min(PIECE, left + 1)):
                left -= len(piece)
                if left < 0:
                    break
                hashed.update(piece)
                file.write(piece)
    except KeyError:
        raise JournalError(named, f"is damaged: {packed.path} is missing") from None
    except DAMAGE as error:
        raise JournalError(named, f"is damaged: {packed.path}: {error}") from error
    if left or hashed.hexdigest() != packed.sha256:
        raise JournalError(named, f"is damaged or was changed: {packed.path} differs from the packed file")
