"""Where an op comes from: the user's own frames, and how a culprit's are told."""

from __future__ import annotations

import runpy
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from numdrift.harness.investigate.words.culprit_words import frames_of, title_of
from numdrift.harness.records.results.culprit import Culprit, Proof, SwappedIn, SwappedOut
from numdrift.harness.tape.origin import MOST_FRAMES, line_of, own_files, script_frames, short_place

MODEL = """
import torch
from numdrift.harness.tape.origin import script_frames

class Block(torch.nn.Module):
    def forward(self, script):
        return script_frames(script)

def deep(script, levels):
    return deep(script, levels - 1) if levels else script_frames(script)
"""

TRAIN = """
from model import Block, deep

def main():
    return Block()(__file__)

frames = main()
recursive = deep(__file__, 100)
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (tmp_path / "model.py").write_text(MODEL, encoding="utf-8")
    (tmp_path / "train.py").write_text(TRAIN, encoding="utf-8")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setitem(sys.modules, "model", None)  # put back as it was when the test is over
    del sys.modules["model"]
    return tmp_path / "train.py"


def test_frames_are_the_users_own_from_the_innermost_outwards(script: Path) -> None:
    found = runpy.run_path(str(script))
    folder = script.parent
    mine = [one for one in found["frames"] if one.startswith(str(folder))]
    # no line of torch's, which calls the forward, stands between them
    assert mine == [f"{folder}/model.py:7 Block.forward", f"{folder}/train.py:5 main", f"{folder}/train.py:7 <module>"]
    assert found["frames"][: len(mine)] == tuple(mine)
    assert [line_of(one) for one in mine[:2]] == [f"{folder}/model.py:7", f"{folder}/train.py:5"]
    # of what calls itself as many are kept as anybody reads
    assert len(found["recursive"]) == MOST_FRAMES


def test_the_text_of_a_stack_has_the_same_frames(script: Path) -> None:
    torch = Path(sys.modules["torch"].__file__ or "").parent
    stack = (
        f'  File "{script}", line 5, in main\n    return Block()(x)\n'
        f'  File "{torch}/nn/modules/module.py", line 9, in _call_impl\n    return forward(x)\n'
        f'  File "{script.parent}/a b/model.py", line 7, in forward\n    return x.tanh()\n'
    )
    found = own_files(str(script)).chain_in(stack)
    assert found == (f"{script.parent}/a b/model.py:7 forward", f"{script}:5 main")
    assert line_of(found[0]) == f"{script.parent}/a b/model.py:7"
    assert own_files(str(script)).chain_in("") == ()


def culprit(*frames: str) -> Culprit:
    return Culprit("kernel", phase="forward", op="aten.tanh", source=line_of(frames[0]), frames=frames)


def test_a_place_beside_the_script_is_told_with_its_function_and_the_scripts_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model, block, train = (
        f"{tmp_path}/{one}" for one in ("model.py:28 Block.forward", "model.py:40 GPT.forward", "train.py")
    )
    found = culprit(model, block, f"{train}:300 main", f"{train}:400 <module>")
    assert title_of(found) == "aten.tanh in the forward, model.py:28 (Block.forward) <- train.py:300"
    assert (
        frames_of(found)
        == "model.py:28 (Block.forward) <- model.py:40 (GPT.forward) <- train.py:300 (main) <- train.py:400"
    )
    # in the script itself its line is enough, and so it is where nothing else is known
    assert title_of(culprit(f"{train}:300 main", f"{train}:400 <module>")) == "aten.tanh in the forward, train.py:300"
    assert title_of(culprit(f"{tmp_path}/model.py:28")) == "aten.tanh in the forward, model.py:28"
    # and they come back from the file as they were
    proven = replace(found, proof=Proof(SwappedIn(), SwappedOut()))
    assert tuple(Culprit.from_json(proven.to_json()).frames) == found.frames


def test_this_file_counts_as_the_users_own() -> None:
    assert script_frames(__file__)[0].endswith(" test_this_file_counts_as_the_users_own")


@pytest.mark.parametrize(
    ("line", "short"),
    [
        ("/home/somebody/train/transformer.py:20", "transformer.py:20"),
        (
            "/venv/lib/python3.11/site-packages/torch/nn/modules/transformer.py:1245",
            "torch/nn/modules/transformer.py:1245",
        ),
        ("/usr/lib/python3/dist-packages/torch/nn/functional.py:7", "torch/nn/functional.py:7"),
        (r"C:\\work\\train.py:3", "train.py:3"),
        ("", ""),
    ],
)
def test_a_short_place_tells_files_of_a_package_from_those_of_the_user(line: str, short: str) -> None:
    assert short_place(line) == short
