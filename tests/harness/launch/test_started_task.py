from __future__ import annotations

from collections.abc import Mapping

import pytest

from numdrift.harness.errors import UsageError
from numdrift.harness.launch.tasks.started_task import started_task, store_variables

TORCHRUN = {
    "RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "node0",
    "MASTER_PORT": "29400", "TORCHELASTIC_RUN_ID": "none", "TORCHELASTIC_USE_AGENT_STORE": "True",
}  # fmt: skip
SRUN = {"SLURM_PROCID": "3", "SLURM_STEP_NUM_TASKS": "4", "SLURM_JOB_ID": "17", "SLURM_STEP_ID": "0"}
BATCH_SCRIPT = {"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_JOB_ID": "17"}
OPEN_MPI = {"OMPI_COMM_WORLD_RANK": "3", "OMPI_COMM_WORLD_SIZE": "4", "PMIX_NAMESPACE": "prterun-1"}
HYDRA = {"PMI_RANK": "3", "PMI_SIZE": "4"}


@pytest.mark.parametrize(
    ("environ", "launcher"),
    [(TORCHRUN, "torchrun"), (SRUN, "srun"), (OPEN_MPI, "mpirun"), (HYDRA, "mpiexec")],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_launcher_is_recognized(environ: Mapping[str, str], launcher: str) -> None:
    task = started_task(environ)
    assert task is not None
    assert (task.launcher.name, task.rank, task.world_size) == (launcher, 3, 4)
    assert task.has_rank_variables == (launcher == "torchrun")


@pytest.mark.parametrize(
    "environ",
    [
        {},
        BATCH_SCRIPT,  # srun has not started it
        SRUN | {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"},  # a shell by srun --pty
        {"RANK": "0", "WORLD_SIZE": "2"},  # no address: nothing that torch.distributed could use
    ],
)
def test_a_command_that_is_started_once_is_no_task(environ: Mapping[str, str]) -> None:
    assert started_task(environ) is None


def test_torchrun_within_srun_is_torchrun() -> None:
    task = started_task(SRUN | {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "2"} | TORCHRUN)
    assert task is not None and (task.launcher.name, task.rank, task.world_size) == ("torchrun", 3, 4)


def test_the_tasks_of_a_launch_share_an_id_that_no_other_launch_has() -> None:
    def launch_id(**variables: str) -> str:
        task = started_task(SRUN | variables)
        assert task is not None
        return task.launch_id

    assert launch_id(SLURM_PROCID="0") == launch_id(SLURM_PROCID="1")
    assert len({launch_id(), launch_id(SLURM_STEP_ID="1"), launch_id(SLURM_JOB_ID="18")}) == 3


@pytest.mark.parametrize("rank", ["4", "-1", "two"])
def test_a_rank_that_is_none_is_refused(rank: str) -> None:
    with pytest.raises(UsageError, match=f"SLURM_PROCID={rank} and SLURM_STEP_NUM_TASKS=4 are not a rank"):
        started_task(SRUN | {"SLURM_PROCID": rank})


def test_only_the_first_mode_uses_the_store_of_the_agent() -> None:
    assert store_variables(TORCHRUN, 0, 5000) == {}
    assert store_variables(TORCHRUN, 1, 5000) == {"TORCHELASTIC_USE_AGENT_STORE": "False", "MASTER_PORT": "5000"}
    # without an agent, each mode's rank 0 serves its store at the port that was stated
    assert store_variables({**TORCHRUN, "TORCHELASTIC_USE_AGENT_STORE": "False"}, 1, 5000) == {}
