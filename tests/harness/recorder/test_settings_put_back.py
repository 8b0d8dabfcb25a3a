"""A recording in a process that goes on puts back what its mode has set torch to."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch
from torch import nn

from numdrift.harness.backends.eager.mode import EagerMode
from numdrift.harness.recorder.session import Session
from numdrift.harness.records.modes.mode_registry import registry
from numdrift.harness.records.modes.mode_spec import parse_mode
from numdrift.harness.records.run.run_config import RunConfig
from numdrift.harness.runs.journal import Journal
from numdrift.harness.tape.stated_settings import same_value
from numdrift.harness.tape.step_settings import current_settings


def recorded(folder: Path, mode: str) -> tuple[dict[str, Any], list[str]]:
    """Train one step; gives what torch was set to in it, and what was said of the settings."""
    (folder / "journal").mkdir(parents=True)
    session = Session(RunConfig(script=__file__, mode=parse_mode(mode), journal=str(folder / "journal")))
    session.open(frozenset())
    try:
        device = "lazy" if mode.startswith("lazy") else "cpu"
        model = nn.Linear(3, 2).to(device)
        torch.backends.mkldnn.enabled = True  # type: ignore[assignment]
        torch.set_num_threads(2)
        model(torch.ones(4, 3, device=device)).square().mean().backward()
        torch.optim.SGD(model.parameters(), lr=0.1).step()
        settings = current_settings()
    finally:
        session.close(None)
    events = Journal(folder / "journal").events("adoption")
    return settings, [event["text"] for event in events if event["kind"] == "settings"]


KEYS = "mkldnn=off,threads=1,matmul_precision=medium,deterministic=warn"


@pytest.mark.parametrize("base", ["cpu", "compile,backend=eager", "lazy"])
def test_what_the_mode_states_holds_until_the_end_and_no_longer(base: str, tmp_path: Path) -> None:
    before = current_settings()
    within, said = recorded(tmp_path, f"{base},{KEYS}")
    assert (within["mkldnn"], within["threads"], within["deterministic"]) == (False, 1, "warn")
    assert within["matmul_precision"] == "medium"
    assert said == ["mkldnn=on, overridden by the mode's mkldnn=off", "threads=2, overridden by the mode's threads=1"]
    after = current_settings()
    assert [name for name in before if not same_value(before[name], after.get(name))] == []


def test_the_settings_of_a_modes_own_device_are_noted_while_it_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rounding = ["nearest"]

    class ToyMode(EagerMode):
        device_settings: ClassVar = {"toy.rounding": (lambda: rounding[0], functools.partial(rounding.__setitem__, 0))}

    monkeypatch.setattr(registry, "load", lambda name: ToyMode)
    within, _ = recorded(tmp_path, "cpu")
    assert within["toy.rounding"] == "nearest"
    assert "toy.rounding" not in current_settings()
