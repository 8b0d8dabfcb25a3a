"""Jobs of Slurm, by programs of the same names that execute each job on this machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from numdrift.harness.batches.followed_task import executed_task
from numdrift.harness.engines.engine import EngineSettings, chosen_engine
from numdrift.harness.errors import UsageError

from .recorded_ends import KILLED_ONCE, ONCE, executed, executions, shell_task

SBATCH = """#!/bin/sh
# Executes the jobs of a script, or of an array, in the background. A partition `full` is refused.
for script; do :; done
copy={folder}/scripts/$(date +%s%N)
cp "$script" $copy  # submitit renames its own while the job may begin
if grep -q "partition=full" "$script"; then
    echo "sbatch: error: invalid partition specified: full" >&2
    exit 1
fi
id=$(ls {folder}/scripts | wc -l)
array=$(sed -n 's/^#SBATCH --array=0-\\([0-9]*\\).*/\\1/p' "$script")
for number in $(seq 0 ${{array:-0}}); do
    (
        export SLURM_JOB_ID=$id SLURM_NTASKS=1 SLURM_JOB_NUM_NODES=1 SLURM_NODEID=0 SLURM_PROCID=0 SLURM_LOCALID=0
        test -n "$array" && export SLURM_ARRAY_JOB_ID=$id SLURM_ARRAY_TASK_ID=$number
        sh $copy
        echo "$id${{array:+_$number}}|COMPLETED|node1" >> {folder}/states
    ) > /dev/null 2>&1 &
done
echo "Submitted batch job $id"
"""
SRUN = """#!/bin/sh
# Executes the command after its options.
while [ "${1#-}" != "$1" ]; do
    case "$1" in --output|--error) shift ;; esac
    shift
done
exec "$@"
"""
SACCT = "#!/bin/sh\necho 'JobID|State|NodeList'\ncat {folder}/states 2>/dev/null\nexit 0\n"


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with programs in place of Slurm's, first on the PATH, and the scripts that were submitted."""
    pytest.importorskip("submitit")
    folder = tmp_path / "slurm"
    (folder / "scripts").mkdir(parents=True)
    for name, text in {
        "sbatch": SBATCH.format(folder=folder),
        "srun": SRUN,
        "sacct": SACCT.format(folder=folder),
        "scancel": "#!/bin/sh\n",
    }.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


@pytest.mark.slow
def test_tasks_are_jobs_of_slurm_with_what_they_need(slurm: Path, tmp_path: Path) -> None:
    batch = tmp_path / "batch"
    batch.mkdir()
    tasks = [
        shell_task(batch, "a", f"{ONCE} exit 1"),
        shell_task(batch, "b", f"{ONCE}{KILLED_ONCE}"),
        shell_task(batch, "large", ONCE, processors=4, devices=2, memory=3 << 30),
    ]

    ends = executed(chosen_engine("submitit", EngineSettings(batch, options={"slurm_partition": "gpu"})), batch, tasks)

    assert {name: end.exit_code for name, end in ends.items()} == {"a": 1, "b": 0, "large": 0}
    assert [executions(batch, name) for name in ("a", "b", "large")] == [1, 2, 1]
    scripts = [path.read_text() for path in sorted((slurm / "scripts").iterdir())]
    assert len(scripts) == 4  # the look for the marker, an array of two, the large task, and b again
    assert all("#SBATCH --partition=gpu\n" in script for script in scripts)
    (large,) = (script for script in scripts if "--cpus-per-task=4" in script)
    assert "--gpus-per-node=2" in large and "--mem=3GB" in large and "--array" not in large
    assert sum("--array=0-1" in script for script in scripts) == 1


@pytest.mark.slow
def test_a_command_is_one_job_whose_log_is_shown(slurm: Path, tmp_path: Path) -> None:
    settings = EngineSettings(tmp_path / "a", options={"slurm_partition": "gpu"})
    lines: list[str] = []

    end = executed_task(shell_task(tmp_path, "a", "echo trains; exit 1"), "submitit", settings, lines.append)

    assert end.exit_code == 1 and lines == [f"a runs on {end.host}", "trains"]
    assert len(list((slurm / "scripts").iterdir())) == 1  # it does not wait in the queue twice


@pytest.mark.slow
def test_a_job_without_a_result_is_explained_in_the_words_of_submitit(slurm: Path, tmp_path: Path) -> None:
    (slurm / "srun").write_text("#!/bin/sh\nexit 1\n")
    settings = EngineSettings(tmp_path / "a", retries=0, options={"slurm_partition": "gpu"})

    end = executed_task(shell_task(tmp_path, "a", ONCE), "submitit", settings, lambda line: None)

    assert end.was_killed and "has not produced any output (state: COMPLETED)" in end.message


def test_a_cluster_that_refuses_is_quoted(slurm: Path, tmp_path: Path) -> None:
    engine = chosen_engine("submitit", EngineSettings(tmp_path, options={"slurm_partition": "full"}))
    with pytest.raises(UsageError, match=r"the cluster refuses jobs: .*invalid partition specified: full"):
        executed(engine, tmp_path, [shell_task(tmp_path, "a", ONCE)])
    assert executions(tmp_path, "a") == 0
