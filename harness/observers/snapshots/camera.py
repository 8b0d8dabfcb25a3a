"""Decides of each execution whether a snapshot is taken of it, and writes those that are."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import torch

from ...records.execution_facts import Execution
from ...script.snapshot_callback import OnSnapshot, registered
from ...torch_private.taping import bare_execution
from .snapshot_choice import Choice, asked, load_callback
from .snapshot_folder import SnapshotFolder, size_of
from .snapshot_record import Snapshot

STRICT = ("parameter", "buffer", "gradient", "state", "loss")
"""How the names of values begin in which minus infinity is no mask of an attention."""


@dataclass(frozen=True, slots=True)
class Wish:
    """What is to be kept of an execution that is about to begin; not `certain` where something must happen
    first."""

    execution: Execution
    held: tuple[str, ...]
    certain: bool

    @property
    def reason(self) -> str:
        return "chosen" if self.certain else "nonfinite"


class Camera:
    """Takes the snapshots of one process. `step` is set by whoever follows the training.

    `stopping` says why the training is to end here, "" where it is not. Whatever fails is told to `notice`,
    each kind of failure once.
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
        self._told: set[str] = set()
        self._done = False
        self._loaded = self._load(choice.callback)

    def name(self, phase: str) -> str:
        """A new graph's name, as `numdrift graph` would call it: `0-backward`, then `0-backward-2` and so on."""
        base = f"{self.step}-{phase or 'other'}"
        self._reserved[base] += 1
        return base if self._reserved[base] == 1 else f"{base}-{self._reserved[base]}"

    def name_of(self, key: object, phase: str) -> str:
        """The name of the graph that `key` stands for, a new one at first."""
        if (key, phase) not in self._named:
            self._named[key, phase] = self.name(phase)
        return self._named[key, phase]

    def begins(self, name: str, phase: str, device_index: int = 0) -> Wish | None:
        """A graph is about to be executed; None where nothing of it is wanted."""
        count = self._counts[name, device_index]
        self._counts[name, device_index] += 1
        self.ran[name] += 1
        self.steps.add(self.step)
        execution = Execution(name, phase, self.step, count, device_index)
        if self._done or not self.choice.matches(execution):
            return None
        held = self._held(execution)
        return Wish(execution, held, certain=not self.choice.on) if held else None

    def has_room(self, wish: Wish, size: int) -> bool:
        """Whether so many bytes have room; says why not, where the snapshot is certain."""
        refusal = self._folder.refusal(size)
        if refusal and wish.certain:
            self._refuse(wish, refusal)
        return not refusal

    def take(self, wish: Wish, snapshot: Snapshot) -> None:
        """Write a snapshot, if it has room; a full disk ends the taking, and not the training."""
        if self._done:
            return
        refusal = self._folder.refusal(size_of(snapshot))
        if refusal:
            self._refuse(wish, refusal)
            return
        try:
            path = self._folder.write(snapshot)
        except OSError as error:
            self._done = True
            self._notice(
                f"the snapshot of {wish.execution} is incomplete ({error.strerror or error}); the "
                f"training goes on, and no "
                "more are taken"
            )
            return
        self.taken += 1
        if snapshot.unplayable:
            self.tell(f"what is taken of {wish.execution.name} cannot be replayed: {snapshot.unplayable}")
        if self.choice.limit_count is not None and self.taken >= self.choice.limit_count and self.choice.stops:
            self.stopping = f"{self.taken} snapshots are taken"
        if self.choice.on:
            self._done = True
            words = {"nonfinite": "gave what is not finite", "error": "gave an error"}
            self._notice(f"{wish.execution} {words[snapshot.reason]}: {path.name} has it")
            if self.choice.stops:
                self.stopping = f"the first execution that {words[snapshot.reason]} is kept"

    def all_taken(self) -> bool:
        """Whether the step that begins is behind all that was asked for."""
        last = self.choice.last_step
        return self.choice.stops and not self.choice.on and last is not None and self.step > last

    def failed(self, doing: str, error: Exception) -> None:
        """Something of ours went wrong, and the execution goes on without it."""
        first = (str(error).splitlines() or [""])[0]
        self.tell(f"{doing} failed: {type(error).__name__}: {first}")

    def tell(self, text: str) -> None:
        if text not in self._told:
            self._told.add(text)
            self._notice(text)

    def close(self) -> None:
        self._done = True

    def _refuse(self, wish: Wish, refusal: str) -> None:
        if self.choice.limit_count is not None and self.taken >= self.choice.limit_count:
            self._done = True
        if "refused" not in self._told:
            self._told.add("refused")
            self._notice(f"no snapshot of {wish.execution} is taken, and of others that have no room: {refusal}")

    def _held(self, execution: Execution) -> tuple[str, ...]:
        function = registered.function or self._loaded
        if function is None:
            wanted = self.choice.on or self.choice.selects or execution.step == 0
            return self.choice.what if wanted else ()
        try:
            return asked(function, execution)
        except Exception as error:  # noqa: BLE001, the function is the user's
            name = getattr(function, "__name__", "the callback")
            first = (str(error).splitlines() or [""])[0]
            said = (
                first
                if isinstance(error, ValueError) and "it returned" in first
                else f"{type(error).__name__}: {first}"
            )
            if f"callback {said}" not in self._told:
                self._told.add(f"callback {said}")
                self._notice(f"no snapshot of {execution} is taken: {name} failed: {said}")
            return ()

    def _load(self, callback: str) -> OnSnapshot | None:
        if not callback:
            return None
        try:
            return load_callback(callback)
        except Exception as error:  # noqa: BLE001, the file is the user's
            self._done = True
            self.failed(f"loading the callback {callback}", error)
            return None


def is_finite(name: str, value: torch.Tensor) -> bool:
    """Whether a value is finite. Minus infinity is no fault where it may mask something: in activations."""
    if not (value.is_floating_point() or value.is_complex()):
        return True
    with bare_execution(), torch.no_grad():
        numbers = value.float() if value.dtype.itemsize == 1 else value
        if bool(torch.isfinite(numbers).all()):
            return True
        masks = name.partition(" ")[0] not in STRICT and not numbers.is_complex()
        return masks and bool((torch.isfinite(numbers) | (numbers == -torch.inf)).all())
