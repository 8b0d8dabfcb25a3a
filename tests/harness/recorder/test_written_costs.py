"""What recording a step writes: the same number of writes and bytes in every step, whatever was recorded before."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from numdrift.harness.observers.calls.native_library import NativeLibrary
from numdrift.harness.recorder.session import Session
from numdrift.harness.records.modes.mode_spec import parse_mode
from numdrift.harness.records.run.run_config import RunConfig
from numdrift.harness.records.run.step_selection import KeepParams

STEPS, WARM_UP = 12, 4
MOST_WRITES = {"losses": 1, "params": 2, "ops": 3}
"""Calls of writev in a step: its line; the digests of its tensors and gradients; the lines of its ops."""

MOST_BYTES = {"losses": 100, "params": 1_100, "ops": 17_500}
"""Bytes that a step of a model with six parameters writes. Each digest takes 64 bytes, or 128 digits in an op's line."""

OPS = 100
"""The most ops of a step; the line of each has one digit more from step 10 on."""


@dataclass(frozen=True, slots=True)
class Written:
    """What one step has written: calls of writev, and bytes."""

    writes: int
    size: int


def written_in_each_step(folder: Path, level: str, monkeypatch: pytest.MonkeyPatch) -> list[Written]:
    """Train an MLP; gives what each step has written, from its forward to the next one's. Python records the ops."""
    monkeypatch.setattr(NativeLibrary, "ops", lambda library: None)
    writes: list[int] = []
    writev = os.writev

    def counted(descriptor: int, buffers: Iterable[Any]) -> int:
        size = writev(descriptor, list(buffers))
        writes.append(size)
        return size

    monkeypatch.setattr(os, "writev", counted)
    (folder / "journal").mkdir(parents=True)
    config = RunConfig(
        script=__file__,
        mode=parse_mode("cpu"),
        journal=str(folder / "journal"),
        record=level,
        keep_params=KeepParams(0),
    )
    session = Session(config)
    session.open(frozenset())
    found = []
    try:
        torch.manual_seed(0)
        model = nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        x = torch.randn(32, 8)
        for _ in range(STEPS):
            writes.clear()
            model(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
            found.append(Written(len(writes), sum(writes)))
    finally:
        session.close(None)
    return found


@pytest.mark.parametrize("level", list(MOST_WRITES))
def test_a_step_writes_no_more_than_stated(level: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # when
    found = written_in_each_step(tmp_path, level, monkeypatch)
    # then
    sizes = [step.size for step in found[WARM_UP:]]
    assert {step.writes for step in found[WARM_UP:]} == {MOST_WRITES[level]}
    assert max(sizes) <= MOST_BYTES[level]
    assert max(sizes) - min(sizes) < 10 + OPS * (level == "ops")  # numbers differ in length
