"""The experiments and the questions of an investigation, and their order: each run is written by hand where the method
wants it to be trained."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, cast

import pytest
from tests.harness.drift.recordings import Argument, Step, X

from numdrift.harness.errors import UsageError
from numdrift.harness.investigate import method
from numdrift.harness.investigate.evidence import PairEvidence
from numdrift.harness.investigate.investigation_plan import InvestigationPlan
from numdrift.harness.investigate.laboratory import Interrupted, Laboratory, Round
from numdrift.harness.investigate.method import MOST_STEPS, NEAR, investigate, investigate_runs, localize_runs
from numdrift.harness.investigate.ops import inputs_of
from numdrift.harness.investigate.question import Inquiry, Question, QuestionAnswer
from numdrift.harness.investigate.question_table import LAST_QUESTIONS, QUESTIONS
from numdrift.harness.launch.batch_plan import BatchPlan
from numdrift.harness.launch.guest_process import Guest
from numdrift.harness.launch.preloaded import PreloadedProcesses
from numdrift.harness.records.culprit import Culprit
from numdrift.harness.records.experiment import Experiment
from numdrift.harness.records.findings import Findings
from numdrift.harness.records.mode_spec import parse_mode
from numdrift.harness.records.step_selection import StepSelection
from numdrift.harness.runs.recorded_run import RecordedRun
from numdrift.harness.runs.run_layout import InvestigationFolder

from .written_evidence import COUNT, FAULT, Event, Outcome, Study, changed, noise_record, resynced, training

Look = tuple[str, int | None]
"""A question, and the step of which it was asked."""


class Quiet:
    """A listener that keeps the sentences."""

    def __init__(self) -> None:
        self.sentences: list[str] = []

    @contextmanager
    def round(self, title: str, names: Sequence[str]) -> Iterator[Any]:
        yield None

    def say(self, text: str) -> None:
        self.sentences.append(text)


class NoProcesses(PreloadedProcesses):
    """A machine that has no room for a process more."""

    def start(self, guest: Guest, stdout: int, stderr: int) -> Any:
        raise OSError("no process is started here")

    def expect(self, guests: Sequence[Guest]) -> None:
        pass


@dataclass
class Training:
    """What the modes of an investigation do when they are trained.

    `scores` are those of each mode's steps, `steps` their free runs, `controls` the repetitions where they are others.
    """

    scores: Mapping[str, Mapping[int, float | Outcome]]
    steps: Mapping[str, Sequence[Step]]
    controls: Mapping[str, Sequence[Step]] = field(default_factory=dict)
    forced: Mapping[str, Sequence[Step]] = field(default_factory=dict)
    replays: bool = True
    stated: bool = True
    interrupted: str = ""


@dataclass
class WritingLaboratory(Laboratory):
    """A laboratory that writes the runs of a training down instead of executing them."""

    study: Study = field(default_factory=lambda: Study(Path()))
    training: Training = field(default_factory=lambda: Training({}, {}))
    rounds: list[tuple[str, list[str]]] = field(default_factory=list)
    plans: dict[str, BatchPlan] = field(default_factory=dict)

    def make(self, experiments: Round, *, anew: bool = False) -> None:
        names = [plan.modes[0].name for plan in experiments.plans]
        if names:
            self.rounds.append((experiments.title, names))
        if self.training.interrupted in names:
            raise Interrupted
        for plan in experiments.plans:
            self.plans[plan.modes[0].name] = plan
            self._write(plan)
            self.made += 1

    def free(self, plan: BatchPlan) -> list[RecordedRun]:
        self.rounds.append(("modes", [spec.name for spec in plan.modes]))
        self.plans |= {spec.name: plan for spec in plan.modes}
        return [self.study.run(str(spec), training()) for spec in plan.modes]

    def _write(self, plan: BatchPlan) -> None:
        experiment, behaviour = plan.experiment, self.training
        assert experiment is not None
        name, kind = experiment.run, experiment.kind
        steps, outcomes, events = behaviour.steps[name], dict[int, Outcome](), list[Event]()
        wanted = list(range(len(steps))) if plan.outcomes is None else [n for n in range(99) if n in plan.outcomes]
        noises: list[Event] = []
        if kind == "again":
            steps = behaviour.controls.get(name, steps)
        if name == "cpu" and plan.outcomes is not None:
            outcomes = {step: Outcome() for step in wanted}
            more: dict[str, Any] = {} if behaviour.replays else {"equal": False, "replays": 0, "reason": "an op draws"}
            taped = plan.measured or plan.tapes
            if plan.perturb:
                outcomes = {step: Outcome(1.0) for step in wanted}
            if taped is not None:
                edge = 1.0 if kind == "taped" else 0.0
                noises = [noise_record(step, edge=edge, **more) for step in wanted if step in taped]
        elif plan.resync is not None:
            scores = behaviour.scores[name]
            outcomes = {step: _outcome(scores.get(step, 1.0)) for step in wanted}
            events = resynced(wanted)
            steps = behaviour.forced.get(name, steps)
        states = range(COUNT) if behaviour.stated and plan.states is not None else ()
        self.study.make(experiment, steps, outcomes, noises=noises, states=states, events=events)


def _outcome(score: float | Outcome) -> Outcome:
    return score if isinstance(score, Outcome) else Outcome(score)


@dataclass
class Overheard:
    """A question that notes when it is asked, and leaves the prepared result of taking the step apart; whether it is to
    be asked, and what follows, is its own."""

    name: str
    question: Question
    looks: list[Look]
    results: Mapping[int, Mapping[str, Any]]
    together: list[list[str]]

    def asks(self, inquiry: Inquiry, plan: InvestigationPlan) -> bool:
        return self.question.asks(inquiry, plan)

    def look(self, laboratory: Laboratory, inquiries: Sequence[Inquiry], plan: InvestigationPlan) -> None:
        self.together.append([inquiry.pair.b for inquiry in inquiries])
        for inquiry in inquiries:
            self.looks.append((self.name, inquiry.at))
            if self.name == "ops":
                study = cast(WritingLaboratory, laboratory).study
                evidence = inquiry.evidence
                followed = {"followed": True} if inquiry.pair.verdict == "different-setup" else {}
                inputs = {**inputs_of(evidence), "threshold": inquiry.threshold, **followed}
                result = self.results.get(inquiry.step, {"reason": "nothing was found"})
                study.localize(inquiry.step, run=evidence.b.path.name, inputs=inputs, **result)

    def answer(self, evidence: PairEvidence, threshold: float, step: int | None) -> QuestionAnswer:
        return self.question.answer(evidence, threshold, step)


@dataclass
class Investigated:
    """An investigation that has ended: its findings, and what was done for them, in order."""

    findings: Findings
    rounds: list[tuple[str, list[str]]]
    looks: list[Look]
    together: list[list[str]]
    plans: Mapping[str, BatchPlan]
    sentences: list[str]
    folder: Path

    @property
    def word(self) -> str | None:
        return self.findings.pairs[0].verdict

    @property
    def made(self) -> list[str]:
        return [name for _, names in self.rounds for name in names]


@pytest.fixture
def investigated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that investigates a training with these results of taking its steps apart."""

    def investigated_training(
        behaviour: Training,
        results: Mapping[int, Mapping[str, Any]] | None = None,
        plan: InvestigationPlan | None = None,
        *,
        localized: bool = False,
        **manifest: Any,
    ) -> Investigated:
        looks, together = list[Look](), list[list[str]]()
        study, progress = Study(tmp_path / "study"), Quiet()
        for table in (QUESTIONS, LAST_QUESTIONS):
            for name, question in list(table.items()):
                original = question.question if isinstance(question, Overheard) else question
                monkeypatch.setitem(table, name, Overheard(name, original, looks, results or {}, together))
        runs = []
        for mode, steps in behaviour.steps.items():
            fields = manifest if mode != "cpu" or len(behaviour.steps) == 1 else {}
            runs.append(study.run(mode, steps, **fields))
        plan = InvestigationPlan(scripts=False) if plan is None else plan
        laboratory = WritingLaboratory(
            progress, 1, None, processes=NoProcesses(lasting=True), study=study, training=behaviour
        )
        with laboratory:
            function = localize_runs if localized else investigate_runs
            findings = function(runs, plan, laboratory)
        return Investigated(
            findings, laboratory.rounds, looks, together, laboratory.plans, progress.sentences, study.folder
        )

    return investigated_training


