"""Targets of `numdrift check`."""

from __future__ import annotations

from pathlib import Path

import pytest

from numdrift.harness.errors import UsageError
from numdrift.harness.records.run.call_subject import target_of

SOURCE = """
import torch
if torch.cuda.is_available():
    def on_a_device(x): return x
scaled = torch.nn.functional.gelu
class Block(torch.nn.Module):
    def forward(self, x): return x
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "ops.py"
    path.write_text(SOURCE)
    return path


def test_a_file_alone_and_a_file_with_a_name(file: Path) -> None:
    assert target_of(str(file)) == (file, "")
    for name in ("Block", "scaled", "on_a_device", "Block.forward"):
        assert target_of(f"{file}:{name}") == (file, name)


def test_a_file_of_kernelbench_names_its_model(tmp_path: Path) -> None:
    path = tmp_path / "1_Square.py"
    path.write_text("class Model: ...\ndef get_inputs(): ...\n")
    assert target_of(str(path)) == (path, "Model")


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("{file}:blok", "did you mean 'Block'"),
        ("{file}:", "names no function"),
        ("{folder}/none.py", "there is no file"),
        ("{folder}", "is a folder"),
        ("{folder}/broken.py", "is not a Python program"),
    ],
)
def test_a_target_that_is_not_there(file: Path, text: str, part: str) -> None:
    (file.parent / "broken.py").write_text("def (")
    with pytest.raises(UsageError, match=part):
        target_of(text.format(file=file, folder=file.parent))
