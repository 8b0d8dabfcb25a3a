"""Investigations written by hand: the runs, and the evidence that their experiments would leave beside them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from tests.harness.drift.recordings import Step, record

from numdrift.harness.drift.calibration import threshold_of_pair
from numdrift.harness.investigate.judging.judge import judge
from numdrift.harness.records.codec import json_text
from numdrift.harness.records.modes.mode_spec import parse_mode
from numdrift.harness.records.results.culprit import Culprit
from numdrift.harness.records.results.experiment import Experiment
from numdrift.harness.records.results.findings import PairFindings
from numdrift.harness.records.results.localization_record import write_localization
from numdrift.harness.records.run.run_config import RunConfig
from numdrift.harness.runs.recorded_run import RecordedRun, load_run
from numdrift.harness.runs.run_layout import EVIDENCE, MANIFEST, rank_folder
from numdrift.harness.tape.files.tensor_file import write_tensors

Event = Mapping[str, Any]

FAULT = threshold_of_pair(parse_mode("cpu"), parse_mode("compile")).fault
"""The score from which on compile drifts beyond rounding."""

INSPECT = threshold_of_pair(parse_mode("cpu"), parse_mode("compile")).inspect

NOISE = 2.0**-10
"""The rounding noise of each written loss and gradient."""

COUNT = 5
"""Steps of a written training."""

REPLAYS = 8

AGAIN = Experiment("again", "cpu")
MODE_AGAIN = Experiment("again", "compile")
FORCED = Experiment("forced", "compile", "cpu")


def training(count: int = COUNT, *, apart_from: int | None = None, by: float = 1e-7, **fields: Any) -> list[Step]:
    """Return steps, whose losses are apart from a step on."""
    return [
        Step(losses=(1.0 + (by if apart_from is not None and step >= apart_from else 0.0),), **fields)
        for step in range(count)
    ]


def changed(steps: Sequence[Step], since: int, **fields: Any) -> list[Step]:
    """Return the steps, with other fields from one of them on."""
    return [replace(step, **fields) if number >= since else step for number, step in enumerate(steps)]


def resynced(steps: Iterable[int]) -> list[Event]:
    """Return the events of a run that began these steps in the reference's state."""
    return [{"event": "resynced", "step": step, "missing": []} for step in steps]


@dataclass(frozen=True)
class Outcome:
    """The outcome of a step: `z` is how many noises its loss is away from that of the reference, `counter` an integer
    buffer."""

    z: float = 0.0
    counter: int = 1
    loss: float | None = None

    def tensors(self) -> dict[str, torch.Tensor]:
        loss = 1.0 + self.z * NOISE if self.loss is None else self.loss
        return {
            "loss 0": torch.tensor(loss),
            "gradient 0 w": torch.tensor([0.5, 0.25]),
            "buffer n": torch.tensor([self.counter]),
        }


def noise_record(step: int, *, flips: int = 0, replays: int = REPLAYS, edge: float = 0.0, **more: Any) -> Event:
    """Return what a tape leaves; with an `edge`, stronger rounding has moved the loss by so many noises."""
    reach = {"reach": edge * NOISE}
    return {
        "schema": 1,
        "step": step,
        "replays": replays,
        "equal": True,
        "differs": [],
        "reason": None,
        "edge": {"replays": 16, "strength": 16.0} if edge else None,
        "tensors": {
            "loss 0": {"rms": NOISE, "flips": 0, "norm": 1.0, **reach},
            "gradient 0 w": {"rms": NOISE, "flips": 0, "norm": 0.559},
            "buffer n": {"rms": 0.0, "flips": flips, "norm": 0.0},
        },
        **more,
    }


UNREPLAYED: Mapping[str, Any] = {"equal": False, "replays": 0, "reason": "an op draws"}
"""The noise of a step whose tape did not give its bits again."""


