"""The part of `numdrift snapshot take` in the script's process: it follows the mode's executions.

With torch.compile, an execution is a call of a compiled graph. In the modes lazy and xla, it is the execution of a
cut's graph. In eager modes, it is the forward, the backward or the optimizer of a step.
"""

from __future__ import annotations

import torch

from ..errors import NotAvailable
from ..hooks.mode_protocol import Moment
from ..hooks.observer import Observer, Progress, Surroundings
from ..records.codec import read
from ..snapshots.camera import Camera, SnapshotFolder
from ..snapshots.segments import EagerSegments
from ..snapshots.snapshot_choice import Choice
from ..snapshots.snapshot_observer import SnapshotObserver
from ..snapshots.snapshot_record import Circumstances

EVENT = "snapshots"
"""The journal's event that lists the executions and the number of snapshots taken."""

SAFE_TO_STOP = ("forward", "backward", "optimizer", "step")
"""Points where a run may be ended: the script is running and no backward is in progress."""


class SnapshotInstrument(Observer):
    """Takes snapshots as its options, a `Choice`, specify. On ranks that are not chosen, it does nothing."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._surroundings = surroundings
        config = surroundings.config
        self._choice = read(Choice, surroundings.options)
        self._active = config.rank in self._choice.ranks
        folder = SnapshotFolder(surroundings.folder, self._choice.limit_size, self._choice.limit_count)
        # A choice may load a user's callback: ranks that are not chosen do not load it.
        self._camera = Camera(self._choice if self._active else Choice(), folder, surroundings.notice)
        self._follower: SnapshotObserver | None = None
        self._stopped = False

    def install(self) -> None:
        if not self._active:
            return
        around, config, mode = self._surroundings, self._surroundings.config, self._surroundings.mode
        circumstances = Circumstances(
            mode=config.mode.name,
            spec=str(config.mode),
            rank=config.rank,
            world_size=config.world_size,
            torch=torch.__version__,
            threads=torch.get_num_threads(),
            script=config.script,
        )
        try:
            follower = mode.snapshots(self._camera, circumstances, around.bound)
            self._follower = follower or EagerSegments(self._camera, circumstances, around.bound)
            self._follower.install()
        except NotAvailable as error:
            self._camera.tell(f"no snapshots are taken: {error}")

    def reached(self, progress: Progress, step: int) -> None:
        if not self._active:
            return
        if self._follower is not None:
            self._follower.reached(progress, step)
        if progress == "step":
            self._camera.step = step
        choice = self._camera.choice
        last = None if choice.steps is None else choice.steps.last
        if choice.stops and not choice.on and last is not None and self._camera.step > last:
            behind = self._follower is not None and self._follower.is_behind
            done = "" if behind else "every requested snapshot has been taken"
            self._camera.stopping = self._camera.stopping or done
        if progress in SAFE_TO_STOP and self._camera.stopping and not self._stopped:
            self._stopped = True
            self._surroundings.notice(f"the run was stopped in step {self._camera.step}: {self._camera.stopping}")
            raise SystemExit(0)  # not an Exception: the guard lets it through, and the script ends as after sys.exit()

    def closing(self, moment: Moment, step: int) -> None:
        if self._active and self._follower is not None:
            self._follower.closing(moment, step)

    def script_ended(self, failure: str) -> None:
        if failure and self._follower is not None:
            self._follower.script_ended(failure)

    def close(self) -> None:
        self._camera.close()
        follower, self._follower = self._follower, None
        if follower is not None:
            follower.close()
            camera = self._camera
            self._surroundings.write(EVENT, taken=camera.taken, ran=dict(camera.ran), steps=len(camera.steps))

    def forget(self) -> None:
        self._active = False
        self._camera.close()
