"""The request for a run: one record that `numdrift run`, `numdrift.run`, the plan and the run's config share.

A new recording option is declared here and nowhere else: a field, and a key of `RunOptions` where users may ask for it.

    graphs: bool = field(default=False, metadata=option("graphs", False, "Capture each mode's graphs."))

makes `numdrift run --graphs`, `numdrift.run(graphs=True)`, `plan.graphs`, `config.graphs` and `"graphs": true` in
config.json. It remains to write the observer that acts on it."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Literal, TypedDict

from ...errors import UsageError, nearest
from .step_selection import KeepParams, StepSelection

Level = Literal["losses", "params", "ops", "tensors"]

LEVELS: tuple[Level, ...] = ("losses", "params", "ops", "tensors")
"""The recorded content of each chosen step; each level includes the ones before it."""

MEBIBYTE = 2**20

DEFAULT_VALUE_BUDGET = 256 * MEBIBYTE
"""The bytes of parameter values that a run keeps before it thins them out."""

NOISE_REPLAYS = 8
"""The number of members of the noise ensemble; from 8 on, the study behind it found no false positives."""

FIRST_STEPS = StepSelection(((0, 1),))
"""The steps whose graphs are captured. The second step differs if an optimizer creates its state in the first."""


@dataclass(frozen=True, slots=True)
class UserOption:
    """A field as an option for users.

    name: its name in Python
    default: its default as users write it, whose type determines the kind of option
    read: converts the user's value to the field's
    flag: its name on the command line; derived from `name` if empty
    metavar, choices, variable, shows_default: as on the command line; `variable` is an environment variable
    """

    name: str
    default: Any
    help: str
    read: Callable[[Any], Any] = lambda value: value
    flag: str = ""
    metavar: str | None = None
    choices: Sequence[str] = ()
    variable: str | None = None
    shows_default: bool = False


def option(name: str, default: Any, help: str, *arguments: Any, **facts: Any) -> Mapping[str, UserOption]:
    """Return the metadata of a field that users may ask for."""
    return {"option": UserOption(name, default, help, *arguments, **facts)}


def _steps(flag: str, remedy: str, every: str | None = None) -> Callable[[str], StepSelection]:
    """Return a reader of an option's steps, which refuses empty text with `remedy`; `every` means all steps."""

    def read(text: str) -> StepSelection:
        if not text.strip():
            raise UsageError(f"{flag} names no step; {remedy}")
        try:
            return StepSelection() if text == every else StepSelection.parse(text)
        except UsageError as error:
            raise UsageError(str(error).replace("--steps", flag, 1)) from None

    return read


def _count(value: int | str) -> int:
    """Read a number of steps from Python or from the command line."""
    if not str(value).isdecimal() or not int(value):
        raise UsageError(f"--max-steps {value} is no number of steps: 1 is the least")
    return int(value)


def _seconds(value: float | str) -> float:
    """Read a time in seconds from Python or from the command line."""
    try:
        seconds = float(value)
    except ValueError:
        seconds = math.nan
    if not (seconds > 0 and math.isfinite(seconds)):
        raise UsageError(f"--max-seconds {value} is no positive number of seconds")
    return seconds


