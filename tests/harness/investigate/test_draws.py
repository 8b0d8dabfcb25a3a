"""The search for the draw that one of two modes makes alone, from trainings that were written by hand."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest
from tests.harness.drift.recordings import Argument, Step, X
from tests.harness.investigate.laboratory_answers import (
    SCRIPT,
    Training,
    WrittenLaboratory,
    call,
    inquiry,
    training,
)

from numdrift.harness.investigate.experiments.investigation_plan import InvestigationRequest
from numdrift.harness.investigate.experiments.laboratory import Interrupted
from numdrift.harness.investigate.judging.judge import judge
from numdrift.harness.investigate.questions.draws import Draws
from numdrift.harness.investigate.questions.question import Inquiry
from numdrift.harness.records.results.culprit import SETUP, Culprit
from numdrift.harness.records.values.call_record import SETUP_PHASE, CallRecord
from numdrift.harness.runs.recorded_run import RecordedRun

PLAN = InvestigationRequest()
SAME = ("s0", "s1", "s2")
MORE_IN_0, MORE_IN_1, APART = ("s0", "x1", "x2"), ("s0", "s1", "x2"), ("x0", "x1", "x2")
"""States of a generator at the beginning of each step, where SAME are those of the reference."""

States = Mapping[str, Sequence[str]]


def drawing(folder: Path, mode: str, states: States, loss: float = 1.0, **facts: Any) -> RecordedRun:
    """A run whose generators are in these states at the beginning of each step, and each loss is this."""
    [count] = {len(of_steps) for of_steps in states.values()}
    steps = [
        Step(generators={name: of_steps[step] for name, of_steps in states.items()}, losses=(loss,))
        for step in range(count)
    ]
    return training(folder, mode, steps, **facts)


def pair(folder: Path, states: States, b: str = "compile", a: str = "cpu", **facts: Any) -> Inquiry:
    """A pair whose reference has drawn in every step, and whose mode's generators are in these states."""
    reference = drawing(folder, a, dict.fromkeys(states, SAME), **facts)
    return inquiry(reference, drawing(folder, b, states, 2.0, **facts), "different-setup")


def looked(found: Inquiry, answers: Mapping[str, Training]) -> WrittenLaboratory:
    laboratory = WrittenLaboratory(answers)
    Draws().look(laboratory, [found], PLAN)
    return laboratory


def answered(found: Inquiry) -> tuple[list[Culprit], list[str]]:
    answer = Draws().answer(found.evidence, 16.0, None)
    return list(answer.culprits), list(answer.sentences)


def draws(*made: str, generator: str = "torch", step: int = 0, **facts: Any) -> list[CallRecord]:
    """`dropout:12` draws in line 12, and `:4` is a line that calls no op. A state is all that was drawn before it."""
    calls, state = [], "s"
    for draw in made:
        op, _, line = draw.partition(":")
        after = f"{state}/{draw}"
        calls.append(call(op, int(line), step=step, drew=[(generator, state, after)], **facts))
        state = after
    return calls


# Of which pair it is asked.


@pytest.mark.parametrize(
    ("reference", "mode", "is_asked"),
    [
        pytest.param({"torch": SAME}, {"torch": SAME}, False, id="the same draws"),
        pytest.param({"torch": SAME}, {"torch": MORE_IN_0}, True, id="more draws in the first step"),
        pytest.param({"torch": SAME}, {"torch": MORE_IN_1}, True, id="more draws in a later step"),
        pytest.param({"torch": SAME}, {"torch": APART}, True, id="another seed"),
        pytest.param({"python": SAME}, {"python": APART}, True, id="another seed of Python's generator"),
        pytest.param({"torch": ("s",) * 3}, {"torch": ("x",) * 3}, False, id="another seed from which none draws"),
        pytest.param({"torch": ("s",) * 3}, {"torch": APART}, True, id="another seed from which the mode draws"),
        pytest.param({"torch": ("s",) * 3}, {"torch": ("s", "x", "x")}, False, id="a draw that has no effect later"),
        pytest.param({"torch": SAME}, {"torch": ("s0", "s0", "s0")}, True, id="the reference alone draws"),
        pytest.param({"torch": SAME}, {"cuda": APART}, False, id="a generator that the reference does not have"),
        pytest.param({"torch": SAME, "cuda": SAME}, {"torch": SAME, "cuda": APART}, True, id="one of two generators"),
    ],
)
def test_it_is_asked_of_modes_whose_generators_come_apart(
    tmp_path: Path, reference: States, mode: States, *, is_asked: bool
) -> None:
    a, b = drawing(tmp_path, "cpu", reference), drawing(tmp_path, "compile", mode)
    found = inquiry(a, b, "different-setup")
    assert Draws().asks(found, PLAN) is is_asked


