"""The result of `numdrift batch`: a row for each mode of each task, and the changes between two batches."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

from ..codec import schema_first
from .findings import NEEDS_A_PERSON, RUN_FAILED, WITHIN
from .op_table import FAILED, UNDECIDED, exit_code_of

SCHEMA = 1

NOT_RUN = "not-run"
"""The verdict of a task that has not ended, for example because the batch was interrupted."""


@dataclass(frozen=True, slots=True)
class PlannedTask:
    """A task of a batch: one investigation.

    name: the name of the task and of its folder
    labels: the label of the chosen value, for each axis of the experiment that has several
    modes: the modes in the mode grammar, the reference first
    names: the names of these modes
    """

    UNKNOWN_IS_IGNORED: ClassVar[bool] = True

    name: str
    experiment: str
    script: str
    modes: Sequence[str]
    names: Sequence[str]
    arguments: Sequence[str] = ()
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TaskRow:
    """A mode of a task.

    verdict: a word of the glossary, None if undecided, FAILED, or NOT_RUN
    text: the answer in one sentence, or the reason of a failure
    z: the largest score, in multiples of rounding
    step: the first step that differs by more than rounding
    causes: the proven causes
    attempts: how often the task was started
    folder: the folder of the task's investigation
    """

    UNKNOWN_IS_IGNORED: ClassVar[bool] = True

    task: str
    experiment: str
    script: str
    reference: str
    mode: str
    verdict: str | None
    text: str = ""
    z: float | None = None
    threshold: float | None = None
    step: int | None = None
    causes: Sequence[str] = ()
    arguments: Sequence[str] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    seconds: float = 0.0
    attempts: int = 0
    host: str = ""
    folder: str = ""

    @property
    def word(self) -> str:
        """The verdict for people."""
        return self.verdict or UNDECIDED

    @property
    def exit_code(self) -> int:
        if self.verdict in (FAILED, NOT_RUN):
            return RUN_FAILED
        return 0 if self.verdict in WITHIN else NEEDS_A_PERSON


def counted(count: int, noun: str) -> str:
    """Return a number of things in words.

    >>> counted(1, "task"), counted(1200, "task")
    ('1 task', '1,200 tasks')
    """
    return f"{count:,} {noun}{'' if count == 1 else 's'}"


@dataclass(frozen=True, slots=True)
class TaskTable:
    """The rows of a batch in the order of its file. `reused` tasks were done before, and not again.

    folder: the folder of the batch
    file: the file with the experiments
    seconds: the time that the command took
    """

    UNKNOWN_IS_IGNORED: ClassVar[bool] = True

    folder: str
    file: str
    rows: Sequence[TaskRow]
    reused: int = 0
    seconds: float = 0.0
    schema: int = SCHEMA

    @property
    def exit_code(self) -> int:
        """The exit code: 1 if a row needs a person, else 3 if a task failed or has not run."""
        return exit_code_of(row.exit_code for row in self.rows)

    @property
    def answer(self) -> str:
        """The number of rows with each verdict, the worst first."""
        counts = Counter(row.word for row in self.rows)
        order = sorted(counts, key=lambda word: (word in WITHIN, -counts[word], word))
        tasks = counted(len({row.task for row in self.rows}), "task")
        return f"{tasks}: {', '.join(f'{counts[word]:,} {word}' for word in order)}"

    def to_json(self) -> dict[str, Any]:
        """Return the table as JSON."""
        return schema_first(self) | {"answer": self.answer, "exit_code": self.exit_code}


@dataclass(frozen=True, slots=True)
class RowChange:
    """A row that two batches have differently, or that only one of them has.

    before, after: the row's values in the two batches, None if the batch has no such row
    changed: the respects in which they differ: `verdict`, `causes`, `score`, or `only in one`
    """

    task: str
    mode: str
    before: TaskRow | None
    after: TaskRow | None
    changed: Sequence[str]

    @property
    def matters(self) -> bool:
        """True unless only the score changed, as it does from machine to machine."""
        return list(self.changed) != ["score"]


@dataclass(frozen=True, slots=True)
class TableComparison:
    """A batch compared with an earlier one. `compared` is the number of rows that both have."""

    before: str
    after: str
    compared: int
    changes: Sequence[RowChange]
    schema: int = SCHEMA

    @property
    def exit_code(self) -> int:
        return NEEDS_A_PERSON if any(change.matters for change in self.changes) else 0

    @property
    def answer(self) -> str:
        """The number of changes of each kind."""
        counts = Counter(kind for change in self.changes for kind in change.changed)
        words = {"verdict": "verdict", "causes": "cause", "score": "score", "only in one": "row only in one batch"}
        texts = [
            f"{counts[kind]:,} rows only in one batch"
            if kind == "only in one" and counts[kind] > 1
            else counted(counts[kind], noun)
            for kind, noun in words.items()
            if counts[kind]
        ]
        rows = counted(self.compared, "row")
        return f"{rows} in both batches: {', '.join(texts) + ' changed' if texts else 'nothing changed'}"

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as JSON."""
        return schema_first(self) | {"answer": self.answer, "exit_code": self.exit_code}


def compared_tables(before: TaskTable, after: TaskTable) -> TableComparison:
    """Compare the rows of two batches by their task and mode. Scores are compared to three digits."""
    earlier = {(row.task, row.mode): row for row in before.rows}
    later = {(row.task, row.mode): row for row in after.rows}
    changes = []
    for key in dict.fromkeys([*earlier, *later]):
        a, b = earlier.get(key), later.get(key)
        changed = ["only in one"] if a is None or b is None else _changed(a, b)
        if changed:
            changes.append(RowChange(*key, a, b, changed))
    return TableComparison(before.folder, after.folder, len(earlier.keys() & later.keys()), changes)


def _changed(a: TaskRow, b: TaskRow) -> list[str]:
    scores = [None if row.z is None else f"{row.z:.3g}" for row in (a, b)]
    facts = {
        "verdict": a.verdict != b.verdict,
        "causes": set(a.causes) != set(b.causes),
        "score": scores[0] != scores[1],
    }
    return [kind for kind, is_changed in facts.items() if is_changed]
