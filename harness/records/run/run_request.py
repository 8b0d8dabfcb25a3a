"""The request for a run: one record that `numdrift run`, `numdrift.run`, the plan and the run's config share.

A new recording option is declared only in this module: as a field and, if users may set it, as a key of `RunOptions`.

    graphs: bool = option(False, "Capture each mode's graphs.")

This field provides `numdrift run --graphs`, `numdrift.run(graphs=True)`, `plan.graphs`, `config.graphs` and
`"graphs": true` in config.json. Then write the observer that acts on the option."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypedDict

from ...errors import UsageError
from .call_subject import CallSubject
from .step_selection import KeepParams, StepSelection
from .user_option import MEBIBYTE, in_bytes, option, positive_seconds, read_options, selection, share, step_count

Level = Literal["losses", "params", "ops", "tensors"]

LEVELS: tuple[Level, ...] = ("losses", "params", "ops", "tensors")
"""The levels of detail with which a step can be recorded. Each level includes the levels before it."""

DEFAULT_VALUE_BUDGET = 256 * MEBIBYTE
"""The number of bytes of parameter values that a run keeps before it drops every second step's values."""

NOISE_REPLAYS = 8
"""The number of replays with random rounding that measure a step's noise.

The study behind this number found no false positives with 8 replays or more."""

FIRST_STEPS = StepSelection(((0, 1),))
"""The steps whose graphs are captured by default. Their graphs differ if an optimizer creates its state in step 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """The recorded content of a run, and the changes to its training.

    The options of users come first, in the order of `numdrift run --help`, each with its help. The other fields belong
    to experiments and to the tools that observe a run. A selection of steps that is None selects no step, unless stated
    otherwise.
    """

    record: str = option(
        "params",
        "Level of detail; each level includes the levels before it. params: values of parameters, and digests of "
        "parameters and gradients; ops: a digest of every op's output; tensors: the outputs themselves.",
        choices=LEVELS,
        shows_default=True,
    )
    steps: StepSelection = option(
        StepSelection(),
        "Steps to record in detail, as in 0,5,10-19 (default: all). 0-99,100-/100,spikes records the first 100 steps, "
        "then each 100th, and the steps around each spike of the loss.",
        StepSelection.parse,
        written="",
        metavar="LIST",
    )
    overhead: float | None = option(
        None,
        "Record the details of fewer steps where recording takes more than this share of the training's time, as in "
        "3%. The losses of all steps are recorded.",
        share("--overhead"),
        metavar="PERCENT",
    )
    keep_params: KeepParams = option(
        KeepParams(),
        "Steps whose parameter values are kept: all, last or every=N.",
        KeepParams.parse,
        written="all",
        metavar="POLICY",
    )
    value_budget: int = option(
        DEFAULT_VALUE_BUDGET,
        "Disk space for a run's parameter values, in its journal and its pickle together. When the space is used up, "
        "the values of every second step are dropped.",
        in_bytes,
        written=DEFAULT_VALUE_BUDGET / MEBIBYTE,
        name="keep_budget",
        least=0,
        metavar="MIB",
        shows_default=True,
    )
    trace_kernels: tuple[str, ...] = option(
        (), "Show the first calls of OP.", tuple, flag="--trace-kernel", metavar="OP"
    )
    graphs: bool = option(
        False,
        "Capture each mode's graphs, before and after compilation; `numdrift graph` shows them.",
        variable="GRAPH_VISUALIZATION",
    )
    graph_steps: StepSelection = option(
        FIRST_STEPS,
        f"Steps in which new graphs are captured, each graph once (default: {FIRST_STEPS}).",
        selection("--graph-steps", "no step; steps are numbered from 0, as in 0,5,10-19"),
        written=None,
        metavar="LIST",
    )
    states: StepSelection | None = option(
        None,
        "Keep the training's state at the beginning of these steps (all, or a list such as 0,5,10-19), for --resync.",
        selection("--states", "no step; write all, or a list such as 0,5,10-19", every="all"),
        metavar="LIST",
    )
    instruments: Mapping[str, Mapping[str, Any]] = option(  # the options of each observing tool, by its name
        {},
        "Measure what each mode's backend compiles, executes and transfers; `numdrift metrics` shows the measurements.",
        lambda wanted: {"metrics": {}} if wanted else {},
        written=False,
        name="metrics",
    )
    sketches: bool = option(
        False,
        "Keep a linear sketch of every tensor and gradient, so that the run can be compared with sharded runs. Sharded "
        "runs always keep sketches.",
    )
    max_steps: int | None = option(
        None,
        "End each run after N steps, whatever the script's own options say. The run counts as complete.",
        step_count,
        metavar="N",
    )
    max_seconds: float | None = option(  # measured from the same moment as `seconds` in the journal's steps
        None,
        "Once SECONDS have passed since the script began, end each run after the current step. The run counts as "
        "complete.",
        positive_seconds("--max-seconds"),
        metavar="SECONDS",
    )
    keep_files: bool = option(
        False,
        "Keep the files that the script writes to its working folder, in the folder files/ within the run's folder. "
        "Without this option they are deleted.",
    )
    in_place: bool = option(
        False,
        "Let the script write to your folders, as it does under plain Python. The runs then see and replace each "
        "other's files.",
    )

    outcomes: StepSelection | None = None
    """The steps whose outcome is kept: losses, gradients and the state after the step."""
    tapes: StepSelection | None = None
    """The steps that are recorded as a tape."""
    measured: StepSelection | None = None
    """The steps whose tapes are replayed to measure the steps' noise; None selects all steps with a tape."""
    noise_replays: int = NOISE_REPLAYS
    """The number of replays of a measured step with random rounding."""
    edge_replays: int = 0
    """The number of further replays of a measured step, with rounding 16 times as strong. They show whether a discrete
    choice depends on rounding."""
    quick_tapes: bool = False
    """Record no tape of a step if it takes long to read the values in its compiled graphs."""
    calls: StepSelection | None = None
    """The steps in which two things are recorded: each call of an op, with digests of its arguments and results, and
    each line that draws random numbers."""
    checkpoints: int = 0
    """The number of bytes for states that may be requested later; 0 keeps no such state. The states are spread evenly
    over a run of any length."""
    keep_inputs: bool = False
    """Keep, beside the state of each step of `states`, the tensors that the first call of a model in the step gets."""
    prepares: bool = False
    """Record a tape from the script's first line to its first call of a model."""
    perturb: int | None = None
    """The seed for moving the initial parameters by one ULP; None moves nothing. In a run with resynced steps, the
    parameters at the beginning of each resynced step are moved instead."""
    seed_shift: int = 0
    """The number that is added to every seed that the script sets."""
    unseeded_seed: int = 0
    """The seed of the generators that the script leaves unseeded. numdrift seeds them, so that every mode draws the
    same numbers."""
    until: int | None = None
    """The last step whose results are needed: the training ends, as with `max_steps`, after the step following it."""
    subject: CallSubject | None = None
    """The calls that the run makes; None for a script that trains."""
    kill: bool = False
    """End the training after `max_steps` as a crash does: the process is killed, so nothing of the script runs after
    that."""
    as_is: bool = False
    """Run the script as `python` does: seed nothing, move nothing to the mode's device, and compile what the script
    compiles."""
    sampled: bool = False
    """Record one parameter of each module instead of all tensors."""
    module: str = ""
    """The module's name if the script was requested with `-m`, else ""."""
    strict: bool = False
    """Treat anything in the script that was not understood as an error."""

    def records(self, level: str) -> bool:
        return LEVELS.index(self.record) >= LEVELS.index(level)


