"""A private working folder for a run: an overlay that only the run's processes see. It works on Linux, without root.

    the folder as it was  +  what the run writes   =  what the script sees at the folder's own path
    (lower, read only)       (upper, in its run)      (mounted in a namespace of this process and its children)

So paths, `__file__`, imports and git work as usual, nothing is copied, and no other process sees the overlay. It is
mounted before torch is imported: a process must enter the namespace while it has a single thread.
"""

from __future__ import annotations

import ctypes
import json
import os
import time
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path

from ..records.run.run_config import RunConfig
from ..records.run.run_files import READY, OwnFolders

# From the Linux headers sched.h, mount.h, capability.h.
NEW_MOUNTS, NEW_USER = 0x00020000, 0x10000000
BIND, RECURSIVE, IS_PRIVATE, DETACH = 4096, 16384, 1 << 18, 2
CAPABILITY_VERSION = 0x20080522

LOOKED_AT = 20_000
"""The number of a folder's files whose owner is checked. If none has another owner, the folder counts as the user's."""

PATIENCE = 60.0
"""Seconds that the other ranks of a run wait for rank 0's folder."""


def enter(config: RunConfig) -> str:
    """Change to the script's folder, with the run's overlay mounted. The other ranks share rank 0's overlay.

    Return the reason why the folder is the shared original, or "" if it is the run's overlay. Raises OSError if there
    is no such folder.
    """
    files, folder, why = config.files, config.folder or str(Path.cwd()), config.files.why
    if not why and files.folders:
        try:
            if config.rank:
                _join(Path(files.written))
            else:
                _mount(files)
        except (OSError, AttributeError, ValueError) as error:
            why = str(error.strerror or error) if isinstance(error, OSError) else str(error)
        if config.world_size > 1 and not config.rank:
            with suppress(OSError):
                half = Path(files.written, f"{READY}.half")
                half.parent.mkdir(exist_ok=True)
                half.write_text(json.dumps({"pid": os.getpid(), "why": why}), encoding="utf-8")
                half.replace(half.with_name(READY))
    os.chdir(folder)  # even if its path is the current one: the process may still be in the folder below the overlay
    return why


def _mount(files: OwnFolders) -> None:
    """Mount an overlay on each folder. If this raises OSError, every folder is as it was before the call."""
    libc = ctypes.CDLL(None, use_errno=True)
    own_user = _unshare(libc, files.folders)
    with ExitStack() as stack:
        _mounted(libc, "none", "/", flags=RECURSIVE | IS_PRIVATE)
        for number, folder in enumerate(files.folders):
            # Folders that stay visible through the overlay are opened first: once it is mounted, no path leads to them.
            through = {}
            for path in [*files.shared, *files.folders[number + 1 :]]:
                if Path(path).exists() and Path(folder) in Path(path).parents:
                    through[path] = os.open(path, os.O_PATH)
                    stack.callback(os.close, through[path])
            upper, work = (Path(files.written, str(number), name) for name in ("files", "work"))
            for directory in (upper, work):
                directory.mkdir(parents=True)
            status = Path(folder).stat()
            upper.chmod(status.st_mode & 0o7777)  # the mounted folder takes its mode and owner from the upper one
            if (status.st_uid, status.st_gid) != (upper.stat().st_uid, upper.stat().st_gid):
                os.chown(upper, status.st_uid, status.st_gid)
            parts = {"lowerdir": folder, "upperdir": upper, "workdir": work}
            options = [f"{name}={_escaped(str(path))}" for name, path in parts.items()]
            _mounted(libc, "overlay", folder, "overlay", ",".join([*options, *(["userxattr"] if own_user else [])]))
            stack.push(lambda kind, *_, where=folder: kind and libc.umount2(os.fsencode(where), DETACH))
            for path, opened in through.items():
                _mounted(libc, f"/proc/self/fd/{opened}", path, flags=BIND | RECURSIVE)
    if own_user:
        # In its own user namespace, the process has root's capabilities over its own files. Drop these capabilities.
        header = (ctypes.c_uint32 * 2)(CAPABILITY_VERSION, 0)
        libc.capset(header, (ctypes.c_uint32 * 6)())


def _unshare(libc: ctypes.CDLL, folders: Sequence[str]) -> bool:
    """Leave the shared mounts. Return whether this process had to enter a user namespace, which needs no privileges."""
    if libc.unshare(NEW_MOUNTS) == 0:
        return False
    user, group = os.geteuid(), os.getegid()
    for folder in folders:
        # A user namespace has one user and one group: the process could no longer write to files that others own.
        foreign = _writable_by_others(folder, user, group)
        if foreign:
            raise ValueError(f"{foreign} belongs to another user or group")
    if libc.unshare(NEW_MOUNTS | NEW_USER):
        raise OSError(
            ctypes.get_errno(), "this system does not let a process mount folders for itself (user namespaces)"
        )
    for name, text in (("setgroups", "deny"), ("uid_map", f"{user} {user} 1"), ("gid_map", f"{group} {group} 1")):
        Path("/proc/self", name).write_text(text, encoding="ascii")
    return True


def _writable_by_others(folder: str, user: int, group: int) -> str:
    """Return a writable file of another user or group among the first LOOKED_AT files below a folder, or ""."""
    count = 0
    for parent, _, names in os.walk(folder):
        for path in (Path(parent), *(Path(parent, name) for name in names)):
            count += 1
            if count > LOOKED_AT:
                return ""
            with suppress(OSError):
                status = path.lstat()
                if (
                    (status.st_uid, status.st_gid) != (user, group)
                    and not path.is_symlink()
                    and os.access(path, os.W_OK)
                ):
                    return str(path)
    return ""


def _join(written: Path) -> None:
    """Enter rank 0's namespaces. Raises OSError, or ValueError if rank 0 has no overlay."""
    until = time.monotonic() + PATIENCE
    while not (written / READY).exists():
        if time.monotonic() > until:
            raise ValueError(f"rank 0 did not create a working folder within {PATIENCE:.0f} s")
        time.sleep(0.01)
    answer = json.loads((written / READY).read_text(encoding="utf-8"))
    if answer["why"]:
        raise ValueError(str(answer["why"]))
    libc = ctypes.CDLL(None, use_errno=True)
    kinds = ["mnt"] if Path("/proc/self/ns/user").samefile(f"/proc/{answer['pid']}/ns/user") else ["user", "mnt"]
    for kind in kinds:
        with Path(f"/proc/{answer['pid']}/ns/{kind}").open("rb") as namespace:
            if libc.setns(namespace.fileno(), 0):
                raise OSError(ctypes.get_errno(), f"rank 0's working folder cannot be entered ({kind})")


def _mounted(libc: ctypes.CDLL, source: str, target: str, kind: str = "", options: str = "", flags: int = 0) -> None:
    arguments = [os.fsencode(argument) for argument in (source, target, kind)]
    if libc.mount(*arguments, ctypes.c_ulong(flags), os.fsencode(options) if options else None):
        number = ctypes.get_errno()
        raise OSError(number, f"nothing can be mounted on {target} ({os.strerror(number)})")


def _escaped(path: str) -> str:
    """Escape a path for a mount option, in which backslashes, colons and commas are special."""
    return "".join(f"\\{character}" if character in "\\:," else character for character in path)
