from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from numdrift.harness.drift.setup.setup_triage import environment_differences, setup_differences
from numdrift.harness.drift.setup.step_setup import rounded_arguments
from numdrift.harness.drift.setup_difference import SetupDifference

from .recordings import Argument, Step, Y, record, tensors

Array = NDArray[Any]

RNG = np.random.default_rng(0)
WEIGHT = RNG.normal(size=(8, 4)).astype(np.float32)
INITIAL = {"fc.weight": WEIGHT, "fc.bias": np.zeros(8, np.float32), "n": np.array([1_000_000])}
STEPS = [Step(losses=(1.0 + step,)) for step in range(6)]
SGD = [{"class": "SGD", "groups": [{"lr": 0.05, "momentum": 0.9, "foreach": None, "params": ["fc.weight"]}]}]


def state(values: dict[str, Array], step: int = 0) -> Any:
    kinds = {name: "buffer" if array.dtype.kind == "i" else "parameter" for name, array in values.items()}
    return tensors({f"{kinds[name]} {name}": array for name, array in values.items()}, step=step)


def found(
    folder: Path,
    a: Sequence[Step] = STEPS,
    b: Sequence[Step] = STEPS,
    initial: tuple[dict[str, Array], dict[str, Array]] = (INITIAL, INITIAL),
    hyper: tuple[Any, Any] = ([(0, SGD)], [(0, SGD)]),
    with_states: bool = False,
    **manifest: Any,
) -> list[SetupDifference]:
    left = record(folder / "cpu", a, initial[0], hyper[0])
    right = record(folder / "compile", b, initial[1], hyper[1], **manifest)
    states = (state(initial[0]), state(initial[1])) if with_states else (None, None)
    return setup_differences(left, right, *states)


def one(differences: list[SetupDifference]) -> SetupDifference:
    (difference,) = differences
    return difference


def test_nothing_differs(tmp_path: Path) -> None:
    # other losses are not a set-up
    assert found(tmp_path, b=[Step(losses=(9.0,)) for _ in STEPS]) == []


def test_a_mode_without_autocast_has_another_setup(tmp_path: Path) -> None:
    doubts = {"doubts": [{"text": "autocast does nothing on lazy, so this run computes in its parameters' dtype"}]}
    differences = found(tmp_path, adopted=doubts)
    assert [(one.kind, one.counts, one.text) for one in differences] == [
        ("autocast", True, "autocast does nothing in compile, which computes in its parameters' dtype")
    ]


def test_script_arguments_and_length(tmp_path: Path) -> None:
    differences = found(tmp_path, b=STEPS[:4], script_sha256="1", arguments=["--lr", "1"])
    assert [(one.kind, one.step, one.text, one.counts) for one in differences] == [
        ("script", 0, "the runs executed different scripts: train.py and train.py", True),
        ("arguments", 0, "the script's arguments differ: (none) against --lr 1", True),
        ("steps", 4, "6 against 4 steps", False),
    ]


def test_a_run_that_failed_is_shorter_for_that_reason(tmp_path: Path) -> None:
    assert found(tmp_path, b=STEPS[:4], status="crashed") == []


@pytest.mark.parametrize("with_states", [True, False])
def test_another_initial_value(tmp_path: Path, with_states: bool) -> None:
    # given
    other = RNG.normal(size=WEIGHT.shape).astype(np.float32)
    # when
    difference = one(found(tmp_path, initial=(INITIAL, {**INITIAL, "fc.weight": other}), with_states=with_states))
    # then
    relative = np.linalg.norm(other - WEIGHT) / np.linalg.norm(WEIGHT)
    assert (difference.kind, difference.step, difference.name, difference.counts) == (
        "initial",
        0,
        "fc.weight",
        True,
    )
    if with_states:
        assert difference.size == pytest.approx(relative, rel=1e-6)
        assert difference.text == f"`fc.weight` starts from different values (relative L2 {relative:.2g})"
    else:
        norms = [np.linalg.norm(side.astype(np.float64)) for side in (WEIGHT, other)]
        assert difference.text == (
            f"`fc.weight` starts from different values (norm {norms[0]:.4g} against {norms[1]:.4g})"
        )


