"""A bundle on disk: a ZIP archive whose last member, `bundle.json`, describes every other member.

{"schema": 1, "numdrift": "0.1.0", "investigation": "train", "redacted": false, "made": "2026-11-22T05:00:00+00:00",
 "environment": {...}, "files": [{"path": "investigation.json", "kind": "report", "bytes": 812, "sha256": "..."}],
 "left_out": [{"path": "cpu/journal/values-0.bin", "kind": "values", "bytes": 4096}]}
"""

from __future__ import annotations

import hashlib
import io
import json
import re
import shutil
import zipfile
import zlib
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, BinaryIO

import fsspec  # type: ignore[import-untyped]

from ...errors import CollisionError, JournalError, NotAvailable, UsageError
from ...runs.own_version import own_version
from ...runs.recorded_run import runs_in
from .bundle_contents import DATA, SUFFIX, Item, Kind, digests_of, items_of

SCHEMA = 1
MANIFEST = "bundle.json"
DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError)
"""The exceptions that reading a member of a damaged archive may raise."""

WITHOUT_DATA = (".py", ".json", ".jsonl")
"""Suffixes of files that are of a kind in DATA but contain no data: scripts, lists of snapshots, noise by tensor."""

PIECE = 2**20
"""The number of bytes that are read at a time."""


@dataclass(frozen=True, slots=True)
class Packed:
    """A file of a bundle."""

    path: str
    kind: Kind
    bytes: int
    sha256: str


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A file of the investigation that is not in its bundle."""

    path: str
    kind: Kind
    bytes: int


@dataclass(frozen=True, slots=True)
class Bundle:
    """The content of `bundle.json`. `environment` is the environment of the investigation's first run."""

    investigation: str
    redacted: bool
    made: str
    numdrift: str
    environment: Mapping[str, Any]
    files: Sequence[Packed]
    left_out: Sequence[LeftOut]
    schema: int = SCHEMA

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)

    def of_kind(self, kind: Kind) -> list[Packed]:
        return [file for file in self.files if file.kind == kind]


def write_bundle(
    investigation: Path,
    target: Path,
    kinds: frozenset[Kind],
    *,
    redact: bool = False,
    wanted: Callable[[str], bool] = lambda name: True,
    packed: Callable[[int, int], None] = lambda done, of: None,
) -> Bundle:
    """Write an investigation's files of these kinds into one archive, either all of them or none.

    With `redact`, tensor files are replaced with their digests, and the script's output is left out. A report that
    shows values that reached a culprit is left out with `redact`, or if `repro` is not among the kinds. `wanted`
    chooses among the files by their names within the investigation. `packed` receives the number of bytes packed so far
    and the total. Raises UsageError if there is nothing to pack or `target` cannot be written.
    """
    items = items_of(investigation)
    chosen = [item for item in items if item.kind in kinds and wanted(item.name)]
    if redact:
        chosen = [
            item for item in chosen if item.kind not in DATA or item.is_tensors or item.path.suffix in WITHOUT_DATA
        ]
    if redact or "repro" not in kinds:
        chosen = [item for item in chosen if not item.shows_inputs]
    if not chosen:
        raise UsageError(f"{investigation} has no files to pack; name the folder of an investigation")
    left_out = [LeftOut(item.name, item.kind, item.path.stat().st_size) for item in items if item not in chosen]
    environments = (run.manifest.environment for run in runs_in(investigation))
    about = Bundle(
        investigation=investigation.resolve().name,
        redacted=redact,
        made=datetime.now(UTC).isoformat(timespec="seconds"),
        numdrift=own_version(),
        environment=next((environment for environment in environments if environment), {}),
        files=(),
        left_out=left_out,
    )
    try:
        return _write_archive(target, chosen, about, packed)
    except OSError as error:
        raise UsageError(f"{target} cannot be written: {error.strerror}; choose another place with --to") from None


def write_folder(folder: Path, target: Path, left_out: Collection[str] = ()) -> Bundle:
    """Write all files of a folder into one archive, except those that are left out by name. Raises OSError."""
    paths = [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink()]
    items = [Item(path.relative_to(folder).as_posix(), path, "record") for path in paths if path.name not in left_out]
    made = datetime.now(UTC).isoformat(timespec="seconds")
    return _write_archive(target, items, Bundle(folder.name, False, made, own_version(), {}, (), ()))


