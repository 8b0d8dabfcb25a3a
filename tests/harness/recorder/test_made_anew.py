"""A library's wrapper around the script's model that is made anew for each step: names, compiling, memory."""

from __future__ import annotations

import weakref
from pathlib import Path

import pytest
import torch
from torch import nn

import numdrift

STEPS = 5
NAMES = ["base.0.weight", "base.0.bias", "base.1.weight", "base.1.bias"]


class Perturbed(nn.Module):
    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.base = model

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.base(x)
        return y


@pytest.mark.parametrize("mode", ["cpu", "compile,backend=eager"])
@pytest.mark.parametrize("kept", [False, True], ids=["garbage-before-the-step-ends", "kept-by-somebody"])
def test_every_wrapper_is_taken_over_and_the_names_are_the_models(mode: str, kept: bool, tmp_path: Path) -> None:
    # given
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    somebody, compiled, made = list[nn.Module](), list[bool](), list[weakref.ref[nn.Module]]()
    # when
    with numdrift.record(mode, out=tmp_path, name="study") as recording:
        for _ in range(STEPS):
            wrapper = Perturbed(model)
            loss = wrapper(torch.ones(2, 3)).square().mean()
            loss.backward()
            compiled.append(wrapper._compiled_call_impl is not None)
            made.append(weakref.ref(wrapper))
            if kept:
                somebody.append(wrapper)
            del wrapper
            optimizer.step()
            optimizer.zero_grad()
            if mode == "cpu" and not kept:
                assert made[-1]() is None  # the recording holds none of them
    # then
    run = recording.run
    assert list(run.parameters()) == NAMES
    (hyper,) = [one["optimizers"] for one in run.journal.events("hyper")]
    assert hyper[0]["groups"][0]["params"] == NAMES
    assert [len(one["tensors"]) for one in run.journal.events("initial")] == [len(NAMES)]
    assert [one["module"] for one in run.journal.events("adopted")] == ["Perturbed"]
    assert compiled == [mode != "cpu"] * STEPS
    assert [len(step.batches) for step in run.journal.steps] == [1] * STEPS
