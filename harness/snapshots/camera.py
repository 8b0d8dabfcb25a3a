"""The camera of a process. It decides which executions get a snapshot, writes each snapshot to a file, and lists it in
the index."""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import torch

from ..records.frames import append_event
from ..records.run.execution_facts import MIB, Execution, in_mib
from ..records.tools.snapshot_index import FOLDER, INDEX
from ..script.script_api import registered
from ..torch_private.dispatching import bare_execution, unseen
from .snapshot_choice import Callback, Choice, answer_of, load_callback
from .snapshot_file import write_snapshot
from .snapshot_record import Snapshot

PER_CALL, BESIDES = 600, 4096
"""Estimates in bytes: the size of one call in a file (between 260 and 550 were measured), and the size of everything
except calls and values."""

RESERVE = 16 * MIB
"""The number of bytes of free disk space that stay reserved for the training and its recording."""

STRICT = ("parameter", "buffer", "gradient", "state", "loss")
"""The first words of the names of values that cannot contain an attention mask, so minus infinity is not expected in
them."""


@dataclass(frozen=True, slots=True)
class Wish:
    """A request for a snapshot of an execution that is about to begin.

    held: the parts to keep
    certain: false if the snapshot is taken only if an event happens
    """

    execution: Execution
    held: tuple[str, ...]
    certain: bool

    @property
    def reason(self) -> str:
        return "chosen" if self.certain else "nonfinite"


class SnapshotFolder:
    """The folder to which a run's snapshots are written.

    `limit_size` is the largest number of bytes, `limit_count` the largest number of files; None means no limit.
    """

    def __init__(self, run: Path, limit_size: int | None, limit_count: int | None) -> None:
        self.path = run / FOLDER
        self.written = 0
        self.count = 0
        self._limit_size = limit_size
        self._limit_count = limit_count

    def refusal(self, size: int) -> str:
        """Return the reason why there is no room for a snapshot of `size` bytes, "" if there is room."""
        if self._limit_count is not None and self.count >= self._limit_count:
            return f"the limit of {self._limit_count} snapshots has been reached (--limit-count)"
        if self._limit_size is not None and self.written + size > self._limit_size:
            return (
                f"it needs about {in_mib(size)}, and {in_mib(self.written)} of the {in_mib(self._limit_size)} "
                "of --limit-size are already used"
            )
        existing_folder = self.path if self.path.exists() else self.path.parent
        free = shutil.disk_usage(existing_folder).free
        if size + RESERVE > free:
            needs = f"it needs about {in_mib(size)}; " if size else ""
            return f"{needs}the disk has {in_mib(free)} free, and {in_mib(RESERVE)} are reserved for the recording"
        return ""

    def write(self, snapshot: Snapshot) -> Path:
        """Write a snapshot. If that fails, mark the snapshot as incomplete and raise OSError."""
        execution = snapshot.execution
        path, index = self.path / execution.file, self.path / INDEX
        self.path.mkdir(parents=True, exist_ok=True)
        # A snapshot is listed in the index before it is written. If the process is killed, the index shows which one is
        # cut off.
        append_event(
            index,
            "begin",
            file=path.name,
            bytes=size_of(snapshot),
            held=list(snapshot.held),
            graph=execution.name,
            phase=execution.phase,
            step=execution.step,
            execution=execution.count,
            device_index=execution.device_index,
            reason=snapshot.reason,
            calls=len(snapshot.tape.calls),
            unplayable=snapshot.unplayable,
        )
        try:
            write_snapshot(path, snapshot)
        except OSError as error:
            with suppress(OSError):
                append_event(index, "incomplete", file=path.name, reason=error.strerror or str(error))
            raise
        size = path.stat().st_size
        self.written, self.count = self.written + size, self.count + 1
        append_event(index, "end", file=path.name, bytes=size)
        return path


def size_of(snapshot: Snapshot) -> int:
    """Estimate the size of a snapshot on disk."""
    return snapshot.bytes + PER_CALL * len(snapshot.tape.calls) + BESIDES


Done = TypeVar("Done")


