"""The process that partitions what a factory makes, without a process of its own."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from numdrift.harness.observers.partition.partition_journal import PARTITION, PartitionRecord, read_partition
from numdrift.harness.observers.partition.partition_process import main
from numdrift.harness.records.modes.mode_spec import parse_mode
from numdrift.harness.records.tools.partition_record import PartitionConfig

FACTORIES = """
import torch
from torch import nn

made = nn.Linear(3, 2)
example_inputs = {"input": torch.rand(4, 3)}


class Own(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(3))
        self.example_inputs = (torch.rand(4, 3), torch.rand(4, 3))

    def forward(self, x, y):
        return {"sum": (x + y) * self.scale, "several": [x * y]}


def number():
    return 3
"""


@pytest.fixture(autouse=True)
def _nothing_stays() -> Iterator[None]:
    before, path = set(sys.modules), list(sys.path)
    yield
    torch.compiler.reset()
    sys.path[:] = path
    for name in set(sys.modules) - before:
        if name.startswith("factories"):
            del sys.modules[name]


def partitioned(
    folder: Path, target: str, *, inference: bool = False, bisect: bool = False
) -> tuple[int, PartitionRecord]:
    (folder / "factories.py").write_text(FACTORIES)
    file = folder / "config.json"
    asked = {
        "target": target.replace("factories.py", str(folder / "factories.py")),
        "mode": parse_mode("cpu").to_json(),
        "config": PartitionConfig().to_json(),
        "inference": inference,
        "bisect": bisect,
    }
    file.write_text(json.dumps(asked))
    return main(file), read_partition(folder / PARTITION)


def test_a_class_with_inputs_of_its_own_gives_outputs_and_gradients(tmp_path: Path) -> None:
    code, found = partitioned(tmp_path, "factories.py:Own")
    assert code == 0 and found.whole and found.backend == "eager"
    assert [(one.what, one.name, one.identical) for one in found.checks] == [
        ("output", "0", True),
        ("output", "1", True),
        ("gradient", "scale", True),
    ]
    assert [one.phase for one in found.graphs] == ["forward", "backward"]


def test_a_module_and_inputs_beside_it_are_evaluated(tmp_path: Path) -> None:
    code, found = partitioned(tmp_path, "factories.py:made", inference=True)
    assert code == 0
    assert [(one.what, one.identical) for one in found.checks] == [("output", True)]
    assert [one.phase for one in found.graphs] == ["forward"]


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("factories.py:Owm", "has no 'Owm'; did you mean 'Own'"),
        ("factories.py:number", "returns a int, not a torch.nn.Module"),
        ("other.py:Net", "there is no file other.py; write the module as FILE.py:FACTORY"),
        ("nowhere.at.all:Net", "nowhere.at.all cannot be imported from"),
        ("torch.nn:Identity", "no example inputs"),
    ],
)
def test_what_is_no_module_is_written_down(target: str, said: str, tmp_path: Path) -> None:
    code, found = partitioned(tmp_path, target)
    assert code == found.exit_code == 2
    assert said in found.failure and not found.graphs


def test_a_record_that_is_damaged_is_said_to_be(tmp_path: Path) -> None:
    (tmp_path / PARTITION).write_text('{"event": "graph"}\n')
    with pytest.raises(Exception, match="is not a record of a partition"):
        read_partition(tmp_path / PARTITION)


def test_a_torn_last_line_is_left_out(tmp_path: Path) -> None:
    partitioned(tmp_path, "factories.py:made", inference=True)
    path = tmp_path / PARTITION
    path.write_text(path.read_text().rstrip("\n"))
    found = read_partition(path)
    assert found.graphs and not found.whole
