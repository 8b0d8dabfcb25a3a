"""The noise of steps that cannot be replayed: measured by runs of the script that begin them one ULP off.

Each of these runs keeps an outcome per step, as large as the training's state. Once the noise has been measured from
the outcomes, it is all that is read of them, so it takes their place in the first run's folder.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, replace

from ...drift.step_noise import Noise, read_noise
from ...errors import JournalError
from ...records.run.step_files import write_noise_record
from ...runs.mapped_tensors import TensorFile
from ...runs.step_outcomes import NOISE_SCHEMA, noise_path, outcome_path, outcome_steps, read_outcome
from .pair_evidence import PairEvidence
from .same_state_steps import reference_outcomes


def noise_of_reruns(evidence: PairEvidence, step: int, values: TensorFile) -> Noise:
    """Return the noise of a step whose undisturbed outcome is `values`. Raises JournalError."""
    reruns = evidence.several("a", "ulp")
    kept = read_noise(reruns[0].path, step) if reruns else None
    if kept is not None:
        return replace(kept, taped=False)
    moved = [read_outcome(rerun.path, step) for rerun in reruns if step in outcome_steps(rerun.path)]
    return Noise.from_runs(step, values, moved)


def keep_noise_of_reruns(evidence: PairEvidence) -> None:
    """Write the noise of each step, and remove the outcomes from which it was measured. A failure leaves them."""
    reruns, outcomes = evidence.several("a", "ulp"), reference_outcomes(evidence)
    for step in {step for rerun in reruns for step in outcome_steps(rerun.path)} & outcomes.keys():
        path = noise_path(reruns[0].path, step)
        with suppress(JournalError, OSError):
            if not path.exists():
                noise = noise_of_reruns(evidence, step, read_outcome(outcomes[step].path, step))
                path.parent.mkdir(exist_ok=True)
                tensors = {name: asdict(tensor) for name, tensor in noise.tensors.items()}
                facts = {"schema": NOISE_SCHEMA, "step": step, "replays": noise.replays, "equal": True}
                write_noise_record(path, facts | {"tensors": tensors})
            for rerun in reruns:
                outcome_path(rerun.path, step).unlink(missing_ok=True)
