"""The meeting of the tasks that record the ranks of one run: each tells the others something through a shared folder.

Each task has one file, its board, which it replaces as a whole. Rank 0 reads the boards of all others; the others read
only rank 0's, so that the number of reads grows with the number of tasks and not with its square.

    rank 1   token 7f, time t1                                   offset 0.4 s          end-0 ...
    rank 0                      seen {1: 7f, t1, t2}, time t3               mode-0               over-0 ...

A board that an earlier launch has left has another token, which the new rank 0 has not seen: it counts for nothing.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Self

from ...errors import NumdriftError, TaskGone, UsageError

PATIENCE_SECONDS = 60.0
"""Seconds within which all tasks must have found each other, unless the variable PATIENCE says otherwise."""

PATIENCE = "NUMDRIFT_MEETING_SECONDS"

LOOK_SECONDS = 0.2
"""Seconds between two looks at a board."""

BEAT_SECONDS = 2.0
"""Seconds between two signs of life on a board."""

GONE_SECONDS = 30.0
"""A task counts as gone if its board has not changed for so many seconds, by the reader's own clock."""

CLOCK_SECONDS = 2.0
"""Clocks count as different if they are further apart than this and than what the reading of the boards took."""


@dataclass(frozen=True, slots=True)
class Board:
    """The content of a task's file.

    token: differs in each process
    beat: counts the writes
    time: the task's own clock at this write, as `time.time()`
    processes: the namespace in which `pid` is the task's process; containers on one machine may have different ones
    facts: everything that the task has said
    """

    token: str
    beat: int
    time: float
    host: str
    processes: str
    pid: int
    facts: Mapping[str, Any]


