"""The inputs that numdrift pins: the hash seed of Python, and the seeds of generators that the script leaves unseeded.

Pinned inputs are the same in every run, so no comparison of modes shows that the script depends on them. The first
steps of the reference are therefore trained with other values:

    all     other seeds of the generators and, if the script has a set or calls hash(), another hash seed: with equal
            bits, no dependence shows
    hash    another hash seed alone, only if the bits of `all` differ: from the reference by the hash seed, and from
            `all` by the seeds of the generators
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from ...drift.recorded_drift import RecordedDifference, common_steps, differences
from ...drift.repetition import COMPUTED, in_words
from ...launch.batch_plan import BatchPlan
from ...launch.guest_process import Guest, environment, imported_by, interpreter
from ...records.results.experiment import Experiment
from ...records.results.findings import GENERATORS, HASH, PinnedInput
from ...records.run.run_config import RunConfig
from ...records.run.surroundings import HASH_SEED
from ...runs.recorded_run import RecordedRun
from ..evidence.hash_order import hash_lines
from ..evidence.pair_evidence import EvidenceFolder, PairEvidence
from ..evidence.pair_scores import spec_of
from ..experiments.investigation_plan import InvestigationRequest
from ..experiments.laboratory import Laboratory, Round, repeating
from ..words.pinned_words import pinned_sentence
from .question import SEARCHED, Inquiry, QuestionAnswer

KIND, ALL, ONLY_HASH = "unpinned", "all", "hash"

PINNED, OTHER = 0, 1
"""The value of every pinned input, and the value with which the first steps are trained again."""

LAST_STEP = 0
"""The last step whose results are needed. One more step is trained, which shows the draws of this step."""


class PinnedInputs:
    """The pinned inputs on which the script depends."""

    def asks(self, inquiry: Inquiry, plan: InvestigationRequest) -> bool:
        judged = inquiry.pair.verdict in ("identical", *SEARCHED)
        return judged and _can_be_tried(inquiry.evidence.a) and _repeats(inquiry.evidence)

    def look(self, laboratory: Laboratory, inquiries: Sequence[Inquiry], plan: InvestigationRequest) -> None:
        run = inquiries[0].evidence.a
        laboratory.make(Round("the first steps with other seeds than numdrift's", [_first_steps(run)]))
        made = EvidenceFolder.of(run).find(Experiment(KIND, run.path.name, detail=ALL))
        if _tries_hash_seed(run) and made is not None and _first_difference(run, made) is not None:
            laboratory.make(Round("the first steps with another hash seed alone", [_first_steps(run, only_hash=True)]))

    def answer(self, evidence: PairEvidence, threshold: float, step: int | None) -> QuestionAnswer:
        pinned = pinned_inputs(evidence)
        return QuestionAnswer(pinned=pinned, notes=[pinned_sentence(entry) for entry in pinned])


def expect_first_steps(laboratory: Laboratory, reference: RecordedRun) -> None:
    """Preload the modules for the first steps with another hash seed, while other experiments run."""
    if _can_be_tried(reference) and _tries_hash_seed(reference):
        plan = _first_steps(reference)
        spec, inherited = plan.modes[0], os.environ if plan.inherited is None else plan.inherited
        guest = Guest(Path(), environment(spec, inherited), interpreter(spec), imports=imported_by(spec))
        laboratory.processes.expect([guest])


def pinned_inputs(evidence: PairEvidence) -> list[PinnedInput]:
    """Return the pinned inputs on which the reference's script depends, as far as experiments have shown it."""
    made = {
        experiment.detail: run
        for experiment, run in evidence.experiments("a", KIND).items()
        if run.manifest.got_through and run.manifest.script_sha256 == evidence.a.manifest.script_sha256
    }
    with_all, with_hash = made.get(ALL), made.get(ONLY_HASH)
    if with_all is None or _first_difference(evidence.a, with_all) is None or not _repeats(evidence):
        return []
    before, found = evidence.a, list[PinnedInput]()
    if HASH_SEED in dict(spec_of(with_all).env) and HASH_SEED not in dict(spec_of(evidence.a).env):
        if with_hash is None:  # nothing separates the two inputs
            return []
        difference = _first_difference(evidence.a, with_hash)
        if difference is not None:
            lines = hash_lines(evidence.a)
            found.append(replace(_pinned_input(HASH, (), difference, with_hash), lines=lines))
        before = with_hash
    difference, generators = _first_difference(before, with_all), _drawn(before, with_all)
    # A computed value may differ by chance, so it counts only if a draw explains it.
    if difference is not None and (generators or difference.what not in COMPUTED):
        found.append(_pinned_input(GENERATORS, generators, difference, with_all))
    return found


