from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from numdrift.harness.errors import JournalError, RunNotFound
from numdrift.harness.runs.manifest import STATUSES, RunManifest, holds_no_step, read_manifest
from numdrift.harness.runs.run_layout import RunFolder

SCHEMAS_THAT_ARE_NONE: list[object] = [0, 2, "1", [], None]


def manifest(**changes: Any) -> RunManifest:
    plain = RunManifest(
        mode="cpu",
        spec="cpu,threads=2",
        suffix="before",
        reproducer="train.py",
        script_sha256="0" * 64,
        arguments=["--epochs", "3"],
        record="params",
        started="2025-01-01T00:00:00+00:00",
        position=0,
        pickle="verify_cpu_before.pkl",
        pid=os.getpid(),
    )
    return replace(plain, **changes)


def ended_pid() -> int:
    """The number of a process that is no more."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    return process.pid


def write(folder: Path, content: object) -> None:
    text = content if isinstance(content, str) else json.dumps(content)
    (folder / "run.json").write_text(text)


def valid() -> dict[str, Any]:
    one = manifest(status="complete")
    return {name: getattr(one, name) for name in one.__dataclass_fields__}


@pytest.mark.parametrize("status", [status for status in STATUSES if status != "running"])
def test_a_manifest_survives_its_file(tmp_path: Path, status: str) -> None:
    one = manifest(
        status=status, message="é\nb", steps=3, seconds=1.5, exit_code=-9, notices=["a"], adopted={"loss": []},
        problems=["b"], swaps=[{"swap": "kernel.gelu=fp64", "calls": {"forward": 2}}],
    )  # fmt: skip
    one.write(tmp_path / "run.json")
    assert read_manifest(tmp_path) == one
    assert [path.name for path in tmp_path.iterdir()] == ["run.json"]


def test_failed_says_whether_a_run_ended_badly() -> None:
    bad = {status for status in STATUSES if manifest(status=status).failed}
    assert bad == {"crashed", "refused", "killed", "timeout", "nonfinite", "out-of-memory"}


def test_label() -> None:
    assert manifest().label == "before: cpu" and manifest(suffix="").label == "cpu"


def test_a_running_run_is_running_while_its_watcher_lives(tmp_path: Path) -> None:
    manifest().write(tmp_path / "run.json")
    assert read_manifest(tmp_path).status == "running"


@pytest.mark.parametrize("pid", [None, "ended", 0, -1, 2**40, "12", 1.5], ids=str)
def test_a_running_run_without_its_watcher_was_killed(tmp_path: Path, pid: Any) -> None:
    # given
    write(tmp_path, valid() | {"status": "running", "pid": ended_pid() if pid == "ended" else pid})
    # when
    found = read_manifest(tmp_path)
    # then
    assert (found.status, found.message) == ("killed", "numdrift ended before the run did")


def test_another_users_watcher_is_alive(tmp_path: Path) -> None:
    manifest(pid=1).write(tmp_path / "run.json")
    assert read_manifest(tmp_path).status == "running"


@pytest.mark.parametrize("content", ["", "{", "\x00", "[" * 100_000, '{"schema": 1'])
def test_damaged_json_is_a_journal_error(tmp_path: Path, content: str) -> None:
    write(tmp_path, content)
    with pytest.raises(JournalError, match="cannot be read") as raised:
        read_manifest(tmp_path)
    assert raised.value.path == tmp_path / "run.json"


@pytest.mark.parametrize(
    "content", [[], 3, None, {}, *(valid() | {"schema": schema} for schema in SCHEMAS_THAT_ARE_NONE)]
)
def test_an_unknown_schema_is_a_journal_error(tmp_path: Path, content: object) -> None:
    write(tmp_path, content)
    with pytest.raises(JournalError, match="schema that this version of numdrift cannot read"):
        read_manifest(tmp_path)


@pytest.mark.parametrize("name", [name for name in valid() if name not in ("schema",)])
def test_a_missing_field_is_a_journal_error_where_it_has_no_default(tmp_path: Path, name: str) -> None:
    # given
    content = {field: value for field, value in valid().items() if field != name}
    write(tmp_path, content)
    required = {
        "mode",
        "spec",
        "suffix",
        "reproducer",
        "script_sha256",
        "arguments",
        "record",
        "started",
        "position",
        "pickle",
    }
    # when
    if name in required:
        with pytest.raises(
            JournalError, match=f"has a missing or unknown field, or a field of the wrong type: .*{name}"
        ):
            read_manifest(tmp_path)
    else:
        assert read_manifest(tmp_path).mode == "cpu"


def test_a_field_of_a_later_version_is_a_journal_error(tmp_path: Path) -> None:
    write(tmp_path, valid() | {"colour": "blue"})
    with pytest.raises(JournalError, match="colour"):
        read_manifest(tmp_path)


def test_no_manifest_is_no_run(tmp_path: Path) -> None:
    with pytest.raises(RunNotFound, match="is not a run"):
        read_manifest(tmp_path)


@pytest.mark.parametrize(
    ("status", "steps", "replaceable"),
    [("crashed", 0, True), ("refused", 0, True), ("crashed", 1, False), ("complete", 0, False)],
)
def test_only_a_run_that_failed_before_its_first_step_may_be_replaced(
    tmp_path: Path, status: str, steps: int, replaceable: bool
) -> None:
    folder = RunFolder(tmp_path / "cpu", tmp_path / "verify_cpu.pkl")
    assert not holds_no_step(folder)
    folder.path.mkdir()
    manifest(status=status, steps=steps).write(folder.manifest)
    assert holds_no_step(folder) == replaceable
