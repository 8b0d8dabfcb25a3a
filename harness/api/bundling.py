"""Writes, describes and fetches the archives of `numdrift bundle`, whether at a path or at a URL."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ..errors import CollisionError, UsageError
from ..records.modes.mode_spec import parse_mode
from ..runs.recorded_run import runs_in
from ..tools.bundle.archive import Bundle, download, is_url, upload, write_bundle
from ..tools.bundle.bundle_contents import SENSITIVE, Kind


def bundled(
    folder: Path, to: str, kinds: frozenset[Kind], packed: Callable[[int, int], None], *, redact: bool, force: bool
) -> tuple[Bundle, int]:
    """Pack an investigation into an archive at a path or URL; return the archive's content and size.

    `packed` is called with the number of bytes packed so far and the total number. Raises CollisionError, UsageError
    and NotAvailable.
    """
    if is_url(to):
        with tempfile.TemporaryDirectory() as temporary:
            local = Path(temporary) / "bundle.zip"
            bundle = write_bundle(folder, local, kinds, redact=redact, packed=packed)
            size = local.stat().st_size
            upload(local, to, force=force)
            return bundle, size
    if Path(to).exists() and not force:
        raise CollisionError(Path(to), "choose another path with --to, or replace it with --force")
    return write_bundle(folder, Path(to), kinds, redact=redact, packed=packed), Path(to).stat().st_size


def sensitive_in(bundle: Bundle, folder: Path) -> Iterator[str]:
    """Yield a sentence on each kind of sensitive data in the bundle, with the option that leaves it out."""
    for kind, meaning in SENSITIVE.items():
        # a redacted bundle has digests in place of data, but contains scripts unchanged
        files = bundle.of_kind(kind) if kind == "source" or not bundle.redacted else []
        if files:
            remedy = f"--leave-out {kind}" if kind == "source" else f"--redact or --leave-out {kind}"
            count = f"{len(files)} file{'s' if len(files) > 1 else ''}"
            yield f"{kind} ({count}): {meaning}; {remedy} leaves it out"
    variables = sorted({name for run in runs_in(folder) for name in parse_mode(run.manifest.spec).env})
    if variables:
        yield f"the modes set environment variables, and the bundle contains their values: {', '.join(variables)}"


@contextmanager
def local_copy(named: str) -> Iterator[Path]:
    """Yield the archive itself, or a temporary copy of the archive at a URL. Raises UsageError."""
    if not is_url(named):
        if not Path(named).is_file():
            raise UsageError(f"there is no bundle {named}; `numdrift bundle INVESTIGATION` creates one")
        yield Path(named)
        return
    with tempfile.TemporaryDirectory() as temporary:
        archive = Path(temporary) / "bundle.zip"
        download(named, archive)
        yield archive
