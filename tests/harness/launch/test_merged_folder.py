"""A folder that shows the user's files and those that a run has written."""

from __future__ import annotations

from pathlib import Path

from numdrift.harness.launch.merged_folder import merge


def written(folder: Path, **files: str) -> Path:
    for name, content in files.items():
        path = folder / name.replace("__", "/").replace("_py", ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return folder


def test_a_written_file_is_a_copy_that_hides_the_one_of_the_user(tmp_path: Path) -> None:
    own = written(tmp_path / "work", train_py="script", out__old="a", out__same="a", data__x="x")
    of_run = written(tmp_path / "files", out__same="b", out__new="b", fresh__deep__ckpt="c")
    target = tmp_path / "merged"
    target.mkdir()
    merge(own, of_run, target)
    shown = {str(path.relative_to(target)): path.read_text() for path in target.rglob("*") if path.is_file()}
    assert shown == {
        "train.py": "script", "out/old": "a", "out/same": "b", "out/new": "b", "fresh/deep/ckpt": "c",
    } | {name: text for name, text in shown.items() if name.startswith("data")}  # fmt: skip
    assert (target / "data/x").read_text() == "x" and (target / "data").is_symlink()
    # a copy belongs to the merged folder, and the files of the run stay as they are
    (target / "out/same").write_text("d")
    assert (of_run / "out/same").read_text() == "b" and (own / "out/same").read_text() == "a"


def test_a_folder_within_the_other_one_does_not_show_itself(tmp_path: Path) -> None:
    own = written(tmp_path / "work", train_py="script")
    target = own / "here" / "merged"
    target.mkdir(parents=True)
    merge(own, tmp_path / "nothing", target)
    assert [path.name for path in target.iterdir()] == ["train.py"]
