"""Tasks whose machine does not share their folder: what has been recorded travels, and nothing is overwritten."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from numdrift.harness.engines.engine_task import END, LOG, EngineTask, read_end
from numdrift.harness.engines.moved_task import HOME, RESULTS, execute_moved, fetch_results, is_at, send
from numdrift.harness.errors import NotAvailable, UsageError
from numdrift.harness.launch.batch_plan import script_sha256

from .recorded_ends import KILLED_ONCE, ONCE, executions, shell_task


@pytest.fixture(params=["memory", "file", "s3"])
def shared(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty place."""
    if request.param == "s3":
        return f"{request.getfixturevalue('object_store')}/{uuid.uuid4().hex}"
    return f"memory://{uuid.uuid4().hex}" if request.param == "memory" else f"file://{tmp_path}/store"


@contextmanager
def another_machine(task: EngineTask) -> Iterator[None]:
    """A machine on which nobody has written to the folder of a task."""
    here = task.folder.with_name("here")
    task.folder.rename(here)
    yield
    assert not task.folder.exists(), "it was left behind"
    here.rename(task.folder)


def test_a_task_continues_elsewhere_and_what_it_writes_is_here(shared: str, tmp_path: Path) -> None:
    # given a task that has recorded something here, and files in folders of its own
    task = replace(shell_task(tmp_path, "a", f"{ONCE} mkdir -p cpu; date > cpu/run.json; echo done"), cwd=tmp_path)
    task = replace(task, command=["sh", "-c", f"cd {task.folder}; {task.command[2]}"])
    task.write()
    (task.folder / "executed").write_text("executed\n")

    url = send(task, shared)
    with another_machine(task):
        end = execute_moved(url)
    assert read_end(task.folder) is None and fetch_results(task, url)

    assert end == read_end(task.folder) and end.exit_code == 0 and end.host
    assert executions(tmp_path, "a") == 2 and (task.folder / "cpu/run.json").exists()
    assert (task.folder / LOG).read_text() == "done\n"
    assert not is_at(f"{url}/{RESULTS}") and not is_at(f"{url}/task.json") and not (task.folder / HOME).exists()
    assert not list(tmp_path.glob("a.*"))


def of_folder(folder: Path, name: str, script: str) -> EngineTask:
    """Write a task whose working folder is that of the tasks, which every machine has."""
    task = shell_task(folder, name, f"cd {folder / name}; {script}")
    task = replace(task, cwd=folder)
    task.write()
    return task


def test_nothing_travels_to_a_machine_that_shares_the_folder(shared: str, tmp_path: Path) -> None:
    task = of_folder(tmp_path, "a", ONCE)

    url = send(task, shared)
    end = execute_moved(url)

    assert end.exit_code == 0 and executions(tmp_path, "a") == 1 and (task.folder / END).exists()
    assert not is_at(f"{url}/{RESULTS}") and not fetch_results(task, url)


def test_a_killed_attempt_is_continued_on_a_further_machine(shared: str, tmp_path: Path) -> None:
    task = of_folder(tmp_path, "a", f"{ONCE}{KILLED_ONCE} exit 1")

    url = send(task, shared)
    with another_machine(task):
        killed = execute_moved(url)
        again = execute_moved(url)
    fetch_results(task, url)

    assert killed.was_killed and again.exit_code == 1
    assert executions(tmp_path, "a") == 2 and again.attempts == 2


def test_results_that_nobody_has_fetched_are_not_made_again(shared: str, tmp_path: Path) -> None:
    # given a driver that was killed after its task had ended
    task = of_folder(tmp_path, "a", ONCE)
    url = send(task, shared)
    with another_machine(task):
        execute_moved(url)
    # when the next driver sends the task
    assert send(task, shared) == url
    with another_machine(task):
        end = execute_moved(url)
    fetch_results(task, url)
    # then it is not executed again, and another task of this folder does not get its results
    assert end.exit_code == 0 and executions(tmp_path, "a") == 1
    send(task, shared)
    with another_machine(task):
        execute_moved(url)
    other = replace(task, command=["false"])
    (task.folder / END).unlink()
    assert send(other, shared) == url and read_end(task.folder) is None


@pytest.mark.parametrize(
    ("lacks", "why"),
    [
        ("cwd", "does not have the folder "),
        ("script", "does not have "),
        ("version", "has another version of "),
        ("folder", "has other files in "),
    ],
)
def test_a_machine_that_lacks_something_executes_nothing(lacks: str, why: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("print()")
    task = of_folder(tmp_path, "a", ONCE)
    task = replace(task, script=Path("train.py"), script_sha256=script_sha256(tmp_path / "train.py"))
    if lacks == "cwd":
        task = replace(task, cwd=tmp_path / "absent")
    url = send(task, f"memory://{uuid.uuid4().hex}")
    if lacks == "script":
        (tmp_path / "train.py").unlink()
    if lacks == "version":
        (tmp_path / "train.py").write_text("print(1)")
    here = task.folder.rename(tmp_path / "here")
    if lacks == "folder":
        task.folder.mkdir()
        (task.folder / "precious").touch()

    end = execute_moved(url)

    assert end.exit_code == 2 and why in end.message and "--shared moves only the folder of the results" in end.message
    assert not (here / "executed").exists()
    assert [path.name for path in task.folder.glob("*")] == (["precious"] if lacks == "folder" else [])


def test_a_place_that_cannot_be_used_is_one_line(tmp_path: Path) -> None:
    task = of_folder(tmp_path, "a", ONCE)

    with pytest.raises((UsageError, NotAvailable)) as caught:
        send(task, "nosuch://place")
    assert "nosuch" in str(caught.value) and "\n" not in str(caught.value)
    (tmp_path / "file").touch()
    with pytest.raises(UsageError, match="cannot be written"):
        send(task, f"file://{tmp_path}/file")


def test_the_secret_stays_on_its_machine(tmp_path: Path) -> None:
    task = of_folder(tmp_path, "a", f"{ONCE} test ! -e {HOME}")
    url = send(task, f"memory://{uuid.uuid4().hex}")
    with another_machine(task):
        assert execute_moved(url).exit_code == 0
