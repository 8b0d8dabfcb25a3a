"""The calls of a run's subject: found by running the script before anything is recorded."""

from __future__ import annotations

import functools
import types
from collections.abc import Callable
from pathlib import Path

import torch

from ...errors import NumdriftError, UsageError
from ...records.run.call_subject import TIMES, TRACED, CallSubject
from ...records.run.run_config import RunConfig
from ..main_module import execute, first_line, place_of
from .call_steps import expected_results, make_calls, targets_of
from .call_targets import ReadSaved, op_calls, planned_calls
from .captured_calls import CallCapture
from .edge_inputs import edge_calls
from .planned_call import PlannedCall
from .traced_call import traced_call

Write = Callable[..., None]


def found_calls(
    config: RunConfig, subject: CallSubject, code: types.CodeType, device: str, write: Write, read_saved: ReadSaved
) -> Callable[[], None]:
    """Run the script, and return a function that makes the calls of the subject as the steps of the run.

    The script runs as a module where it only defines what is called, and as `__main__` where its own calls are
    captured. `write` writes an event to the journal, `read_saved` reads a file of inputs. Raises UsageError if there is
    nothing to call, and what the script raises before its first call.
    """
    captured = CallCapture(config.script)
    if subject.op:
        calls = op_calls(subject)
    elif subject.function:
        with captured.capturing():
            scope = execute(config, code, name=Path(config.script).stem)
            calls = planned_calls(subject, scope, captured, read_saved)
    else:
        calls = _captured(config, code, captured, write)
    if subject.edges:
        calls += edge_calls(calls[0])
    results = [expected_results(call) for call in calls]
    targets = targets_of(calls, results)
    chosen = calls if subject.only is None else calls[subject.only : subject.only + 1]
    if subject.traced and subject.only is not None:
        torch.save([traced_call(call) for call in calls[: subject.only + 1]], Path(config.journal) / TRACED)
    # Each call is made twice: the second one is the control of the first, which may start from the reference's state.
    repeated = [call for call in chosen for _ in range(TIMES)]
    compiles = config.mode.capabilities.compiles
    return functools.partial(make_calls, repeated, targets, device, write, compiles=compiles)


def _captured(config: RunConfig, code: types.CodeType, captured: CallCapture, write: Write) -> list[PlannedCall]:
    """Return the calls that the script itself makes."""
    ended: BaseException | None = None
    try:
        with captured.capturing():
            execute(config, code)
    except NumdriftError:
        raise
    except (Exception, SystemExit) as error:  # noqa: BLE001, it may end with a failing assertion, or an exit code
        ended = error
    calls = captured.compiled or captured.of_modules
    if not calls:
        if ended is not None and not isinstance(ended, SystemExit):
            raise ended
        raise UsageError(
            f"{config.script} compiles nothing and calls no module: name a function of it, as in "
            f"numdrift check {config.script}:NAME"
        )
    if captured.trains and not captured.compiled:
        raise UsageError(
            f"{config.script} trains: compare its trainings with `numdrift investigate {config.script}`, or name a "
            f"function, as in numdrift check {config.script}:NAME"
        )
    if ended is not None and not isinstance(ended, SystemExit):
        write("notice", step=0, text=f"the script ended with {first_line(ended)}{place_of(ended, config.script)}")
    if captured.further:
        write("notice", step=0, text=f"only the first {len(calls)} calls of what the script compiles are made")
    return calls
