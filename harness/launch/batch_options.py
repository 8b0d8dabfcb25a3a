"""Options of a batch as they are given, in text, and what they ask for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ..errors import UsageError
from ..records.run_config import FIRST_STEPS
from ..records.step_selection import StepSelection
from ..runs.recorded_run import load_run
from ..runs.run_layout import STATES
from ..runs.step_outcomes import state_steps


def steps_of_graphs(text: str | None, graphs: bool) -> StepSelection:
    """The steps of `--graph-steps`. Raises UsageError where there is none, or no graphs are asked for."""
    if text is None:
        return FIRST_STEPS
    if not text.strip():
        raise UsageError("--graph-steps names no step; steps count from 0, as in 0,5,10-19")
    if not graphs:
        raise UsageError("--graph-steps says which graphs --graphs captures; add --graphs")
    return _selection("--graph-steps", text)


def kept_states(text: str | None) -> StepSelection | None:
    """The steps of `--states`. Raises UsageError where there is none."""
    if text is None or text == "all":
        return None if text is None else StepSelection()
    if not text.strip():
        raise UsageError("--states names no step; write all, or steps as in 0,5,10-19")
    return _selection("--states", text)


def resynced(reference: Path | None, steps: StepSelection) -> dict[str, Any]:
    """Fields of the plan for `--resync`. The outcomes of the resynced steps are kept: they are what a resync is for.

    Raises UsageError for a run that kept no state of a step that is asked for.
    """
    if reference is None:
        return {}
    run = load_run(reference)
    kept = [step for step in state_steps(run.path) if step in steps]
    asked = [first for first, last in steps.ranges if first == last and first not in kept]
    if not kept or asked:
        lacking = f"no state of step {asked[0]}" if asked else "no states to start these steps from"
        raise UsageError(
            f"{reference} kept {lacking}; run it with --states {asked[0] if asked else 'all'}, under another --name"
        )
    return {"resync": run.path / STATES, "outcomes": StepSelection(tuple((step, step) for step in kept))}


def measured(metrics: bool, graphs: bool) -> dict[str, dict[str, Any]]:
    """The instruments of `--metrics`. Raises UsageError beside `--graphs`."""
    if metrics and graphs:
        raise UsageError(
            "--metrics beside --graphs (or GRAPH_VISUALIZATION=1) would measure the capture of the graphs: run it twice"
        )
    return {"metrics": {}} if metrics else {}


def _selection(option: str, text: str) -> StepSelection:
    try:
        return StepSelection.parse(text)
    except UsageError as error:
        raise UsageError(str(error).replace("--steps", option, 1)) from None
