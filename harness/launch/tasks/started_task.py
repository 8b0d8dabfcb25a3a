"""The launchers that start one command several times, recognized by the variables that they set for each task."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass

from ...errors import UsageError


@dataclass(frozen=True, slots=True)
class Launcher:
    """A program that starts one command several times.

    rank, size: the variables with a task's number, from 0 on, and with the number of tasks
    also: further variables that have to be set
    same: variables that are the same in all tasks of a launch and, together, differ between two launches
    """

    name: str
    rank: str
    size: str
    also: tuple[str, ...] = ()
    same: tuple[str, ...] = ()


TORCHRUN = Launcher(
    "torchrun",
    "RANK",
    "WORLD_SIZE",
    also=("LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT"),
    same=("TORCHELASTIC_RUN_ID", "MASTER_ADDR", "MASTER_PORT"),
)

LAUNCHERS = (
    TORCHRUN,
    # A batch script has SLURM_PROCID and SLURM_NTASKS too, but only srun starts tasks and sets this size.
    Launcher("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", same=("SLURM_JOB_ID", "SLURM_STEP_ID")),
    Launcher(
        "mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", same=("PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid")
    ),
    Launcher("mpiexec", "PMI_RANK", "PMI_SIZE", same=("PBS_JOBID", "LSB_JOBID", "SLURM_JOB_ID", "SLURM_STEP_ID")),
)
"""The launchers, in the order in which they are looked for: torchrun may itself have been started by srun."""


@dataclass(frozen=True, slots=True)
class StartedTask:
    """This command as one of `world_size` tasks; `launch_id` is the same in all tasks of a launch."""

    launcher: Launcher
    rank: int
    world_size: int
    launch_id: str

    @property
    def has_rank_variables(self) -> bool:
        """True if the launcher has set the variables that torch.distributed reads."""
        return self.launcher is TORCHRUN


def started_task(environ: Mapping[str, str]) -> StartedTask | None:
    """Return the task that these environment variables describe; None if this is the only one.

    Raises UsageError if a variable is not a number, or the rank is not less than the number of tasks.
    """
    for launcher in LAUNCHERS:
        if not all(name in environ for name in (launcher.rank, launcher.size, *launcher.also)):
            continue
        try:
            rank, world_size = int(environ[launcher.rank]), int(environ[launcher.size])
        except ValueError:
            rank, world_size = 0, -1
        if not 0 <= rank < world_size:
            raise UsageError(
                f"{launcher.rank}={environ[launcher.rank]} and {launcher.size}={environ[launcher.size]} are not a rank "
                f"and a number of tasks; unset them, or start the tasks with {launcher.name}"
            )
        if world_size > 1:
            same = [f"{name}={environ.get(name, '')}" for name in (launcher.size, *launcher.same)]
            launch_id = hashlib.sha256("\n".join([launcher.name, *same]).encode()).hexdigest()[:12]
            return StartedTask(launcher, rank, world_size, launch_id)
    return None


def store_variables(environ: Mapping[str, str], place: int, port: int) -> dict[str, str]:
    """Return the variables that give mode number `place` of a command a store of its own.

    The store of torchrun's agent serves one group of ranks, and the second would find the keys of the first there. So
    from the second mode on, rank 0's process serves a store at a `port` of its machine, which is free.
    """
    if not place or environ.get("TORCHELASTIC_USE_AGENT_STORE") != "True":
        return {}
    return {"TORCHELASTIC_USE_AGENT_STORE": "False", "MASTER_PORT": str(port)}


OWN_AGENT = "NUMDRIFT_AGENT"
"""Variable that tells a task that `numdrift run --nnodes` has started it, so that it reads no option of its launch."""


def is_of_own_agent() -> bool:
    """Return whether `numdrift run --nnodes` started this task. The scripts that it runs no longer see the variable."""
    return os.environ.pop(OWN_AGENT, "") == "1"
