from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from numdrift.harness.drift.recorded_drift import GeneratorDifference, first_computed_difference, generator_differences
from numdrift.harness.drift.repetition import Repetition, repetition

from .recordings import Step, X, Y, record

SEEDED = [
    Step(losses=(1.0 / (step + 1),), generators={"torch": f"t{step}", "python": "p", "numpy": "n"}) for step in range(4)
]


def changed(step: int, **fields: Any) -> list[Step]:
    """The steps, with other fields of one."""
    return [replace(one, **fields) if number == step else one for number, one in enumerate(SEEDED)]


def repeated(folder: Path, first: Sequence[Step], again: Sequence[Step], **more: Any) -> Repetition:
    return repetition(record(folder / "cpu", first), record(folder / "again", again, **more))


def test_the_same_bits_repeat(tmp_path: Path) -> None:
    found = repeated(tmp_path, changed(2, losses=(math.nan,)), changed(2, losses=(math.nan,)))
    assert found == Repetition(True, text="cpu repeats bit for bit")


@pytest.mark.parametrize(
    ("fields", "what", "name", "remedy"),
    [
        ({"losses": (0.5,)}, "loss", "loss 0", "deterministic=on"),
        ({"losses": (1 / 3, 1.0)}, "loss", "loss 1", "deterministic=on"),
        ({"gradients": {"w": [0.1, 0.3]}}, "gradient", "w", "deterministic=on"),
        ({"gradients": {}}, "gradient", "w", "deterministic=on"),
        ({"values": {"w": [1.0, 3.0]}}, "value", "w", "deterministic=on"),
        (
            {"gradients": {"w": [0.1, 0.3]}, "values": {"w": [1.0, 3.0]}},
            "gradient",
            "w",
            "deterministic=on",
        ),
        ({"batches": ((X, ("int64", (4,), "cc")),)}, "batch", "argument 1 of call 0", "DataLoader"),
        ({"batches": ((X,),), "losses": (9.0,)}, "batch", "argument 1 of call 0", "DataLoader"),
    ],
)
def test_the_first_difference_is_named(
    tmp_path: Path, fields: dict[str, Any], what: str, name: str, remedy: str
) -> None:
    # given runs that differ in step 2, and in everything afterwards
    again = [*changed(2, **fields)[:3], Step(losses=(7.0,), generators={"torch": "t3"})]
    # when
    found = repeated(tmp_path, SEEDED, again)
    # then
    assert (found.repeatable, found.step, found.what, found.tensor) == (False, 2, what, name)
    assert remedy in found.remedy
    assert "188792" not in found.remedy
    assert found.text.startswith("cpu does not repeat: ")


def test_at_step_0_the_first_tanh_is_mentioned(tmp_path: Path) -> None:
    found = repeated(tmp_path, SEEDED, changed(0, losses=(3.0,)))
    assert "pytorch/pytorch#188792" in found.remedy


@pytest.mark.parametrize(
    ("generator", "called", "seed"),
    [
        ("torch", "torch's generator", "torch.manual_seed"),
        ("numpy", "NumPy's generator", "numpy.random.seed"),
        ("python", "Python's generator", " random.seed"),
        ("cuda", "the generator of cuda", "torch.cuda.manual_seed"),
    ],
)
def test_the_generator_that_lacks_a_seed_is_named(tmp_path: Path, generator: str, called: str, seed: str) -> None:
    # given a generator that is drawn from in every step and started elsewhere, and other values after it
    first = [replace(one, generators={generator: f"a{n}"}) for n, one in enumerate(SEEDED)]
    again = [replace(one, generators={generator: f"b{n}"}, losses=(5.0,)) for n, one in enumerate(SEEDED)]
    # when
    found = repeated(tmp_path, first, again)
    # then
    assert (found.what, found.step, found.tensor) == ("generator", 0, generator)
    assert called in found.text
    assert seed in found.remedy


def test_a_generator_that_nothing_draws_from_is_no_cause(tmp_path: Path) -> None:
    # given
    first = [replace(one, generators={"python": "a"}) for one in SEEDED]
    again = [replace(one, generators={"python": "b"}) for one in SEEDED]
    # then the numbers decide
    assert repeated(tmp_path / "equal", first, again).repeatable
    again[1] = replace(again[1], losses=(5.0,))
    assert repeated(tmp_path / "unequal", first, again).what == "loss"


def test_initial_values_come_first(tmp_path: Path) -> None:
    # given
    first = record(tmp_path / "cpu", SEEDED, {"w": np.ones(3, np.float32)})
    again = record(tmp_path / "again", changed(0, losses=(3.0,)), {"w": np.zeros(3, np.float32)})
    # when
    found = repetition(first, again)
    # then
    assert (found.what, found.tensor, found.step) == ("initial", "w", 0)
    assert "seed the generators before the model is created" in found.remedy


def test_other_numbers_of_steps_count(tmp_path: Path) -> None:
    found = repeated(tmp_path, SEEDED, SEEDED[:3])
    assert (found.repeatable, found.step, found.what) == (False, 3, "steps")
    assert found.text == "cpu does not repeat: 4 against 3 steps were recorded"


def test_what_one_run_did_not_record_is_left_out(tmp_path: Path) -> None:
    # given a repetition that recorded losses alone
    again = [replace(one, generators={}, batches=(), values={}, gradients={}) for one in SEEDED]
    # then
    assert repeated(tmp_path, SEEDED, again).repeatable


def test_an_argument_that_was_not_read_is_left_out(tmp_path: Path) -> None:
    unread = ((("float32", (4, 3), ""), Y),)
    assert repeated(tmp_path, SEEDED, changed(1, batches=unread)).repeatable


def test_the_first_computed_difference_is_none_of_inputs(tmp_path: Path) -> None:
    # given other batches from step 1 on, other values from step 2 on
    again = [
        replace(
            one,
            batches=((Y,),) if n >= 1 else one.batches,
            gradients={"w": [n, n]} if n >= 2 else one.gradients,
        )
        for n, one in enumerate(SEEDED)
    ]
    runs = record(tmp_path / "a", SEEDED), record(tmp_path / "b", again)
    # then
    assert first_computed_difference(*runs) == 2
    assert first_computed_difference(runs[0], runs[0]) is None


@pytest.mark.parametrize(
    ("ours", "theirs", "expected"),
    [
        ("0123", "0123", None),
        ("0000", "1111", GeneratorDifference(0, "torch", None, False)),  # other, and never drawn from
        ("0000", "1112", GeneratorDifference(0, "torch", None, True)),
        ("0123", "0999", GeneratorDifference(1, "torch", 0, True)),  # drawn from elsewhere
        ("0000", "0999", GeneratorDifference(1, "torch", 0, False)),  # a compiler drew
        ("0001", "0992", GeneratorDifference(1, "torch", 0, True)),  # a compiler drew, and step 2 draws
        ("0011", "0012", GeneratorDifference(3, "torch", 2, False)),
        ("0012", "0011", GeneratorDifference(3, "torch", 2, True)),
    ],
)
def test_draws(tmp_path: Path, ours: str, theirs: str, expected: GeneratorDifference | None) -> None:
    # given one state of the generator a step
    a, b = (
        record(tmp_path / name, [Step(generators={"torch": state}) for state in states])
        for name, states in (("a", ours), ("b", theirs))
    )
    # then
    assert generator_differences(a, b) == ([expected] if expected else [])
