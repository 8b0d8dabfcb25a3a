"""A laboratory that writes runs by hand where an investigation wants them to be trained, and trainings for it."""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol, cast

from tests.harness.drift.recordings import Step

from numdrift.harness.investigate.evidence.pair_evidence import PairEvidence
from numdrift.harness.investigate.evidence.pair_localizations import inputs_of
from numdrift.harness.investigate.experiments.investigation_plan import InvestigationRequest
from numdrift.harness.investigate.experiments.laboratory import Interrupted, Laboratory, Round
from numdrift.harness.investigate.questions.question import Inquiry, Question, QuestionAnswer
from numdrift.harness.launch.batch_plan import BatchPlan
from numdrift.harness.launch.guest_process import Guest, GuestProcess
from numdrift.harness.launch.preloaded import PreloadedProcesses
from numdrift.harness.records.results.culprit import Culprit
from numdrift.harness.records.results.findings import Findings
from numdrift.harness.runs.recorded_run import RecordedRun, load_run

from .written_evidence import COUNT, FAULT, UNREPLAYED, Event, Outcome, Study, noise_record, resynced, training

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

    def expects(self, seconds: float) -> None:
        assert seconds >= 0


class NoProcesses(PreloadedProcesses):
    """A machine that has no room for a process more."""

    def start(self, guest: Guest, stdout: int, stderr: int, *, stdin: int | None = None) -> GuestProcess:
        raise OSError("no process is started here")

    def expect(self, guests: Sequence[Guest]) -> None:
        pass


@dataclass
class Training:
    """A script in several modes, as a laboratory observes it.

    `steps` are the free runs by mode, `scores` those of the steps that a mode begins in the reference's state (1 where
    none is stated). `controls` are repetitions that are other than the free runs, `forced` the trainings with steps in
    the reference's state, and `without` the one without culprits. `unpinned` are the first steps of the reference with
    other inputs than those that are pinned: `all`, or only the `hash` seed. The free runs have `kept` these states. The round
    with the run `interrupted` is ended with Ctrl-C.
    """

    scores: Mapping[str, Mapping[int, float | Outcome]]
    steps: Mapping[str, Sequence[Step]]
    controls: Mapping[str, Sequence[Step]] = field(default_factory=dict)
    forced: Mapping[str, Sequence[Step]] = field(default_factory=dict)
    without: Sequence[Step] | None = None
    unpinned: Mapping[str, Sequence[Step]] = field(default_factory=dict)
    kept: Sequence[int] = ()
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
        missing = [plan for plan in experiments.plans if not self._exists(plan)]
        names = [plan.modes[0].name for plan in missing]
        self.reused += len(experiments.plans) - len(missing)
        if names:
            self.rounds.append((experiments.title, names))
        if self.training.interrupted in names:
            raise Interrupted
        for plan in missing:
            self.plans[plan.modes[0].name] = plan
            self._write(plan)
            self.made += 1

    def free(self, plan: BatchPlan) -> list[RecordedRun]:
        names = [spec.name for spec in plan.modes]
        self.rounds.append(("modes", names))
        if self.training.interrupted in names:
            raise Interrupted
        self.plans |= dict.fromkeys(names, plan)
        return [self.study.run(str(spec), training()) for spec in plan.modes]

    def _exists(self, plan: BatchPlan) -> bool:
        name = plan.modes[0].name
        folder = plan.investigation.run(name, "")
        is_there = folder.manifest.exists() and self.plans.get(name, plan) == plan
        if folder.manifest.exists() and not is_there:  # made with another request
            shutil.rmtree(folder.path)
        return is_there

    def _write(self, plan: BatchPlan) -> None:
        experiment, behaviour = plan.experiment, self.training
        assert experiment is not None
        name, kind = experiment.run, experiment.kind
        steps, outcomes, events = behaviour.steps[name], dict[int, Outcome](), list[Event]()
        every = range(len(steps))
        wanted = [] if plan.outcomes is None else [step for step in every if step in plan.outcomes]
        noises: list[Event] = []
        if plan.resync is not None and name != "cpu":
            scores = behaviour.scores[name]
            outcomes = {step: _outcome(scores.get(step, 1.0)) for step in wanted}
            events = resynced(wanted)
            if plan.rejoin is not None:
                # the first step that differs begins in one state anyway
                events = [{**event, "equal": event["step"] == wanted[0]} for event in events]
                events += [{"event": "rejoined", "step": step + 1} for step in wanted]
            steps = behaviour.forced.get(name, steps)
        elif plan.outcomes is not None:
            outcomes = dict.fromkeys(wanted, Outcome(1.0 if plan.perturb else 0.0))
            more: Mapping[str, Any] = {} if behaviour.replays else UNREPLAYED
            taped = plan.measured or plan.tapes
            edge = 1.0 if plan.edge_replays else 0.0
            noises = [noise_record(step, edge=edge, **more) for step in wanted if taped is not None and step in taped]
        if kind == "again":
            steps = behaviour.controls.get(name, steps)
        if kind == "without" and behaviour.without is not None:
            steps = behaviour.without
        if kind == "unpinned":
            steps = behaviour.unpinned.get(experiment.detail, steps)
        states = [step for step in every if behaviour.stated and plan.states is not None and step in plan.states]
        script = load_run(self.study.folder / name).manifest.script_sha256
        made: dict[str, Any] = {"spec": str(plan.modes[0]), "script_sha256": script}
        self.study.make(experiment, steps, outcomes, noises=noises, states=states, events=events, **made)


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

    def asks(self, inquiry: Inquiry, plan: InvestigationRequest) -> bool:
        return self.question.asks(inquiry, plan)

    def look(self, laboratory: Laboratory, inquiries: Sequence[Inquiry], plan: InvestigationRequest) -> None:
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
    runs: list[RecordedRun]

    @property
    def word(self) -> str | None:
        return self.findings.pairs[0].verdict

    def steps_of(self, question: str) -> list[int | None]:
        """Return the steps of which a question was asked."""
        return [step for name, step in self.looks if name == question]

    @property
    def made(self) -> list[str]:
        return [name for _, names in self.rounds for name in names]


class Investigator(Protocol):
    def __call__(
        self,
        behaviour: Training,
        results: Mapping[int, Mapping[str, Any]] | None = None,
        plan: InvestigationRequest | None = None,
        **manifest: Any,
    ) -> Investigated: ...


def laboratory_of(study: Study, behaviour: Training) -> WritingLaboratory:
    return WritingLaboratory(Quiet(), 1, None, processes=NoProcesses(lasting=True), study=study, training=behaviour)


def drifting(scores: Mapping[int, float | Outcome], count: int = COUNT, **more: Any) -> Training:
    """A mode that drifts from step 1 on, with these scores; those of other steps are 1."""
    steps = {"cpu": training(count), "compile": training(count, apart_from=1)}
    return Training(**{"scores": {"compile": scores}, "steps": steps, **more})


PLAN = InvestigationRequest(scripts=False)


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


CLOSE = 0.55 * FAULT
"""The score of a step that comes near to the threshold."""


WRONG: Mapping[str, Any] = {
    "local_significance": "beyond-rounding",
    "local_rule": "error",
    "rho": {"a": 0.5, "b": 900.0},
}


ONCE_MORE = ("each mode once more", ["cpu-again", "compile-again"])


FROM_THE_STATE = ("from the reference's state", ["compile-from-cpu"])


SUSPICIOUS = ("suspicious steps", ["cpu-tape-0"])


WITHOUT = ("trained to the end without the culprits", ["compile-without-cpu"])