def drifting(scores: Mapping[int, float | Outcome], count: int = COUNT, **more: Any) -> Training:
    """A mode that drifts from step 1 on, with these scores; those of other steps are 1."""
    steps = {"cpu": training(count), "compile": training(count, apart_from=1)}
    return Training(**{"scores": {"compile": scores}, "steps": steps, **more})


PLAN = InvestigationPlan(scripts=False)

CHOICE: Mapping[str, Any] = {"choices": {"score": 1.0, "discrete": 0, "flipped": 3, "ops": ["relu"]}}
"""The result of a step whose drift is that of a discrete choice."""

PROVEN: Mapping[str, Any] = {
    "kind": "kernel",
    "status": "culprit",
    "op": "aten.mm",
    "phase": "forward",
    "ops": {"a": ["mm"], "b": ["mm"]},
    "significance": "beyond-rounding",
    "proof": {
        "swap_in": {"holds": True, "score_before": 0.0, "score_after": 90.0},
        "swap_out": {"holds": True, "score_before": 90.0, "score_after": 0.0, "score_without_all": 0.0},
    },
}


def caused(step: int, **more: Any) -> Mapping[str, Any]:
    """The result of a step whose drift goes with one op."""
    return {
        "culprits": [Culprit.from_json({**PROVEN, "step": step, **more})],
        "left": {"explained": 1.0, "score": 0.0},
        "score": 90.0,
        "rest": 0.0,
        "controls": {"a": True, "b": True},
    }