@pytest.mark.parametrize("with_states", [True, False])
@pytest.mark.parametrize(
    ("name", "moved", "harmless"),
    [
        ("fc.weight", np.nextafter(WEIGHT, np.float32(np.inf)), True),
        ("fc.weight", WEIGHT * np.float32(1 + 1e-4), False),
        ("n", np.array([1_000_001]), False),
    ],
)
def test_a_few_ulp_are_rounding(tmp_path: Path, name: str, moved: Array, harmless: bool, with_states: bool) -> None:
    difference = one(found(tmp_path, initial=(INITIAL, {**INITIAL, name: moved}), with_states=with_states))
    assert (difference.harmless == "rounding") is harmless
    assert difference.counts is not harmless


def test_a_zero_that_is_one_ulp_off_is_rounding(tmp_path: Path) -> None:
    # relative to zero any distance is infinite
    moved = np.nextafter(np.zeros(8, np.float32), np.float32(1))
    difference = one(found(tmp_path, initial=(INITIAL, {**INITIAL, "fc.bias": moved}), with_states=True))
    assert difference.harmless == "rounding"


@pytest.mark.parametrize("with_states", [True, False])
def test_an_oracle_starts_from_the_same_values_in_double(tmp_path: Path, with_states: bool) -> None:
    double = {name: a.astype(np.float64) if a.dtype.kind == "f" else a for name, a in INITIAL.items()}
    assert found(tmp_path, initial=(INITIAL, double), with_states=with_states) == []


def test_many_tensors_are_one_difference_named_by_the_worst(tmp_path: Path) -> None:
    # given five tensors, each farther off than the one before
    first = {f"w{i}": np.ones(4, np.float32) for i in range(5)}
    second = {f"w{i}": np.full(4, 1 + 0.1 * (i + 1), np.float32) for i in range(5)}
    # when
    difference = one(found(tmp_path, initial=(first, second), with_states=True))
    # then
    assert difference.name == "w4"
    assert difference.text == "`w4` starts from different values (relative L2 0.5), and so do 4 more tensors"


def test_a_state_of_a_later_step_says_nothing_of_the_beginning(tmp_path: Path) -> None:
    a = record(tmp_path / "a", STEPS, INITIAL)
    b = record(tmp_path / "b", STEPS, {**INITIAL, "fc.weight": WEIGHT + 1})
    difference = one(setup_differences(a, b, state(INITIAL, step=3), state(INITIAL, step=3)))
    assert "norm" in difference.text


def test_missing_extra_and_misshapen_parameters(tmp_path: Path) -> None:
    # given
    other = {"fc.weight": WEIGHT.reshape(4, 8), "n": INITIAL["n"], "extra": np.ones(1, np.float32)}
    # when
    differences = found(tmp_path, initial=(INITIAL, other), with_states=True)
    # then
    assert [one.text for one in differences] == [
        "`fc.bias` is missing in compile",
        "`extra` is missing in cpu",
        "`fc.weight` has shape [8, 4] against [4, 8]",
    ]


def test_missing_tensors_are_counted_in_the_right_number(tmp_path: Path) -> None:
    others = {f"w{place}": WEIGHT for place in range(4)}
    (text,) = [one.text for one in found(tmp_path, initial=({**INITIAL, **others}, INITIAL))]
    assert text == "`w0`, `w1`, `w2` and 1 more tensor are missing in compile"


def group(**changes: Any) -> Any:
    return [{"class": "SGD", "groups": [{**SGD[0]["groups"][0], **changes}]}]  # type: ignore[dict-item]


