"""Which steps the second training of a mode begins in the reference's state, and stays its own control."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path

import pytest
from tests.harness.drift.recordings import Argument, Step, record

from numdrift.harness.drift.recorded_drift import own_steps
from numdrift.harness.drift.setup.step_setup import batch_setup, made_by_the_training
from numdrift.harness.investigate.experiments.chosen_steps import late_arguments, sudden_step, within_control
from numdrift.harness.records import frames
from numdrift.harness.runs.recorded_run import RecordedRun

X: Argument = ("float32", (4, 3), "aa")


def training(
    folder: Path, gradients: Sequence[float], states: Iterable[int] = (), memory: str = "", optimizers: int = 1
) -> RecordedRun:
    """A run with this gradient in each step, which kept these states; a model is called with a batch and a memory, whose
    hash is this letter and the step's number. Several optimizers take turns."""
    steps = [
        Step(
            gradients={"w": [one, 0.0]},
            batches=((X, ("float32", (4, 8), f"{memory}{step}")),),
            optimizer=step % optimizers if optimizers > 1 else None,
        )
        for step, one in enumerate(gradients)
    ]
    run = record(folder, steps)
    (folder / "states").mkdir()
    for step in states:
        (folder / "states" / f"state-{step:06d}.safetensors").touch()
    return run


def noted(run: RecordedRun, events: Iterable[Mapping[str, object]]) -> RecordedRun:
    with (run.path / "journal" / frames.EVENTS).open("a") as file:
        file.writelines(json.dumps(event) + "\n" for event in events)
    return run


def test_a_step_is_own_until_another_state_is_put_in_place_and_after_its_own_is_back(tmp_path: Path) -> None:
    run = noted(
        training(tmp_path / "b", [1.0] * 9),
        [
            {"event": "resynced", "step": 1, "missing": [], "equal": True},
            {"event": "resynced", "step": 3, "missing": []},
            {"event": "rejoined", "step": 4},
            {"event": "resynced", "step": 6, "missing": []},
        ],
    )
    assert own_steps(run) == {0, 1, 2, 4, 5}


def test_every_second_step_is_begun_elsewhere_and_the_first_that_differs_is_both(tmp_path: Path) -> None:
    a = training(tmp_path / "a", [1.0] * 10, range(11))
    b = training(tmp_path / "b", [1.0] * 2 + [1.5] * 8, range(11))
    assert within_control(a, b, 2, sudden_step(a, b), 64) == (2, 4, 6, 8)
    # with room for three, these are evenly spread
    assert within_control(a, b, 2, sudden_step(a, b), 3) == (2, 4, 8)


def test_where_the_pair_comes_apart_suddenly_both_steps_are_taken(tmp_path: Path) -> None:
    a = training(tmp_path / "a", [1.0] * 14, range(15))
    b = training(tmp_path / "b", [1 + 1e-7] * 9 + [1.01] * 5, range(15))
    assert sudden_step(a, b) == 9
    assert within_control(a, b, 0, sudden_step(a, b), 64) == (0, 2, 4, 6, 8, 9, 11, 13)


def test_optimizers_that_take_turns_have_a_step_each(tmp_path: Path) -> None:
    a = training(tmp_path / "a", [1.0] * 12, range(13), optimizers=2)
    b = training(tmp_path / "b", [1.1] * 12, range(13), optimizers=2)
    # the second step comes apart suddenly: of every second from there on, each would be the second optimizer's
    chosen = within_control(a, b, 0, 1, 64)
    assert chosen == (0, 1, 4, 7, 9, 11)
    assert within_control(a, b, 0, 1, 4) == (0, 1, 4, 7)
    alone = training(tmp_path / "alone", [1.0] * 12, range(13)), training(tmp_path / "other", [1.1] * 12, range(13))
    assert within_control(*alone, 0, 1, 64) == (0, 1, 3, 5, 7, 9, 11)


def test_batches_of_each_shape_have_a_step(tmp_path: Path) -> None:
    # given a training in which every second batch is shorter, and one where each has a length of its own
    def ragged(name: str, lengths: Sequence[int], gradient: float) -> RecordedRun:
        steps = [Step(gradients={"w": [gradient]}, batches=((("int64", (4, length), "aa"),),)) for length in lengths]
        run = record(tmp_path / name, steps)
        (run.path / "states").mkdir()
        for step in range(len(steps) + 1):
            (run.path / "states" / f"state-{step:06d}.safetensors").touch()
        return run

    turns = [8, 5] * 8
    chosen = within_control(ragged("a", turns, 1.0), ragged("b", turns, 1.5), 0, None, 64)
    assert {turns[step] for step in chosen} == {8, 5} and all(after - step > 1 for step, after in pairwise(chosen))
    lengths = [8, 8, 8, 5, 8, 8, 8, 8, 8, 3, 8, 8, 8]
    chosen = within_control(ragged("c", lengths, 1.0), ragged("d", lengths, 1.5), 0, None, 4)
    assert {lengths[step] for step in chosen} == {8, 5, 3}  # of few steps, one of each kind
    many = [*range(1, 30)]
    assert len(within_control(ragged("e", many, 1.0), ragged("f", many, 1.5), 0, None, 64)) == 15


def test_a_drift_that_grows_steadily_is_not_sudden(tmp_path: Path) -> None:
    a = training(tmp_path / "a", [1.0] * 14)
    b = training(tmp_path / "b", [1 + 1e-7 * 1.5**step for step in range(14)])
    assert sudden_step(a, b) is None


def test_only_steps_that_a_training_can_go_on_from_are_begun_elsewhere(tmp_path: Path) -> None:
    # given a long training that has thinned out its states
    kept = [step for step in range(40) if step % 8 < 2]
    a, b = training(tmp_path / "a", [1.0] * 40, kept), training(tmp_path / "b", [1.5] * 40, kept)
    assert within_control(a, b, 0, sudden_step(a, b), 64) == (0, 8, 16, 24, 32)
    # and none without states, nor of a pair that does not differ
    without = training(tmp_path / "c", [1.5] * 40)
    assert within_control(without, b, 3, None, 64) == ()
    assert within_control(a, b, None, None, 64) == ()


def test_a_training_that_is_fed_with_what_it_made_is_not_its_own_control(tmp_path: Path) -> None:
    a = training(tmp_path / "a", [1.0] * 6, range(7), memory="a")
    b = training(tmp_path / "b", [1.0, 1.5, 1.6, 1.7, 1.8, 1.9], range(7), memory="b")
    assert late_arguments(a, b)
    assert within_control(a, b, 1, sudden_step(a, b), 64) == ()


@pytest.mark.parametrize(("given", "found"), [("other", {1}), ("b3", set())])
def test_what_a_training_is_given_in_another_state_tells_what_it_has_made_itself(
    given: str, found: set[int], tmp_path: Path
) -> None:
    # given that in step 3, begun in another state, the script would have given this memory
    a, b = (training(tmp_path / name, [1.0] * 6, memory=name) for name in "ab")
    forced = noted(
        training(tmp_path / "forced", [1.0] * 6, memory="b"),
        [{"event": "resynced", "step": 3, "missing": []}, {"event": "given", "step": 3, "arguments": [[1, given]]}],
    )
    # then it descends from the training where it is another than before, and only then it is not a set-up
    assert made_by_the_training(b, forced) == found
    (difference,) = batch_setup(a, b, drifting_from=1, from_the_model=made_by_the_training(b, forced))
    assert difference.follows == bool(found)
