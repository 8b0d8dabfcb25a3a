"""Ops that nobody has defined in this process, and that are known by their schemas."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from numdrift.harness.errors import JournalError
from numdrift.harness.tape.files.tape_file import described_tape, read_tape, write_tape
from numdrift.harness.tape.files.tensor_file import write_tensors
from numdrift.harness.tape.replaying.replay import Replay
from numdrift.harness.torch_private.own_operators import define_without_kernel, has_kernel, own_schema

from ..localize.pairs import taped

READER = """
import json, sys
from pathlib import Path
from numdrift.harness.localize.align.storage_flow import flow_of
from numdrift.harness.tape.replaying.replay import Replay
from numdrift.harness.tape.tape import NotReplayable
from numdrift.harness.tape.files.tape_file import read_tape
tape = read_tape(Path(sys.argv[1]))
try:
    Replay(tape)
except NotReplayable as error:
    print(json.dumps({"names": [node.call.op for node in flow_of(tape).nodes], "why": str(error)}))
"""


def tape_with_own_op(tmp_path: Path) -> Path:
    @torch.library.custom_op("numdrift_unit::twice", mutates_args=())
    def twice(x: Tensor, times: float = 2.0) -> Tensor:
        return x * times

    x = torch.linspace(-1, 1, 5)

    def work(saw: Callable[[str, Tensor], None]) -> None:
        saw("loss 0", twice(x.sin()).sum())

    path = tmp_path / "tape-000000.safetensors"
    write_tape(path, taped(work))
    return path


def test_a_tape_with_an_op_of_the_scripts_own_is_read_where_nobody_knows_it(tmp_path: Path) -> None:
    # given a tape, which this process can execute
    path = tape_with_own_op(tmp_path)
    Replay(read_tape(path))
    # when one reads it that has not executed the script
    done = subprocess.run([sys.executable, "-c", READER, str(path)], capture_output=True, text=True, check=True)
    # then it knows what was called, and says that it can't execute it
    said = json.loads(done.stdout)
    assert "numdrift_unit.twice.default" in said["names"]
    assert "the script defines the op numdrift_unit.twice.default" in said["why"]


def test_a_tape_that_describes_such_ops_by_something_else_is_damaged(tmp_path: Path) -> None:
    tensors, facts = described_tape(read_tape(tape_with_own_op(tmp_path)))
    write_tensors(tmp_path / "other.safetensors", tensors, facts | {"own": [1]})
    with pytest.raises(JournalError, match="is a damaged tape"):
        read_tape(tmp_path / "other.safetensors")


def test_an_op_without_kernel_has_the_schema_it_was_described_by() -> None:
    name, schema = (
        "numdrift_unit.absent.default",
        "numdrift_unit::absent(Tensor x, int[] sizes=[1, 2]) -> (Tensor, Tensor)",
    )
    define_without_kernel(name, schema)
    assert own_schema(name) == schema
    assert not has_kernel(torch.ops.numdrift_unit.absent.default)
    assert has_kernel(torch.ops.aten.add.Tensor)


@pytest.mark.parametrize(
    ("name", "schema"),
    [
        ("aten.mine.default", "aten::mine(Tensor x) -> Tensor"),
        ("numdrift_unit.other.default", "numdrift_unit::one(Tensor x) -> Tensor"),
        ("numdrift_unit.broken.default", "numdrift_unit::broken(Tensor x"),
        ("a.b", "a::b(Tensor x) -> Tensor"),
        ("prims.mul.default", "prims::mul(Tensor x) -> Tensor"),
    ],
    ids=["torch's namespace", "another op", "no schema", "no overload", "known"],
)
def test_what_is_no_op_of_a_scripts_own_is_refused(name: str, schema: str) -> None:
    with pytest.raises(ValueError, match="is no"):
        define_without_kernel(name, schema)


def test_torchs_ops_are_described_by_no_schema() -> None:
    assert own_schema("aten.add.Tensor") is None
    assert own_schema("numdrift_unit.never.default") is None
