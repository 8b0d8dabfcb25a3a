"""Where the experiments of an investigation leave what they found, and what of it is there for a pair of runs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..errors import NumdriftError
from ..runs.recorded_run import RecordedRun, load_run
from ..runs.run_layout import EVIDENCE


@dataclass(frozen=True, slots=True)
class EvidenceFolder:
    """The folder beside the runs of an investigation that holds the runs of its experiments, by their names."""

    path: Path

    @classmethod
    def of(cls, run: RecordedRun) -> EvidenceFolder:
        return cls(run.path.parent / EVIDENCE)

    def find(self, name: str) -> RecordedRun | None:
        """The experiment's run, None when it was not made, cannot be read, or has not ended."""
        try:
            run = load_run(self.path / name)
        except NumdriftError:
            return None
        return None if run.manifest.status == "running" else run

    def belonging_to(self, run: RecordedRun) -> list[Path]:
        """The folders and pickles of the experiments with this run."""
        own = re.escape(run.path.name)
        placed = "held|localized|cut|set|onset|parts"
        kinds = rf"-(again|(from|without|{placed})-.+|(tape|tape-at|ulp|perturbed|seed)-\d+)"
        name = re.compile(rf"(verify_)?({own}{kinds}|.+-(from|without)-{own}|.+-({placed})-{own}-.+)(\.pkl)?")
        return [path for path in self.path.glob("*") if name.fullmatch(path.name)]

    def numbered(self, stem: str) -> list[RecordedRun]:
        """The runs `STEM-0`, `STEM-1` and so on, in their order."""
        found = [path.name.removeprefix(f"{stem}-") for path in self.path.glob(f"{stem}-*")]
        runs = [
            self.find(f"{stem}-{number}") for number in sorted(int(one) for one in found if one.isdigit())
        ]
        return [run for run in runs if run is not None]


def again(run: RecordedRun) -> str:
    """The name of the run's repetition; that of the reference holds its states, outcomes and tapes."""
    return f"{run.path.name}-again"


def forced(run: RecordedRun, reference: RecordedRun) -> str:
    """The name of the run that starts chosen steps from the reference's state."""
    return f"{run.path.name}-from-{reference.path.name}"


def taped(run: RecordedRun) -> str:
    """The stem of further runs of the reference with tapes of single steps; the step's number follows."""
    return f"{run.path.name}-tape"


def taped_at(run: RecordedRun, step: int) -> str:
    """The name of a further run of the reference with a tape of this step, for a localization."""
    return f"{run.path.name}-tape-at-{step}"


def held(run: RecordedRun, reference: RecordedRun, step: int) -> str:
    """The name of the run that is held after it has taken the step from the reference's state."""
    return f"{run.path.name}-held-{reference.path.name}-{step}"


def onset(run: RecordedRun, other: RecordedRun) -> str:
    """The stem of a pair's further runs between its last step within rounding and its first beyond."""
    return f"{run.path.name}-onset-{other.path.name}"


def cut(run: RecordedRun, reference: RecordedRun, step: int, policy: str) -> str:
    """The name of a lazy run that takes the step from the reference's state with another mark-step policy."""
    return f"{run.path.name}-cut-{reference.path.name}-{step}-{policy}"


def variant(run: RecordedRun, reference: RecordedRun, step: int, name: str) -> str:
    """The name of a compiled run that takes the step from the reference's state with another stage or setting."""
    return f"{run.path.name}-set-{reference.path.name}-{step}-{name}"


def parts(run: RecordedRun, reference: RecordedRun, step: int, number: int | str) -> str:
    """The name of the reference's run in which chosen parts of the model take the step on the other mode's backend, and of the
    folder that has what came of all of these."""
    return f"{run.path.name}-parts-{reference.path.name}-{step}-{number}"


def without(run: RecordedRun, reference: RecordedRun) -> str:
    """The name of the whole training in the run's mode with its culprits swapped out."""
    return f"{run.path.name}-without-{reference.path.name}"


def perturbed_steps(run: RecordedRun) -> str:
    """The stem of the reference's runs whose steps start from its own states, moved by one ULP."""
    return f"{run.path.name}-ulp"


def perturbed(run: RecordedRun) -> str:
    """The stem of whole trainings of the reference whose initial parameters were moved by one ULP."""
    return f"{run.path.name}-perturbed"


def seeded(run: RecordedRun) -> str:
    """The stem of trainings of the run's mode with other seeds."""
    return f"{run.path.name}-seed"


