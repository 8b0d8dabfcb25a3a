"""Tasks on machines that do not share the folder of the batch: what they need and what they record travels by a URL.

The URL of a task is a folder of an object store, or of anything else that fsspec opens. It exists as long as the task
is under way:

    task.json       the task, and a secret by which a machine recognizes that it shares the folder after all
    begun.zip       the files of the task's folder when the task was sent, if there were any
    results.zip     the files of its folder after it has ended

On its machine, the task has the same folder as here, which is removed there once its results have been sent. The
script and its data have to be there already, at the same paths.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import shutil
import socket
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from ..errors import NumdriftError, UsageError
from ..launch.batch_plan import script_sha256
from ..records.codec import Unreadable, json_text, plain, read_fields
from ..tools.bundle.archive import download, file_system, upload, write_folder
from ..tools.bundle.opening import extract, read_packed
from .engine_task import END, TASK, EngineTask, TaskEnd, execute_task, read_task, refused

BEGUN, RESULTS = "begun.zip", "results.zip"

HOME = ".home"
"""A file in the folder of a task on the machine that has sent it, with the secret of that machine."""


def url_of(task: EngineTask, shared: str) -> str:
    """Return the URL of a task: the same each time that this machine sends it, and different for every folder."""
    place = hashlib.sha256(f"{socket.gethostname()}:{task.folder}".encode()).hexdigest()[:16]
    return f"{shared.rstrip('/')}/{task.name}-{place}"


def send(task: EngineTask, shared: str) -> str:
    """Write a task, and what its folder holds, to its URL. Return the URL. Raises UsageError.

    If there are results of the same task, because the process that sent it was killed, they are fetched first.
    """
    url = url_of(task, shared)
    fetch_results(task, url)
    secret = secrets.token_hex(16)
    (task.folder / HOME).write_text(secret, encoding="utf-8")
    if any(path.name not in (HOME, TASK) for path in task.folder.iterdir()):
        _pack(task.folder, f"{url}/{BEGUN}")
    put_at(f"{url}/{TASK}", json_text({"secret": secret, "task": plain(task)}).encode())
    return url


def fetch_results(task: EngineTask, url: str) -> bool:
    """Put the results of a task into its folder, and remove its URL. Return whether there were any.

    Results of another command, which had the same folder, are thrown away. Raises UsageError and JournalError.
    """
    found = False
    if is_at(f"{url}/{RESULTS}"):
        with _local_copy(f"{url}/{RESULTS}") as archive:
            found = (read_packed(archive, TASK) or {}).get("command") == list(task.command)
            if found:
                _unpack(archive, task.folder)
    (task.folder / HOME).unlink(missing_ok=True)
    remove(url)
    return found


def execute_moved(url: str) -> TaskEnd:
    """Execute the task at a URL on this machine, and write its results there.

    If this machine shares the folder of the task, nothing travels. A script that is missing here, or has another
    version, is refused, and so is a folder that cannot be written to.
    """
    system, path = file_system(f"{url}/{TASK}")
    try:
        content = json.loads(system.cat_file(path))
        task, secret = read_fields(EngineTask, content["task"]), str(content["secret"])
    except (OSError, ValueError, KeyError, Unreadable) as error:
        return refused(f"{url}/{TASK} cannot be read: {error}")
    with suppress(OSError):
        if (task.folder / HOME).read_text(encoding="utf-8") == secret:
            return execute_task(task.folder)
    if missing := _missing(task):
        return refused(f"{socket.gethostname()} {missing}, and --shared moves only the folder of the results")
    try:
        if not is_attempt_of(task):
            task.folder.mkdir(parents=True, exist_ok=True)
            # an attempt on another machine, which was killed there, has more than was sent
            sent = next((name for name in (RESULTS, BEGUN) if is_at(f"{url}/{name}")), None)
            if sent is not None:
                with _local_copy(f"{url}/{sent}") as archive:
                    _unpack(archive, task.folder)
            task.write()
        try:
            return execute_task(task.folder)
        finally:  # also after Ctrl-C: what is recorded is of use to the next attempt
            _pack(task.folder, f"{url}/{RESULTS}")
            shutil.rmtree(task.folder, ignore_errors=True)
    except (OSError, NumdriftError) as error:
        return refused(f"{socket.gethostname()}: the results of {task.name} cannot travel: {error}")


def is_attempt_of(task: EngineTask) -> bool:
    """Check whether an attempt of the task was killed on this machine, so that its records are in the folder."""
    earlier = read_task(task.folder)
    return earlier is not None and list(earlier.command) == list(task.command)


def _missing(task: EngineTask) -> str:
    """Return what this machine lacks for a task, "" if nothing."""
    if not task.cwd.is_dir():
        return f"does not have the folder {task.cwd}"
    script = None if task.script is None else task.cwd / task.script
    if script is not None and not script.is_file():
        return f"does not have {script}"
    if script is not None and task.script_sha256 not in ("", script_sha256(script)):
        return f"has another version of {script}"
    if task.folder.exists() and any(task.folder.iterdir()) and not is_attempt_of(task):
        return f"has other files in {task.folder}"
    return ""


@contextmanager
def _local_copy(url: str) -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="numdrift-") as temporary:
        archive = Path(temporary) / "folder.zip"
        download(url, archive)
        yield archive


def _unpack(archive: Path, folder: Path) -> None:
    """Put the files of an archive into a folder, in place of those with the same names; the end of the task last."""
    arrived = folder.with_name(f"{folder.name}.arrived")
    extract(archive, arrived, force=True)
    paths = [path for path in arrived.rglob("*") if path.is_file()]
    for path in sorted(paths, key=lambda path: path.name == END):
        target = folder / path.relative_to(arrived)
        target.parent.mkdir(parents=True, exist_ok=True)
        path.replace(target)
    shutil.rmtree(arrived, ignore_errors=True)


def _pack(folder: Path, url: str) -> None:
    with tempfile.TemporaryDirectory(prefix="numdrift-") as temporary:
        archive = Path(temporary) / "folder.zip"
        write_folder(folder, archive, left_out=(HOME,))
        _make_parent(url)
        upload(archive, url, force=True)


def put_at(url: str, content: bytes) -> None:
    """Write a small file. Raises UsageError and NotAvailable."""
    system, path = file_system(url)
    _make_parent(url)
    try:
        system.pipe_file(path, content)
    except Exception as error:  # noqa: BLE001, of the store's library
        reason = str(error).strip().partition("\n")[0]
        raise UsageError(f"{url} cannot be written: {reason}") from None


def _make_parent(url: str) -> None:
    """Make the folder of a URL on a disk; an object store needs none."""
    system, path = file_system(url)
    if "file" in system.protocol:
        try:
            Path(path).parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"{url} cannot be written: {error.strerror}") from None


def is_at(url: str) -> bool:
    """Check whether a URL has a file now. Raises UsageError and NotAvailable."""
    system, path = file_system(url)
    system.invalidate_cache()
    return bool(system.exists(path))


def remove(url: str) -> None:
    """Remove what is at a URL, if anything is. What cannot be removed is of no harm."""
    system, path = file_system(url)
    with suppress(Exception):
        system.rm(path, recursive=True)