@dataclass(frozen=True, slots=True, kw_only=True)
class RunRequest:
    """The recorded content of a run, and the changes to its training.

    Recorded in detail:
    record: the level at which `steps` are recorded
    value_budget: the bytes of parameter values that are kept
    trace_kernels: the ops whose first calls are recorded
    graphs: capture the graphs of `graph_steps`
    instruments: the bring-up tools that observe, by name, each with its options (JSON)
    sketches: keep linear sketches of every tensor, which runs with sharded tensors have anyway

    Kept of single steps (None: of no step, except for `measured`):
    states: the steps of which the state at the beginning is kept
    outcomes: the steps of which losses, gradients and the state after the step are kept
    tapes: the steps that are recorded as a tape
    measured: the steps whose tapes are replayed `noise_replays` times with random rounding, and `edge_replays` more
        times with rounding 16 times as strong, to see whether a discrete choice depends on it (None: all tapes)
    calls: the steps in which every call of an op is recorded with digests of its arguments and results, and each line
        that draws random numbers
    checkpoints: the bytes in which a training keeps states that may be requested later, spread evenly over it whatever
        its length turns out to be; 0 keeps none
    keep_inputs: keep the tensors of the models' first calls in a step of `states` beside its state
    prepares: record a tape from the script's first line to its first call of a model

    Changes to the training:
    perturb: move the initial parameters by one ULP, drawn with this seed; if steps start from another run's states,
        move the parameters of each resynced step
    seed_shift: a number that is added to every seed that the script sets
    max_steps: leave the script after so many steps, as by `sys.exit()`; the run is complete then
    max_seconds: leave it in the same way at the end of the first step that ends so many seconds after the script began,
        counted as the `seconds` of the journal's steps
    until: the last step that is needed; the script is left in the same way when the step after it has ended
    in_place: let the script write to its real folders; otherwise the run has a separate working folder
    keep_files: keep what the script has written to the separate working folder
    module: the name behind `-m` if the script was requested as a module
    strict: treat anything in the script that was not understood as an error
    """

    record: str = field(
        default="params",
        metadata=option(
            "record",
            "params",
            "Losses; parameters and digests of them and of gradients; digests of every op; every op's output.",
            choices=LEVELS,
            shows_default=True,
        ),
    )
    steps: StepSelection = field(
        default=StepSelection(),
        metadata=option(
            "steps",
            "",
            "Steps to record in detail, as in 0,5,10-19 (default all).",
            StepSelection.parse,
            metavar="LIST",
        ),
    )
    keep_params: KeepParams = field(
        default=KeepParams(),
        metadata=option("keep_params", "all", "Values kept: all, last or every=N.", KeepParams.parse, metavar="POLICY"),
    )
    value_budget: int = field(
        default=DEFAULT_VALUE_BUDGET,
        metadata=option(
            "keep_budget",
            DEFAULT_VALUE_BUDGET / MEBIBYTE,
            "Disk for a run's parameter values; beyond it every second is dropped.",
            lambda mebibytes: int(mebibytes * MEBIBYTE),
            metavar="MIB",
            shows_default=True,
        ),
    )
    trace_kernels: tuple[str, ...] = field(
        default=(),
        metadata=option(
            "trace_kernels", (), "Show the first calls of an op.", tuple, flag="--trace-kernel", metavar="OP"
        ),
    )
    graphs: bool = field(
        default=False,
        metadata=option(
            "graphs",
            False,
            "Capture each mode's graphs, before and after its compiler; `numdrift graph` shows them.",
            variable="GRAPH_VISUALIZATION",
        ),
    )
    graph_steps: StepSelection = field(
        default=FIRST_STEPS,
        metadata=option(
            "graph_steps",
            None,
            f"Steps whose graphs are captured, each graph when it is first seen (default {FIRST_STEPS}).",
            _steps("--graph-steps", "steps count from 0, as in 0,5,10-19"),
            metavar="LIST",
        ),
    )
    states: StepSelection | None = field(
        default=None,
        metadata=option(
            "states",
            None,
            "Keep the training's state as it is at the beginning of these steps (all, or as in "
            "0,5,10-19), for --resync.",
            _steps("--states", "write all, or steps as in 0,5,10-19", every="all"),
            metavar="LIST",
        ),
    )
    instruments: Mapping[str, Mapping[str, Any]] = field(
        default_factory=dict,
        metadata=option(
            "metrics",
            False,
            "Measure what each mode's backend compiles, executes and transfers; `numdrift metrics` shows it.",
            lambda wanted: {"metrics": {}} if wanted else {},
        ),
    )
    sketches: bool = field(
        default=False,
        metadata=option(
            "sketches",
            False,
            "Keep a linear sketch of every tensor and gradient: sharded runs, which have them anyway, "
            "are compared with these.",
        ),
    )
    max_steps: int | None = field(
        default=None,
        metadata=option(
            "max_steps",
            None,
            "End each training as complete after so many steps, whatever the script's own options say.",
            _count,
            metavar="N",
        ),
    )
    max_seconds: float | None = field(
        default=None,
        metadata=option(
            "max_seconds",
            None,
            "End each training as complete with the first step that ends so many seconds after the script began.",
            _seconds,
            metavar="SECONDS",
        ),
    )
    keep_files: bool = field(
        default=False,
        metadata=option(
            "keep_files",
            False,
            "Keep what the script writes to its working folder, as files/ in the run's; it is thrown away otherwise.",
        ),
    )
    in_place: bool = field(
        default=False,
        metadata=option(
            "in_place",
            False,
            "Let the script write to your folders as under python: the runs see, and replace, each other's files.",
        ),
    )
    outcomes: StepSelection | None = None
    tapes: StepSelection | None = None
    measured: StepSelection | None = None
    calls: StepSelection | None = None
    noise_replays: int = NOISE_REPLAYS
    edge_replays: int = 0
    checkpoints: int = 0
    keep_inputs: bool = False
    prepares: bool = False
    perturb: int | None = None
    seed_shift: int = 0
    until: int | None = None
    module: str = ""
    strict: bool = False

    def records(self, level: str) -> bool:
        return LEVELS.index(self.record) >= LEVELS.index(level)


class RunOptions(TypedDict, total=False):
    """The users' options by their names in Python: the parameters of `numdrift.run` that are options here."""

    record: Level
    steps: str
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


def user_options() -> dict[str, UserOption]:
    """Return the users' options by the field that each of them sets, in the order of the fields."""
    return {item.name: item.metadata["option"] for item in fields(RunRequest) if "option" in item.metadata}


def requested(options: RunOptions) -> dict[str, Any]:
    """Return the fields of a `RunRequest` that these options set.

    Raises UsageError for an invalid value or combination, TypeError for an unknown option.
    """
    by_name = {item.name: item for item in user_options().values()}
    if unknown := next((name for name in options if name not in by_name), None):
        raise TypeError(f"unexpected keyword argument {unknown!r}; {nearest(unknown, by_name)}")
    # capturing compiles and executes graphs too, and the counters would count them
    if options.get("metrics") and options.get("graphs"):
        raise UsageError(
            "--metrics beside --graphs (or GRAPH_VISUALIZATION=1) would measure the capture of the graphs: run it twice"
        )
    if options.get("keep_files") and options.get("in_place"):
        raise UsageError(
            "--in-place has the script write to your folders, and leaves --keep-files nothing to keep: give one of them"
        )
    arguments: Mapping[str, Any] = options
    # an option's default means the field's default, and is not read: None, for example, is no text
    chosen = {
        field: option.read(arguments[option.name])
        for field, option in user_options().items()
        if option.name in arguments and arguments[option.name] != option.default
    }
    if "graph_steps" in chosen and not options.get("graphs"):
        raise UsageError("--graph-steps says which graphs --graphs captures; add --graphs")
    return chosen
