"""The choice of the executions that get a snapshot: by step, by count, by name, by rank, by a function, or by an
event."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path

from ..records.run.execution_facts import KEYWORDS, Execution
from ..records.run.step_selection import StepSelection

Callback = Callable[..., str]
"""A function `(name, device_index, execution_count, step)`. If it has three parameters, it is called without `step`."""

EVENTS = ("nonfinite", "error", "drift")


@dataclass(frozen=True, slots=True)
class Choice:
    """A choice of executions.

    steps, executions: the chosen steps and counts, None for all.
    names: shell patterns for the names of graphs; no patterns choose every graph.
    ranks: the chosen ranks.
    what: inputs, outputs or both.
    on: the event at which a snapshot is taken, one of EVENTS, or "".
    callback: a function that chooses, as `FILE.py:FUNCTION`, or "".
    stops: whether the training ends once all chosen snapshots have been taken.
    limit_size, limit_count: the largest number of bytes and of files that a run may write, None for no limit.
    """

    steps: StepSelection | None = None
    executions: StepSelection | None = None
    names: tuple[str, ...] = ()
    ranks: StepSelection = field(default_factory=lambda: StepSelection(((0, 0),)))
    what: tuple[str, ...] = KEYWORDS
    on: str = ""
    callback: str = ""
    stops: bool = False
    limit_size: int | None = None
    limit_count: int | None = None

    def matches(self, execution: Execution) -> bool:
        """Return whether the execution's step, count and name are chosen."""
        if self.steps is not None and execution.step not in self.steps:
            return False
        if self.executions is not None and execution.count not in self.executions:
            return False
        names = (execution.name, execution.name.partition("-")[2])  # `3-backward`, and `backward` for any step
        return not self.names or any(fnmatchcase(name, pattern) for pattern in self.names for name in names)

    @property
    def selects(self) -> bool:
        """True if executions are selected by step, count or name."""
        return self.steps is not None or self.executions is not None or bool(self.names)


def answer_of(callback: Callback, execution: Execution) -> tuple[str, ...]:
    """Call a callback with an execution, and return its answer.

    Raises whatever the callback raises, and ValueError if the answer has an unknown word.
    """
    count = 4
    try:
        parameters = inspect.signature(callback).parameters.values()
        by_place = sum(
            parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD) for parameter in parameters
        )
        if by_place == 3 and not any(parameter.kind is parameter.VAR_POSITIONAL for parameter in parameters):
            count = 3
    except (TypeError, ValueError):  # a C function without a signature
        pass
    answer = callback(*(execution.name, execution.device_index, execution.count, execution.step)[:count])
    if not isinstance(answer, str) or any(word not in KEYWORDS for word in answer.split()):
        raise ValueError(f"it returned {answer!r}, not 'inputs', 'outputs', 'inputs outputs' or ''")
    return tuple(keyword for keyword in KEYWORDS if keyword in answer.split())


def load_callback(text: str) -> Callback:
    """Load the function that `text` names as `FILE.py:FUNCTION`.

    Raises ValueError, TypeError, and whatever the file raises.
    """
    path, _, name = text.rpartition(":")
    spec = importlib.util.spec_from_file_location("numdrift_snapshot_callback", Path(path))
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    function = getattr(module, name, None)
    if not callable(function):
        raise TypeError(f"{path} has no function {name!r}")
    return function  # type: ignore[no-any-return]
