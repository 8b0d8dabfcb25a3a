"""The request for an investigation, its modes, and the recorded runs that it starts from."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar, Literal, get_args

from ...drift.verdict import SAME_DRAWS
from ...errors import UsageError
from ...launch.training_request import TrainingOptions, TrainingRequest
from ...records.modes.mode_spec import ModeSpec
from ...records.run.run_request import LEVELS
from ...records.run.step_selection import StepSelection
from ...records.run.user_option import MEBIBYTE, in_bytes, numbered, option, positive_seconds
from ...runs.recorded_run import RecordedRun, find_investigation, runs_with_suffixes

DEFAULT_STATE_BUDGET = 1 << 30
"""The disk space, in bytes, for the states and outcomes of the reference. Each mode whose steps start from these states
may use as much again."""


def compared_modes(specs: Sequence[ModeSpec], *, alone: bool = False) -> list[ModeSpec]:
    """Return the modes of an investigation; they draw eager's random numbers unless their specifications say otherwise.

    Raises UsageError for a single mode, unless it is compared with itself in a different number of processes.
    """
    if len(specs) < 2 and not alone:
        raise UsageError(f"an investigation needs a reference and a mode to compare with it, not only {specs[0]}")
    # The generators of Inductor and torch_xla draw numbers that differ from eager's, and the generators of two devices
    # differ as well. Without the settings below, that would be a difference in the set-up.
    apart = on_two_devices(specs)
    modes = []
    for spec in specs:
        if apart and spec.accelerator is not None and spec.draws is None:
            spec = replace(spec, draws="cpu")
        unstated = spec.fallback_random is None and draws_its_own(spec)
        modes.append(replace(spec, fallback_random="on") if unstated else spec)
    return modes


def draws_its_own(spec: ModeSpec) -> bool:
    """Check whether a mode draws random numbers that differ from those of eager mode."""
    return bool(spec.capabilities.draws_as) and spec.fallback_random != "on" and spec.draws != "cpu"


def on_two_devices(specs: Sequence[ModeSpec]) -> bool:
    """Check whether these modes do not all run on the same kind of device."""
    return len({(spec.accelerator or "cpu").partition(":")[0] for spec in specs}) > 1


def remedy_of_draws(specs: Sequence[ModeSpec]) -> str:
    """Name the options that make modes with different random numbers draw the same numbers."""
    others = [spec for spec in specs if spec.accelerator is not None and spec.draws != "cpu"]
    if others and on_two_devices(specs):
        names = " and ".join(str(replace(spec, draws="cpu")) for spec in others)
        return f"each device draws its own numbers: run {names}, or `numdrift investigate`, which sets draws=cpu itself"
    own = [f"run {spec.capabilities.draws_as} with fallback_random=on" for spec in specs if draws_its_own(spec)]
    ways = [*SAME_DRAWS, *own[:1]]
    return f"{', '.join(ways[:-1])} and {ways[-1]}"


def sentence_of_draws(specs: Sequence[ModeSpec]) -> str:
    """Name the modes that draw the CPU's random numbers; "" if none does."""
    drawing = [spec.name for spec in specs if spec.draws == "cpu" and spec.accelerator is not None]
    if not drawing:
        return ""
    draw = "draws" if len(drawing) == 1 else "draw"
    why = "because the modes run on different devices"
    return f"{' and '.join(drawing)} {draw} the CPU's random numbers (draws=cpu), {why}"


Localized = Literal["all", "faults", "none"]
"""The pairs whose causes are searched for: every pair that differs, pairs beyond rounding, or none."""


def localized_pairs(pairs: bool | str) -> str:
    """Return the option `localize` as a word: "all" for True, "none" for False."""
    if isinstance(pairs, bool):
        return "all" if pairs else "none"
    if pairs not in get_args(Localized):
        raise UsageError(f"localize={pairs!r} must be 'all', 'faults', 'none', True or False")
    return pairs