class TaskMeeting:
    """This task's side of the meeting in `folder`. The tasks have met after `meet`, and leave with `leave`."""

    def __init__(self, folder: Path, rank: int, world_size: int, *, clock: Callable[[], float] = time.time) -> None:
        self.folder = folder
        self.rank = rank
        self.world_size = world_size
        self.hosts: list[str] = []
        self.machines = 1
        """The number of machines and containers whose processes do not see each other."""
        self.offsets: list[float] = []
        """For each rank, the seconds to add to its clock to get rank 0's; known to rank 0 alone."""
        self.exit_code = NumdriftError.exit_code
        """The exit code of all tasks; rank 0 sets it before it leaves."""
        self._clock = clock
        self._token = uuid.uuid4().hex
        self._facts: dict[str, Any] = {}
        self._beat = 0
        self._writing = threading.Lock()
        self._left = threading.Event()
        self._changed: dict[int, tuple[int, float]] = {}  # by rank: its last beat, and when it was first read

    def __enter__(self) -> Self:
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        if error is not None:
            self._abandon(error)
        elif not self._left.is_set():
            self.leave()

    def meet(self) -> int | None:
        """Wait until all tasks have seen each other. Return None, or the exit code if rank 0 has given up.

        Raises UsageError if the tasks have not met within the time, or if the folder cannot be written to.
        """
        patience = _patience()
        try:
            # What an earlier launch has left. The folder stays: another task may be writing to it.
            for board in self.folder.glob("rank*.json") if not self.rank else ():
                board.unlink()
            self.say()
        except OSError as error:
            raise UsageError(
                f"{error.filename} cannot be written to ({error.strerror}); choose another folder with --out"
            ) from None
        threading.Thread(target=self._live, name="numdrift meeting", daemon=True).start()
        try:
            if self.rank:
                return self._meet_rank_0(time.monotonic() + patience, patience)
            self._meet_all(time.monotonic() + patience, patience)
        except BaseException as error:
            self._abandon(error)
            raise
        return None

    def say(self, **facts: Any) -> None:
        """Add facts to this task's board. They are written before the call returns."""
        with self._writing:
            if self._left.is_set():
                return
            self._facts.update(facts)
            self._beat += 1
            board = Board(
                self._token, self._beat, self._clock(), socket.gethostname(), _processes(), os.getpid(), self._facts
            )
            self.folder.mkdir(parents=True, exist_ok=True)
            half = self.folder / f"half-{self._token}"
            half.write_text(json.dumps(asdict(board)), encoding="utf-8")
            half.replace(self._path(self.rank))

    def board(self, rank: int) -> Board | None:
        """Return a task's board, or None if there is none."""
        for _ in range(2):
            try:
                board = Board(**json.loads(self._path(rank).read_text(encoding="utf-8")))
            except FileNotFoundError:
                # A network file system may remember for a while that there was no file; reading the folder ends that.
                with suppress(OSError):
                    list(self.folder.iterdir())
                continue
            except (OSError, ValueError):  # it was replaced while it was read
                return None
            if self._changed.get(rank, (0, 0.0))[0] != board.beat:
                self._changed[rank] = board.beat, time.monotonic()
            return board
        return None

    def facts(self, rank: int) -> Mapping[str, Any]:
        """Return what a task has said.

        Raises TaskGone if it has written nothing for GONE_SECONDS, or if it ran on this machine and has ended.
        """
        board = self.board(rank)
        if board is not None:
            is_here = (board.host, board.processes) == (socket.gethostname(), _processes())
            if "left" in board.facts or (is_here and not _is_process(board.pid)):
                raise TaskGone(rank, board.host)
        if time.monotonic() - self._changed.get(rank, (0, 0.0))[1] > GONE_SECONDS:
            raise TaskGone(rank, self.hosts[rank] if rank < len(self.hosts) else "")
        return {} if board is None else board.facts

    def silent_for(self, rank: int) -> float:
        """Return the seconds since a task's board has changed."""
        return time.monotonic() - self._changed[rank][1]

    def wait_for(self, rank: int, *names: str) -> tuple[str, Any]:
        """Return the name and value of the first of these facts that a task says. Raises TaskGone."""
        while True:
            facts = self.facts(rank)
            for name in names:
                if name in facts:
                    return name, facts[name]
            time.sleep(LOOK_SECONDS)

    def leave(self) -> int:
        """Leave at the end of all runs. Return the exit code of all tasks, which rank 0 has set.

        Rank 0 says the exit code, waits a little for the others to read it, and removes the folder.
        """
        if self.rank:
            self.exit_code = int(self.wait_for(0, "over")[1])
        else:
            self.say(over=self.exit_code)
            until = time.monotonic() + 2 * BEAT_SECONDS
            while time.monotonic() < until and any(self._path(rank).exists() for rank in range(1, self.world_size)):
                time.sleep(LOOK_SECONDS)
        self._remove()
        return self.exit_code

    def _abandon(self, error: BaseException) -> None:
        """Leave because of an error: as rank 0, end all tasks with it; as any other rank, tell rank 0."""
        if not self.rank:
            self.exit_code = _exit_code(error)
            self.leave()
        elif self.hosts:
            with suppress(OSError):
                self.say(left=True)
            self._left.set()
        else:
            self._remove()

    def _remove(self) -> None:
        """Write nothing any more, and remove this task's board; as rank 0, the whole folder."""
        self._left.set()
        with suppress(OSError), self._writing:
            self._path(self.rank).unlink()
        if not self.rank:
            shutil.rmtree(self.folder, ignore_errors=True)
        with suppress(OSError):  # it has the boards of others, or rank 0 has removed it
            self.folder.rmdir()

    def clock_sentences(self) -> list[str]:
        """Return a sentence for each machine whose clock differs from rank 0's."""
        sentences: dict[str, str] = {}
        for rank, (host, offset) in enumerate(zip(self.hosts, self.offsets, strict=True)):
            if abs(offset) > CLOCK_SECONDS and host not in sentences:
                way = "behind" if offset > 0 else "ahead of"
                sentences[host] = (
                    f"the clock of {host} (rank {rank}) is {abs(offset):,.0f} s {way} that of {self.hosts[0]} (rank "
                    "0); the times in its records are its own: set the clocks, as with NTP"
                )
        return list(sentences.values())

    def _meet_all(self, until: float, patience: float) -> None:
        """Rank 0: show every other task that its board was seen, and wait for the answers."""
        others = range(1, self.world_size)
        seen: dict[str, tuple[str, float, float]] = {}
        boards: dict[int, Board] = {}
        while True:
            for rank in others:
                board = self.board(rank)
                if board is not None:
                    boards[rank] = board
                    if seen.get(str(rank), ("",))[0] != board.token:
                        seen[str(rank)] = board.token, board.time, self._clock()
            self.say(seen=seen)
            if len(boards) == len(others) and all("offset" in board.facts for board in boards.values()):
                break
            if time.monotonic() > until:
                missing = [rank for rank in others if rank not in boards or "offset" not in boards[rank].facts]
                raise UsageError(
                    f"{_ranks(missing)} of {self.world_size} wrote nothing to {self.folder.parent} within "
                    f"{patience:.0f} s: either not all tasks were started, or the folder is not shared by their "
                    "machines; name with --out a folder that all of them see"
                )
            time.sleep(LOOK_SECONDS)
        self.hosts = [socket.gethostname(), *(boards[rank].host for rank in others)]
        self.offsets = [0.0, *(float(boards[rank].facts["offset"]) for rank in others)]
        self.machines = len(
            {(socket.gethostname(), _processes()), *((boards[rank].host, boards[rank].processes) for rank in others)}
        )
        self.say(hosts=self.hosts, machines=self.machines)

    def _meet_rank_0(self, until: float, patience: float) -> int | None:
        """Any other rank: wait until rank 0 has seen this board, and answer with the difference of the clocks."""
        while True:
            board = self.board(0)
            seen = {} if board is None else board.facts.get("seen", {})
            token, written, read = seen.get(str(self.rank), ("", 0.0, 0.0))
            if board is not None and token == self._token:
                now = self._clock()
                # As NTP computes it: the offset is exact if both ways took equally long.
                offset = ((read - written) + (board.time - now)) / 2
                delay = (now - written) - (board.time - read)
                self.say(offset=offset if abs(offset) > delay / 2 else 0.0)
                break
            if time.monotonic() > until:
                raise UsageError(
                    f"rank {self.rank} on {socket.gethostname()} found nothing from rank 0 in {self.folder.parent} "
                    f"within {patience:.0f} s: either rank 0 was not started, or the folder is not shared by their "
                    "machines; name with --out a folder that all of them see"
                )
            if not self._path(self.rank).exists():  # rank 0 has cleared the folder
                with suppress(OSError):
                    self.say()
            time.sleep(LOOK_SECONDS)
        name, hosts = self.wait_for(0, "hosts", "over")
        if name == "over":
            return self.leave()  # rank 0 has printed why
        self.hosts, self.machines = list(hosts), self.facts(0)["machines"]
        return None

    def _live(self) -> None:
        while not self._left.wait(BEAT_SECONDS):
            with suppress(OSError):
                self.say()

    def _path(self, rank: int) -> Path:
        return self.folder / f"rank{rank}.json"


def _patience() -> float:
    text = os.environ.get(PATIENCE, "")
    try:
        return float(text or PATIENCE_SECONDS)
    except ValueError:
        raise UsageError(f"{PATIENCE}={text} is not a number of seconds, such as 300") from None


def _processes() -> str:
    try:
        return str(Path("/proc/self/ns/pid").readlink())
    except OSError:  # not Linux: all processes of a machine see each other
        return ""


def _is_process(pid: int) -> bool:
    try:
        os.kill(pid, 0)  # signal 0 only checks whether a signal could be sent
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


def _exit_code(error: BaseException) -> int:
    if isinstance(error, NumdriftError):
        return error.exit_code
    return 130 if isinstance(error, KeyboardInterrupt) else NumdriftError.exit_code


def _ranks(numbers: list[int]) -> str:
    return f"rank{'s' * (len(numbers) > 1)} {', '.join(map(str, numbers))}"
