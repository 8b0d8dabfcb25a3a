"""The content of a run's export: for each step, its losses, the values that the script logged, and its time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from ...errors import JournalError
from ...runs.journal import StepRecord
from ...runs.recorded_run import RecordedRun
from ...runs.run_layout import MANIFEST


@dataclass(frozen=True, slots=True)
class ExportedRun:
    """One process of a run.

    name: the name of the run's folder, unique in the investigation; a rank other than 0 is appended
    facts: facts about the run, such as its script, mode and status, by name
    began, ended: seconds since 1970
    takes_turns: whether several optimizers take turns in ending steps that have losses, as in a GAN; each optimizer's
        losses are then separate curves
    """

    name: str
    mode: str
    suffix: str
    rank: int
    facts: Mapping[str, str]
    status: str
    began: float
    ended: float
    steps: Sequence[StepRecord]
    takes_turns: bool

    def scalars(self, step: StepRecord) -> dict[str, float]:
        """Return the numbers of a step by the names of their curves.

        If several optimizers take turns, the losses of each have their own curves: `optimizer_1/loss`.
        """
        turn = f"optimizer_{turn_of(step)}/" if self.takes_turns else ""
        losses = {f"{turn}{loss_name(place)}": loss for place, loss in enumerate(step.losses)}
        return losses | {logged_name(name): value for name, value in step.logged.items()} | {"seconds": step.seconds}


@dataclass(frozen=True, slots=True)
class Export:
    """The runs of an investigation, for a format that writes them.

    path: the file to create, or the new folder to write into
    place: the final path, to which `path` is moved once it is complete
    """

    investigation: str
    runs: Sequence[ExportedRun]
    path: Path
    place: Path


def exported(run: RecordedRun) -> ExportedRun:
    """Return the content of a run's export. Raises JournalError."""
    manifest, journal = run.manifest, run.journal
    try:
        began = datetime.fromisoformat(manifest.started).timestamp()
    except ValueError:
        raise JournalError(run.path / MANIFEST, f"{manifest.started!r} is not the start time of a run") from None
    facts = {
        "script": manifest.reproducer,
        "arguments": " ".join(manifest.arguments),
        "mode": manifest.spec,
        "suffix": manifest.suffix,
        "rank": f"{manifest.rank} of {manifest.world_size}",
        "status": manifest.status,
        "torch": str(manifest.environment.get("torch", "")),
        "script_sha256": manifest.script_sha256,
    }
    return ExportedRun(
        name=f"{run.path.parent.name}_{run.path.name}" if manifest.rank else run.path.name,
        mode=manifest.mode,
        suffix=manifest.suffix,
        rank=manifest.rank,
        facts={name: fact for name, fact in facts.items() if fact},
        status=manifest.status,
        began=began,
        ended=began + manifest.seconds,
        steps=journal.steps,
        takes_turns=len(journal.series()) > 1,
    )


def loss_name(place: int) -> str:
    """Return the name of a step's loss: `loss` for the first backward, `loss_1`, `loss_2` for further ones."""
    return f"loss_{place}" if place else "loss"


def logged_name(name: str) -> str:
    """Return the name of a logged value's curve. The name differs from those of all other curves."""
    return f"logged/{name}"


def turn_of(step: StepRecord) -> int:
    """Return the number of the optimizer that ended the step, counted from 1."""
    return (step.optimizer or 0) + 1  # steps of the first optimizer have no number until a second one exists