@pytest.mark.parametrize(
    ("verdict", "facts"),
    [
        ("nondeterministic", {}),
        ("beyond-rounding", {}),
        (None, {}),
        ("different-setup", {"world_size": 2}),
        ("different-setup", {"in_process": True}),
    ],
)
def test_another_verdict_and_runs_that_cannot_be_repeated_ask_for_no_training(
    tmp_path: Path, verdict: str | None, facts: dict[str, Any]
) -> None:
    found = pair(tmp_path, {"torch": MORE_IN_0}, **facts)
    assert not Draws().asks(inquiry(found.evidence.a, found.evidence.b, verdict), PLAN)


@pytest.mark.parametrize(
    ("kind", "what", "step", "is_asked"),
    [
        (SETUP, "batch", 0, True),
        (SETUP, "batch", 1, False),
        (SETUP, "hyper-parameter", 0, False),
        ("kernel", "batch", 0, False),
    ],
)
def test_a_draw_without_effect_later_matters_where_the_batch_of_its_step_differs(
    tmp_path: Path, kind: str, what: str, step: int, *, is_asked: bool
) -> None:
    # given a mode that draws in step 0 alone, where the reference never does
    a = drawing(tmp_path, "cpu", {"torch": ("s",) * 3})
    b = drawing(tmp_path, "compile", {"torch": ("s", "x", "x")})
    found = inquiry(a, b, "different-setup", [Culprit(kind, what=what, step=step)])
    assert Draws().asks(found, PLAN) is is_asked


# What is recorded once more.


@pytest.mark.parametrize(
    ("a", "b", "states", "experiments", "step"),
    [
        pytest.param(
            "cpu",
            "cuda",
            {"torch": MORE_IN_1},
            {"cpu-calls-step-1": "cpu", "cuda-calls-step-1": "cuda"},
            1,
            id="eager modes as they are",
        ),
        pytest.param(
            "cpu",
            "compile,threads=2",
            {"torch": MORE_IN_0},
            {
                "cpu-calls-step-0": "cpu",
                "compile-calls-step-0": "compile,threads=2",
                "compile-calls-step-0-op-by-op": "cpu,threads=2",
            },
            0,
            id="a mode that compiles, and its script op by op",
        ),
        pytest.param(
            "cpu",
            "lazy",
            {"torch": MORE_IN_0},
            {"cpu-calls-step-0": "cpu", "lazy-calls-step-0-op-by-op": "cpu"},
            0,
            id="of lazy tensors the script alone",
        ),
        pytest.param(
            "xla",
            "cpu",
            {"torch": MORE_IN_0},
            {"xla-calls-step-0-op-by-op": "cpu", "cpu-calls-step-0": "cpu"},
            0,
            id="a reference of lazy tensors",
        ),
        pytest.param(
            "cpu",
            "b=cpu,seed=1",
            {"torch": APART},
            {"cpu-calls-step-setup": "cpu", "b-calls-step-setup": "cpu,seed=1"},
            0,
            id="another seed, before the first step",
        ),
        pytest.param(
            "cpu",
            "cuda",
            {"torch": MORE_IN_1, "numpy": MORE_IN_1},
            {"cpu-calls-step-1": "cpu", "cuda-calls-step-1": "cuda"},
            1,
            id="two generators in one step",
        ),
    ],
)
def test_the_step_in_which_the_generators_come_apart_is_recorded_in_both_modes(
    tmp_path: Path, a: str, b: str, states: States, experiments: Mapping[str, str], step: int
) -> None:
    found = pair(tmp_path, states, b, a)
    laboratory = looked(found, dict.fromkeys(experiments, Training()))
    assert laboratory.rounds == [sorted(experiments)]
    modes = {name: str(plan.modes[0]).removeprefix(f"{name}=") for name, plan in laboratory.plans.items()}
    assert modes == experiments
    assert {(str(plan.calls), plan.until) for plan in laboratory.plans.values()} == {(str(step), step)}
    assert {plan.experiment.name for plan in laboratory.plans.values() if plan.experiment} == set(experiments)


