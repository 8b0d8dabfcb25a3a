"""Tasks on a Ray cluster of two machines, which are two raylets of this machine."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from numdrift.harness.engines.engine import EngineSettings, chosen_engine
from numdrift.harness.engines.engine_task import EngineTask, TaskEnd
from numdrift.harness.errors import UsageError

from .recorded_ends import KILLED_ONCE, ONCE, Ends, driver_program, executed, executions, heeding, shell_task, until

pytestmark = pytest.mark.slow


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    pytest.importorskip("ray")
    utilities = pytest.importorskip("ray.cluster_utils")
    monkeypatch.setenv("RAY_USAGE_STATS_ENABLED", "0")
    started = utilities.Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    yield started
    started.shutdown()


def settings(cluster: Any, folder: Path) -> EngineSettings:
    return EngineSettings(folder, None, 1, {"address": cluster.address})


def test_two_machines_execute_each_task_and_one_is_lost(cluster: Any, tmp_path: Path) -> None:
    second = cluster.add_node(num_cpus=1, num_gpus=2)
    tasks = [
        shell_task(tmp_path, "answer", f"{ONCE} echo some output; exit 1"),
        shell_task(tmp_path, "once", f"{ONCE}{KILLED_ONCE}"),
        shell_task(tmp_path, "always", f"{ONCE} echo last words; kill -9 $$"),
        *(shell_task(tmp_path, f"device{number}", f"{ONCE} echo $CUDA_VISIBLE_DEVICES", 0, 1) for number in range(2)),
    ]

    ends = executed(chosen_engine("ray", settings(cluster, tmp_path)), tmp_path, tasks)

    codes = {name: end.exit_code for name, end in ends.items()}
    assert codes == {"answer": 1, "once": 0, "always": -signal.SIGKILL, "device0": 0, "device1": 0}
    assert {name: executions(tmp_path, name) for name in ends} == {
        "answer": 1, "once": 2, "always": 2, "device0": 1, "device1": 1,
    }  # fmt: skip
    assert ends["always"].message == "last words"
    assert {(tmp_path / f"device{number}/task.log").read_text().strip() for number in range(2)} <= {"0", "1"}

    # when one of the two machines is lost, with a task on each
    slow = [shell_task(tmp_path, f"slow{number}", f"{ONCE} sleep 2") for number in range(4)]

    class LosesOne(Ends):
        def __call__(self, task: EngineTask, end: TaskEnd) -> None:
            super().__call__(task, end)
            if len(self.by_name) == 1:
                cluster.remove_node(second, allow_graceful=False)

    later = LosesOne()
    with chosen_engine("ray", settings(cluster, tmp_path)) as engine:
        engine.execute(slow, later)

    # then all of its tasks are executed on the other
    assert {name: end.exit_code for name, end in later.by_name.items()} == dict.fromkeys(
        ("slow0", "slow1", "slow2", "slow3"), 0
    )


@pytest.mark.exhaustive
def test_results_of_a_machine_without_the_folder_travel_by_a_url(cluster: Any, tmp_path: Path) -> None:
    # given a machine on which the folder of the tasks is another one, and empty
    folder, store = tmp_path / "tasks", tmp_path / "store"
    folder.mkdir()
    ray = Path(sys.executable).with_name("ray")
    start = f"mount -t tmpfs none {folder} && exec {ray} start --address={cluster.address} --num-cpus=2 --num-gpus=2 --block"
    if subprocess.run(["unshare", "-m", "mount", "-t", "tmpfs", "none", str(folder)], check=False).returncode:
        pytest.skip("this user may not mount anything")
    machine = subprocess.Popen(
        ["unshare", "-m", "sh", "-c", start], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        engine = chosen_engine("ray", settings(cluster, folder))
        until(lambda: engine._ray.cluster_resources().get("GPU") == 2, 60)  # type: ignore[attr-defined]
        tasks = [
            replace(task, cwd=tmp_path, command=["sh", "-c", f"cd {task.folder}; {task.command[2]}"])
            for task in (
                shell_task(folder, "there", f"{ONCE} echo moved; exit 1", devices=1),
                shell_task(folder, "killed", f"{ONCE}{KILLED_ONCE}", devices=1),
            )
        ]
        # when they are executed without a URL, and with one
        with pytest.raises(UsageError, match=r"does not see what this machine writes to .*tasks; name a folder of a"):
            executed(engine, folder, tasks)
        for task in tasks:
            task.write()
        shared = replace(settings(cluster, folder), shared=f"file://{store}")
        ends = executed(chosen_engine("ray", shared), folder, tasks, shared)
        # then all is here, and nothing is left at the URL
        assert {name: end.exit_code for name, end in ends.items()} == {"there": 1, "killed": 0}
        assert {name: executions(folder, name) for name in ends} == {"there": 1, "killed": 2}
        assert (folder / "there/task.log").read_text() == "moved\n" and not any(store.iterdir())
    finally:
        machine.terminate()
        machine.wait()


def test_ctrl_c_is_passed_on_to_the_commands(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    # a command that is no shell: a shell heeds signals even if the process that starts it blocks them
    text = 'import pathlib, time\ntry:\n    pathlib.Path("executed").write_text("executed\\n")\n    time.sleep(600)\n'
    text += 'except KeyboardInterrupt:\n    pathlib.Path("told").write_text("interrupted\\n")\n'
    script = f"exec {sys.executable} -c '{text}'"
    program = driver_program(tmp_path, "ray", ["a", "b"], script, jobs=1)
    program = program.replace("EngineSettings(folder, 1)", "EngineSettings(folder, 1, 1, {'num_cpus': '1'})")
    process = subprocess.Popen([sys.executable, "-c", heeding(program)], stderr=subprocess.PIPE)
    until(lambda: executions(tmp_path, "a") == 1, 90)

    process.send_signal(signal.SIGINT)

    _, stderr = process.communicate(timeout=60)
    assert b"KeyboardInterrupt" in stderr
    assert (tmp_path / "a/told").read_text() == "interrupted\n"
    assert executions(tmp_path, "b") == 0


def test_a_cluster_of_this_machine_refuses_what_it_has_no_room_for(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    task = shell_task(tmp_path, "large", ONCE, devices=8)
    began = time.monotonic()
    with pytest.raises(UsageError, match="large needs 1 processors, 8 devices and 0 MiB of memory, and no machine"):
        executed(chosen_engine("ray", EngineSettings(tmp_path, options={"num_cpus": "1"})), tmp_path, [task])
    assert executions(tmp_path, "large") == 0 and time.monotonic() - began < 120
