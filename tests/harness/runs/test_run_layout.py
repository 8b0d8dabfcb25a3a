from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numdrift.harness.errors import CollisionError, UsageError
from numdrift.harness.runs.run_layout import InvestigationFolder, check_name, choose_investigation


@pytest.mark.parametrize(
    "text",
    ["", ".", "..", "a/b", "/a", "../a", ".hidden", "_a", "-a", "a b", "a\n", "a\0", "é", "a" * 101, "a\\b"],
)
def test_what_is_no_file_name_is_refused(text: str) -> None:
    with pytest.raises(UsageError) as raised:
        check_name("--suffix", text)
    assert str(raised.value).startswith(f"--suffix {text!r} cannot be part of a file name")
    assert raised.value.exit_code == 2


@pytest.mark.parametrize("text", ["a", "0", "A-b_c.d", "a" * 100, "1e-3", "a..b"])
def test_plain_names_pass(text: str) -> None:
    assert check_name("--suffix", text) == text


@given(st.text())
def test_a_name_that_passes_stays_in_its_folder(text: str) -> None:
    try:
        name = check_name("--name", text)
    except UsageError:
        return
    assert (Path("/out") / name).resolve().parent == Path("/out")


def test_names_of_a_run() -> None:
    plain, tagged = (
        InvestigationFolder(Path("i")).run("cpu", ""),
        InvestigationFolder(Path("i")).run("cpu", "before"),
    )
    assert (plain.path, plain.pickle) == (Path("i/cpu"), Path("i/verify_cpu.pkl"))
    assert (tagged.path, tagged.pickle) == (Path("i/cpu_before"), Path("i/verify_cpu_before.pkl"))
    assert tagged.journal == Path("i/cpu_before/journal") and tagged.manifest == Path("i/cpu_before/run.json")


@pytest.mark.parametrize(
    ("suffixes", "name"),
    [((), "loss_curve"), (("",), "loss_curve"), (("a",), "a_loss_curve"), (("a", "b"), "a_vs_b_loss_curve")],
)
def test_names_of_a_plot(suffixes: tuple[str, ...], name: str) -> None:
    assert InvestigationFolder(Path("i")).plot(suffixes, "loss_curve") == Path("i") / name


def test_a_default_name_is_the_scripts_and_a_number(tmp_path: Path) -> None:
    for expected in ("train", "train-2", "train-3"):
        chosen = choose_investigation(tmp_path, Path("somewhere/train.py"), None, "")
        assert chosen.path == tmp_path / expected
        chosen.path.mkdir()


def test_a_suffix_goes_into_the_scripts_one_folder(tmp_path: Path) -> None:
    (tmp_path / "train").mkdir()
    assert choose_investigation(tmp_path, Path("train.py"), None, "after").path == tmp_path / "train"


def test_a_name_that_is_given_is_taken(tmp_path: Path) -> None:
    (tmp_path / "study").mkdir()
    assert choose_investigation(tmp_path, Path("train.py"), "study", "").path == tmp_path / "study"
    with pytest.raises(UsageError):
        choose_investigation(tmp_path, Path("train.py"), "../study", "")


@pytest.mark.parametrize(
    ("script", "name"),
    [
        ("my train.py", "my_train"),
        ("--x.py", "x"),
        (".py", "py"),
        ("__.py", "investigation"),
    ],
)
def test_a_default_name_is_always_a_plain_one(tmp_path: Path, script: str, name: str) -> None:
    assert choose_investigation(tmp_path, Path(script), None, "").path.name == name


def test_a_folder_is_made_once(tmp_path: Path) -> None:
    folder = InvestigationFolder(tmp_path / "i").run("cpu", "")
    folder.create(force=False)
    assert folder.journal.is_dir()
    with pytest.raises(CollisionError, match="--force") as raised:
        folder.create(force=False)
    assert raised.value.path == folder.path and raised.value.exit_code == 2


def test_a_pickle_collides_too(tmp_path: Path) -> None:
    folder = InvestigationFolder(tmp_path).run("cpu", "")
    folder.pickle.write_bytes(b"precious")
    with pytest.raises(CollisionError) as raised:
        folder.create(force=False)
    assert raised.value.path == folder.pickle
    assert folder.pickle.read_bytes() == b"precious" and not folder.path.exists()


def test_force_replaces_that_run_alone(tmp_path: Path) -> None:
    # given two batches of two modes, and a file of the user's
    investigation = InvestigationFolder(tmp_path)
    folders = {(mode, suffix): investigation.run(mode, suffix) for mode in ("cpu", "lazy") for suffix in ("", "a")}
    for folder in folders.values():
        folder.create(force=False)
        folder.manifest.write_text("{}")
        folder.pickle.write_text("old")
        (folder.journal / "events.jsonl").write_text("old")
    (tmp_path / "notes.txt").write_text("mine")
    # when
    folders["cpu", "a"].create(force=True)
    # then
    replaced = folders.pop(("cpu", "a"))
    assert not replaced.pickle.exists() and not replaced.manifest.exists()
    assert list(replaced.journal.iterdir()) == []
    assert all((folder.journal / "events.jsonl").read_text() == "old" for folder in folders.values())
    assert all(folder.pickle.read_text() == "old" for folder in folders.values())
    assert (tmp_path / "notes.txt").read_text() == "mine"


def test_force_leaves_a_folder_that_is_no_run(tmp_path: Path) -> None:
    # given a folder of the user's where the run's would be
    folder = InvestigationFolder(tmp_path).run("cpu", "")
    folder.path.mkdir()
    (folder.path / "thesis.tex").write_text("mine")
    # when
    with pytest.raises(CollisionError):
        folder.create(force=True)
    # then
    assert (folder.path / "thesis.tex").read_text() == "mine"
