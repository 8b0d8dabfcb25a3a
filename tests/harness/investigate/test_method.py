"""The experiments and the questions of an investigation, and their order: each run is written by hand where the method
wants it to be trained."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from tests.harness.drift.recordings import Argument, Step, X

from numdrift.harness.errors import UsageError
from numdrift.harness.investigate.experiments.investigation_plan import InvestigationRequest
from numdrift.harness.investigate.method import MOST_STEPS
from numdrift.harness.records.run.step_selection import StepSelection

from .written_evidence import COUNT, FAULT, Outcome, changed, training
from .written_laboratory import (
    CHOICE,
    CLOSE,
    FROM_THE_STATE,
    ONCE_MORE,
    PLAN,
    SUSPICIOUS,
    WITHOUT,
    WRONG,
    Investigator,
    Look,
    Training,
    caused,
    drifting,
    magnified,
)


def test_of_equal_runs_the_controls_are_made_and_nothing_is_asked(investigated: Investigator) -> None:
    steps = {"cpu": training(), "compile": training()}
    ended = investigated(Training({"compile": {}}, steps), plan=replace(PLAN, knobs=True))
    assert (ended.word, ended.looks) == ("identical", [])
    assert ended.rounds == [ONCE_MORE]
    assert not any("measured" in sentence for sentence in ended.sentences)
    assert ended.findings.training_runs == 2


@pytest.mark.parametrize(
    ("behaviour", "plan", "word", "rounds", "looks"),
    [
        # rounding: the last step is looked into that differs and has a tape, and the compiler's settings on request
        (drifting({}), PLAN, "rounding", [ONCE_MORE, FROM_THE_STATE], [("ops", 4)]),
        (drifting({4: 0.0}), PLAN, "rounding", [ONCE_MORE, FROM_THE_STATE], [("ops", 2)]),
        (drifting({}), replace(PLAN, localize="faults"), "rounding", [ONCE_MORE, FROM_THE_STATE], []),
        (drifting({}), replace(PLAN, localize="none"), "rounding", [ONCE_MORE, FROM_THE_STATE], []),
        (
            drifting({}),
            replace(PLAN, knobs=True),
            "rounding",
            [ONCE_MORE, FROM_THE_STATE],
            [("ops", 4), ("compiler", 4)],
        ),
        # beyond rounding: the first such step, and every setting where no op is named
        (
            drifting({2: 40.0, 3: 90.0}),
            PLAN,
            "beyond-rounding",
            [ONCE_MORE, FROM_THE_STATE, SUSPICIOUS],
            [("ops", 2), ("compiler", 2)],
        ),
        (
            drifting({2: 40.0}),
            replace(PLAN, localize="faults"),
            "beyond-rounding",
            [ONCE_MORE, FROM_THE_STATE, SUSPICIOUS],
            [("ops", 2), ("compiler", 2)],
        ),
        (
            drifting({2: 40.0}),
            replace(PLAN, localize="none"),
            "beyond-rounding",
            [ONCE_MORE, FROM_THE_STATE, SUSPICIOUS],
            [],
        ),
        (
            drifting({3: Outcome(1.0, counter=7)}),
            PLAN,
            "beyond-rounding",
            [ONCE_MORE, FROM_THE_STATE, SUSPICIOUS],
            [("ops", 3), ("compiler", 3)],
        ),
        # nothing shows how far a run is from itself: which call does not repeat is asked last
        (
            drifting({2: 40.0}, controls={"cpu": changed(training(), 3, losses=(9.0,))}),
            PLAN,
            "nondeterministic",
            [ONCE_MORE, FROM_THE_STATE, SUSPICIOUS],
            [("repetitions", None)],
        ),
        (
            drifting({}, controls={"compile": changed(training(apart_from=1), 3, losses=(9.0,))}),
            PLAN,
            "nondeterministic",
            [ONCE_MORE, FROM_THE_STATE],
            [("repetitions", None)],
        ),
        # where no step replays, perturbed runs measure the noise
        (
            drifting({}, replays=False),
            PLAN,
            "rounding",
            [ONCE_MORE, FROM_THE_STATE, ("noise", [f"cpu-ulp-{number}" for number in range(4)])],
            [("ops", 4)],
        ),
        # where no state is kept nothing can be started from it
        (drifting({}, stated=False), PLAN, None, [ONCE_MORE], []),
        # whole trainings on request
        (
            drifting({}),
            replace(PLAN, envelope=2, seeds=2),
            "rounding",
            [
                ONCE_MORE,
                FROM_THE_STATE,
                ("envelope", ["cpu-perturbed-0", "cpu-perturbed-1"]),
                ("seeds", ["cpu-seed-1", "compile-seed-1"]),
            ],
            [("ops", 4)],
        ),
    ],
)
def test_the_experiments_and_the_questions_of_a_pair(
    investigated: Investigator,
    behaviour: Training,
    plan: InvestigationRequest,
    word: str | None,
    rounds: Sequence[tuple[str, Sequence[str]]],
    looks: Sequence[Look],
) -> None:
    ended = investigated(behaviour, plan=plan)
    assert ended.word == word
    assert ended.rounds == rounds
    assert ended.looks == looks
    assert ended.findings.training_runs == len(ended.made)


@pytest.mark.parametrize(
    ("scores", "results", "word", "steps", "without"),
    [
        # a proven op ends the search, and the mode is trained without it
        ({2: 40.0, 3: 90.0}, {2: caused(2)}, "beyond-rounding", [2], True),
        ({}, {4: caused(4, significance="rounding")}, "rounding", [4], True),
        # a discrete choice: the next step beyond rounding is looked into, until none is left
        ({2: 40.0}, {2: CHOICE}, "rounding", [2], False),
        ({2: 40.0, 3: 90.0}, {2: CHOICE, 3: caused(3)}, "beyond-rounding", [2, 3], True),
        ({2: 40.0, 3: 90.0}, {2: CHOICE, 3: CHOICE}, "rounding", [2, 3], False),
        ({2: 40.0, 3: 90.0}, {2: CHOICE}, "beyond-rounding", [2, 3], False),
        # an ill-conditioned step: the worst one is looked into, and explains the others
        ({1: 30.0, 2: 40.0, 3: 90.0, 4: 50.0}, {1: magnified(1), 3: magnified(3)}, "rounding", [1, 3], True),
        (
            {1: 30.0, 2: 40.0, 3: 90.0, 4: 50.0},
            {1: magnified(1), 3: caused(3, op="aten.sum")},
            "beyond-rounding",
            [1, 3],
            True,
        ),
        pytest.param(
            {1: 30.0, 2: 40.0, 3: 90.0, 4: 50.0},
            {1: magnified(1), 3: caused(3)},
            "beyond-rounding",
            [1, 3],
            True,
        ),
        ({1: 90.0, 2: 40.0}, {1: magnified(1)}, "rounding", [1], True),
        # the step before, if it comes near to the threshold, is where a drift begins whose cause is wrong by itself
        ({1: CLOSE, 2: 40.0}, {1: caused(1, **WRONG)}, "beyond-rounding", [1], True),
        ({1: CLOSE, 2: 40.0}, {2: caused(2)}, "beyond-rounding", [1, 2], True),
        ({1: 0.45 * FAULT, 2: 40.0}, {2: caused(2)}, "beyond-rounding", [2], True),
        ({0: CLOSE, 1: 1.0, 2: 40.0}, {2: caused(2)}, "beyond-rounding", [2], True),
        ({0: CLOSE, 1: CLOSE, 2: 40.0}, {2: caused(2)}, "beyond-rounding", [0, 2], True),
    ],
)
def test_what_a_step_is_found_to_be_decides_on_the_next_one(
    investigated: Investigator,
    scores: Mapping[int, float],
    results: Mapping[int, Mapping[str, Any]],
    word: str,
    steps: Sequence[int],
    without: bool,
) -> None:
    ended = investigated(drifting(scores), results)
    assert ended.word == word
    assert ended.steps_of("ops") == steps
    assert (WITHOUT in ended.rounds) == without
    # and what was found is in the file
    content = json.loads((ended.runs[0].path.parent / "investigation.json").read_text())
    assert content["pairs"][0]["verdict"] == word
    assert len(content["pairs"][0]["culprits"]) == (1 if without else 0)


@pytest.mark.parametrize(
    ("scores", "results", "looks"),
    [
        # only where no op is proven, and a drift beyond rounding is left
        ({2: 40.0}, {}, [("ops", 2), ("compiler", 2)]),
        ({2: 40.0}, {2: caused(2)}, [("ops", 2)]),
        ({2: 40.0}, {2: CHOICE}, [("ops", 2)]),
        ({2: 40.0}, {2: magnified(2)}, [("ops", 2)]),
        pytest.param(
            {2: 40.0, 3: 90.0},
            {2: CHOICE},
            [("ops", 2), ("ops", 3), ("compiler", 3)],
        ),
        pytest.param(
            {2: 40.0, 3: 90.0},
            {2: magnified(2), 3: caused(3)},
            [("ops", 2), ("ops", 3)],
        ),
    ],
)
def test_settings_of_the_compiler_are_tried_where_no_op_explains_the_step(
    investigated: Investigator,
    scores: Mapping[int, float],
    results: Mapping[int, Mapping[str, Any]],
    looks: Sequence[Look],
) -> None:
    assert investigated(drifting(scores), results).looks == looks


def test_no_more_than_so_many_steps_are_looked_into(investigated: Investigator) -> None:
    count = MOST_STEPS + 3
    scores = dict.fromkeys(range(1, count), 90.0)
    ended = investigated(drifting(scores, count), dict.fromkeys(range(count), CHOICE))
    assert ended.steps_of("ops") == list(range(1, MOST_STEPS + 1))
    assert ended.word == "beyond-rounding"


def test_a_mode_is_not_trained_without_its_culprits_unless_that_is_wanted(investigated: Investigator) -> None:
    ended = investigated(drifting({2: 40.0}), {2: caused(2)}, replace(PLAN, confirm=False))
    assert ended.rounds == [ONCE_MORE, FROM_THE_STATE, SUSPICIOUS]
    assert ended.findings.pairs[0].without is None


@pytest.mark.parametrize("confirm", [True, False])
def test_under_rounding_it_is_said_why_no_training_without_the_culprits_is_made(
    investigated: Investigator, confirm: bool
) -> None:
    # given a culprit that no key of a mode takes away
    arguments = caused(4, significance="rounding", kind="arguments")
    ended = investigated(drifting({}), {4: arguments}, replace(PLAN, confirm=confirm))
    # then
    sentence = "compile is not trained to the end without its culprits: no setting of a mode replaces aten.mm"
    assert ended.word == "rounding" and WITHOUT not in ended.rounds
    assert (sentence in ended.sentences) == confirm


@pytest.mark.parametrize(
    ("without", "titles"), [(training(), []), (training(apart_from=3), ["envelope"]), (None, ["envelope"])]
)
def test_what_is_left_without_the_culprits_takes_an_envelope(
    investigated: Investigator, without: Sequence[Step] | None, titles: Sequence[str]
) -> None:
    ended = investigated(drifting({2: 40.0}, without=without), {2: caused(2)})
    assert ended.rounds[3] == WITHOUT
    assert [title for title, _ in ended.rounds[4:]] == titles
    found = ended.findings.pairs[0].without
    assert found is not None and found.identical == (not titles)
    assert str(ended.plans["compile-without-cpu"].modes[0]) == "compile-without-cpu=compile,kernel.mm=aten"


@pytest.mark.parametrize("result", [caused(3), CHOICE, magnified(3)])
def test_a_requested_step_is_the_only_one_that_is_looked_into(
    investigated: Investigator, result: Mapping[str, Any]
) -> None:
    # given a step 2 beyond rounding, which is left to be explained whatever step 3 shows
    ended = investigated(drifting({2: 40.0, 3: 90.0}), {2: caused(2), 3: result}, replace(PLAN, step=3))
    assert ended.looks[0] == ("ops", 3)
    assert {step for _, step in ended.looks} == {3}
    assert {culprit.step for culprit in ended.findings.pairs[0].culprits} <= {3}


def test_a_step_that_was_not_started_cannot_be_requested(investigated: Investigator) -> None:
    plan = replace(PLAN, steps=StepSelection.of([1, 2]), step=4)
    with pytest.raises(UsageError, match=r"step 4 was not started from the reference's state, but steps 1,2 were"):
        investigated(drifting({}), plan=plan)


def test_several_modes_are_trained_and_looked_into_together(investigated: Investigator) -> None:
    steps = {"cpu": training(), "compile": training(apart_from=1), "lazy": training(apart_from=2)}
    scores = {"compile": {2: 40.0}, "lazy": {3: 40.0}}
    ended = investigated(Training(scores, steps), {2: CHOICE, 3: caused(3)})
    assert ended.rounds[:2] == [
        ("each mode once more", ["cpu-again", "compile-again", "lazy-again"]),
        ("from the reference's state", ["compile-from-cpu", "lazy-from-cpu"]),
    ]
    assert ended.together == [["compile", "lazy"]]
    assert ended.looks == [("ops", 2), ("ops", 3)]
    assert [pair.verdict for pair in ended.findings.pairs] == ["rounding", "beyond-rounding"]


def test_of_a_mode_that_equals_the_reference_only_the_control_is_made(investigated: Investigator) -> None:
    steps = {"cpu": training(), "compile": training(), "lazy": training(apart_from=2)}
    ended = investigated(Training({"compile": {}, "lazy": {}}, steps))
    assert ended.rounds == [
        ("each mode once more", ["cpu-again", "compile-again", "lazy-again"]),
        ("from the reference's state", ["lazy-from-cpu"]),
    ]
    assert ended.together == [["lazy"]]
    assert [pair.verdict for pair in ended.findings.pairs] == ["identical", "rounding"]


def called(since: int, apart_from: int) -> Training:
    """A mode that is called with another batch from a step on."""
    other: Argument = ("int64", (4,), "cc")
    free = changed(training(apart_from=apart_from), since, batches=((X, other),))
    return Training({"compile": {}}, {"cpu": training(), "compile": free})


def seeded(since: int = 0) -> Training:
    """A mode that draws from another state of the generator from a step on."""
    reference = [Step(losses=(1.0,), generators={"torch": f"a{step}"}) for step in range(COUNT)]
    free = [
        Step(losses=(2.0,), generators={"torch": f"b{step}"}) if step >= since else reference[step]
        for step in range(COUNT)
    ]
    return Training({"compile": {}}, {"cpu": reference, "compile": free})


@pytest.mark.parametrize(
    ("behaviour", "looks"),
    [
        # a batch is followed in the first step that has it, but step 0, before which something was done
        (called(2, 3), [("ops", 2)]),
        (called(0, 1), [("ops", 1), ("preparation", 1)]),
        # of draws the call is asked for, and what was done before the first step
        (seeded(), [("ops", 4), ("draws", 4), ("preparation", 4)]),
        (seeded(2), [("ops", 4), ("draws", 4)]),
    ],
)
def test_a_different_set_up_is_followed_to_what_makes_it(
    investigated: Investigator, behaviour: Training, looks: Sequence[Look]
) -> None:
    ended = investigated(behaviour)
    assert (ended.word, ended.looks) == ("different-setup", looks)
    assert ended.rounds == [ONCE_MORE, FROM_THE_STATE]


def test_another_length_is_no_drift_that_is_looked_into(investigated: Investigator) -> None:
    steps = {"cpu": training(), "compile": training(COUNT + 1, apart_from=1)}
    ended = investigated(Training({"compile": {3: 40.0}}, steps))
    assert (ended.word, ended.looks) == ("different-setup", [])


def test_the_step_that_is_not_finite_is_looked_into(investigated: Investigator) -> None:
    steps = {"cpu": training(), "compile": changed(training(apart_from=1), 3, losses=(math.nan,))}
    ended = investigated(Training({"compile": {3: Outcome(loss=math.nan)}}, steps), {3: caused(3)}, status="nonfinite")
    assert (ended.word, ended.looks) == ("nonfinite", [("ops", 3)])


# One training as control and as the one that begins steps in the reference's state.


BOTH = ("each mode once more", ["cpu-again", "compile-from-cpu"])


ONSET = [
    ("where compile begins to drift, between steps 1 and 3", ["cpu-onset-compile-0"]),
    ("from the reference's state", ["compile-onset-cpu-0"]),
]


UNSURE = ("a control for the steps begun in the reference's state", ["compile-again"])


def elsewhere(step: int) -> list[Step]:
    """The mode's steps, with another loss in one of them."""
    steps = training(apart_from=1)
    return [replace(entry, losses=(7.0,)) if number == step else entry for number, entry in enumerate(steps)]


