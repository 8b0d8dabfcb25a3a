from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from numdrift.kernels.lab import sweep_state
from numdrift.kernels.lab.sweep import Sweep
from numdrift.kernels.lab.sweep_bins import reduce_run
from numdrift.kernels.lab.sweep_candidates import Candidate
from numdrift.kernels.lab.sweep_domain import ENCODINGS, Domain
from numdrift.kernels.lab.sweep_state import Identity, SweepProgress
from numdrift.kernels.lab.sweep_subject import subject_of

FLOAT16 = ENCODINGS["float16"]


@pytest.fixture
def kept(tmp_path: Path) -> tuple[Path, Identity, Domain, SweepProgress]:
    """A finished sweep of a few inputs, and the folder that keeps it."""
    domain = Domain.between(FLOAT16, 1.0, 2.0)
    subject = subject_of("tanh", FLOAT16)
    sweep = Sweep(Candidate(subject, "aten", torch.tanh, subject.overload, "0"), domain, reduce_run)
    progress = SweepProgress.none(domain)
    sweep.run(progress, tmp_path)
    return tmp_path, sweep.identity(), domain, progress


Kept = tuple[Path, Identity, Domain, SweepProgress]


def test_what_is_kept_is_what_was_measured(kept: Kept) -> None:
    folder, identity, domain, progress = kept
    loaded, why = sweep_state.load(folder, identity, domain)
    assert loaded is not None and why == ""
    assert loaded.bins.tobytes() == progress.bins.tobytes()
    assert loaded.worst.tobytes() == progress.worst.tobytes()
    assert loaded.finished(domain) and loaded.inputs() == 1025
    assert (loaded.wall, loaded.thread_seconds) == (progress.wall, progress.thread_seconds)


def test_an_empty_folder_keeps_nothing(tmp_path: Path, kept: Kept) -> None:
    assert sweep_state.load(tmp_path / "nowhere", kept[1], kept[2]) == (None, "")


def test_saving_again_leaves_one_state(kept: Kept) -> None:
    folder, identity, domain, progress = kept
    before = {path.name for path in folder.iterdir()}
    sweep_state.save(folder, identity, progress)
    after = {path.name for path in folder.iterdir()}
    assert len(after) == len(before) == 2 and after != before
    assert sweep_state.load(folder, identity, domain)[0] is not None


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("torch", "1.0", "torch 1.0 -> "),
        ("source", "1", "source differs"),
        ("range", "0:1", "range 0:1 -> 1:2"),
        ("held", "(('x', 1.0),)", "held"),
        ("cpu", "NONE", "cpu NONE -> "),
    ],
)
def test_another_sweep_is_not_continued(field: str, value: str, words: str, kept: Kept) -> None:
    folder, identity, domain, progress = kept
    sweep_state.save(folder, replace(identity, **{field: value}), progress)
    loaded, why = sweep_state.load(folder, identity, domain)
    assert loaded is None
    assert words in why and "another sweep" in why


def test_a_state_of_another_version_is_not_read(kept: Kept) -> None:
    folder, identity, domain, _ = kept
    path = folder / "sweep.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"schema": 99}))
    assert sweep_state.load(folder, identity, domain) == (
        None,
        "was written by another version of numdrift (schema 99)",
    )


@pytest.mark.parametrize("damage", ["no json", "list", "no arrays", "half the arrays", "no bytes", "other shape"])
def test_a_damaged_state_is_not_read(damage: str, kept: Kept) -> None:
    folder, identity, domain, progress = kept
    path, (arrays,) = folder / "sweep.json", folder.glob("bins-*.npz")
    if damage == "no json":
        path.write_text("{")
    elif damage == "list":
        path.write_text("[]")
    elif damage == "no arrays":
        arrays.unlink()
    elif damage == "half the arrays":
        arrays.write_bytes(arrays.read_bytes()[: arrays.stat().st_size // 2])
    elif damage == "no bytes":
        arrays.write_bytes(b"")
    else:
        wrong = replace(progress, bins=progress.bins[:5])
        sweep_state.save(folder, identity, wrong)
    loaded, why = sweep_state.load(folder, identity, domain)
    assert loaded is None
    assert why.startswith("cannot be read")


def test_a_write_that_is_cut_off_leaves_the_state_before_it(kept: Kept) -> None:
    # given the arrays of a later state, written while the process was ended before it renamed sweep.json
    folder, identity, domain, progress = kept
    (folder / "bins-9.npz").write_bytes(b"half")
    (folder / "sweep.json.new").write_text("{")
    # when
    loaded, _ = sweep_state.load(folder, identity, domain)
    # then
    assert loaded is not None and loaded.bins.tobytes() == progress.bins.tobytes()
    sweep_state.save(folder, identity, progress)
    assert sorted(path.name for path in folder.iterdir()) == ["bins-10.npz", "sweep.json"]


def test_special_sweeps_have_folders_of_their_own(kept: Kept) -> None:
    _, identity, _, _ = kept
    out = Path("runs")
    assert identity.folder(out, plain=True) == out / "kernels" / "sweep_tanh_float16_aten"
    other = replace(identity, range="0:1")
    folders = {identity.folder(out, plain=False), other.folder(out, plain=False)}
    assert len(folders) == 2
    assert all(folder.name.startswith("sweep_tanh_float16_aten_") for folder in folders)
    path = replace(identity, kernel="../mine/my kernel.c").folder(out, plain=True)
    assert path.parent == out / "kernels"
