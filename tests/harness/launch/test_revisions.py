"""Revisions of a repository, checked out beside it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from numdrift.harness.errors import UsageError
from numdrift.harness.launch.batch_plan import BatchPlan
from numdrift.harness.launch.revisions import revision_of
from numdrift.harness.launch.script_places import places_of
from numdrift.harness.records.modes.mode_spec import parse_mode
from numdrift.harness.runs.run_layout import InvestigationFolder


def git(folder: Path, *words: str) -> str:
    settings = ["-c", "user.name=a", "-c", "user.email=a@b.c", "-c", "protocol.file.allow=always"]
    return subprocess.run(["git", *settings, *words], cwd=folder, check=True, capture_output=True, text=True).stdout


def committed(folder: Path, content: str) -> None:
    (folder / "train.py").write_text(content)
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", content)


@pytest.fixture
def repository(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two commits of a script, with a package under src, and data that git ignores."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    repository = tmp_path / "work"
    (repository / "src/pkg").mkdir(parents=True)
    (repository / "data").mkdir()
    (repository / "data/x.txt").write_text("1")
    (repository / "src/pkg/__init__.py").write_text("")
    (repository / ".gitignore").write_text("data/\nruns/\n")
    git(repository, "init", "-q")
    committed(repository, "first")
    committed(repository, "second")
    return repository


def test_a_revision_has_its_own_sources_and_the_data_of_the_repository(repository: Path) -> None:
    (repository / "own.py").write_text("")  # a source that belongs to no revision
    (repository / "runs").mkdir()
    before = (repository / ".git").stat().st_mtime_ns, git(repository, "worktree", "list")
    revision = revision_of(repository / "train.py", "HEAD~1", [repository / "runs/study"])
    script = revision.of(repository / "train.py")
    assert script.read_text() == "first" and revision.commit == git(repository, "rev-parse", "HEAD~1").strip()
    assert (revision.tree / "data/x.txt").read_text() == "1"
    assert not (revision.tree / "own.py").exists() and not (revision.tree / "runs").exists()
    assert before == ((repository / ".git").stat().st_mtime_ns, git(repository, "worktree", "list"))
    # the second time, it is there
    made = script.stat().st_mtime_ns
    assert revision_of(repository / "train.py", revision.commit[:10]).of(repository / "train.py") == script
    assert script.stat().st_mtime_ns == made


def test_changes_that_are_not_committed_are_reported(repository: Path) -> None:
    assert not revision_of(repository / "train.py", "HEAD").changed
    (repository / "train.py").write_text("third")
    _, sentences = places_of([parse_mode("old=cpu,git=HEAD")], repository / "train.py", repository / "runs")
    assert any("has changes that are not committed" in sentence for sentence in sentences)


def test_packages_of_the_repository_are_imported_from_the_revision(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONPATH", str(repository / "src"))
    revision = revision_of(repository / "train.py", "HEAD~1")
    assert revision.import_paths(sys.executable) == [str(revision.tree / "src")]
    assert revision.import_paths("no-python") == []


def test_submodules_are_those_of_the_revision(repository: Path, tmp_path: Path) -> None:
    library = tmp_path / "library"
    library.mkdir()
    git(library, "init", "-q")
    committed(library, "one")
    git(repository, "submodule", "--quiet", "add", str(library), "library")
    committed(repository, "third")
    committed(library, "two")
    git(repository / "library", "pull", "-q")
    committed(repository, "fourth")
    trees = [revision_of(repository / "train.py", name).tree for name in ("HEAD~1", "HEAD")]
    assert [(tree / "library/train.py").read_text() for tree in trees] == ["one", "two"]


def test_what_is_no_revision_is_refused(repository: Path, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="has no revision 'v9'"):
        revision_of(repository / "train.py", "v9")
    (tmp_path / "train.py").write_text("")
    with pytest.raises(UsageError, match="is not in a git repository"):
        revision_of(tmp_path / "train.py", "HEAD")
    (repository / "new.py").write_text("")
    with pytest.raises(UsageError, match="does not exist in the revision"):
        revision_of(repository / "new.py", "HEAD").of(repository / "new.py")


def test_a_mode_has_a_script_and_a_folder_of_its_own(repository: Path, tmp_path: Path) -> None:
    (tmp_path / "other.py").write_text("")
    specs = [
        parse_mode("cpu"),
        parse_mode(f"other=cpu,script={tmp_path / 'other.py'}"),
        parse_mode(f"old=cpu,git=HEAD~1,cwd={repository}"),
    ]
    places, _ = places_of(specs, repository / "train.py", repository / "runs")
    other, old = (spec.place for spec in specs[1:])
    assert places.keys() == {other, old}
    assert (places[other].script, places[other].folder) == (tmp_path / "other.py", Path.cwd())
    assert places[old].script == places[old].folder / "train.py" and places[old].beside == repository
    assert places[old].script.read_text() == "first"
    # a mode that gets another name, as for a repetition, keeps its place
    plan = BatchPlan(repository / "train.py", specs, InvestigationFolder(tmp_path), places=places)
    assert plan.place(replace(specs[2], name="again")) == places[old]
    assert plan.place(specs[0]).script == repository / "train.py"
    with pytest.raises(UsageError, match="cwd=nowhere is not a folder"):
        places_of([parse_mode("cpu,cwd=nowhere")], repository / "train.py", repository / "runs")