@pytest.mark.parametrize(
    ("a", "b", "name", "step", "text"),
    [
        ([(0, SGD)], [(0, group(lr=0.005))], "lr", 0, "lr 0.05 against 0.005 (SGD, group 0, from step 0)"),
        ([(0, SGD)], [(0, SGD), (3, group(lr=0.1))], "lr", 3, "lr 0.05 against 0.1 (SGD, group 0, from step 3)"),
        ([(0, SGD), (3, group(lr=0.1))], [(0, SGD)], "lr", 3, "lr 0.1 against 0.05 (SGD, group 0, from step 3)"),
        ([(0, SGD)], [(0, group(nesterov=True))], None, 0, ""),  # another version of torch has more keys
        ([(0, SGD)], [(0, group(foreach=True))], None, 0, ""),
        ([(0, SGD)], [(0, group(lr=float(np.float32(0.05))))], None, 0, ""),
        ([(0, group(betas=[0.9, 0.99]))], [(0, group(betas=[0.9, 0.999]))], "betas", 0, None),
        ([(0, group(params=["w"]))], [(0, group(params=["other"]))], "params", 0,
         "different parameters: `w` against `other` (SGD, group 0, from step 0)"),
        ([(0, group(params=["a", "b", "c"]))], [(0, group(params=["d", "e", "f"]))], "params", 0,
         "different parameters: `a`, `b`, ... against `d`, `e`, ... (SGD, group 0, from step 0)"),
        ([(0, group(params=["a", "b"]))], [(0, group(params=["b", "a"]))], "params", 0,
         "different parameters: the same 2 in a different order (SGD, group 0, from step 0)"),
        ([(0, group(params=["a", "b"]))], [(0, group(params=["a"]))], "params", 0,
         "different parameters: 2 against 1 (SGD, group 0, from step 0)"),
        ([(0, SGD)], [(0, [{"class": "Adam", "groups": []}])], "optimizer", 0, "optimizer SGD against Adam (from step 0)"),
        ([(0, SGD)], [(0, [*SGD, *SGD])], "optimizers", 0, "1 against 2 optimizers (from step 0)"),
    ],
)  # fmt: skip
def test_hyper_parameters(tmp_path: Path, a: Any, b: Any, name: str | None, step: int, text: str | None) -> None:
    differences = found(tmp_path, hyper=(a, b))
    if name is None:
        assert differences == []
        return
    difference = one(differences)
    assert (difference.kind, difference.name, difference.step) == ("hyper-parameter", name, step)
    assert difference.counts
    assert text is None or difference.text == text


@pytest.mark.parametrize(("value", "follows"), [(0.0501, True), (0.5, False)])
def test_a_step_size_that_drifts_with_the_training_follows_it(tmp_path: Path, value: float, follows: bool) -> None:
    # given a method that computes its step size from the training, which is apart from step 1 on
    drifting = [STEPS[0], *(Step(losses=(9.0,)) for _ in STEPS[1:])]
    # when
    difference = one(found(tmp_path, b=drifting, hyper=([(0, SGD)], [(0, SGD), (2, group(lr=value))])))
    # then
    assert difference.follows is follows


def with_batches(argument: Argument, *steps: int, place: int = 0) -> list[Step]:
    """The steps, with another argument of the first call in some of them."""
    changed = []
    for number, step in enumerate(STEPS):
        call = list(step.batches[0])
        call[place] = argument
        changed.append(replace(step, batches=(call,)) if number in steps else step)
    return changed


def drifted(steps: Sequence[Step], since: int) -> list[Step]:
    """The steps, with other losses from one on."""
    return [
        replace(one, losses=(one.losses[0] + 1e-3,)) if number >= since else one for number, one in enumerate(steps)
    ]


OTHER: Argument = ("float32", (4, 3), "zz")


def test_the_first_batch_that_differs_is_named(tmp_path: Path) -> None:
    difference = one(found(tmp_path, b=drifted(with_batches(OTHER, 3, 4, 5), since=3)))
    assert (difference.kind, difference.step, difference.name) == ("batch", 3, "argument 0")
    assert difference.text == "the batch of step 3 differs: argument 0, float32 [4, 3]"
    assert difference.counts