def test_two_generators_that_come_apart_in_other_steps_have_a_training_each(tmp_path: Path) -> None:
    found = pair(tmp_path, {"torch": MORE_IN_1, "python": MORE_IN_0}, "cuda")
    laboratory = looked(found, {f"{run}-calls-step-{step}": Training() for run in ("cpu", "cuda") for step in (0, 1)})
    assert {name: plan.until for name, plan in laboratory.plans.items()} == {
        "cpu-calls-step-0": 0, "cuda-calls-step-0": 0, "cpu-calls-step-1": 1, "cuda-calls-step-1": 1,
    }  # fmt: skip


def test_the_reference_of_two_pairs_is_recorded_once_and_each_mode_has_its_own_draw(tmp_path: Path) -> None:
    # given two modes that draw more than the reference in one step
    first = pair(tmp_path, {"torch": MORE_IN_0}, "cuda")
    second = inquiry(first.evidence.a, drawing(tmp_path, "xpu", {"torch": MORE_IN_0}), "different-setup")
    answers = {
        "cpu-calls-step-0": Training(draws("rand:3")),
        "cuda-calls-step-0": Training(draws("rand:3", "randn:5")),
        "xpu-calls-step-0": Training(draws("rand:3", "dropout:6")),
    }
    laboratory = WrittenLaboratory(answers)
    # when
    Draws().look(laboratory, [first, second], PLAN)
    # then
    assert laboratory.rounds == [sorted(answers)]
    sources = [[culprit.source for culprit in answered(found)[0]] for found in (first, second)]
    assert sources == [[f"{SCRIPT}:5"], [f"{SCRIPT}:6"]]


# Which draw differs, and which line is named.

TORCH = "torch's generator"
BERNOULLI = f"aten.bernoulli_ in the forward, {SCRIPT}:2"


@pytest.mark.parametrize(
    ("a", "b", "named", "text"),
    [
        pytest.param(
            draws("rand:3", "dropout:7"),
            draws("rand:3", "randn:5", "dropout:7"),
            ("aten.randn", 5),
            f"in step 0 aten.randn in the forward, {SCRIPT}:5 draws from {TORCH} in b but not in cpu, "
            f"after aten.rand in the forward, {SCRIPT}:3, which is the same in both",
            id="the mode draws once more",
        ),
        pytest.param(
            draws("rand:3", "randn:5", "dropout:7"),
            draws("rand:3", "dropout:7"),
            ("aten.randn", 5),
            f"aten.randn in the forward, {SCRIPT}:5 draws from {TORCH} in cpu but not in b, after aten.rand",
            id="the reference draws once more",
        ),
        pytest.param(
            draws("rand:3"),
            draws("rand:3", "rand:3"),
            ("aten.rand", 3),
            f"aten.rand in the forward, {SCRIPT}:3 draws from {TORCH} in b but not in cpu, after aten.rand",
            id="a loop that is longer",
        ),
        pytest.param(
            draws("rand:3", "dropout:7"),
            draws("dropout:7", "rand:3"),
            ("aten.dropout", 7),
            f"in step 0 aten.dropout in the forward, {SCRIPT}:7 draws from {TORCH} in b but not in cpu",
            id="another order, where the first draw comes too early",
        ),
        pytest.param(
            [call("rand", 3, drew=[("torch", "s", "s16")])],
            [call("rand", 3, drew=[("torch", "s", "s32")])],
            ("aten.rand", 3),
            f"aten.rand in the forward, {SCRIPT}:3 draws a different number of values from {TORCH} in b than in cpu",
            id="another amount",
        ),
        pytest.param(
            draws("bernoulli_:2"),
            draws("randint:6", module="drop"),
            ("aten.randint", 6),
            f"cpu draws from {TORCH} by {BERNOULLI}, and b by aten.randint in the forward of drop, {SCRIPT}:6",
            id="by other ops",
        ),
        pytest.param(
            draws("bernoulli_:2", module="drop"),
            draws("randint:6"),
            ("aten.bernoulli_", 2),
            f"and b by aten.randint in the forward, {SCRIPT}:6",
            id="by other ops, of which the reference's is of a module",
        ),
        pytest.param(
            draws("bernoulli_:2", "rand:3"),
            draws("rand:3"),
            ("aten.bernoulli_", 2),
            f"in step 0 {BERNOULLI} draws from {TORCH} in cpu but not in b",
            id="a device whose draws are its own",
        ),
        pytest.param(
            [call("", 4, phase="data", drew=[("torch", "s", "p")])],
            [call("", 4, phase="data", drew=[("torch", "s", "q")])],
            (None, 4),
            f"in step 0 {SCRIPT}:4 sets {TORCH} to a different state in b than in cpu",
            id="a line that seeds it otherwise",
        ),
        pytest.param(
            draws(":4"),
            draws(":4", ":8"),
            (None, 8),
            f"in step 0 {SCRIPT}:8 changes the state of {TORCH} in b but not in cpu, after {SCRIPT}:4, which is the same in both",
            id="a line that moves it without an op",
        ),
        pytest.param(
            draws("rand:3"),
            draws("randn:9", generator="python") + draws("rand:3", "rand:0"),
            ("aten.rand", None),
            f"in step 0 aten.rand in the forward draws from {TORCH} in b but not in cpu",
            id="draws from other generators are none of this one's, and a line may be unknown",
        ),
    ],
)
def test_the_first_draw_that_differs_is_named_with_its_line(
    tmp_path: Path,
    a: Sequence[CallRecord],
    b: Sequence[CallRecord],
    named: tuple[str | None, int | None],
    text: str,
) -> None:
    # given two modes that come apart in step 0, of whose calls the first is not a draw
    found = pair(tmp_path, {"torch": MORE_IN_0}, "b=cuda")
    looked(found, {f"{run}-calls-step-0": Training(made) for run, made in (("cpu", a), ("b", b))})
    # when
    [culprit], [sentence] = answered(found)
    # then
    op, line = named
    assert (culprit.op, culprit.source) == (op, None if line is None else f"{SCRIPT}:{line}")
    assert (culprit.kind, culprit.what, culprit.name, culprit.step) == ("setup", "generator", "torch", 0)
    assert text in sentence == culprit.text
    assert "as the script shows" not in sentence
    # and it is known from now on
    assert not Draws().asks(found, PLAN)


