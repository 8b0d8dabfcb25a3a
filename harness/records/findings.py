"""The findings of an investigation: the records behind `investigation.json`, schema 1.

found = Findings.from_json(json.loads((folder / INVESTIGATION).read_text()))
found.pairs[0].verdict, found.pairs[0].culprits[0].op       ("rounding", "aten.tanh_backward")
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from .codec import UNLESS_EMPTY, Unreadable, json_text, of_fields, put, read_fields
from .culprit import Culprit
from .interpreters import TwoInterpreters

SCHEMA = 1
INVESTIGATION = "investigation.json"
NEEDS_A_PERSON = 1
RUN_FAILED = 3


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict of a pair. `word` is None if nothing decides; then `undecided` says why, and what would.

    `step` is the one that the verdict is about. `score` is the largest of a floating value over all scored steps, of
    `tensor`; None without scored steps. `inspect` marks rounding that is large enough to be worth a look.
    """

    word: str | None
    text: str
    step: int | None = None
    score: float | None = None
    tensor: str = ""
    first_significant_step: int | None = None
    inspect: bool = False
    undecided: str = ""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TensorScore:
    """The drift of one value. `score` is z, `noise` the rms in it; `why` explains a score that no distance gives.

    Of integers (`discrete`), distance counts the differing elements, norm all of them, and noise the flips.
    """

    UNKNOWN_IS_IGNORED: ClassVar[bool] = True

    name: str
    score: float
    distance: float = 0.0
    norm: float = 0.0
    noise: float = 0.0
    why: str = ""
    discrete: bool = False


@dataclass(frozen=True, slots=True)
class StepFindings:
    """A step that was started from the reference's state, with those of its `compared` values that differ.

    `taped` says that its noise was measured on its own tape, `discrete` names integers that differ although rounding
    does not change them. `explained` is "ill-conditioned" if rounding of the inputs causes all of the drift in its ops.
    """

    UNKNOWN_IS_IGNORED: ClassVar[bool] = True

    step: int
    score: float
    tensor: str = ""
    taped: bool = False
    on_edge: bool = False
    discrete: Sequence[str] = ()
    explained: str = field(default="", metadata=UNLESS_EMPTY)
    compared: int = 0
    tensors: Sequence[TensorScore] = ()


@dataclass(frozen=True, slots=True)
class RunEnding:
    """The end of a mode's run; `spec` is the given mode, `path` its folder in that of the investigation."""

    UNKNOWN_IS_IGNORED: ClassVar[bool] = True

    status: str = ""
    steps: int = 0
    seconds: float = 0.0
    message: str = ""
    spec: str = ""
    path: str = ""


@dataclass(frozen=True, slots=True)
class RankFindings:
    """The findings of a rank, compared with the same rank of the reference."""

    UNKNOWN_IS_IGNORED: ClassVar[bool] = True

    rank: int
    verdict: str | None
    text: str = ""
    score: float | None = None
    first_differing_step: int | None = None
    first_significant_step: int | None = None


@dataclass(frozen=True, slots=True)
class CompilerScores:
    """A step's `score` in the mode, and the scores with other stages and settings of the compiler."""

    UNKNOWN_IS_IGNORED: ClassVar[bool] = True

    step: int
    score: float
    stages: Mapping[str, float] = field(default_factory=dict)
    settings: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PartCarrier:
    """A part of a model that carries a drift.

    Its `operators` are (name, line, module). The step's score is given with only them on the backend (`alone`), and
    `without` them and all carriers before.
    """

    UNKNOWN_IS_IGNORED: ClassVar[bool] = True

    operators: Sequence[tuple[str, str, str]]
    alone: float
    without: float


@dataclass(frozen=True, slots=True)
class PartScores:
    """A step's `score` in the mode, and with the `whole` model on the `backend`.

    `asked` counts the partitions, `left_out` are kinds of operators that stay on the CPU. Without an answer there are
    only `step` and `reason`.
    """

    UNKNOWN_IS_IGNORED: ClassVar[bool] = True

    step: int
    reason: str = ""
    backend: str = ""
    score: float = 0.0
    whole: float = 0.0
    asked: int = 0
    left_out: Sequence[str] = ()
    carriers: Sequence[PartCarrier] = ()

    def to_json(self) -> dict[str, object]:
        content = of_fields(self)
        written = ("step", "reason") if self.reason else [name for name in content if name != "reason"]
        return {name: content[name] for name in written}


@dataclass(frozen=True, slots=True)
class TrainedWithout:
    """A whole training in the mode `spec` with `swaps` in place of the culprits.

    `inside` the envelope is None if that is not known. `left` are the culprits that no key of a mode removes, and then
    there was no training.
    """

    UNKNOWN_IS_IGNORED: ClassVar[bool] = True

    spec: str = ""
    swaps: Sequence[str] = ()
    status: str = ""
    identical: bool = False
    first_differing_step: int | None = None
    inside: bool | None = None
    envelope: Mapping[str, Any] | None = None
    text: str = ""
    left: Sequence[str] = ()

    def to_json(self) -> dict[str, object]:
        content = of_fields(self)
        written = ("text", "left") if self.left else [name for name in content if name != "left"]
        return {name: content[name] for name in written}