@pytest.mark.parametrize(
    "argument",
    [("float64", (4, 3), "zz"), ("bfloat16", (4, 3), "zz"), ("float32", (4, 3), "")],
)
def test_what_cannot_be_compared_is_left_out(tmp_path: Path, argument: Argument) -> None:
    # a mode's dtype casts the inputs, and a lazy mode may not have read one
    assert found(tmp_path, b=with_batches(argument, *range(6))) == []


@pytest.mark.parametrize("argument", [("float64", (5, 3), "zz"), ("int64", (4, 3), "zz"), ("float32", (1,), "")])
def test_other_shapes_and_kinds_are_other_data(tmp_path: Path, argument: Argument) -> None:
    assert one(found(tmp_path, b=with_batches(argument, *range(6)))).step == 0


def test_another_count_of_tensors_is_other_data(tmp_path: Path) -> None:
    difference = one(found(tmp_path, b=[replace(step, batches=((Y,),)) for step in STEPS]))
    assert difference.text == "the batch of step 0 differs: 2 against 1 tensors"


def test_only_the_first_call_of_a_step_brings_data(tmp_path: Path) -> None:
    # given a second model that is fed with what the first one made of it
    a = [replace(step, batches=(*step.batches, (("float32", (2,), "made"),))) for step in STEPS]
    b = [replace(step, batches=(*step.batches, (("float32", (2,), "otherwise"),))) for step in STEPS]
    assert found(tmp_path, a, b) == []


def test_a_value_that_is_carried_on_follows_the_drift(tmp_path: Path) -> None:
    # given an argument that differs from the step on after the losses do
    difference = one(found(tmp_path, b=drifted(with_batches(OTHER, 2, 3, 4, 5), since=1)))
    assert difference.follows
    assert difference.step == 2


@pytest.mark.parametrize(("rounded", "harmless"), [({0}, "rounding"), ({1}, ""), (set(), "")])
def test_a_batch_that_a_mode_computes_itself_may_be_off_by_rounding(
    tmp_path: Path, rounded: set[int], harmless: str
) -> None:
    left, right = record(tmp_path / "a", STEPS), record(tmp_path / "b", with_batches(OTHER, *range(6)))
    difference = one(setup_differences(left, right, rounded=rounded))
    assert (difference.kind, difference.step, difference.harmless) == ("batch", 0, harmless)
    assert difference.counts == (not harmless)


def test_other_data_beside_a_batch_that_is_off_by_rounding_counts(tmp_path: Path) -> None:
    b = [replace(step, batches=((OTHER, OTHER if number > 2 else Y),)) for number, step in enumerate(STEPS)]
    left, right = record(tmp_path / "a", STEPS), record(tmp_path / "b", b)
    difference = one(setup_differences(left, right, rounded={0}))
    assert (difference.step, difference.name, difference.counts) == (3, "argument 1", True)


@pytest.mark.parametrize(
    ("apart", "rounded"),
    [
        ([[[0, 1.5]], [[0, 60.0]]], {0}),
        ([[[0, 1.5]], [[0, 70.0]]], set()),
        ([[[0, 0.0], [1, None]]], {0}),  # of another dtype, or no number
        ([], set()),
    ],
)
def test_what_is_off_by_rounding_is_seen_in_steps_from_the_states_of_the_reference(
    tmp_path: Path, apart: list[list[list[Any]]], rounded: set[int]
) -> None:
    run = record(
        tmp_path / "forced", STEPS, said=[{"event": "own-batch", "step": 2, "arguments": one} for one in apart]
    )
    assert rounded_arguments(run) == rounded
    assert rounded_arguments(None) == set()


def test_late_data_is_told_from_what_drifts(tmp_path: Path) -> None:
    # given an argument that is still equal two steps after the losses were apart
    difference = one(found(tmp_path, b=drifted(with_batches(OTHER, 4, 5), since=1)))
    assert (difference.step, difference.counts) == (4, True)