@pytest.mark.parametrize(("states", "step"), [(MORE_IN_0, 0), (MORE_IN_1, 1)])
def test_only_the_calls_of_the_step_in_question_count(tmp_path: Path, states: Sequence[str], step: int) -> None:
    # given modes that come apart in a step, and records that also hold the other step and what came before the first
    found = pair(tmp_path, {"torch": states}, "cuda")
    before = draws("normal_:1", phase=SETUP_PHASE), draws("normal_:1", "normal_:2", phase=SETUP_PHASE)
    in_step = draws("rand:7", step=step), draws("rand:7", "rand:8", step=step)
    beside = draws("randn:4", step=1 - step), draws("randn:5", step=1 - step)
    answers = {
        f"{run}-calls-step-{step}": Training(sorted([*first, *second, *third], key=lambda made: made.step))
        for run, first, second, third in zip(("cpu", "cuda"), before, in_step, beside, strict=True)
    }
    # when
    looked(found, answers)
    # then
    [culprit], _ = answered(found)
    assert (culprit.step, culprit.source) == (step, f"{SCRIPT}:8")


def test_before_the_first_step_the_set_up_is_compared_and_nothing_else(tmp_path: Path) -> None:
    found = pair(tmp_path, {"torch": APART}, "b=cpu")
    looked(
        found,
        {
            "cpu-calls-step-setup": Training([*draws(":2", "normal_:5", phase=SETUP_PHASE), *draws("rand:7")]),
            "b-calls-step-setup": Training([*draws(":2", phase=SETUP_PHASE), *draws("rand:9")]),
        },
    )
    [culprit], [sentence] = answered(found)
    assert (culprit.phase, culprit.op, culprit.source) == (SETUP_PHASE, "aten.normal_", f"{SCRIPT}:5")
    assert sentence.startswith(f"before the first step aten.normal_, {SCRIPT}:5 draws from {TORCH} in cpu but not in b")


def test_each_generator_has_its_own_draw(tmp_path: Path) -> None:
    found = pair(tmp_path, {"torch": MORE_IN_0, "numpy": MORE_IN_0}, "cuda")
    looked(
        found,
        {
            "cpu-calls-step-0": Training([*draws("rand:3"), *draws(":4", generator="numpy")]),
            "cuda-calls-step-0": Training([*draws("rand:3", "rand:6"), *draws(":4", ":8", generator="numpy")]),
        },
    )
    culprits, _ = answered(found)
    assert [(culprit.name, culprit.source) for culprit in culprits] == [
        ("torch", f"{SCRIPT}:6"),
        ("numpy", f"{SCRIPT}:8"),
    ]