class RunOptions(TypedDict, total=False):
    """The users' options by their names in Python: the parameters of `numdrift.run` that set an option."""

    record: Level
    steps: str
    overhead: str | None
    keep_params: str
    keep_budget: float
    trace_kernels: Sequence[str]
    graphs: bool
    graph_steps: str | None
    states: str | None
    metrics: bool
    sketches: bool
    max_steps: int | None
    max_seconds: float | None
    keep_files: bool
    in_place: bool


def requested(options: RunOptions) -> dict[str, Any]:
    """Return the fields of a `RunRequest` that these options set. Raises UsageError for an invalid value or
    combination."""
    chosen = read_options(RunRequest, options)
    # the capture of graphs compiles and executes graphs itself, and the metrics would include these
    if options.get("metrics") and options.get("graphs"):
        raise UsageError(
            "--metrics with --graphs (or GRAPH_VISUALIZATION=1) would measure the capture of the graphs too: use "
            "each in a run of its own"
        )
    if options.get("keep_files") and options.get("in_place"):
        raise UsageError(
            "with --in-place the script writes to your folders, so --keep-files has nothing to keep: use one of the two"
        )
    if "graph_steps" in chosen and not options.get("graphs"):
        raise UsageError("--graph-steps selects the steps of --graphs; add --graphs")
    return chosen