def test_late_data_beside_a_carried_value(tmp_path: Path) -> None:
    # given argument 0 carried on, and argument 1 other data from step 4 on
    b = [
        replace(step, batches=((OTHER if number > 1 else step.batches[0][0], OTHER if number > 3 else Y),))
        for number, step in enumerate(drifted(STEPS, since=1))
    ]
    # then
    assert [(one.step, one.name, one.counts) for one in found(tmp_path, b=b)] == [
        (2, "argument 0", False),
        (4, "argument 1", True),
    ]


def with_generator(states: str, name: str = "torch") -> list[Step]:
    return [replace(step, generators={name: state}) for step, state in zip(STEPS, states, strict=True)]


@pytest.mark.parametrize(
    ("a", "b", "name", "text"),
    [
        ("012345", "xyzuvw", "python", "Python's generator is in a different state before step 0"),
        (
            "012345",
            "01yzuv",
            "torch",
            "the modes draw different random numbers in step 1 (torch's generator is in a different state before step 2)",
        ),
    ],
)
def test_generators(tmp_path: Path, a: str, b: str, name: str, text: str) -> None:
    difference = one(found(tmp_path, with_generator(a, name), with_generator(b, name)))
    assert (difference.kind, difference.name, difference.text) == ("generator", name, text)
    assert difference.counts


def test_a_generator_that_only_a_compiler_drew_from_is_harmless(tmp_path: Path) -> None:
    difference = one(found(tmp_path, with_generator("000000"), with_generator("0xxxxx")))
    assert (difference.harmless, difference.counts) == ("unused", False)


@pytest.mark.parametrize(("states", "follows"), [("xyzuvw", True), ("012345", False)])
def test_batches_follow_from_a_generator_that_differs(tmp_path: Path, states: str, follows: bool) -> None:
    # given
    b = [
        replace(step, generators={"torch": state})
        for step, state in zip(with_batches(OTHER, 2, 3, 4, 5), states, strict=True)
    ]
    # when
    *before, last = found(tmp_path, with_generator("012345"), b)
    # then the cause comes first
    assert (last.kind, last.follows) == ("batch", follows)
    assert [one.kind for one in before] == (["generator"] if follows else [])


def test_the_order_is_by_step_then_by_cause(tmp_path: Path) -> None:
    # given differences of every kind
    b = [replace(step, generators={"torch": "xyzuvw"[n]}) for n, step in enumerate(with_batches(OTHER, *range(6)))]
    # when
    differences = found(
        tmp_path,
        with_generator("012345"),
        b,
        initial=(INITIAL, {**INITIAL, "fc.weight": WEIGHT + 1}),
        hyper=([(0, SGD)], [(0, group(lr=1.0)), (2, group(lr=1.0, momentum=0.0))]),
        script_sha256="1",
    )
    # then
    assert [(one.kind, one.step) for one in differences] == [
        ("script", 0),
        ("initial", 0),
        ("hyper-parameter", 0),
        ("generator", 0),
        ("batch", 0),
        ("hyper-parameter", 2),
    ]


def test_journals_without_setup_say_nothing(tmp_path: Path) -> None:
    bare = [replace(step, generators={}, batches=()) for step in STEPS]
    a, b = record(tmp_path / "a", bare), record(tmp_path / "b", STEPS, INITIAL, [(0, SGD)])
    assert setup_differences(a, b) == []


def test_environments_are_facts(tmp_path: Path) -> None:
    # given
    environments = [
        {"torch": "2.6", "python": "3.11", "threads": 1, "environment": {"OMP_NUM_THREADS": "1"}},
        {
            "torch": "2.13",
            "python": "3.11",
            "threads": 2,
            "environment": {"MKL_CBWR": "AVX2", "TORCHINDUCTOR_CACHE_DIR": "set by torch"},
        },
    ]
    a, b = (record(tmp_path / str(n), STEPS, environment=one) for n, one in enumerate(environments))
    # then
    assert environment_differences(a, b) == [
        "torch 2.6 against 2.13",
        "threads 1 against 2",
        "MKL_CBWR (unset) against AVX2",
        "OMP_NUM_THREADS 1 against (unset)",
    ]
    assert setup_differences(a, b) == []
