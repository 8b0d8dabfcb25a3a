"""Who is told what, in which order, and what one observer's failure is to the others."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from numdrift.harness.hooks.audience import OUTWARDS, Audience, Part, Seat
from numdrift.harness.hooks.mode_protocol import Moment
from numdrift.harness.hooks.observer import Observer, Surroundings
from numdrift.harness.recorder.order import ORDER, RECORDING
from numdrift.harness.records.modes.mode_registry import registry
from numdrift.harness.records.modes.mode_spec import parse_mode
from numdrift.harness.records.run.run_config import RunConfig

CORE = Part(", recording stops here", needed=True, stays=True)
TOOL = Part(" and stops here")


class Witness(Observer):
    """Notes what it is told, and fails where it is to."""

    def __init__(self, around: Surroundings) -> None:
        self.told: list[str] = around.options["told"]
        self.name = around.options["name"]
        self.fails = around.options["fails"]
        self.hear("made")

    def hear(self, moment: str) -> None:
        self.told.append(f"{self.name} {moment}")
        if moment in self.fails:
            raise ValueError(f"{moment} is too much")

    def begins(self, step: int) -> None:
        self.hear("begins")

    def step_ended(self, step: int) -> None:
        self.doing = f"what {self.name} does at the end"
        self.hear("step_ended")

    def close(self) -> None:
        self.hear("close")

    def forget(self) -> None:
        self.hear("forget")


class Closer(Witness):
    """Waits for one moment more, and says something of the step."""

    def closing(self, moment: Moment, step: int) -> None:
        self.hear(f"closing {moment}")

    def fields(self, step: int) -> dict[str, Any]:
        return {self.name: step}


class Told:
    def __init__(self) -> None:
        self.told: list[str] = []
        self.notices: list[str] = []
        self.audience = Audience(self.failed)

    def failed(self, part: Part, doing: str, error: Exception) -> None:
        self.notices.append(f"{doing} failed{part.stops}: {error}")


@pytest.fixture
def seated(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Told]:
    """An audience of `name=(part, class, moments that fail)`, in this order."""
    monkeypatch.setitem(sys.modules, "numdrift.harness.observers.witnesses", sys.modules[__name__])
    config = RunConfig(script=__file__, mode=parse_mode("cpu"), journal="journal")
    mode = registry.load("cpu")(config.mode)

    def seat(**members: tuple[Part, type[Witness], tuple[str, ...]]) -> Told:
        made = Told()

        def around(seat: Seat) -> Surroundings:
            options = {"told": made.told, "name": seat.name, "fails": members[seat.name][2]}
            return Surroundings(config, options, mode, Path("run"), list, lambda *_, **__: None, lambda text: None)

        seats = [
            Seat(name, f"witnesses:{kind.__name__}", part, lambda config: True)
            for name, (part, kind, _) in members.items()
        ]
        made.audience.take_seats(seats, config, around)
        made.told.clear()
        return made

    return seat


def test_moments_go_round_in_order_and_endings_in_reverse(seated: Callable[..., Told]) -> None:
    made = seated(a=(CORE, Witness, ()), b=(TOOL, Closer, ()), c=(TOOL, Witness, ()))
    made.audience.tell(Observer.begins, 0)
    made.audience.tell(Observer.step_ended, 0)
    made.audience.tell(Observer.closing, "step", 0)
    assert made.told == [
        "a begins", "b begins", "c begins", "c step_ended", "b step_ended", "a step_ended", "b closing step"
    ]  # fmt: skip
    assert made.audience.tell(Observer.fields, 3) == [{"b": 3}]
    made.told.clear()
    made.audience.close()
    made.audience.tell(Observer.begins, 1)
    assert made.told == ["c close", "b close", "a close"]
    assert made.notices == []


def test_a_tool_that_fails_leaves_and_the_others_go_on(seated: Callable[..., Told]) -> None:
    made = seated(a=(CORE, Witness, ()), b=(TOOL, Witness, ("begins", "close")), c=(TOOL, Witness, ("step_ended",)))
    made.audience.tell(Observer.begins, 0)
    made.audience.tell(Observer.step_ended, 0)
    made.audience.close()
    assert made.told == [
        "a begins", "b begins", "b close", "c begins", "c step_ended", "c close", "a step_ended", "a close"
    ]  # fmt: skip
    assert made.notices == [
        "b failed and stops here: begins is too much",
        "b failed and stops here: close is too much",
        "what c does at the end failed and stops here: step_ended is too much",
    ]


def test_what_belongs_together_stops_writing_together_and_goes_on_being_told(
    seated: Callable[..., Told],
) -> None:
    made = seated(a=(CORE, Witness, ("begins",)), b=(TOOL, Witness, ()), c=(CORE, Witness, ("step_ended",)))
    made.audience.tell(Observer.begins, 0)
    made.audience.tell(Observer.step_ended, 0)
    assert made.told == [
        "a begins", "a forget", "c forget", "b begins", "c begins", "c step_ended", "b step_ended", "a step_ended"
    ]  # fmt: skip
    assert made.notices == ["a failed, recording stops here: begins is too much"]


def test_a_tool_that_cannot_be_made_is_told_of_and_what_is_needed_refuses(
    seated: Callable[..., Told],
) -> None:
    made = seated(a=(TOOL, Witness, ("made",)), b=(TOOL, Witness, ()))
    made.audience.tell(Observer.begins, 0)
    assert made.told == ["b begins"]
    assert made.notices == ["a failed and stops here: made is too much"]
    with pytest.raises(ValueError, match="made is too much"):
        seated(a=(CORE, Witness, ("made",)))


def test_every_seat_of_a_recording_is_an_observer_whose_moments_are_the_protocols() -> None:
    moments = {name for name in vars(Observer) if not name.startswith("_")}
    assert moments > OUTWARDS
    assert len({seat.name for seat in ORDER}) == len(ORDER)
    for seat in ORDER:
        module, _, name = seat.made_by.partition(":")
        kind = getattr(importlib.import_module(f"numdrift.harness.observers.{module}"), name)
        assert issubclass(kind, Observer)
        assert any(name in vars(kind) for name in moments - {"doing"})
    assert [seat.name for seat in ORDER if seat.part is RECORDING] == ["the steps", "the ops", "the setup"]
