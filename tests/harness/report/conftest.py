"""Two runs that were recorded in this process, and an investigation of them that was made up."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import numdrift

from .outcomes import CODE, FAULT, SCRIPT, cause, made


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
    return folder / "train"


@pytest.fixture
def fault(recorded: Path) -> Iterator[Path]:
    wrong = cause(significance="beyond-rounding", script=SCRIPT, frames=("train.py:31 forward",))
    yield made(recorded, replace(FAULT, culprits=(wrong, replace(cause(op="aten.sum"), status="suspect"))))
