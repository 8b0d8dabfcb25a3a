"""The evidence of an investigation, which its experiments leave beside its runs, and the evidence for one pair."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ...errors import NumdriftError
from ...records.modes.mode_spec import parse_mode
from ...records.results.experiment import KINDS, Experiment, belongs_to, experiment_named
from ...runs.recorded_run import RecordedRun, load_run, rank_of
from ...runs.run_layout import EVIDENCE, MANIFEST


@dataclass(frozen=True, slots=True)
class EvidenceFolder:
    """The folder beside the runs of an investigation that contains the folders of its experiments."""

    path: Path

    @classmethod
    def of(cls, run: RecordedRun) -> EvidenceFolder:
        return cls(run.path.parent / EVIDENCE)

    def find(self, experiment: Experiment) -> RecordedRun | None:
        """Return the experiment's run; None if it does not exist, cannot be read, or has not ended."""
        return _ended(self.path / experiment.name)

    def of_pair(self, a: str, b: str) -> dict[Experiment, RecordedRun]:
        """Return the ended experiments of the pair whose runs are named `a` and `b`.

        An older manifest does not name its experiment; then the folder's name does.
        """
        experiments = {}
        # Later folders replace earlier ones. They are sorted, since the order of files differs from disk to disk.
        for manifest in sorted(self.path.glob(f"*/{MANIFEST}")):
            run = _ended(manifest.parent)
            if run is None:
                continue
            experiment = run.manifest.experiment or experiment_named(run.path.name, a, b)
            if experiment is not None and experiment.concerns(a, b):
                experiments[experiment] = run
        return experiments

    def belonging_to(self, run: RecordedRun) -> list[Path]:
        """Return the folders, results and pickles of the experiments that belong to this run."""
        return [
            path
            for path in self.path.glob("*")
            if belongs_to(path.name.removeprefix("verify_").removesuffix(".pkl"), run.path.name)
        ]


def _ended(folder: Path) -> RecordedRun | None:
    try:
        run = load_run(folder)
    except NumdriftError:
        return None
    return None if run.manifest.status == "running" else run


Made = Mapping[Experiment, RecordedRun]

FURTHER_STEPS = ("onset", "kinds")
"""The kinds of experiments with further steps, each a run of the reference and one of the mode."""


