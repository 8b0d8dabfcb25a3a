"""The rows of `numdrift view`: investigations, their answers, and the current state of their runs."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ..errors import NumdriftError
from ..records.codec import Unreadable
from ..records.results.findings import INVESTIGATION, Findings
from ..runs.recorded_run import RecordedRun, investigations, runs_in
from .answer import answers_of

TONES = {"complete": "good", "running": "look"}
"""The tone of a run's status. A status that is not listed means that the run went wrong."""


@dataclass(frozen=True, slots=True)
class RunRow:
    """A run in the list.

    path: the run's path, relative to the folder that is viewed
    spec: the run's mode as the user wrote it
    drift: the largest relative difference between one of its losses and the first run's loss in the same step; None for
        the first run itself, and if no step has a loss in both runs
    graphs: whether the run recorded graphs
    """

    path: str
    mode: str
    spec: str
    swaps: str
    suffix: str
    status: str
    tone: str
    message: str
    steps: int
    loss: float | None
    drift: float | None
    seconds: float
    started: str
    graphs: bool


@dataclass(frozen=True, slots=True)
class InvestigationRow:
    """An investigation and its runs.

    `answers` contains the tone and the sentence of each pair's answer. It is empty if nothing was investigated.
    """

    name: str
    script: str
    answers: Sequence[tuple[str, str]]
    runs: Sequence[RunRow]

    @property
    def matrix(self) -> tuple[Sequence[str], Sequence[tuple[str, Sequence[RunRow | None]]]]:
        """The runs as a table. Each mode is a column; each combination of swapped kernels and suffix is a row."""
        modes = list(dict.fromkeys(run.spec.partition(",")[0] for run in self.runs))
        kinds = list(dict.fromkeys((run.swaps, run.suffix) for run in self.runs))
        rows = []
        for swaps, suffix in kinds:
            own = [run for run in self.runs if (run.swaps, run.suffix) == (swaps, suffix)]
            cells = [next((run for run in own if run.spec.partition(",")[0] == mode), None) for mode in modes]
            rows.append((", ".join(part for part in (suffix, swaps) if part) or "no swaps", cells))
        return modes, rows


def listed(folder: Path) -> Iterator[InvestigationRow]:
    """Yield every investigation in a folder, the newest first.

    If the findings of an investigation cannot be read, its only answer says so.
    """
    for investigation in investigations(folder):
        runs = runs_in(investigation)
        if not runs:
            continue
        answers: list[tuple[str, str]] = []
        try:
            findings = Findings.from_json(json.loads((investigation / INVESTIGATION).read_text(encoding="utf-8")))
            answers = [
                ("look" if pair.inspect else "good" if answer.good else "bad", answer.sentence)
                for pair, answer in answers_of(findings)
            ]
        except FileNotFoundError:
            pass  # the modes were run, but the runs were not investigated
        except (OSError, ValueError, Unreadable, RecursionError) as error:
            answers = [("person", f"its findings cannot be read: {error}")]
        script = Path(runs[0].manifest.reproducer).name
        rows = [_row(run, runs[0], folder) for run in runs]
        yield InvestigationRow(investigation.name, script, answers, rows)


def _row(run: RecordedRun, first: RecordedRun, folder: Path) -> RunRow:
    manifest = run.manifest
    try:
        losses, reference_losses = run.journal.losses, {step.step: step.loss for step in first.journal.steps}
        pairs = [(reference_losses.get(step.step), step.loss) for step in run.journal.steps]
    except NumdriftError:
        losses, pairs = [], []
    apart = [abs(b - a) / abs(a) for a, b in pairs if a and b is not None and math.isfinite(a) and math.isfinite(b)]
    swaps = [part for part in manifest.spec.split(",")[1:] if part.startswith(("kernel.", "decompose.", "env."))]
    return RunRow(
        path=run.path.relative_to(folder).as_posix(),
        mode=manifest.mode,
        spec=manifest.spec.partition("=")[2] if manifest.spec.startswith(f"{manifest.mode}=") else manifest.spec,
        swaps=", ".join(swaps),
        suffix=manifest.suffix,
        status=manifest.status,
        tone=TONES.get(manifest.status, "bad"),
        message=manifest.message,
        steps=len(run.journal.steps),
        loss=losses[-1] if losses else None,
        drift=None if run.path == first.path else max(apart, default=None),
        seconds=manifest.seconds,
        started=manifest.started,
        graphs=(run.path / "graphs").is_dir(),
    )