@dataclass(frozen=True, slots=True)
class PairEvidence:
    """All that is there for one pair; `a` is the reference. None and empty where an experiment was not made."""

    a: RecordedRun
    b: RecordedRun
    a_again: RecordedRun | None
    b_again: RecordedRun | None
    forced: RecordedRun | None
    taped: tuple[RecordedRun, ...]
    perturbed_steps: tuple[RecordedRun, ...]
    perturbed: tuple[RecordedRun, ...]
    seeds: tuple[tuple[RecordedRun, RecordedRun], ...]
    localized: tuple[Path, ...] = ()
    onsets: tuple[tuple[RecordedRun, RecordedRun], ...] = ()
    variants: tuple[tuple[int, str, RecordedRun], ...] = ()
    parts: tuple[RecordedRun, ...] = ()
    bisected: tuple[Path, ...] = ()
    without: RecordedRun | None = None

    @property
    def started(self) -> list[RecordedRun]:
        """The other mode's runs whose steps start from the reference's state."""
        return [run for run in (self.forced, *(theirs for _, theirs in self.onsets)) if run is not None]

    @property
    def kept(self) -> list[RecordedRun]:
        """The reference's runs that keep states and outcomes."""
        return [*self.taped, *(ours for ours, _ in self.onsets)]

    @property
    def runs(self) -> int:
        """How many trainings there are for the pair."""
        alone = [self.a, self.b, self.a_again, self.b_again, self.forced, self.without]
        others = (
            *self.perturbed_steps,
            *self.perturbed,
            *self.taped,
            *(run for _, _, run in self.variants),
            *self.parts,
            *(run for pair in (*self.seeds, *self.onsets) for run in pair),
        )
        found = {run.path for run in (*alone, *others) if run is not None}
        return len(found) + len(self.localized)


def evidence_for(a: RecordedRun, b: RecordedRun) -> PairEvidence:
    """Look for the experiments of a pair. They lie beside the reference."""
    folder = EvidenceFolder.of(a)
    repeated = folder.find(again(a))
    same_place = a.path.parent == b.path.parent
    seeds_a = {run.path.name.rpartition("-")[2]: run for run in folder.numbered(seeded(a))}
    seeds_b = (
        {run.path.name.rpartition("-")[2]: run for run in folder.numbered(seeded(b))} if same_place else {}
    )
    onsets = zip(folder.numbered(onset(a, b)), folder.numbered(onset(b, a)), strict=False)
    return PairEvidence(
        a=a,
        b=b,
        a_again=repeated,
        b_again=folder.find(again(b)) if same_place else None,
        forced=folder.find(forced(b, a)) if same_place else None,
        taped=(*([repeated] if repeated else []), *folder.numbered(taped(a))),
        perturbed_steps=tuple(folder.numbered(perturbed_steps(a))),
        perturbed=tuple(folder.numbered(perturbed(a))),
        seeds=tuple((seeds_a[number], seeds_b[number]) for number in seeds_a if number in seeds_b),
        localized=tuple(sorted(folder.path.glob(f"{b.path.name}-localized-{a.path.name}-*")))
        if same_place
        else (),
        onsets=tuple(onsets) if same_place else (),
        variants=tuple(_variants(folder, a, b)) if same_place else (),
        parts=tuple(_parts(folder, a, b)) if same_place else (),
        bisected=tuple(sorted(folder.path.glob(f"{_start_of_parts(a, b)}*.json"))) if same_place else (),
        without=folder.find(without(b, a)) if same_place else None,
    )


def _variants(
    folder: EvidenceFolder, a: RecordedRun, b: RecordedRun
) -> Iterator[tuple[int, str, RecordedRun]]:
    """The steps that were taken with other stages and settings, and the names of these."""
    start = variant(b, a, 0, "").removesuffix("0-")
    for path in sorted(folder.path.glob(f"{start}*-*")):
        step, _, name = path.name.removeprefix(start).partition("-")
        run = folder.find(path.name) if step.isdigit() and path.is_dir() else None
        if run is not None:
            yield int(step), name, run


def _parts(folder: EvidenceFolder, a: RecordedRun, b: RecordedRun) -> Iterator[RecordedRun]:
    """The reference's runs with parts of the model on the other mode's backend."""
    for path in sorted(folder.path.glob(f"{_start_of_parts(a, b)}*-*")):
        run = folder.find(path.name) if path.is_dir() else None
        if run is not None:
            yield run


def _start_of_parts(a: RecordedRun, b: RecordedRun) -> str:
    return parts(b, a, 0, "").removesuffix("0-")