def _pinned_input(kind: str, names: Sequence[str], difference: RecordedDifference, run: RecordedRun) -> PinnedInput:
    return PinnedInput(
        input=kind,
        generators=tuple(names),
        value=PINNED,
        other=OTHER,
        step=difference.step,
        what=difference.what,
        name=difference.name,
        text=in_words(difference),
        run=run.path.name,
    )


def _pins_hash_seed(run: RecordedRun) -> bool:
    """Check whether numdrift, and not the user, has set the hash seed of a run."""
    recorded = run.manifest.environment.get("environment") or {}
    stated = HASH_SEED in os.environ or HASH_SEED in dict(spec_of(run).env)
    return recorded.get(HASH_SEED) == str(PINNED) and not stated


def _can_be_tried(run: RecordedRun) -> bool:
    """Check whether numdrift pins an input of this run, and whether its first steps can be compared."""
    # A hash seed may also change the order in which a compiler generates code, and so the bits of a compiled step.
    capabilities = spec_of(run).capabilities
    eager = capabilities.has_values and not capabilities.compiles
    pinned = bool(run.manifest.environment.get("seeded")) or _pins_hash_seed(run)
    trains = RunConfig.load(run.path / "config.json").subject is None  # calls have seeds of their own
    return eager and pinned and run.manifest.is_one_process and trains


def _tries_hash_seed(run: RecordedRun) -> bool:
    """Check whether the hash seed is worth a process: another one is no fork, as it imports torch anew."""
    return _pins_hash_seed(run) and bool(hash_lines(run))


def _first_steps(run: RecordedRun, *, only_hash: bool = False) -> BatchPlan:
    """Return a plan for the first steps of a run with other values of its pinned inputs."""
    spec, seed = spec_of(run), PINNED if only_hash else OTHER
    if _tries_hash_seed(run):
        spec = replace(spec, env={**spec.env, HASH_SEED: str(OTHER)})
    experiment = Experiment(KIND, run.path.name, detail=ONLY_HASH if only_hash else ALL)
    return repeating(run, experiment, spec=spec, unseeded_seed=seed, until=LAST_STEP)


def _repeats(evidence: PairEvidence) -> bool:
    """Check whether the reference's control has the same bits in the first steps."""
    again = evidence.a_again
    difference = None if again is None else _first_difference(evidence.a, again)
    return again is not None and (difference is None or difference.step > LAST_STEP + 1)


def _first_difference(run: RecordedRun, again: RecordedRun) -> RecordedDifference | None:
    """Return the first difference between two runs in their common steps. A generator alone changes no value."""
    found = (entry for entry in differences(run, again) if entry.what not in ("generator", "steps"))
    return next(found, None)


def _drawn(a: RecordedRun, b: RecordedRun) -> list[str]:
    """Return the generators that are in different states in two runs, and that the script has drawn from or set."""
    unused = {name: state for event in b.journal.events("unused-generators") for name, state in event["states"].items()}
    steps = common_steps(a.journal, b.journal)
    return [
        name
        for name in unused
        if any(left.generators.get(name) != right.generators.get(name) for left, right in steps)
        and any(right.generators.get(name) != unused[name] for _, right in steps)
    ]
