"""A bundle gives back what was packed, has no data where that was asked for, and refuses what a stranger changed."""

from __future__ import annotations

import hashlib
import json
import shutil
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from numdrift.harness.errors import CollisionError, JournalError, NumdriftError, UsageError
from numdrift.harness.graphs.page.self_contained import json_in_page
from numdrift.harness.runs.manifest import RunManifest
from numdrift.harness.tape.files.tensor_file import write_tensors
from numdrift.harness.tools.bundle.archive import MANIFEST, write_bundle
from numdrift.harness.tools.bundle.bundle_contents import chosen_kinds, items_of
from numdrift.harness.tools.bundle.opening import describe, extract

SECRET = torch.tensor([0.123456789, float("nan"), -2.0], dtype=torch.float64)
DEFAULT = chosen_kinds((), values=False)


@pytest.fixture
def investigation(tmp_path: Path) -> Path:
    folder = tmp_path / "study"
    run = folder / "cpu"
    for name in ("journal", "snapshots", "states", "graphs"):
        (run / name).mkdir(parents=True)
    script = tmp_path / "train.py"
    script.write_text("print('trained')\n")
    manifest = RunManifest(
        mode="cpu",
        spec="cpu",
        suffix="",
        reproducer=str(script),
        script_sha256="",
        arguments=[],
        record="params",
        started="2026-11-22T00:00:00+00:00",
        position=0,
        pickle="verify_cpu.pkl",
        status="complete",
        environment={"torch": "2.13.0"},
    )
    manifest.write(run / "run.json")
    for name in (
        "journal/events.jsonl",
        "journal/digests.bin",
        "journal/values-0.bin",
        "graphs/graphs.jsonl",
        "stdout.log",
    ):
        (run / name).write_bytes(name.encode() * 40)
    write_tensors(run / "snapshots" / "forward.safetensors", {"input 0": SECRET}, {"schema": 1, "calls": []})
    write_tensors(run / "states" / "state-000000.safetensors", {"w": SECRET}, {})
    (folder / "culprit-1.py").write_text("raise SystemExit(0)\n")
    write_tensors(folder / "culprit-1.safetensors", {"x": SECRET}, {})
    (folder / "investigation.json").write_text("{}\n")
    (folder / "verify_cpu.pkl").write_bytes(b"numbers")
    (folder / "notes.txt").write_text("the user's own")
    return folder


def test_what_is_opened_is_what_was_packed(investigation: Path, tmp_path: Path) -> None:
    made = write_bundle(investigation, tmp_path / "b.zip", DEFAULT)

    extract(tmp_path / "b.zip", tmp_path / "there")

    names = {
        path.relative_to(tmp_path / "there").as_posix() for path in (tmp_path / "there").rglob("*") if path.is_file()
    }
    assert names == {one.path for one in made.files}
    assert {
        "investigation.json",
        "cpu/run.json",
        "cpu/snapshots/forward.safetensors",
        "source/train.py",
    } <= names
    for name in names - {"source/train.py"}:
        assert (tmp_path / "there" / name).read_bytes() == (investigation / name).read_bytes()
    assert made.environment == {"torch": "2.13.0"}


def test_what_the_script_has_written_itself_is_not_packed(investigation: Path, tmp_path: Path) -> None:
    shutil.copytree(investigation, tmp_path / "s", dirs_exist_ok=True)
    for folder in ("cpu/files", "cpu/written/0/files"):
        (tmp_path / "s" / folder).mkdir(parents=True)
        (tmp_path / "s" / folder / "private.json").write_text("{}")
    assert not [one.name for one in items_of(tmp_path / "s") if "private" in one.name]
    assert [one.name for one in items_of(tmp_path / "s") if one.name == "cpu/run.json"]


def test_values_are_left_out_and_said_to_be_unless_asked_for(investigation: Path, tmp_path: Path) -> None:
    values = {"cpu/journal/values-0.bin", "cpu/states/state-000000.safetensors", "verify_cpu.pkl"}

    plain = write_bundle(investigation, tmp_path / "a.zip", DEFAULT)
    whole = write_bundle(investigation, tmp_path / "b.zip", chosen_kinds((), values=True))

    assert {one.path for one in plain.left_out} == values
    assert values <= {one.path for one in whole.files}
    assert "notes.txt" not in {item.name for item in items_of(investigation)}


def test_a_redacted_bundle_has_digests_and_no_data(investigation: Path, tmp_path: Path) -> None:
    made = write_bundle(investigation, tmp_path / "b.zip", chosen_kinds((), values=True), redact=True)
    extract(tmp_path / "b.zip", tmp_path / "there")

    packed = b"".join(path.read_bytes() for path in (tmp_path / "there").rglob("*") if path.is_file())
    data = SECRET.numpy().tobytes()
    digests = json.loads((tmp_path / "there/cpu/snapshots/forward.safetensors.digests.json").read_text())
    assert data[:8] not in packed
    assert digests["tensors"]["input 0"] == {
        "dtype": "float64",
        "shape": [3],
        "sha256": hashlib.sha256(data).hexdigest(),
        "nan": 1,
        "inf": 0,
        "min": -2.0,
        "max": 0.123456789,
        "mean": (0.123456789 - 2.0) / 2,
        "l2": pytest.approx((0.123456789**2 + 4) ** 0.5),
    }
    assert not {"cpu/stdout.log", "cpu/journal/values-0.bin", "verify_cpu.pkl"} & {one.path for one in made.files}
    assert "cpu/journal/digests.bin" in {one.path for one in made.files}