@pytest.mark.parametrize(
    ("modes", "own", "alone", "line", "shown_of"),
    [
        pytest.param(("cpu", "compile"), True, True, 9, "compile", id="the script itself draws otherwise"),
        pytest.param(("cpu", "compile"), True, False, 5, "", id="the mode alone draws otherwise"),
        pytest.param(("compile", "cpu"), True, True, 9, "compile", id="a reference that compiles"),
        pytest.param(("cpu", "lazy"), False, True, 9, "lazy", id="lazy tensors"),
        pytest.param(("xla", "cpu"), False, True, 9, "xla", id="a reference of lazy tensors"),
    ],
)
def test_the_line_of_the_script_is_named_where_its_ops_one_by_one_draw_otherwise_too(
    tmp_path: Path, modes: tuple[str, str], line: int, shown_of: str, *, own: bool, alone: bool
) -> None:
    # given a mode that draws twice, whose record shows line 5; op by op it is line 9, or no draw at all
    found = pair(tmp_path, {"torch": MORE_IN_0}, modes[1], modes[0])
    [mode] = set(modes) - {"cpu"}
    answers = {"cpu-calls-step-0": Training(draws("rand:3"))}
    answers[f"{mode}-calls-step-0-op-by-op"] = Training(draws("rand:3", "rand:9") if alone else draws("rand:3"))
    if own:
        answers[f"{mode}-calls-step-0"] = Training(draws("rand:3", "rand:5"))
    looked(found, answers)
    # when
    [culprit], [sentence] = answered(found)
    # then
    assert culprit.source == f"{SCRIPT}:{line}"
    shown = f", as shown by a training run that executes every op of {shown_of} separately"
    assert sentence.endswith(shown) if shown_of else "as the script shows" not in sentence


# Where a training fails, and where nothing differs.


@pytest.mark.parametrize(
    ("answers", "line"),
    [
        pytest.param({}, 9, id="all are there"),
        pytest.param({"compile-calls-step-0-op-by-op": Training(rest="{}\n")}, 5, id="a damaged record op by op"),
        pytest.param(
            {"compile-calls-step-0-op-by-op": Training(status="crashed", steps=0)}, 5, id="no record op by op"
        ),
        pytest.param({"compile-calls-step-0": Training(status="crashed", steps=0)}, 9, id="no record of the mode"),
        pytest.param({"cpu-calls-step-0": Training(status="crashed", steps=0)}, None, id="no record of the reference"),
        pytest.param({"cpu-calls-step-0": Training(rest="[]\n")}, None, id="a damaged record of the reference"),
        pytest.param(
            {f"compile-calls-step-0{how}": Training(draws("rand:3")) for how in ("", "-op-by-op")},
            None,
            id="the same draws this time",
        ),
    ],
)
def test_a_training_that_fails_leaves_what_the_others_show(
    tmp_path: Path, answers: Mapping[str, Training], line: int | None
) -> None:
    found = pair(tmp_path, {"torch": MORE_IN_0})
    whole = {
        "cpu-calls-step-0": Training(draws("rand:3")),
        "compile-calls-step-0": Training(draws("rand:3", "rand:5")),
        "compile-calls-step-0-op-by-op": Training(draws("rand:3", "rand:9")),
    }
    looked(found, {**whole, **answers})
    culprits, sentences = answered(found)
    assert [culprit.source for culprit in culprits] == ([] if line is None else [f"{SCRIPT}:{line}"])
    assert len(sentences) == len(culprits)
    # and what failed is not made again by the next call
    assert not Draws().asks(found, PLAN)


@pytest.mark.parametrize("status", ["timeout", "crashed"])
def test_a_training_that_did_not_get_through_names_no_draw(tmp_path: Path, status: str) -> None:
    # given a mode that was ended in the step, before it came to the reference's second draw
    found = pair(tmp_path, {"torch": MORE_IN_0}, "cuda")
    looked(
        found,
        {
            "cpu-calls-step-0": Training(draws("rand:3", "dropout:7")),
            "cuda-calls-step-0": Training(draws("rand:3"), status=status, steps=0),
        },
    )
    # then the draws that it would have made are not said to be the reference's alone
    assert answered(found) == ([], [])


