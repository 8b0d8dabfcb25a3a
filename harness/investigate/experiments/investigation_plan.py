"""The plan of an investigation, and the recorded runs that it starts from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

from ...drift.verdict import SAME_DRAWS
from ...errors import UsageError
from ...records.modes.mode_spec import ModeSpec
from ...records.run.run_request import LEVELS
from ...records.run.step_selection import StepSelection
from ...runs.recorded_run import RecordedRun, find_investigation, runs_with_suffixes

DEFAULT_STATE_BUDGET = 1 << 30
"""The bytes of states and outcomes that the reference may keep, and the same again for each mode that starts from
them."""


def compared_modes(specs: Sequence[ModeSpec], *, alone: bool = False) -> list[ModeSpec]:
    """Return the modes of an investigation; they draw eager's random numbers unless they say otherwise.

    Raises UsageError for one mode alone, unless it is compared with itself in another number of processes.
    """
    if len(specs) < 2 and not alone:
        raise UsageError(f"an investigation needs a reference and a mode to compare with it, not {specs[0]} alone")
    # The generators of Inductor and torch_xla draw other numbers than eager's, and so do those of two devices. That
    # would be a difference in the set-up.
    apart = on_two_devices(specs)
    modes = []
    for spec in specs:
        if apart and spec.accelerator is not None and spec.draws is None:
            spec = replace(spec, draws="cpu")
        unstated = spec.fallback_random is None and draws_its_own(spec)
        modes.append(replace(spec, fallback_random="on") if unstated else spec)
    return modes


def draws_its_own(spec: ModeSpec) -> bool:
    """Check whether a mode draws random numbers of its own."""
    return bool(spec.capabilities.draws_as) and spec.fallback_random != "on" and spec.draws != "cpu"


def on_two_devices(specs: Sequence[ModeSpec]) -> bool:
    """Check whether these modes do not all run on the same kind of device."""
    return len({(spec.accelerator or "cpu").partition(":")[0] for spec in specs}) > 1


def remedy_of_draws(specs: Sequence[ModeSpec]) -> str:
    """Name the options with which modes that draw different random numbers draw the same ones."""
    others = [spec for spec in specs if spec.accelerator is not None and spec.draws != "cpu"]
    if others and on_two_devices(specs):
        names = " and ".join(str(replace(spec, draws="cpu")) for spec in others)
        return f"each device draws numbers of its own: run {names}, or `numdrift investigate`, which does so by itself"
    own = [f"run {spec.capabilities.draws_as} with fallback_random=on" for spec in specs if draws_its_own(spec)]
    ways = [*SAME_DRAWS, *own[:1]]
    return f"{', '.join(ways[:-1])} and {ways[-1]}"


def sentence_of_draws(specs: Sequence[ModeSpec]) -> str:
    """Name the modes that draw the CPU's random numbers; "" where none does."""
    drawing = [spec.name for spec in specs if spec.draws == "cpu" and spec.accelerator is not None]
    if not drawing:
        return ""
    draw = "draws" if len(drawing) == 1 else "draw"
    return f"{' and '.join(drawing)} {draw} the CPU's random numbers (draws=cpu): the modes run on two devices"


@dataclass(frozen=True, slots=True)
class InvestigationPlan:
    """The choices of an investigation of some runs, the first of which is the reference. A `BatchPlan` makes the runs
    that are not recorded yet.

    steps: the steps to start from the reference's state (None: chosen)
    envelope: the number of perturbed trainings of the reference
    seeds: the number of trainings of every mode with other seeds
    state_budget: the limit of the states and outcomes that are kept, in bytes
    localize: the pairs whose causes are looked for
    scripts: whether standalone scripts show the causes
    step: the step in which causes are looked for (None: chosen)
    knobs: whether compiled modes are also tried with other stages and settings of the compiler where the ops explain
        the drift
    partition_bisect: whether ever smaller parts of the model are put on the mode's backend, and the rest on the CPU
    confirm: whether a mode is trained once more to the end without its culprits
    against_single: whether the reference is the batch's first mode in one process, which takes the whole batch at each
        step
    """

    steps: StepSelection | None = None
    envelope: int = 0
    seeds: int = 0
    state_budget: int = DEFAULT_STATE_BUDGET
    localize: Literal["all", "faults", "none"] = "all"
    scripts: bool = True
    step: int | None = None
    knobs: bool = False
    partition_bisect: bool = False
    confirm: bool = True
    against_single: bool = False


def recorded_runs(out: Path, folder: Path, suffix: str | None) -> list[RecordedRun]:
    """Return the runs of one batch of an investigation, the reference first; without a suffix, those of its newest
    batch.

    Raises UsageError where they cannot be investigated, naming the flag that was missing.
    """
    path = find_investigation(out, str(folder), suffixes=[suffix] if suffix else [])
    runs = runs_with_suffixes(path, [] if suffix is None else [suffix])
    # A folder may hold several batches, one after the other; the last run of the list belongs to the newest.
    newest = suffix if suffix is not None else runs[-1].manifest.suffix
    runs = [run for run in runs if run.manifest.suffix == newest]
    if len(runs) < 2:
        raise UsageError(f"{path} holds one run, which has nothing to be compared with; run another mode")
    for run in runs:
        require_parameters(run)
    return runs


def require_parameters(run: RecordedRun) -> None:
    """Raise UsageError for a run that lacks the records that a verdict needs, or that cannot be repeated."""
    if run.manifest.in_process:
        raise UsageError(
            f"{run.path} was recorded within a running process, which cannot be repeated: put the training into a "
            "script and investigate that, or compare what is recorded"
        )
    if LEVELS.index(run.manifest.record) < LEVELS.index("params"):
        raise UsageError(
            f"{run.path} was recorded with --record {run.manifest.record}, and a verdict needs --record params: "
            "run it again with that"
        )


def pair_to_localize(a: RecordedRun, b: RecordedRun) -> list[RecordedRun]:
    """Return the two runs, which have to belong to one investigation. Raises UsageError."""
    if a.path.parent != b.path.parent or a.path == b.path:
        raise UsageError(
            f"{a.path} and {b.path} are not two runs of one investigation: the experiments lie beside them"
        )
    for run in (a, b):
        require_parameters(run)
    return [a, b]