class Camera:
    """Takes the snapshots of one process. The observer of the training sets `step`.

    `stopping` is the reason to end the training now, "" to continue. Each kind of failure is reported to `notice` only
    once.
    """

    def __init__(self, choice: Choice, folder: SnapshotFolder, notice: Callable[[str], None]) -> None:
        self.choice = choice
        self.step = 0
        self.stopping = ""
        self.ran: Counter[str] = Counter()
        self.steps: set[int] = set()
        self.taken = 0
        self._folder = folder
        self._notice = notice
        self._counts: Counter[tuple[str, int]] = Counter()
        self._named: dict[tuple[object, str], str] = {}
        self._reserved: Counter[str] = Counter()
        self._noticed: set[str] = set()
        self._done = False
        self._loaded: Callback | None = None
        if choice.callback:
            try:
                self._loaded = load_callback(choice.callback)
            except Exception as error:  # noqa: BLE001, the file is the user's
                self._done = True
                self.failed(f"loading the callback {choice.callback}", error)

    def name(self, phase: str) -> str:
        """Return a name for a new graph, as in `numdrift graph`: `0-backward`, then `0-backward-2` and so on."""
        base = f"{self.step}-{phase or 'other'}"
        self._reserved[base] += 1
        return base if self._reserved[base] == 1 else f"{base}-{self._reserved[base]}"

    def name_of(self, key: object, phase: str) -> str:
        """Return the name of the graph with this key and phase. The first call for the graph creates the name."""
        if (key, phase) not in self._named:
            self._named[key, phase] = self.name(phase)
        return self._named[key, phase]

    def begins(self, name: str, phase: str, device_index: int = 0) -> Wish | None:
        """Count an execution of a graph that is about to begin.

        Return the request for a snapshot of the execution, None if none is wanted.
        """
        count = self._counts[name, device_index]
        self._counts[name, device_index] += 1
        self.ran[name] += 1
        self.steps.add(self.step)
        execution = Execution(name, phase, self.step, count, device_index)
        if self._done or not self.choice.matches(execution):
            return None
        function = registered.function or self._loaded
        if function is None:
            # If nothing is selected, the snapshots of all graphs of the first step are wanted.
            wanted = self.choice.on or self.choice.selects or execution.step == 0
            kinds = self.choice.what if wanted else ()
        else:
            try:
                kinds = answer_of(function, execution)
            except Exception as error:  # noqa: BLE001, the function is the user's
                kinds, message = (), (str(error).splitlines() or [""])[0]
                if not (isinstance(error, ValueError) and "it returned" in message):
                    message = f"{type(error).__name__}: {message}"
                if f"callback {message}" not in self._noticed:
                    self._noticed.add(f"callback {message}")
                    callback = getattr(function, "__name__", "the callback")
                    self._notice(f"no snapshot of {execution} is taken: {callback} failed: {message}")
        return Wish(execution, kinds, certain=not self.choice.on) if kinds else None

    def has_room(self, wish: Wish, size: int) -> bool:
        """Return whether there is room for `size` bytes. If not, and if the snapshot is certain, report the reason."""
        refusal = self._folder.refusal(size)
        if refusal and wish.certain:
            self._refuse(wish, refusal)
        return not refusal

    def take(self, wish: Wish, snapshot: Snapshot) -> None:
        """Write a snapshot if there is room. If writing fails, no more snapshots are taken; the training continues."""
        if self._done:
            return
        # The room is checked again, because the size of the outputs is known only after the execution.
        refusal = self._folder.refusal(size_of(snapshot))
        if refusal:
            self._refuse(wish, refusal)
            return
        try:
            path = self._folder.write(snapshot)
        except OSError as error:
            self._done = True
            self._notice(
                f"the snapshot of {wish.execution} is incomplete ({error.strerror or error}); the training continues "
                "without further snapshots"
            )
            return
        self.taken += 1
        if snapshot.unplayable:
            self.tell(f"the snapshot of {wish.execution.name} cannot be replayed: {snapshot.unplayable}")
        if self.choice.limit_count is not None and self.taken >= self.choice.limit_count and self.choice.stops:
            self.stopping = f"{self.taken} snapshots have been taken"
        if self.choice.on:
            self._done = True
            words = {"nonfinite": "computed a value that is not finite", "error": "raised an error"}
            self._notice(f"{wish.execution} {words[snapshot.reason]}: its snapshot is {path.name}")
            if self.choice.stops:
                self.stopping = f"the first execution that {words[snapshot.reason]} has been saved"

    def attempt(self, doing: str, do: Callable[[], Done]) -> Done | None:
        """Call `do`, hidden from torch's modes, and return its result. If it fails, report this and return None."""
        try:
            with unseen():
                return do()
        except Exception as error:  # noqa: BLE001, the training continues whatever fails here
            self.failed(doing, error)
            return None

    def failed(self, doing: str, error: Exception) -> None:
        """Report a failure of numdrift itself. The training continues without the snapshot."""
        first_line = (str(error).splitlines() or [""])[0]
        self.tell(f"{doing} failed: {type(error).__name__}: {first_line}")

    def tell(self, text: str) -> None:
        if text not in self._noticed:
            self._noticed.add(text)
            self._notice(text)

    def close(self) -> None:
        self._done = True

    def _refuse(self, wish: Wish, refusal: str) -> None:
        if self.choice.limit_count is not None and self.taken >= self.choice.limit_count:
            self._done = True
        if "refused" not in self._noticed:
            self._noticed.add("refused")
            self._notice(
                f"no snapshot is taken of {wish.execution}, nor of later executions for which there is no room: "
                f"{refusal}"
            )


def is_finite(name: str, value: torch.Tensor) -> bool:
    """Return whether a value is finite. In activations, minus infinity counts as finite, since it may be a mask."""
    if not (value.is_floating_point() or value.is_complex()):
        return True
    with bare_execution(), torch.no_grad():
        numbers = value.float() if value.dtype.itemsize == 1 else value  # float8 supports hardly any ops
        if bool(torch.isfinite(numbers).all()):
            return True
        masks = name.partition(" ")[0] not in STRICT and not numbers.is_complex()
        return masks and bool((torch.isfinite(numbers) | (numbers == -torch.inf)).all())