@pytest.mark.parametrize(
    ("scores", "forced", "rounds", "word", "doubtful"),
    [
        ({}, training(apart_from=1), [BOTH], "rounding", False),
        # steps that are begun in the reference's state have other losses
        ({}, elsewhere(3), [BOTH], "rounding", False),
        # its own steps have not: it carries something that is in no state
        (
            {},
            elsewhere(4),
            [
                BOTH,
                ("from the reference's state", ["compile-again", "compile-apart-cpu", "compile-unobserved-cpu"]),
            ],
            "rounding",
            True,
        ),
        # no control has seen the step that is beyond rounding
        ({3: 40.0}, training(apart_from=1), [BOTH, UNSURE, *ONSET, SUSPICIOUS], "beyond-rounding", False),
        # but it has seen the first step that differs, which it began in that state by itself
        ({1: 40.0}, training(apart_from=1), [BOTH, SUSPICIOUS], "beyond-rounding", False),
    ],
)
def test_one_more_training_of_a_mode_is_enough_where_it_goes_on_as_before(
    investigated: Investigator,
    scores: Mapping[int, float],
    forced: Sequence[Step],
    rounds: Sequence[tuple[str, Sequence[str]]],
    word: str,
    doubtful: bool,
) -> None:
    # given free runs that have kept all states
    ended = investigated(drifting(scores, kept=range(COUNT), forced={"compile": forced}))
    assert (ended.word, ended.rounds) == (word, rounds)
    assert {1, 3} <= {step.step for step in ended.findings.pairs[0].steps} <= {1, 2, 3}
    assert any("continues differently" in sentence for sentence in ended.sentences) == doubtful


@pytest.mark.parametrize(
    ("steps", "titles", "significant"),
    [
        (None, ["between steps 1 and 9", "between steps 5 and 8"], 6),
        (StepSelection.of([0, 1, 9]), [], 9),
    ],
)
def test_further_steps_are_started_where_a_drift_begins(
    investigated: Investigator, steps: StepSelection | None, titles: Sequence[str], significant: int
) -> None:
    # given ten steps, of which the disk has room for the states of three
    count = 10
    behaviour = drifting(dict.fromkeys(range(6, count), 90.0), count)
    ended = investigated(behaviour, plan=replace(PLAN, steps=steps, state_budget=3 * 72, localize="none"))
    assert ended.findings.pairs[0].first_significant_step == significant
    begins = [title.partition(", ")[2] for title, _ in ended.rounds if title.startswith("where compile begins")]
    assert begins == titles
    assert [name for name in ended.made if "onset" in name] == [
        f"{run}-{number}" for number in range(len(titles)) for run in ("cpu-onset-compile", "compile-onset-cpu")
    ]


# The runs that an investigation starts from, and its file.