@dataclass(frozen=True, slots=True)
class PairEvidence:
    """The evidence for one pair.

    a: the reference
    b: the other run
    made: the experiments that belong to each of the two runs
    localized: the folders of localizations
    bisected: the files that name the parts of the model that carry a drift
    """

    a: RecordedRun
    b: RecordedRun
    made: Mapping[Literal["a", "b"], Made]
    localized: tuple[Path, ...] = ()
    bisected: tuple[Path, ...] = ()

    def experiments(self, side: Literal["a", "b"], kind: str) -> Made:
        """Return the experiments of one kind that belong to one of the two runs, in their order."""
        matching = [experiment for experiment in self.made[side] if experiment.kind == kind]
        return {
            experiment: self.made[side][experiment]
            for experiment in sorted(matching, key=lambda experiment: experiment.order)
        }

    def several(self, side: Literal["a", "b"], kind: str) -> tuple[RecordedRun, ...]:
        return tuple(self.experiments(side, kind).values())

    def only(self, side: Literal["a", "b"], kind: str) -> RecordedRun | None:
        return next(iter(self.several(side, kind)), None)

    @property
    def a_again(self) -> RecordedRun | None:
        return self.only("a", "again")

    @property
    def b_again(self) -> RecordedRun | None:
        """The other mode's control.

        It is the mode's repetition. Without one, it is the run with resynced steps, if that run has continued from its
        own state after them.
        """
        again, forced = self.only("b", "again"), self.forced
        if again is None and forced is not None and forced.journal.events("rejoined"):
            return forced
        return again

    @property
    def forced(self) -> RecordedRun | None:
        """The other mode's run with steps that begin in the reference's state."""
        return self.only("b", "apart") or self.only("b", "forced")

    @property
    def taped(self) -> tuple[RecordedRun, ...]:
        """The reference's runs with tapes: its repetition, then those of suspicious steps.

        If the reference does not repeat, its repetition has different states. A run whose steps begin in the states of
        the first run then takes the place of the repetition. The other mode's steps begin in these states, too.
        """
        own = self.several("a", "from-itself")
        return (*(own or self.several("a", "again")), *self.several("a", "taped"))

    @property
    def measured(self) -> tuple[RecordedRun, ...]:
        """The runs whose tapes measure the reference's noise.

        For a lazy mode they include the tapes of the same ops on the CPU and the tapes of the executed graphs.
        """
        tapes_itself = parse_mode(self.a.manifest.spec).capabilities.tapes_itself
        kinds = () if tapes_itself else ("taped-at", "executed-at")
        return (*self.taped, *(run for kind in kinds for run in self.several("a", kind)))

    @property
    def seeds(self) -> tuple[tuple[RecordedRun, RecordedRun], ...]:
        """The pairs of training runs, one of each mode, with the same additional seed."""
        runs_of_b = {experiment.detail: run for experiment, run in self.experiments("b", "seed").items()}
        runs_of_a = self.experiments("a", "seed")
        return tuple(
            (run, runs_of_b[experiment.detail])
            for experiment, run in runs_of_a.items()
            if experiment.detail in runs_of_b
        )

    @property
    def onsets(self) -> tuple[tuple[RecordedRun, RecordedRun], ...]:
        """The two runs of each round of further steps.

        The reference's run keeps the states of the steps, and the mode's run starts the steps from these states. The
        steps are those near the onset of a drift, and those of further kinds.
        """
        rounds = (zip(self.several("a", kind), self.several("b", kind), strict=False) for kind in FURTHER_STEPS)
        return tuple(pair for of_kind in rounds for pair in of_kind)

    @property
    def started(self) -> list[RecordedRun]:
        """The other mode's runs whose steps start from the reference's state.

        A run of which nothing was observed comes first: it shows what the mode itself computes.
        """
        runs = (self.only("b", "unobserved"), self.forced, *(mode_run for _, mode_run in self.onsets))
        return [run for run in runs if run is not None]

    @property
    def kept(self) -> list[RecordedRun]:
        """The reference's runs that keep states and outcomes."""
        return [*self.taped, *(reference_run for reference_run, _ in self.onsets)]

    @property
    def one_against_several(self) -> bool:
        """Check whether the reference is one process and the other run has several."""
        return self.a.manifest.world_size == 1 and self.b.manifest.world_size > 1

    @property
    def runs(self) -> int:
        """The number of training runs made for the pair.

        An experiment with both modes counts only if both runs exist. Experiments of an inquiry do not count one by one:
        each localization counts as one.
        """
        # An interrupted round leaves seeds and onsets of one side only: half an experiment explains nothing.
        alone = [
            run
            for made in self.made.values()
            for experiment, run in made.items()
            if not KINDS[experiment.kind].inquiry and experiment.kind not in ("seed", *FURTHER_STEPS)
        ]
        both = [run for pair in (*self.seeds, *self.onsets) for run in pair]
        return len({run.path for run in (self.a, self.b, *alone, *both)}) + len(self.localized)

    def of_rank(self, rank: int) -> PairEvidence:
        """Return the evidence of one rank. Raises RunNotFound or JournalError if a run lacks this rank.

        Localizations belong to rank 0: no other rank's steps are localized.
        """
        if not rank:
            return self
        a, b = rank_of(self.a, rank), rank_of(self.b, rank)
        # An inquiry concerns rank 0 only, so the other ranks take no part in it.
        made = {
            side: {
                experiment: rank_of(run, rank)
                for experiment, run in experiments.items()
                if not KINDS[experiment.kind].inquiry
            }
            for side, experiments in self.made.items()
        }
        return PairEvidence(a, b, made)


def evidence_for(a: RecordedRun, b: RecordedRun) -> PairEvidence:
    """Return the evidence of a pair from the evidence folder beside the reference.

    If `b` is in a different folder, return only the reference's own experiments.
    """
    folder = EvidenceFolder.of(a)
    experiments = folder.of_pair(a.path.name, b.path.name)
    of_a = {experiment: run for experiment, run in experiments.items() if experiment.run == a.path.name}
    if a.path.parent != b.path.parent:
        return PairEvidence(
            a, b, {"a": {experiment: run for experiment, run in of_a.items() if not experiment.reference}, "b": {}}
        )
    of_b = {experiment: run for experiment, run in experiments.items() if experiment.run == b.path.name}
    localized = folder.path.glob(f"{b.path.name}-localized-{a.path.name}-*")
    bisected = folder.path.glob(f"{b.path.name}-parts-{a.path.name}-*.json")
    return PairEvidence(a, b, {"a": of_a, "b": of_b}, tuple(sorted(localized)), tuple(sorted(bisected)))
