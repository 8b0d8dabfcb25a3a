"""A comparison of two recorded runs: losses at every step, parameters at the last step for which both kept them.

The results are distances. This module does not decide whether they exceed rounding.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace

from ..errors import JournalError, RunNotFound, UsageError
from ..records.run.step_files import OF_SCRIPT
from ..runs.loss_spikes import left_out, spikes_of
from ..runs.recorded_run import RecordedRun
from ..runs.step_outcomes import read_state, state_steps
from .loss_distance import LossDrift, loss_drift
from .parameter_distance import ParameterComparison, parameter_drift
from .recorded_drift import common_digests, cut_short, differing_tensors
from .ulp import NAN_DISTANCE

SCHEMA = 1


@dataclass(frozen=True, slots=True)
class TensorDifference:
    """The first recorded tensor whose bits differ. `what` is "value" or "gradient"."""

    step: int
    tensor: str
    what: str


@dataclass(frozen=True, slots=True)
class RunComparison:
    """The comparison of run b with run a, the reference.

    first_tensor: the first tensor whose digests differ
    parameters_step: the last step for which both runs kept the parameters
    parameters: the distances at that step; None if a run did not keep the parameters
    whole_batch: true if several ranks were compared with a single process; their bits cannot be compared
    cut_short: the label of the run that has fewer steps because a limit in seconds ended it, "" if there is none
    """

    a: str
    b: str
    status_a: str
    status_b: str
    steps_a: int
    steps_b: int
    losses: LossDrift
    first_tensor: TensorDifference | None
    digest_steps: int
    parameters_step: int | None
    parameters: ParameterComparison | None
    notes: Sequence[str]
    whole_batch: bool = False
    cut_short: str = ""

    @property
    def common_steps(self) -> int:
        """The number of steps that both runs have."""
        return min(self.steps_a, self.steps_b)

    @property
    def first_differing_step(self) -> int | None:
        """The first step in which a loss, a gradient or a value differs."""
        first_steps = [self.losses.first_differing_step, self.first_tensor.step if self.first_tensor else None]
        return min((step for step in first_steps if step is not None), default=None)

    @property
    def identical(self) -> bool:
        """True if everything that both runs recorded is equal, and both recorded the same steps.

        If a run was cut short, only the steps that both runs have are compared.
        """
        return (
            not self.whole_batch
            and (self.steps_a == self.steps_b or bool(self.cut_short))
            and self.losses.first_differing_step is None
            and self.first_tensor is None
            and not (self.parameters and any(drift.differing for drift in self.parameters.drifts))
        )

    def to_json(self) -> dict[str, object]:
        """Return the comparison as plain values."""
        content = asdict(self) | {"identical": self.identical}
        seldom = ("whole_batch", "cut_short")
        return {key: value for key, value in content.items() if value or key not in seldom}


def compare_runs(a: RecordedRun, b: RecordedRun, ignored: Collection[str] | None = None) -> RunComparison:
    """Compare two runs; a is the reference. Raises UsageError if one of them has no step.

    If all that a run always records is equal, the values that only the scripts know are compared, too, except for those
    that are `ignored` because they do not repeat, such as a time. With None, none of them are compared.
    """
    for run in (a, b):
        if not run.journal.steps:
            raise UsageError(f"{run.path} has no recorded step ({run.manifest.status}): {reason_without_steps(run)}")
    first, compared = _first_tensor(a, b)
    if first is None and ignored is not None:
        first = _first_of_script(a, b, ignored)
    common = set(a.journal.value_steps) & set(b.journal.value_steps)
    step = max(common) if common else None
    notes = []
    short = cut_short(a, b)
    if short is not None:
        count = len(short.journal.steps)
        seconds = short.journal.limits.get("max_seconds")
        why = "as many steps as the run that it repeats" if seconds is None else f"{seconds:g} s (--max-seconds)"
        notes.append(f"only the {count:,} common steps are compared: {short.manifest.label} was ended after {why}")
    for run in (a, b):
        if run.manifest.failed:
            notes.append(f"{run.manifest.label} has the status {run.manifest.status}: {run.manifest.message}")
        if run.journal.damage:
            notes.append(run.journal.damage)
        if count := left_out(run.journal):
            notes.append(
                f"{run.manifest.label} left out the details of {count:,} of {len(run.journal.steps):,} steps "
                "(--overhead): those that both runs have are compared"
            )
        for spike in spikes_of(run.journal):
            steps = f"{spike.first}-{spike.last}"
            notes.append(f"{run.manifest.label} recorded steps {steps} in detail because {spike.text}")
    if a.manifest.script_sha256 != b.manifest.script_sha256:
        notes.append(f"the runs executed different scripts: {a.manifest.reproducer} and {b.manifest.reproducer}")
    if a.manifest.revision != b.manifest.revision:
        notes.append(f"the runs trained different revisions: {_revision(a)} and {_revision(b)}")
    if list(a.manifest.arguments) != list(b.manifest.arguments):
        notes.append(f"the script's arguments differ: {_joined(a)} and {_joined(b)}")
    if step is None:
        notes.append("no step has the parameters of both runs (--record params or above records them)")
    return RunComparison(
        a=a.manifest.label,
        b=b.manifest.label,
        status_a=a.manifest.status,
        status_b=b.manifest.status,
        steps_a=len(a.journal.steps),
        steps_b=len(b.journal.steps),
        losses=loss_drift(*_losses(a), *_losses(b)),
        first_tensor=first,
        digest_steps=compared,
        parameters_step=step,
        parameters=None if step is None else _parameters(a, b, step),
        notes=notes,
        cut_short="" if short is None else short.manifest.label,
    )


def _first_of_script(a: RecordedRun, b: RecordedRun, ignored: Collection[str]) -> TensorDifference | None:
    """Return the first value that only the scripts know and whose bits differ in the states that both runs kept.

    The step is the one that left the value behind. Such values are compared because runs with equal losses, gradients
    and parameters may still differ in what a script computes beside them, such as an evaluation.
    """
    for step in sorted({*state_steps(a.path)} & {*state_steps(b.path)} - {0}):
        with suppress(JournalError, RunNotFound):
            left, right = read_state(a.path, step).tensors, read_state(b.path, step).tensors
            for name in (key for key in left if key.startswith(OF_SCRIPT) and key in right and key not in ignored):
                of_a, of_b = left[name], right[name]
                if of_a.shape == of_b.shape and of_a.dtype == of_b.dtype and of_a.tobytes() != of_b.tobytes():
                    return TensorDifference(step - 1, name, "value")
    return None


def reason_without_steps(run: RecordedRun) -> str:
    """Say why a run may have recorded no step."""
    if run.manifest.status == "complete" and not run.manifest.message:
        return (
            "a step ends with an optimizer's step(), and no such call was seen (`numdrift check` compares the calls of "
            "a script that does not train)"
        )
    return run.manifest.message or f"see {run.path / 'stderr.log'}"


def _losses(run: RecordedRun) -> tuple[list[int], list[float | None]]:
    return [record.step for record in run.journal.steps], [record.loss for record in run.journal.steps]


def _first_tensor(a: RecordedRun, b: RecordedRun) -> tuple[TensorDifference | None, int]:
    """Return the first differing tensor, and the number of steps for which both runs have digests."""
    compared = len({*a.journal.digest_steps()} & {*b.journal.digest_steps()})
    for step, digests_a, digests_b in common_digests(a.journal, b.journal):
        for what, name in differing_tensors(digests_a, digests_b):
            return TensorDifference(step, name, what), compared
    return None, compared


def _parameters(a: RecordedRun, b: RecordedRun, step: int) -> ParameterComparison:
    left, right = a.journal.values(step), b.journal.values(step)
    compared = parameter_drift(left, right)
    dtypes_a, dtypes_b = a.journal.dtypes(), b.journal.dtypes()
    brain = {name for name in left if dtypes_a.get(name) == dtypes_b.get(name) == "bfloat16"}
    drifts = []
    for drift in compared.drifts:
        if drift.name in brain and drift.max_ulp is not None:
            # NumPy lacks bfloat16. These are float32 whose lower halves are zero: 2**16 of their steps are one step.
            steps = drift.max_ulp if drift.max_ulp == NAN_DISTANCE else drift.max_ulp >> 16
            of_largest = None if drift.scale_ulp is None else drift.scale_ulp / 2**16
            drift = replace(drift, dtype="bfloat16", max_ulp=steps, scale_ulp=of_largest)
        drifts.append(drift)
    return replace(compared, drifts=tuple(drifts))


def _revision(run: RecordedRun) -> str:
    return run.manifest.revision[:12] or "the files as they are"


def _joined(run: RecordedRun) -> str:
    return " ".join(run.manifest.arguments) or "(none)"
