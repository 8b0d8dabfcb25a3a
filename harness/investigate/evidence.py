"""What the experiments of an investigation have left beside its runs, and what of it is there for a pair of them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from ..errors import NumdriftError
from ..records.experiment import KINDS, Experiment, belongs_to, experiment_named
from ..records.mode_spec import parse_mode
from ..runs.recorded_run import RecordedRun, load_run, rank_of
from ..runs.run_layout import EVIDENCE, MANIFEST


@dataclass(frozen=True, slots=True)
class EvidenceFolder:
    """The folder beside the runs of an investigation that holds those of its experiments."""

    path: Path

    @classmethod
    def of(cls, run: RecordedRun) -> EvidenceFolder:
        return cls(run.path.parent / EVIDENCE)

    def find(self, experiment: Experiment) -> RecordedRun | None:
        """The experiment's run, None when it was not made, cannot be read, or has not ended."""
        return _ended(self.path / experiment.name)

    def of_pair(self, a: str, b: str) -> dict[Experiment, RecordedRun]:
        """Every experiment of a pair that has ended, by the names of its runs. Where its manifest does not
        tell what it is (those of before did not), its folder's name does."""
        found = {}
        # sorted, for the order of files differs from disk to disk, and later ones replace earlier ones
        for manifest in sorted(self.path.glob(f"*/{MANIFEST}")):
            run = _ended(manifest.parent)
            if run is None:
                continue
            experiment = run.manifest.experiment or experiment_named(run.path.name, a, b)
            if experiment is not None and experiment.concerns(a, b):
                found[experiment] = run
        return found

    def belonging_to(self, run: RecordedRun) -> list[Path]:
        """The folders, results and pickles of the experiments with this run."""
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


@dataclass(frozen=True, slots=True)
class PairEvidence:
    """All that is there for one pair; `a` is the reference. `made` has the experiments with either of them,
    `localized` the folders of localizations, `bisected` the files that say which parts of the model carry a drift."""

    a: RecordedRun
    b: RecordedRun
    made: Mapping[Literal["a", "b"], Made]
    localized: tuple[Path, ...] = ()
    bisected: tuple[Path, ...] = ()

    def experiments(self, side: Literal["a", "b"], kind: str) -> Made:
        """The experiments of a kind with one of the two, in their order."""
        found = [one for one in self.made[side] if one.kind == kind]
        return {one: self.made[side][one] for one in sorted(found, key=lambda one: one.order)}

    def several(self, side: Literal["a", "b"], kind: str) -> tuple[RecordedRun, ...]:
        return tuple(self.experiments(side, kind).values())

    def only(self, side: Literal["a", "b"], kind: str) -> RecordedRun | None:
        return next(iter(self.several(side, kind)), None)

    @property
    def a_again(self) -> RecordedRun | None:
        return self.only("a", "again")

    @property
    def b_again(self) -> RecordedRun | None:
        """The other mode's control: a repetition of its own, else the run that takes chosen steps from the reference's
        state and all others from its own."""
        again, forced = self.only("b", "again"), self.forced
        if again is None and forced is not None and forced.journal.events("rejoined"):
            return forced
        return again

    @property
    def forced(self) -> RecordedRun | None:
        return self.only("b", "forced")

    @property
    def taped(self) -> tuple[RecordedRun, ...]:
        """The reference's runs with tapes: its repetition, then those of suspicious steps."""
        return (*self.several("a", "again"), *self.several("a", "taped"))

    @property
    def measured(self) -> tuple[RecordedRun, ...]:
        """The runs with tapes whose noise is the reference's: of lazy tensors those of the same ops on the CPU, and of
        what was executed."""
        is_lazy = parse_mode(self.a.manifest.spec).base == "lazy"
        kinds = ("taped-at", "executed-at") if is_lazy else ()
        return (*self.taped, *(run for kind in kinds for run in self.several("a", kind)))

    @property
    def seeds(self) -> tuple[tuple[RecordedRun, RecordedRun], ...]:
        """Trainings of both with the same other seed."""
        theirs = {one.detail: run for one, run in self.experiments("b", "seed").items()}
        ours = self.experiments("a", "seed")
        return tuple((run, theirs[one.detail]) for one, run in ours.items() if one.detail in theirs)

    @property
    def onsets(self) -> tuple[tuple[RecordedRun, RecordedRun], ...]:
        """Rounds of further steps: the reference's run that keeps their states, and the mode's that starts
        from them."""
        return tuple(zip(self.several("a", "onset"), self.several("b", "onset"), strict=False))

    @property
    def started(self) -> list[RecordedRun]:
        """The other mode's runs whose steps start from the reference's state."""
        return [run for run in (self.forced, *(theirs for _, theirs in self.onsets)) if run is not None]

    @property
    def kept(self) -> list[RecordedRun]:
        """The reference's runs that keep states and outcomes."""
        return [*self.taped, *(ours for ours, _ in self.onsets)]

    @property
    def one_against_several(self) -> bool:
        """Whether the reference is one process and the other run has several."""
        return self.a.manifest.world_size == 1 and self.b.manifest.world_size > 1

    @property
    def runs(self) -> int:
        """How many trainings there are for the pair. What is made of both counts where both are there, an
        inquiry as one."""
        # An interrupted round has left seeds and onsets of one side only: half an experiment explains nothing.
        alone = [
            run
            for made in self.made.values()
            for one, run in made.items()
            if not KINDS[one.kind].inquiry and one.kind not in ("seed", "onset")
        ]
        both = [run for pair in (*self.seeds, *self.onsets) for run in pair]
        return len({run.path for run in (self.a, self.b, *alone, *both)}) + len(self.localized)

    def of_rank(self, rank: int) -> PairEvidence:
        """The evidence of one rank. Raises RunNotFound or JournalError where a run does not have it.

        What was localized stays rank 0's: only it is taken apart.
        """
        if not rank:
            return self
        a, b = rank_of(self.a, rank), rank_of(self.b, rank)
        # an inquiry was made of rank 0 alone, so the other ranks have nothing of it
        made = {
            side: {one: rank_of(run, rank) for one, run in found.items() if not KINDS[one.kind].inquiry}
            for side, found in self.made.items()
        }
        return PairEvidence(a, b, made)


def evidence_for(a: RecordedRun, b: RecordedRun) -> PairEvidence:
    """Look for the experiments of a pair. They lie beside the reference; those of a run from elsewhere are
    not known."""
    folder = EvidenceFolder.of(a)
    found = folder.of_pair(a.path.name, b.path.name)
    ours = {one: run for one, run in found.items() if one.run == a.path.name}
    if a.path.parent != b.path.parent:
        return PairEvidence(a, b, {"a": {one: run for one, run in ours.items() if not one.reference}, "b": {}})
    theirs = {one: run for one, run in found.items() if one.run == b.path.name}
    localized = folder.path.glob(f"{b.path.name}-localized-{a.path.name}-*")
    bisected = folder.path.glob(f"{b.path.name}-parts-{a.path.name}-*.json")
    return PairEvidence(a, b, {"a": ours, "b": theirs}, tuple(sorted(localized)), tuple(sorted(bisected)))
