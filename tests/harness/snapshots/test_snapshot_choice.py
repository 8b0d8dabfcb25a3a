from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from numdrift import on_snapshot
from numdrift.harness.records.codec import plain, read
from numdrift.harness.records.run.execution_facts import Execution
from numdrift.harness.records.run.step_selection import StepSelection
from numdrift.harness.script.script_api import registered
from numdrift.harness.snapshots.camera import Camera, SnapshotFolder
from numdrift.harness.snapshots.snapshot_choice import Choice, answer_of, load_callback

FORWARD = Execution("0-forward", "forward", 3, 2, 1)


def choosing(**fields: str) -> Choice:
    chosen: dict[str, Any] = {name: StepSelection.parse(text) for name, text in fields.items()}
    return Choice(**chosen)


@pytest.mark.parametrize(
    ("choice", "wanted"),
    [
        (Choice(), True),
        (choosing(steps="3"), True),
        (choosing(steps="0-2"), False),
        (choosing(executions="2"), True),
        (choosing(executions="0"), False),
        (Choice(names=("0-forward",)), True),
        (Choice(names=("forward*",)), True),
        (Choice(names=("*-backward", "forward")), True),
        (Choice(names=("backward",)), False),
    ],
)
def test_an_execution_is_chosen_by_step_count_and_name(choice: Choice, wanted: bool) -> None:
    assert choice.matches(FORWARD) is wanted
    assert read(Choice, plain(choice)) == choice


def test_the_last_step_that_is_asked_for() -> None:
    assert StepSelection.parse("0,5-7").last == 7
    assert StepSelection.parse("0,5-").last is None
    assert StepSelection().last is None


def test_a_callback_is_told_of_the_execution() -> None:
    told: list[Any] = []

    def choose(*given: Any) -> str:
        told.append(given)
        return "outputs"

    assert answer_of(choose, FORWARD) == ("outputs",)
    assert told == [("0-forward", 1, 2, 3)]
    # and one of the founding signature is not told the step
    assert answer_of(lambda name, device_index, execution_count: "outputs inputs", FORWARD) == (
        "inputs",
        "outputs",
    )
    assert answer_of(lambda name, device_index, execution_count, step: "", FORWARD) == ()


@pytest.mark.parametrize("answer", ["input", "inputs, outputs", None, 3])
def test_an_answer_that_is_no_word_is_refused(answer: Any) -> None:
    with pytest.raises(ValueError, match="it returned"):
        answer_of(lambda *given: answer, FORWARD)


def test_a_callback_is_loaded_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "choose.py"
    path.write_text("def choose(name, device_index, execution_count, step):\n    return 'inputs'\n")
    assert answer_of(load_callback(f"{path}:choose"), FORWARD) == ("inputs",)
    with pytest.raises(TypeError, match="no function 'other'"):
        load_callback(f"{path}:other")


def test_what_a_script_registers_is_asked_and_given_back(tmp_path: Path) -> None:
    def fail(*given: Any) -> str:
        raise ZeroDivisionError

    notices: list[str] = []
    camera = Camera(Choice(), SnapshotFolder(tmp_path, None, None), notices.append)
    camera.step = 7
    assert on_snapshot(lambda *given: "inputs") is None
    try:
        wish = camera.begins("0-forward", "forward")
        assert wish is not None and wish.held == ("inputs",)
        former = on_snapshot(fail)
        assert former is not None and former() == "inputs"
        assert camera.begins("0-forward", "forward") is None
        assert camera.begins("0-forward", "forward") is None
    finally:
        registered.function = None
    assert len(notices) == 1 and "ZeroDivisionError" in notices[0]
    assert "0-forward (step 7, execution 1)" in notices[0]
    assert camera.begins("0-forward", "forward") is None


def test_names_are_those_of_graphs(tmp_path: Path) -> None:
    camera = Camera(Choice(), SnapshotFolder(tmp_path, None, None), lambda text: None)
    camera.step = 4
    assert [camera.name("forward"), camera.name("forward"), camera.name("backward")] == [
        "4-forward",
        "4-forward-2",
        "4-backward",
    ]