def magnified(step: int) -> Mapping[str, Any]:
    """The result of a step whose op errs by no more than what rounding of its inputs causes."""
    return caused(step, local_significance="rounding", local_rule="within", rho={"a": 0.5, "b": 0.5})


ONCE_MORE = ("each once more", ["cpu-again", "compile-again"])
FROM_THE_STATE = ("from the reference's state", ["compile-from-cpu"])
SUSPICIOUS = ("suspicious steps", ["cpu-tape-0"])
WITHOUT = ("trained to the end without the culprits", ["compile-without-cpu"])


def test_of_equal_runs_the_controls_are_made_and_nothing_is_asked(investigated: Any) -> None:
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
            drifting({2: 40.0, 3: 90.0}),
            replace(PLAN, step=3),
            "beyond-rounding",
            [ONCE_MORE, FROM_THE_STATE, SUSPICIOUS],
            [("ops", 3), ("compiler", 3), ("ops", 2), ("compiler", 2)],
        ),
        # the step before may be where it begins, if it comes near to the threshold
        (
            drifting({1: NEAR * FAULT * 1.1, 2: 40.0}),
            PLAN,
            "beyond-rounding",
            [ONCE_MORE, FROM_THE_STATE, SUSPICIOUS],
            [("ops", 1), ("compiler", 1), ("ops", 2), ("compiler", 2)],
        ),
        (
            drifting({0: NEAR * FAULT * 1.1, 1: NEAR * FAULT * 0.9, 2: 40.0}),
            PLAN,
            "beyond-rounding",
            [ONCE_MORE, FROM_THE_STATE, SUSPICIOUS],
            [("ops", 2), ("compiler", 2)],
        ),
        (
            drifting({3: Outcome(1.0, counter=7)}),
            PLAN,
            "beyond-rounding",
            [ONCE_MORE, FROM_THE_STATE, SUSPICIOUS],
            [("ops", 3), ("compiler", 3)],
        ),
        # a run that does not repeat itself is compared with nothing, and which call does not is asked last
        (
            drifting({2: 40.0}, controls={"cpu": changed(training(), 3, losses=(9.0,))}),
            PLAN,
            "nondeterministic",
            [ONCE_MORE],
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
    investigated: Any,
    behaviour: Training,
    plan: InvestigationPlan,
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
    ("scores", "results", "word", "looks", "without"),
    [
        # a proven op ends the search: no setting of the compiler is tried, and the mode is trained without it
        ({2: 40.0, 3: 90.0}, {2: caused(2)}, "beyond-rounding", [("ops", 2)], True),
        ({}, {4: caused(4, significance="rounding")}, "rounding", [("ops", 4)], True),
        # a discrete choice: the next step beyond rounding is looked into, until none is left
        ({2: 40.0}, {2: CHOICE}, "rounding", [("ops", 2)], False),
        (
            {2: 40.0, 3: 90.0},
            {2: CHOICE, 3: caused(3)},
            "beyond-rounding",
            [("ops", 2), ("compiler", 2), ("ops", 3)],
            True,
        ),
        ({2: 40.0, 3: 90.0}, {2: CHOICE, 3: CHOICE}, "rounding", [("ops", 2), ("compiler", 2), ("ops", 3)], False),
        (
            {2: 40.0, 3: 90.0},
            {2: CHOICE},
            "beyond-rounding",
            [("ops", 2), ("compiler", 2), ("ops", 3), ("compiler", 3)],
            False,
        ),
        # an ill-conditioned step: the worst one is looked into, and explains the others
        (
            {1: 30.0, 2: 40.0, 3: 90.0, 4: 50.0},
            {1: magnified(1), 3: magnified(3)},
            "rounding",
            [("ops", 1), ("ops", 3)],
            True,
        ),
        (
            {1: 30.0, 2: 40.0, 3: 90.0, 4: 50.0},
            {1: magnified(1), 3: caused(3)},
            "beyond-rounding",
            [("ops", 1), ("ops", 3)],
            True,
        ),
        ({1: 90.0, 2: 40.0}, {1: magnified(1)}, "rounding", [("ops", 1)], True),
        # a fault of the step before, which is wrong by itself, is where the drift begins
        (
            {1: NEAR * FAULT * 1.1, 2: 40.0},
            {1: caused(1, local_significance="beyond-rounding", local_rule="error", rho={"a": 0.5, "b": 900.0})},
            "beyond-rounding",
            [("ops", 1)],
            True,
        ),
    ],
)
def test_what_a_step_is_found_to_be_decides_on_the_next_one(
    investigated: Any,
    scores: Mapping[int, float],
    results: Mapping[int, Mapping[str, Any]],
    word: str,
    looks: Sequence[Look],
    without: bool,
) -> None:
    ended = investigated(drifting(scores), results)
    assert ended.word == word
    assert ended.looks == looks
    assert (WITHOUT in ended.rounds) == without
    # and what was found is in the file
    content = json.loads((ended.folder / "investigation.json").read_text())
    assert content["pairs"][0]["verdict"] == word
    assert len(content["pairs"][0]["culprits"]) == (1 if without else 0)


