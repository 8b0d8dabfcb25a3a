"""Plans the trainings of `numdrift snapshot take`, which keeps chosen executions."""

from __future__ import annotations

import ast
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from ..errors import UsageError, nearest
from ..launch.batch_plan import BatchPlan, planned
from ..records.codec import of_fields
from ..records.modes.mode_spec import ModeSpec
from ..records.run.execution_facts import KEYWORDS, MIB
from ..records.run.run_request import requested
from ..records.run.step_selection import KeepParams, StepSelection
from ..runs.journal import Journal
from ..snapshots.snapshot_choice import Choice


def planned_snapshots(
    script: str | None,
    modes: Sequence[ModeSpec],
    arguments: Sequence[str],
    choice: Choice,
    *,
    until_drift: bool,
    module: str | None,
    name: str | None,
    nproc: int,
    timeout: float | None,
    out: Path,
    force: bool,
    max_steps: int | None,
    max_seconds: float | None,
) -> BatchPlan:
    """Plan the trainings that take the snapshots; with `until_drift`, plan those that find the step of the snapshots.

    Raises UsageError.
    """
    if until_drift and len(modes) < 2:
        raise UsageError("--on drift needs two modes, the first of which is the reference, as in --modes cpu,compile")
    return planned(
        script,
        module,
        arguments,
        modes,
        out,
        name,
        record="params" if until_drift else "losses",
        keep_params=KeepParams.parse("last"),
        timeout=timeout,
        force=force,
        nproc=nproc,
        instruments={} if until_drift else {"snapshots": of_fields(choice)},
        **requested({"max_steps": max_steps, "max_seconds": max_seconds}),
    )


def planned_again(plan: BatchPlan, spec: ModeSpec, step: int, choice: Choice) -> BatchPlan:
    """Plan to run one mode of a plan again, taking snapshots of a step; the new run replaces the old one."""
    at = replace(choice, on="", steps=StepSelection(((step, step),)))
    # a limit in seconds might end the second training before the step that the first reached
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

    def told(journal: Journal) -> dict[int, object]:
        """Return the identity of each step: its loss, as text because NaN does not equal itself, and its tensors'
        digests."""
        digests = dict(journal.digests())
        return {record.step: (str(record.loss), digests.get(record.step)) for record in journal.steps}

    reference, first_steps = told(runs[0][1]), {}
    for name, journal in runs[1:]:  # one at a time: the digests of a long run are large
        differing = [
            step for step, identity in told(journal).items() if step in reference and identity != reference[step]
        ]
        if differing:
            first_steps[name] = min(differing)
    return first_steps


def choice_of(
    *,
    steps: str | None,
    executions: str | None,
    graphs: Sequence[str],
    ranks: str,
    what: str,
    on: str,
    then: str | None,
    callback: str | None,
    limit_size: float | None,
    limit_count: int | None,
) -> Choice:
    """Return the choice of executions to keep from the command's options; `limit_size` is in MiB. Raises UsageError."""
    words = what.split()
    if not words or not set(words) <= set(KEYWORDS):
        raise UsageError(f'--what {what!r}: the words are inputs and outputs, as in --what "inputs outputs"')
    return Choice(
        steps=_selection("--steps", steps),
        executions=_selection("--executions", executions),
        names=tuple(graphs),
        ranks=StepSelection() if ranks == "all" else _selection("--rank", ranks) or StepSelection(),
        what=tuple(keyword for keyword in KEYWORDS if keyword in words),
        on=on,
        callback="" if callback is None else _checked_callback(callback),
        stops=then == "stop" or (bool(on) and then is None),
        limit_size=None if limit_size is None else int(limit_size * MIB),
        limit_count=limit_count,
    )


def _selection(option: str, text: str | None) -> StepSelection | None:
    if text is None:
        return None
    if not text.strip():
        raise UsageError(f"{option} names nothing; counting begins with 0, as in 0,5,10-19")
    try:
        return StepSelection.parse(text)
    except UsageError as error:  # its message is about the steps of a training
        raise UsageError(str(error).replace("--steps", option, 1)) from None


def _checked_callback(text: str) -> str:
    """Return FILE:FUNCTION with the absolute path. Raises UsageError for a file that cannot have this function.

    The file is read, not executed: it runs only in the training's process.
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
        raise UsageError(f"--callback {text!r}: {path} is no Python: {error}") from None
    # every name that the file assigns anywhere; `*` for a star import
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