@dataclass
class Study:
    """The folder of an investigation."""

    folder: Path
    specs: dict[str, str] = field(default_factory=dict)

    def run(
        self, spec: str, steps: Sequence[Step], *, rank: int = 0, events: Sequence[Event] = (), **manifest: Any
    ) -> RecordedRun:
        """Write the run of a mode, or of one of its ranks."""
        name = parse_mode(spec).name
        self.specs[name] = spec
        path = rank_folder(self.folder / name, rank)
        return self._write(path, spec, steps, name, events, rank=rank, **manifest)

    def make(
        self,
        experiment: Experiment,
        steps: Sequence[Step],
        outcomes: Mapping[int, Outcome] | None = None,
        *,
        noises: Iterable[Event] = (),
        states: Iterable[int] = (),
        events: Sequence[Event] = (),
        rank: int = 0,
        spec: str = "",
        **manifest: Any,
    ) -> RecordedRun:
        """Write the run of an experiment with these outcomes of steps."""
        path = rank_folder(self.folder / EVIDENCE / experiment.name, rank)
        spec = spec or self.specs[experiment.run]
        run = self._write(path, spec, steps, experiment.name, events, rank=rank, experiment=experiment, **manifest)
        for step, outcome in (outcomes or {}).items():
            self.put(path / "outcomes" / f"outcome-{step:06d}.safetensors", outcome.tensors(), step)
        for noise in noises:
            (path / "tapes").mkdir(exist_ok=True)
            (path / "tapes" / f"noise-{noise['step']:06d}.json").write_text(json.dumps(noise))
        for step in states:
            self.put(path / "states" / f"state-{step:06d}.safetensors", {"parameter w": torch.ones(2)}, step)
        return run

    def localize(self, step: int, *, run: str = "compile", **content: Any) -> None:
        """Write the result of taking a step apart."""
        folder = self.folder / EVIDENCE / Experiment("localized", run, "cpu", step).name
        folder.mkdir(parents=True, exist_ok=True)
        write_localization(folder, {"schema": 1, "step": step, "tests": 3, "culprits": [], **content})

    @staticmethod
    def put(path: Path, tensors: dict[str, torch.Tensor], step: int) -> None:
        path.parent.mkdir(exist_ok=True)
        write_tensors(path, tensors, {"step": step})

    @staticmethod
    def _write(
        path: Path, spec: str, steps: Sequence[Step], name: str, events: Sequence[Event], **manifest: Any
    ) -> RecordedRun:
        mode = replace(parse_mode(spec), name=name)
        run = record(path, steps, said=events, label=name, **{"spec": str(mode), **manifest})
        config = RunConfig(script="train.py", mode=mode, journal=str(path / "journal"))
        (path / "config.json").write_text(json_text(config), encoding="utf-8")
        replace(run.manifest, steps=len(steps)).write(path / MANIFEST)
        return load_run(path)


def compared_study(
    folder: Path,
    scores: Mapping[int, float | Outcome],
    *,
    noises: Sequence[Event] | None = None,
    free: Sequence[Step] | None = None,
    reference: Sequence[Step] | None = None,
    control: Sequence[Step] | None = None,
    mode_control: Sequence[Step] | None = None,
    spec: str = "compile",
    **manifest: Any,
) -> tuple[Study, list[RecordedRun]]:
    """Write a reference, a mode whose losses are apart from step 1 on, their repetitions, and the steps that the mode
    began in the reference's state with these scores; the noise is that of the tape of step 0. The fields of the
    manifest are those of the mode's run."""
    study = Study(folder)
    reference = training() if reference is None else reference
    free = training(apart_from=1) if free is None else free
    runs = [study.run("cpu", reference), study.run(spec, free, **manifest)]
    outcomes = {step: score if isinstance(score, Outcome) else Outcome(score) for step, score in scores.items()}
    noises = [noise_record(0)] if noises is None else noises
    kept = {*outcomes, *(int(noise["step"]) for noise in noises)}
    study.make(AGAIN, reference if control is None else control, dict.fromkeys(sorted(kept), Outcome()), noises=noises)
    study.make(Experiment("again", runs[1].path.name), free if mode_control is None else mode_control)
    forced = Experiment("forced", runs[1].path.name, "cpu")
    study.make(forced, free, outcomes, events=resynced(outcomes))
    return study, runs


BEYOND: Mapping[int, float] = {0: 0.5, 1: 2.0, 2: 40.0, 3: 90.0, 4: 1.0}
"""Scores of a fault that shows in steps 2 and 3."""


HARMLESS: Mapping[int, float] = {0: 0.5, 1: 2.0, 2: 3.0, 3: 1.0, 4: 0.25}


KERNEL: Mapping[str, Any] = {
    "kind": "kernel",
    "status": "culprit",
    "op": "aten.mm",
    "phase": "forward",
    "proof": {
        "swap_in": {"holds": True, "score_before": 0.0, "score_after": 90.0},
        "swap_out": {"holds": True, "score_before": 90.0, "score_after": 0.0, "score_without_all": 0.0},
    },
}


def only_pair(runs: Sequence[RecordedRun], step: int | None = None) -> PairFindings:
    (pair,) = judge(runs, step).pairs
    return pair


def in_text(pair: PairFindings, *fragments: str) -> bool:
    return all(fragment in "\n".join(pair.text) for fragment in fragments)


def in_notes(pair: PairFindings, *fragments: str) -> bool:
    return all(any(fragment in note for note in pair.notes) for fragment in fragments)


def culprits(*contents: Mapping[str, Any]) -> list[Culprit]:
    return [Culprit.from_json(content) for content in contents]
