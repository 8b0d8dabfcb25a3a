from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from numdrift.harness.cli.program import program
from numdrift.harness.records.run.execution_facts import KEYWORDS
from numdrift.harness.records.tools.snapshot_index import CUT_OFF, FOLDER, INDEX, entries_of
from numdrift.harness.runs.manifest import RunManifest
from numdrift.harness.snapshots import camera as writing
from numdrift.harness.snapshots.camera import Camera, SnapshotFolder, Wish, size_of
from numdrift.harness.snapshots.snapshot_choice import Choice
from numdrift.harness.snapshots.snapshot_record import Snapshot

from .samples import EXECUTION, snapshot_of

WISH = Wish(EXECUTION, KEYWORDS, certain=True)


def numbered(count: int) -> Snapshot:
    return snapshot_of("sam", execution=replace(EXECUTION, count=count))


def camera_of(run: Path, notices: list[str], **limits: Any) -> Camera:
    return Camera(
        Choice(**limits),
        SnapshotFolder(run, limits.get("limit_size"), limits.get("limit_count")),
        notices.append,
    )


def test_the_index_says_what_is_there(tmp_path: Path) -> None:
    folder = SnapshotFolder(tmp_path, None, None)
    path = folder.write(numbered(0))
    (entry,) = entries_of(tmp_path)
    assert (entry.path, entry.size, entry.incomplete) == (path, path.stat().st_size, "")
    assert (entry.facts["graph"], entry.facts["step"], entry.facts["execution"]) == ("0-forward", 3, 0)
    path.unlink()
    assert entries_of(tmp_path)[0].incomplete == "its file is missing"


def test_what_was_begun_and_not_ended_is_incomplete(tmp_path: Path) -> None:
    SnapshotFolder(tmp_path, None, None).write(numbered(0))
    index = tmp_path / FOLDER / INDEX
    index.write_text(index.read_text().splitlines()[0] + '\n{"event": "end", "fi')
    assert [one.incomplete for one in entries_of(tmp_path)] == [CUT_OFF]
    assert entries_of(tmp_path / "nowhere") == []


def test_limits_by_count_and_by_size(tmp_path: Path) -> None:
    notices: list[str] = []
    camera = camera_of(tmp_path / "count", notices, limit_count=2)
    (tmp_path / "count").mkdir()
    for count in range(4):
        camera.take(WISH, numbered(count))
    assert len(entries_of(tmp_path / "count")) == 2
    assert len(notices) == 1 and "--limit-count" in notices[0]
    size = SnapshotFolder(tmp_path, None, None).write(numbered(0)).stat().st_size
    notices.clear()
    (tmp_path / "size").mkdir()
    camera = camera_of(tmp_path / "size", notices, limit_size=size + size_of(numbered(0)))
    for count in range(4):
        camera.take(WISH, numbered(count))
    assert len(entries_of(tmp_path / "size")) == 2
    assert len(notices) == 1 and "--limit-size" in notices[0]


def test_a_disk_without_room_is_asked_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notices: list[str] = []
    monkeypatch.setattr(writing, "RESERVE", 2**62)
    camera = camera_of(tmp_path, notices)
    assert not camera.has_room(WISH, 1000)
    camera.take(WISH, numbered(0))
    assert entries_of(tmp_path) == [] and not (tmp_path / FOLDER).exists()
    assert len(notices) == 1 and "are reserved for the recording" in notices[0]


def test_a_disk_that_is_full_in_the_middle(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    notices: list[str] = []
    camera = camera_of(tmp_path, notices)
    camera.take(WISH, numbered(0))
    writev, calls = os.writev, iter(range(10**6))

    def full(descriptor: int, parts: Any) -> int:
        if next(calls) >= 3:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return writev(descriptor, parts)

    monkeypatch.setattr(os, "writev", full)
    # when
    camera.take(WISH, numbered(1))
    camera.take(WISH, numbered(2))
    # then the first is whole, the second is marked, and no piece of it takes room
    monkeypatch.undo()
    first, second = entries_of(tmp_path)
    assert (first.incomplete, second.incomplete) == ("", "No space left on device")
    assert len(list((tmp_path / FOLDER).glob("*.safetensors*"))) == 1
    assert "incomplete (No space left on device)" in notices[0]


def test_what_cannot_be_replayed_is_said_when_it_is_taken_and_in_the_list(tmp_path: Path) -> None:
    # given
    run, notices = tmp_path / "study" / "cpu", list[str]()
    run.mkdir(parents=True)
    camera = camera_of(run, notices)
    # when
    camera.take(WISH, numbered(0))
    for count in (1, 2):
        camera.take(WISH, replace(numbered(count), unplayable="a compiled graph calls an effect"))
    # then it is said once of a graph, and of each snapshot
    assert notices == ["the snapshot of 0-forward cannot be replayed: a compiled graph calls an effect"]
    manifest = RunManifest("cpu", "cpu", "", "t.py", "", [], "losses", "", 0, "", status="complete")
    manifest.write(run / "run.json")
    listed = CliRunner().invoke(program, ["snapshot", "list", str(tmp_path / "study")], env={"COLUMNS": "200"})
    assert ["not replayable" in line for line in listed.stdout.splitlines()[-3:]] == [False, True, True]