@dataclass(frozen=True, slots=True, kw_only=True)
class InvestigationRequest(TrainingRequest):
    """The options of an investigation, whose first run is the reference.

    `script` may be the folder of a recorded investigation. Without `modes`, cpu and compile are compared.
    """

    OF_RUN: ClassVar[Sequence[str]] = ("graphs", "max_steps", "max_seconds", "keep_files", "in_place")

    name: str | None = option(
        None,
        "Name of the investigation (default: the script's name, with a number if that name is taken). An existing "
        "investigation of this name is continued.",
    )
    suffix: str | None = option(
        None, "If SCRIPT is a recorded investigation: the tag of the batch to use (default: the newest).", metavar="TAG"
    )
    steps: StepSelection | None = option(
        None,
        "Steps to start from the reference's state, as in 0,5,10-19 (default: chosen by numdrift).",
        numbered,
        metavar="LIST",
    )
    envelope: int = option(
        0,
        "Train the reference N times from initial parameters that are one ULP off, to get the envelope of its loss "
        "curve (8 is usual).",
        least=0,
        metavar="N",
    )
    seeds: int = option(
        0,
        "Train every mode with N seeds, to test whether one mode consistently needs more steps than another to reach "
        "the same loss (12 is usual; fewer than 10 prove nothing).",
        least=0,
        metavar="N",
    )
    state_budget: int = option(
        DEFAULT_STATE_BUDGET,
        "Disk space for the states of each mode's steps. If the space is small, fewer steps are chosen.",
        in_bytes,
        written=DEFAULT_STATE_BUDGET / MEBIBYTE,
        least=0,
        metavar="MIB",
        shows_default=True,
    )
    against_single: bool = option(
        False,
        "With --nproc: the reference is the first mode in a single process, which trains on the whole batch at each "
        "step.",
    )
    jobs: int = option(2, "Maximum number of runs at the same time.", least=1, shows_default=True)
    against: Path | None = option(
        None,
        "Compare the modes with a reference that `numdrift reference` has packed, perhaps on another machine. No cause "
        "is looked for.",
        Path,
        kind=str,
        metavar="ARCHIVE",
    )
    localize: Localized = option(
        "all",
        "Find and prove the causes for all pairs of modes that differ (all), only for those that differ by more than "
        "rounding (faults), or for none (none).",
        localized_pairs,
        choices=get_args(Localized),
        shows_default=True,
    )
    budget: float | None = option(
        None,
        "Time in seconds, from the start of the command, after which the search for causes begins nothing new; 'none' "
        "for no limit (default: 4 times the first training runs plus 60, at least 300).",
        positive_seconds("--budget", "none"),
        metavar="SECONDS",
    )
    scripts: bool = option(
        True,
        "Write a standalone script for each culprit, and run it (default: yes).",
        flag="--scripts/--no-scripts",
    )
    confirm: bool = option(
        True,
        "Train each mode once more, to the end, with its culprits swapped out (default: yes).",
        flag="--confirm/--no-confirm",
    )
    knobs: bool = option(
        False,
        "Always look for the compiler stage and setting that cause the drift (default: only if no op is proven to "
        "cause it).",
    )
    partition_bisect: bool = option(
        False,
        "Also find the ops that carry the drift by running smaller and smaller parts of the model on the mode's "
        "backend, and the rest on the CPU.",
    )
    poison: bool = option(
        False,
        "Also look for reads of memory that no op has written, by filling such memory with two different numbers.",
    )
    step: int | None = None
    """The step in which `numdrift localize` looks for causes; None: the first significant one."""


class InvestigationOptions(TrainingOptions, total=False):
    """The users' options of an `InvestigationRequest` by their names in Python."""

    suffix: str | None
    steps: str | None
    envelope: int
    seeds: int
    state_budget: float
    graphs: bool
    against_single: bool
    against: Path | str | None
    max_steps: int | None
    max_seconds: float | None
    keep_files: bool
    in_place: bool
    localize: bool | Localized
    budget: float | str | None
    scripts: bool
    confirm: bool
    knobs: bool
    partition_bisect: bool
    poison: bool


def recorded_runs(out: Path, folder: Path, suffix: str | None) -> list[RecordedRun]:
    """Return one batch of an investigation's runs, the reference first: the runs with this suffix or, without a suffix,
    the newest batch.

    Raises UsageError, which names the missing flag, if these runs cannot be investigated.
    """
    path = find_investigation(out, str(folder), suffixes=[suffix] if suffix else [])
    runs = runs_with_suffixes(path, [] if suffix is None else [suffix])
    # A folder may contain several batches, the oldest first; the last run in the list belongs to the newest batch.
    newest = suffix if suffix is not None else runs[-1].manifest.suffix
    runs = [run for run in runs if run.manifest.suffix == newest]
    if len(runs) < 2:
        raise UsageError(f"{path} has only one run, so there is nothing to compare; run another mode")
    for run in runs:
        require_parameters(run)
    return runs


def require_parameters(run: RecordedRun) -> None:
    """Raise UsageError if the run cannot be repeated or lacks the records that a verdict needs."""
    if run.manifest.in_process:
        raise UsageError(
            f"{run.path} was recorded within a running process, which cannot be repeated: put the training into a "
            "script and investigate that, or compare the recorded runs"
        )
    if LEVELS.index(run.manifest.record) < LEVELS.index("params"):
        raise UsageError(
            f"{run.path} was recorded with --record {run.manifest.record}, but a verdict needs --record params: "
            "run it again with --record params"
        )


def pair_to_localize(a: RecordedRun, b: RecordedRun) -> list[RecordedRun]:
    """Return the two runs. Raises UsageError if they belong to different investigations or cannot be investigated."""
    if a.path.parent != b.path.parent or a.path == b.path:
        raise UsageError(
            f"{a.path} and {b.path} are not two runs of one investigation: name two runs in the same folder"
        )
    for run in (a, b):
        require_parameters(run)
    return [a, b]