def test_no_more_than_so_many_steps_are_looked_into(investigated: Any) -> None:
    count = MOST_STEPS + 3
    scores = dict.fromkeys(range(1, count), 90.0)
    ended = investigated(drifting(scores, count), dict.fromkeys(range(count), CHOICE))
    assert [step for name, step in ended.looks if name == "ops"] == list(range(1, MOST_STEPS + 1))
    assert ended.word == "beyond-rounding"


def test_a_mode_is_not_trained_without_its_culprits_unless_that_is_wanted(investigated: Any) -> None:
    ended = investigated(drifting({2: 40.0}), {2: caused(2)}, replace(PLAN, confirm=False))
    assert ended.rounds == [ONCE_MORE, FROM_THE_STATE, SUSPICIOUS]
    assert ended.findings.pairs[0].without is None


@pytest.mark.parametrize("identical", [True, False])
def test_what_is_left_without_the_culprits_takes_an_envelope(investigated: Any, identical: bool) -> None:
    behaviour = drifting({2: 40.0})
    if identical:
        # given that the training without the culprit is that of the reference
        class Same(dict[str, Sequence[Step]]):
            def get(self, name: str, default: Any = None) -> Any:
                return default

        del Same
    ended = investigated(behaviour, {2: caused(2)})
    assert ended.rounds[3] == WITHOUT
    assert [title for title, _ in ended.rounds[4:]] == ["envelope"]


def test_a_step_that_was_not_started_cannot_be_requested(investigated: Any) -> None:
    plan = replace(PLAN, steps=StepSelection.of([1, 2]), step=4)
    with pytest.raises(UsageError, match=r"step 4 was not started from the reference's state; there are "):
        investigated(drifting({}, stated=False), plan=plan)


@pytest.mark.parametrize("failing", ["cpu", "compile"])
def test_where_a_side_has_failed_nothing_is_made(investigated: Any, failing: str) -> None:
    steps = {"cpu": training(), "compile": training(apart_from=1)}
    steps[failing] = []
    ended = investigated(Training({"compile": {}}, steps), status="crashed" if failing == "compile" else "complete")
    assert (ended.word, ended.rounds, ended.looks) == ("failed", [], [])
    assert ended.findings.exit_code == 3