def test_an_interrupted_round_leaves_no_result_and_is_asked_for_again(tmp_path: Path) -> None:
    found = pair(tmp_path, {"torch": MORE_IN_0}, "cuda")
    with pytest.raises(Interrupted):
        looked(found, {"cpu-calls-step-0": Training(draws("rand:3"))})
    assert Draws().asks(found, PLAN)
    assert answered(found) == ([], [])


@pytest.mark.parametrize(
    ("part", "instead"),
    [
        pytest.param(r'"stand_in": false\s+}', "", id="cut off"),
        pytest.param('"schema": 1', '"schema": 2', id="another schema"),
        pytest.param('"side": "b"', '"other_side": "b"', id="a field is missing"),
        pytest.param("(?s).+", "[]", id="no record"),
    ],
)
def test_a_result_that_cannot_be_read_names_no_draw(tmp_path: Path, part: str, instead: str) -> None:
    # given a draw that was found
    found = pair(tmp_path, {"torch": MORE_IN_0}, "cuda")
    answers = {"cpu": draws("rand:3"), "cuda": draws("rand:3", "rand:6")}
    looked(found, {f"{run}-calls-step-0": Training(calls) for run, calls in answers.items()})
    assert len(answered(found)[0]) == 1
    # when a part of its file is lost or another version has written it
    [result] = (tmp_path / "evidence").glob("*.json")
    text = result.read_text(encoding="utf-8")
    damaged = re.sub(part, instead, text)
    assert damaged != text
    result.write_text(damaged, encoding="utf-8")
    # then
    assert answered(found) == ([], [])


# What the judge makes of it.

SEEDS = "use the same seeds in both and make both draw equally often"
FALLBACK = "use the same seeds in both, make both draw equally often and run {} with fallback_random=on"
DEVICE = "each device draws its own numbers: run {}, or `numdrift investigate`, which sets draws=cpu itself"


@pytest.mark.parametrize(
    ("modes", "remedy"),
    [
        (("cpu", "b=cpu,seed=1"), SEEDS),
        (("cpu", "compile"), FALLBACK.format("a compiled mode")),
        (("cpu", "compile,fallback_random=on"), SEEDS),
        (("cpu", "own=xla,fallback_random=off"), FALLBACK.format("an xla mode")),
        (("cpu", "xla,draws=cpu"), SEEDS),
        (("cpu", "cuda"), DEVICE.format("cuda,draws=cpu")),
        (("cuda", "cpu"), DEVICE.format("cuda,draws=cpu")),
        (("cpu", "cuda,draws=cpu"), SEEDS),
    ],
)
def test_the_judge_names_the_draw_and_what_helps(tmp_path: Path, modes: tuple[str, str], remedy: str) -> None:
    found = pair(tmp_path, {"torch": MORE_IN_0}, modes[1], modes[0])
    a, b = (run.path.name for run in (found.evidence.a, found.evidence.b))
    answers = {
        f"{run}-calls-step-0{how}": Training(draws(*made))
        for run, made in ((a, ("rand:3",)), (b, ("rand:3", "dropout:7")))
        for how in ("", "-op-by-op")
    }
    looked(found, answers)
    [judged] = judge([found.evidence.a, found.evidence.b]).pairs
    assert judged.verdict == "different-setup"
    assert judged.text[0].endswith(f"; {remedy}")
    drawn = [culprit for culprit in judged.culprits if culprit.source]
    assert [(culprit.what, culprit.op, culprit.source) for culprit in drawn] == [
        ("generator", "aten.dropout", f"{SCRIPT}:7")
    ]


def test_a_batch_that_is_drawn_otherwise_is_looked_into_by_its_draw(tmp_path: Path) -> None:
    # given a mode that draws its first batch, where the reference does not, and nothing draws later
    def run(mode: str, states: Sequence[str], batch: Argument) -> RecordedRun:
        batches = [batch, X]
        steps = [Step(generators={"torch": state}, batches=((batches[step],),)) for step, state in enumerate(states)]
        return training(tmp_path, mode, steps)

    a, b = run("cpu", ("s", "s"), X), run("b=cpu", ("s", "x"), ("float32", (4, 3), "other"))
    [judged] = judge([a, b]).pairs
    found = inquiry(a, b, "different-setup", judged.culprits)
    # when
    assert Draws().asks(found, PLAN)
    looked(found, {"cpu-calls-step-0": Training([call("zeros", 2)]), "b-calls-step-0": Training(draws("randn:3"))})
    # then
    [culprit], _ = answered(found)
    assert culprit.source == f"{SCRIPT}:3"