@pytest.mark.parametrize("drawn", [True, False])
def test_no_input_of_a_culprit_stays_in_a_report(drawn: bool, investigation: Path, tmp_path: Path) -> None:
    data = {"errors": [{"axes": [["x", [0.123456789]]], "errors": []}] if drawn else []}
    (investigation / "report.html").write_text(f"<p>{json_in_page(data)}</p>")
    (investigation / "culprit-1.json").write_text('{"schema": 1}')
    shown = {"report.html", "culprit-1.json"}

    whole = write_bundle(investigation, tmp_path / "a.zip", DEFAULT)
    redacted = write_bundle(investigation, tmp_path / "b.zip", DEFAULT, redact=True)
    without = write_bundle(investigation, tmp_path / "c.zip", DEFAULT - {"repro"})

    assert shown <= {one.path for one in whole.files}
    for one in (redacted, without):
        assert shown & {each.path for each in one.files} == (set() if drawn else {"report.html"})
        assert (shown if drawn else {"culprit-1.json"}) <= {each.path for each in one.left_out}


def test_a_changed_file_is_refused_and_nothing_is_unpacked(investigation: Path, tmp_path: Path) -> None:
    archive, changed = tmp_path / "b.zip", tmp_path / "changed.zip"
    write_bundle(investigation, archive, DEFAULT)
    rewrite(archive, changed, {"investigation.json": b'{"verdict": "rounding"}\n'})

    with pytest.raises(JournalError, match=r"investigation\.json differs from the packed file"):
        extract(changed, tmp_path / "there")

    assert list(tmp_path.glob("there*")) == []


@pytest.mark.parametrize("name", ["../evil.py", "/tmp/evil.py", "a/../../evil.py", "a\\..\\evil.py", "C:evil.py", ""])
def test_no_path_leaves_the_folder(name: str, tmp_path: Path) -> None:
    content = b"evil"
    file = {"path": name, "kind": "report", "bytes": 4, "sha256": hashlib.sha256(content).hexdigest()}
    archive = forged(tmp_path, [file], {name or "x": content})

    with pytest.raises(JournalError, match="outside the folder"):
        extract(archive, tmp_path / "in" / "there")

    assert [path.name for path in tmp_path.rglob("*evil*")] == []


def test_a_member_is_never_read_beyond_its_promised_size(tmp_path: Path) -> None:
    large = b"\0" * 50_000_000
    file = {"path": "a", "kind": "report", "bytes": 10, "sha256": hashlib.sha256(large).hexdigest()}
    archive = forged(tmp_path, [file], {"a": large})

    with pytest.raises(JournalError, match="differs from the packed file"):
        extract(archive, tmp_path / "there")


def test_a_promise_beyond_the_disk_is_refused(tmp_path: Path) -> None:
    archive = forged(tmp_path, [{"path": "a", "kind": "report", "bytes": 2**60, "sha256": ""}], {"a": b"1"})

    with pytest.raises(UsageError, match="MiB left"):
        extract(archive, tmp_path / "there")


def test_a_folder_that_is_there_stays_unless_forced(investigation: Path, tmp_path: Path) -> None:
    write_bundle(investigation, tmp_path / "b.zip", DEFAULT)
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "mine").write_text("kept")

    with pytest.raises(CollisionError):
        extract(tmp_path / "b.zip", tmp_path / "there")
    assert (tmp_path / "there" / "mine").read_text() == "kept"

    extract(tmp_path / "b.zip", tmp_path / "there", force=True)
    assert not (tmp_path / "there" / "mine").exists()


def test_an_unknown_kind_is_named_with_the_nearest() -> None:
    with pytest.raises(UsageError, match="did you mean 'snapshots'"):
        chosen_kinds(["snapshot"], values=False)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7), cut=st.booleans())
def test_a_damaged_archive_is_one_clear_error_or_whole(
    at: float, bit: int, cut: bool, investigation: Path, tmp_path: Path
) -> None:
    archive, damaged, there = tmp_path / "b.zip", tmp_path / "damaged.zip", tmp_path / "there"
    if not archive.exists():
        write_bundle(investigation, archive, DEFAULT)
    content = bytearray(archive.read_bytes())
    place = int(at * len(content))
    content[place] ^= 1 << bit
    damaged.write_bytes(content[:place] if cut else content)

    try:
        described = extract(damaged, there, force=True)
    except NumdriftError as error:
        assert "\n" not in str(error)
    else:
        for one in described.files:
            assert hashlib.sha256((there / one.path).read_bytes()).hexdigest() == one.sha256


def test_what_is_no_bundle_says_so(tmp_path: Path) -> None:
    (tmp_path / "a.zip").write_text("no archive")
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as other:
        other.writestr("a", "b")

    for name in ("a.zip", "b.zip"):
        with pytest.raises(JournalError, match="is not a bundle"):
            describe(tmp_path / name)


def rewrite(archive: Path, target: Path, replaced: Mapping[str, bytes]) -> None:
    with zipfile.ZipFile(archive) as old, zipfile.ZipFile(target, "w") as new:
        for name in old.namelist():
            new.writestr(name, replaced.get(name, old.read(name)))


def forged(folder: Path, files: list[dict[str, object]], members: Mapping[str, bytes]) -> Path:
    """An archive that somebody else made: its manifest says what it likes."""
    manifest = {
        "investigation": "study",
        "redacted": False,
        "made": "",
        "numdrift": "",
        "environment": {},
        "files": files,
        "left_out": [],
        "schema": 1,
    }
    archive = folder / "in" / "forged.zip"
    archive.parent.mkdir()
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as made:
        for name, content in members.items():
            made.writestr(name, content)
        made.writestr(MANIFEST, json.dumps(manifest))
    return archive
