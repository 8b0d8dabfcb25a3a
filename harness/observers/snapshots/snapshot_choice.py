"""Which executions a snapshot is taken of: by step, by count, by name, by rank, by a function, or when
something happens."""

from __future__ import annotations

import importlib.util
import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from ...records.codec import of_fields, read_fields
from ...records.execution_facts import KEYWORDS, Execution
from ...records.step_selection import StepSelection

Callback = Callable[..., str]
"""`on_snapshot(name, device_index, execution_count, step)`; one of three parameters is not told the step."""

EVENTS = ("nonfinite", "error", "drift")


@dataclass(frozen=True, slots=True)
class Choice:
    """What was asked for. `names` are patterns as a shell has them; `what` is inputs, outputs or both; `on` is one of
    EVENTS or "". `callback` is `FILE.py:FUNCTION`. Limits are bytes and files of one run, None for none.

    `stops` ends the training once all of it is taken.
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
        """Whether step, count and name are among those asked for."""
        if self.steps is not None and execution.step not in self.steps:
            return False
        if self.executions is not None and execution.count not in self.executions:
            return False
        names = (execution.name, execution.name.partition("-")[2])  # `3-backward`, and `backward` of any step
        return not self.names or any(fnmatchcase(name, one) for one in self.names for name in names)

    @property
    def selects(self) -> bool:
        """Whether anything is selected by step, count or name."""
        return self.steps is not None or self.executions is not None or bool(self.names)

    @property
    def last_step(self) -> int | None:
        """The step after which nothing is asked for any more, None where that is open."""
        if self.steps is None or not self.steps.ranges:
            return None
        ends = [last for _, last in self.steps.ranges]
        return None if None in ends else max(one for one in ends if one is not None)

    def to_json(self) -> dict[str, object]:
        return of_fields(self)

    @classmethod
    def from_json(cls, data: Any) -> Choice:
        """Raises Unreadable."""
        return read_fields(cls, data)


def asked(callback: Callback, execution: Execution) -> tuple[str, ...]:
    """What a callback says of an execution. Raises what it raises, and ValueError for a word that is none."""
    count = 4
    try:
        parameters = inspect.signature(callback).parameters.values()
        by_place = sum(one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD) for one in parameters)
        if by_place == 3 and not any(one.kind is one.VAR_POSITIONAL for one in parameters):
            count = 3
    except (TypeError, ValueError):  # a function of C that says nothing of its parameters
        pass
    answer = callback(*(execution.name, execution.device_index, execution.count, execution.step)[:count])
    if not isinstance(answer, str) or any(word not in KEYWORDS for word in answer.split()):
        raise ValueError(f"it returned {answer!r}; the words are 'inputs', 'outputs', 'inputs outputs' and ''")
    return tuple(one for one in KEYWORDS if one in answer.split())


def load_callback(text: str) -> Callback:
    """The function of `FILE.py:FUNCTION`. Raises ValueError or TypeError, and whatever the file raises."""
    path, _, name = text.rpartition(":")
    spec = importlib.util.spec_from_file_location("numdrift_snapshot_callback", Path(path))
    if spec is None or spec.loader is None:
        raise ValueError(f"{path} is no Python file")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = getattr(module, name, None)
    if not callable(found):
        raise TypeError(f"{path} has no function {name!r}")
    return found  # type: ignore[no-any-return]
