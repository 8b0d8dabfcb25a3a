"""Plans the training runs of `numdrift snapshot take`, which keeps chosen executions."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from ..errors import UsageError, nearest
from ..launch.batch_plan import BatchPlan, planned
from ..launch.training_request import TrainingRequest
from ..records.codec import of_fields
from ..records.modes.mode_spec import ModeSpec
from ..records.run.execution_facts import KEYWORDS
from ..records.run.step_selection import KeepParams, StepSelection
from ..records.run.user_option import in_bytes, option, selection
from ..runs.journal import Journal
from ..snapshots.snapshot_choice import EVENTS, Choice


def _words(what: str) -> tuple[str, ...]:
    """Parse the names of the parts of an execution to keep. Raises UsageError."""
    words = what.split()
    if not words or not set(words) <= set(KEYWORDS):
        raise UsageError(f'--what {what!r}: the allowed words are inputs and outputs, as in --what "inputs outputs"')
    return tuple(keyword for keyword in KEYWORDS if keyword in words)


def _checked_callback(text: str) -> str:
    """Return FILE:FUNCTION with the absolute path. Raises UsageError for a file that cannot have this function.

    The file is read, not executed: its code runs only in the training process.
    """
    place, colon, name = text.rpartition(":")
    path = Path(place)
    if not colon or not name.isidentifier():
        raise UsageError(f"--callback {text!r} is not FILE.py:FUNCTION")
    if not path.is_file():
        raise UsageError(f"--callback {text!r}: there is no file {place}")
    try:
        tree = ast.parse(path.read_bytes(), str(path))
    except (SyntaxError, ValueError) as error:
        raise UsageError(f"--callback {text!r}: {path} is not valid Python: {error}") from None
    # every name that the file binds anywhere; `*` for a star import
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.alias):
            names.add(node.asname or node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            names.add(node.id)
    if name not in names and "*" not in names:
        hint = f"; {nearest(name, names)}" if names else ""
        raise UsageError(f"--callback {text!r}: {path} has no function {name!r}{hint}")
    return f"{path.absolute()}:{name}"


COUNTED = "nothing; numbering starts at 0, as in 0,5,10-19"


@dataclass(frozen=True, slots=True, kw_only=True)
class SnapshotRequest(TrainingRequest):
    """The training runs of `numdrift snapshot take`, and the executions to keep from them."""

    steps: StepSelection | None = option(
        None, "Keep snapshots only of these steps, as in 0,5,10-19.", selection("--steps", COUNTED), metavar="LIST"
    )
    executions: StepSelection | None = option(
        None,
        "Keep the executions of each graph that have these indices, counted from 0, as in 2 or 0,10-.",
        selection("--executions", COUNTED),
        metavar="LIST",
    )
    graphs: tuple[str, ...] = option(
        (),
        'Keep snapshots of the graphs with a matching name, as in "0-forward" or "backward*"; may be repeated.',
        tuple,
        flag="--graph",
        metavar="PATTERN",
    )
    ranks: StepSelection = option(
        StepSelection(((0, 0),)),
        "Keep snapshots of these ranks: all, or a list as in 0,2.",
        selection("--rank", COUNTED, every="all"),
        written="0",
        flag="--rank",
        metavar="LIST",
        shows_default=True,
    )
    on: str = option(
        "",
        "Keep a snapshot of the first execution that returns NaN or infinity (nonfinite), of the first execution that "
        "fails (error), or of the first step that differs from the same step of the first mode (drift).",
        lambda event: event or "",
        written=None,
        choices=EVENTS,
    )
    then: str | None = option(
        None,
        "Once all chosen snapshots are taken, end the run (stop; the default with --on) or continue it (go-on).",
        choices=("stop", "go-on"),
    )
    callback: str = option(
        "",
        "Call your own function for each execution, to choose what is kept.",
        _checked_callback,
        written=None,
        metavar="FILE.py:FUNCTION",
    )
    what: tuple[str, ...] = option(
        KEYWORDS,
        "What to keep: inputs, outputs or both. The graph is always kept.",
        _words,
        written=" ".join(KEYWORDS),
        metavar="WORDS",
        shows_default=True,
    )
    limit_size: int | None = option(
        None, "The most disk space that a run's snapshots may take.", in_bytes, kind=float, least=0, metavar="MIB"
    )
    limit_count: int | None = option(None, "The largest number of snapshots of a run.", kind=int, least=1, metavar="N")

    @property
    def until_drift(self) -> bool:
        """True if these runs only find each mode's first differing step.

        Further runs then take the snapshots of that step.
        """
        return self.on == "drift"

    @property
    def selects(self) -> bool:
        """True if the request names steps, executions, graphs or a callback."""
        return self.steps is not None or self.executions is not None or bool(self.graphs or self.callback)

    @property
    def choice(self) -> Choice:
        """The choice of the executions to keep."""
        return Choice(
            steps=self.steps,
            executions=self.executions,
            names=self.graphs,
            ranks=self.ranks,
            what=self.what,
            on=self.on,
            callback=self.callback,
            stops=self.then == "stop" or (bool(self.on) and self.then is None),
            limit_size=self.limit_size,
            limit_count=self.limit_count,
        )


def planned_snapshots(request: SnapshotRequest) -> BatchPlan:
    """Plan the runs that take the snapshots or, with `--on drift`, those that find the first differing steps.

    Raises UsageError.
    """
    if request.until_drift and len(request.modes) < 2:
        raise UsageError("--on drift needs two modes, the first of which is the reference, as in --modes cpu,compile")
    return planned(
        request,
        record="params" if request.until_drift else "losses",
        keep_params=KeepParams.parse("last"),
        instruments={} if request.until_drift else {"snapshots": of_fields(request.choice)},
    )


def planned_again(plan: BatchPlan, spec: ModeSpec, step: int, choice: Choice) -> BatchPlan:
    """Plan another run of one mode of a plan, with snapshots of a step. The new run replaces the old one."""
    at = replace(choice, on="", steps=StepSelection(((step, step),)))
    # a limit in seconds might end the second run before the step that the first run reached
    limits: dict[str, Any] = {} if plan.max_seconds is None else {"max_seconds": None, "max_steps": step + 1}
    return replace(
        plan,
        **limits,
        modes=[spec],
        record="losses",
        instruments={"snapshots": of_fields(at)},
        force=True,
        positions=[mode.name for mode in plan.modes],
    )


def first_differing_steps(runs: Sequence[tuple[str, Journal]]) -> dict[str, int]:
    """Return, for each run but the first, its first step whose loss, values or gradients differ from the first run's.

    A run that never differs has no entry.
    """

    def identities(journal: Journal) -> dict[int, object]:
        """Return the identity of each step: its loss, as text because NaN does not equal itself, and its tensors'
        digests."""
        digests = dict(journal.digests())
        return {record.step: (str(record.loss), digests.get(record.step)) for record in journal.steps}

    reference, first_steps = identities(runs[0][1]), {}
    for name, journal in runs[1:]:  # one at a time: the digests of a long run are large
        differing = [
            step for step, identity in identities(journal).items() if step in reference and identity != reference[step]
        ]
        if differing:
            first_steps[name] = min(differing)
    return first_steps