def _write_archive(
    target: Path, items: Sequence[Item], about: Bundle, packed: Callable[[int, int], None] = lambda done, of: None
) -> Bundle:
    """Write files into an archive that `about` describes, either all of them or none. Raises OSError."""
    part = target.with_name(f"{target.name}.part")
    try:
        with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
            # The manifest is written last, when the size and digest of every file are known.
            bundle = replace(about, files=_pack(archive, items, about.redacted, packed))
            archive.writestr(MANIFEST, json.dumps(asdict(bundle), indent=1) + "\n")
        part.replace(target)
        return bundle
    finally:
        with suppress(OSError):
            part.unlink(missing_ok=True)


def _pack(
    archive: zipfile.ZipFile, items: Sequence[Item], redact: bool, packed: Callable[[int, int], None]
) -> list[Packed]:
    done, whole = 0, sum(item.path.stat().st_size for item in items)
    files = []
    for item in items:
        name, digests = item.name, None
        if redact and item.is_tensors:
            name = f"{item.name}{SUFFIX}"
            try:
                digests = digests_of(item.path)
            except JournalError as error:
                # A file that a kill cut off must not prevent the bundle; the bundle states that the file existed.
                replacement = {"schema": 1, "redacted": item.path.name, "unreadable": str(error)}
                digests = (json.dumps(replacement) + "\n").encode()
        changed = datetime.fromtimestamp(item.path.stat().st_mtime, UTC)
        moment = (max(changed.year, 1980), changed.month, changed.day, changed.hour, changed.minute, changed.second)
        hashed, size = hashlib.sha256(), 0
        source: BinaryIO = item.path.open("rb") if digests is None else io.BytesIO(digests)
        # A file may exceed 4 GiB, which a member's header has to state before its size is known.
        with source, archive.open(zipfile.ZipInfo(name, moment), "w", force_zip64=True) as member:
            while piece := source.read(PIECE):
                member.write(piece)
                hashed.update(piece)
                size += len(piece)
        files.append(Packed(name, item.kind, size, hashed.hexdigest()))
        done += item.path.stat().st_size
        packed(done, whole)
    return files


def read_manifest(archive: zipfile.ZipFile, named: Path) -> Bundle:
    """Read the manifest of a bundle. Raises JournalError for an archive that is not a bundle, or is damaged."""
    try:
        described = json.loads(archive.read(MANIFEST))
        if described.get("schema") != SCHEMA:
            raise JournalError(named, f"has a schema that this version of numdrift cannot read (it reads {SCHEMA})")
        described["files"] = [Packed(**entry) for entry in described["files"]]
        described["left_out"] = [LeftOut(**entry) for entry in described["left_out"]]
        bundle = Bundle(**described)
        # The bundle may be untrusted: a manifest that numdrift would not write is refused before use.
        names = [file.path for file in bundle.files]
        if len(set(names)) != len(names):
            raise ValueError("two files have the same name")
        for file in bundle.files:
            if not (isinstance(file.path, str) and isinstance(file.sha256, str) and type(file.bytes) is int):
                raise TypeError(f"{file.path!r} has an invalid description")
            if file.bytes < 0:
                raise ValueError(f"{file.path!r} has a negative size")
        return bundle
    except KeyError:
        raise JournalError(named, f"is not a bundle: it has no {MANIFEST}") from None
    except (ValueError, TypeError, AttributeError, OSError, *DAMAGE) as error:
        raise JournalError(named, f"is a damaged bundle: {error}") from error


def open_archive(file: BinaryIO, named: Path) -> zipfile.ZipFile:
    """Open a ZIP archive. Raises JournalError for any other file."""
    try:
        return zipfile.ZipFile(file)
    except (zipfile.BadZipFile, OSError, ValueError) as error:
        raise JournalError(named, f"is not a bundle, or is incomplete: {error}") from error


# The places of bundles: a local path, or any URL that fsspec supports (`s3://`, `gs://`, `https://`).

URL = re.compile(r"[a-z][a-z0-9+.-]+://", re.IGNORECASE)


def is_url(place: str) -> bool:
    return URL.match(place) is not None


def upload(archive: Path, url: str, *, force: bool = False) -> None:
    """Copy a bundle to a URL. Raises CollisionError, NotAvailable and UsageError."""
    system, path = file_system(url)
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
    system, path = file_system(url)
    try:
        with system.open(path, "rb") as source, archive.open("wb") as target:
            shutil.copyfileobj(source, target)
    except Exception as error:
        raise UsageError(f"{url} cannot be read: {_line(error)}") from error


def file_system(url: str) -> tuple[Any, str]:
    """Return the file system of a URL, and the path in it. Raises NotAvailable and UsageError."""
    try:
        system, path = fsspec.core.url_to_fs(url)
    except ImportError as error:
        raise NotAvailable(url, _line(error)) from None
    except Exception as error:
        raise UsageError(f"{url} cannot be used: {_line(error)}") from error
    return system, path


def _line(error: Exception) -> str:
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
