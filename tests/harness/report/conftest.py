"""Two runs that were recorded in this process, and an investigation of them that was made up."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import numdrift
from numdrift.harness.records.codec import plain
from numdrift.harness.records.tools.graph_record import FOLDER, Graph, GraphFolder

from ..graphs.samples import sample_compile_backward, sample_lazy_backward
from .outcomes import CODE, DETAILED, FAULT, SCRIPT, cause, made


def record(folder: Path, mode: str) -> None:
    torch.manual_seed(0)
    layer = torch.nn.Linear(3, 1)
    optimizer = torch.optim.SGD(layer.parameters(), lr=0.1)
    with numdrift.record(f"{mode}=cpu", folder, "train"):
        for _ in range(5):
            optimizer.zero_grad()
            layer(torch.ones(2, 3)).square().mean().backward()
            optimizer.step()


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("report")
    for mode in ("base", "other"):
        record(folder, mode)
    script = folder / "train" / "evidence" / "lazy-localized-cpu-000006"
    script.mkdir(parents=True)
    (script / "culprit-1.py").write_text(CODE, encoding="utf-8")
    (script / "culprit-1.json").write_text(json.dumps({"schema": 1, **plain(DETAILED)}), encoding="utf-8")
    return folder / "train"


@pytest.fixture
def fault(recorded: Path) -> Iterator[Path]:
    wrong = cause(
        significance="beyond-rounding", script=SCRIPT, frames=("train.py:31 forward",), source="train.py:31",
        places=("net.1",), module="net.1",
    )  # fmt: skip
    yield made(recorded, replace(FAULT, culprits=(wrong, replace(cause(op="aten.sum"), status="suspect"))))


@pytest.fixture
def with_graphs(fault: Path) -> Iterator[Path]:
    """The same of runs that recorded graphs: in one `tanh_backward` is whole, in the other it is not."""
    graphs: dict[str, list[Graph]] = {"base": [sample_lazy_backward()], "other": [*sample_compile_backward()]}
    for mode, of_mode in graphs.items():
        folder = GraphFolder(fault / mode / FOLDER, mode)
        for graph in of_mode:
            folder.write(graph)
            if graph.stage == "pre":
                folder.executed(graph.name.removesuffix("-pre"), graph.hash, graph.cut)
    yield fault
    for mode in graphs:
        shutil.rmtree(fault / mode / FOLDER)