@dataclass(frozen=True, slots=True)
class PairFindings:
    """The findings on one pair; `a` is the reference.

    `verdict` is a word of the design, None if nothing decides (then `undecided` says what would). `text` are sentences
    for people. `score` and `threshold` are multiples of the reference's rounding noise. `closer_to_fp64` is a mode's
    name, `equal`, or None without a referee.

    `explained` is the share of the analysed step's drift that goes with all proven culprits together, `unexplained`
    what is left or was excluded, or why no cause was looked for; for a pair that differs at least one of the two is
    set. `steps` holds each step's score and those of its tensors, `curve` and `lag` the results of the whole trainings.
    `compiler` has the scores of a step with other stages and settings of the compiler, `parts` those of a step with
    parts of the model on the mode's backend, `without` the whole training with the culprits swapped out.

    `runs_used` counts the trainings behind all this, `tests` the hybrids of two tapes. For runs of several processes
    `ranks` has the verdict of each rank, the worst of which is the pair's, and `agreement` says for each run whether
    its ranks hold the same parameters. `interpreters` says what differs between those of the two runs. A mapping of
    anything is written for people, and numdrift does not read it."""

    UNKNOWN_IS_IGNORED: ClassVar[bool] = True

    a: str
    b: str
    verdict: str | None
    text: Sequence[str]
    undecided: str = ""
    inspect: bool = False
    first_differing_step: int | None = None
    first_significant_step: int | None = None
    score: float | None = None
    threshold: float | None = None
    calibrated: bool = False
    closer_to_fp64: str | None = None
    referee: Mapping[str, Any] | None = None
    culprits: Sequence[Culprit] = ()
    explained: float | None = field(default=None, metadata=UNLESS_EMPTY)
    unexplained: str = field(default="", metadata=UNLESS_EMPTY)
    controls: Mapping[str, Any] = field(default_factory=dict)
    noise: str = ""
    steps: Sequence[StepFindings] = ()
    losses: Mapping[str, Any] = field(default_factory=dict)
    curve: Mapping[str, Any] | None = None
    lag: Mapping[str, Any] | None = None
    compiler: CompilerScores | None = None
    parts: PartScores | None = None
    without: TrainedWithout | None = None
    notes: Sequence[str] = ()
    ranks: Sequence[RankFindings] = field(default=(), metadata=UNLESS_EMPTY)
    agreement: Mapping[str, Any] = field(default_factory=dict, metadata=UNLESS_EMPTY)
    interpreters: TwoInterpreters | None = field(default=None, metadata=UNLESS_EMPTY)
    runs_used: int = 0
    tests: int = 0
    seconds: float = 0.0

    @property
    def exit_code(self) -> int:
        """0 without drift beyond rounding, 1 if a person is needed, 3 if a run failed."""
        if self.verdict == "failed":
            return RUN_FAILED
        return 0 if self.verdict in ("identical", "rounding") else NEEDS_A_PERSON


@dataclass(frozen=True, slots=True)
class Findings:
    """An investigation's result. `runs` says for each mode how its run ended; `training_runs` and `steps_trained` count
    the runs of this call, `reused` the existing ones."""

    UNKNOWN_IS_IGNORED: ClassVar[bool] = True

    reproducer: str
    reference: str
    runs: Mapping[str, RunEnding]
    pairs: Sequence[PairFindings]
    training_runs: int = 0
    reused: int = 0
    steps_trained: int = 0
    seconds: float = 0.0
    schema: int = SCHEMA

    @property
    def exit_code(self) -> int:
        return max((pair.exit_code for pair in self.pairs), default=0)

    def to_json(self) -> dict[str, Any]:
        """Return the file's content; numbers that JSON lacks (NaN, infinities) are text."""
        content = of_fields(self)
        return {"schema": content.pop("schema"), **content}  # first, for a reader of the file

    @classmethod
    def from_json(cls, content: Any) -> Findings:
        """Read the findings. Raises Unreadable."""
        # unknown fields are ignored, so that a file of a later version of this schema can be read
        schema = content.get("schema") if isinstance(content, dict) else None
        if schema != SCHEMA:
            raise Unreadable(f"schema {schema!r} is not known (known: {SCHEMA})")
        return read_fields(cls, content)

    def write(self, folder: Path) -> None:
        """Write `investigation.json` in one piece."""
        put(folder / INVESTIGATION, json_text(self, indent=1))

    def update(self, folder: Path) -> None:
        """Put these pairs into `investigation.json`; its other pairs, and its runs, stay."""
        path, content = folder / INVESTIGATION, self.to_json()
        stored = known_content(path)
        # The other pairs are passed on unchanged, so that a file of an older version keeps its content.
        if stored is not None:
            judged = [(pair["a"], pair["b"]) for pair in content["pairs"]]
            other_pairs = [pair for pair in stored["pairs"] if (pair["a"], pair["b"]) not in judged]
            content = {**stored, "runs": stored["runs"] | content["runs"], "pairs": [*other_pairs, *content["pairs"]]}
        put(path, json_text(content, indent=1))


def known_content(path: Path) -> dict[str, Any] | None:
    """The content of an `investigation.json` of this schema, None if there is no usable one."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        # pairs are distinguished by both labels
        usable = content["schema"] == SCHEMA and all({"a", "b"} <= pair.keys() for pair in content["pairs"])
        return content if usable and isinstance(content["runs"], dict) else None
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
