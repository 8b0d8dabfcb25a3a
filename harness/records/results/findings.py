"""The findings of an investigation: the records in `investigation.json`, schema 1.

found = Findings.from_json(json.loads((folder / INVESTIGATION).read_text()))
found.pairs[0].verdict, found.pairs[0].culprits[0].op       ("rounding", "aten.tanh_backward")
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

from ..codec import UNLESS_EMPTY, Unreadable, json_text, of_fields, put, read_fields, schema_first
from ..run.interpreters import TwoInterpreters
from .culprit import Culprit

SCHEMA = 1
INVESTIGATION = "investigation.json"
NEEDS_A_PERSON = 1
RUN_FAILED = 3
WITHIN = ("identical", "rounding")
"""The verdicts of modes that compute the same thing."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict of a pair.

    word: the verdict's word, None if the pair is undecided
    step: the step that the verdict is about
    score: the largest score of a floating-point value over all scored steps, None if no step is scored
    tensor: the value that has this score
    inspect: whether the drift is rounding, but large enough that a person should look at it
    undecided: the reason why the pair is undecided, and what would decide it
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
    """The drift of one value.

    score: the score z; its noise is `noise`, a root mean square
    why: the explanation of a score that is not computed from a distance
    discrete: whether the value consists of integers. Then `distance` is the number of elements that differ, `norm` the
        number of all elements, and `noise` the number of replays with random rounding in which the value differed.
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
    """A resynced step.

    taped: whether the step's noise was measured on the step's own tape
    on_edge: whether a value differs because of a discrete choice that depends on rounding
    discrete: the names of the integer values that differ although rounding does not change them
    explained: "ill-conditioned" if rounding of the ops' inputs causes all of the step's drift
    compared: the number of compared values
    tensors: the values that differ
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


HASH, GENERATORS = "hash seed", "generators"


@dataclass(frozen=True, slots=True)
class PinnedInput:
    """An input that numdrift pins, and on which the script depends.

    input: HASH or GENERATORS
    generators: the generators from which the script draws without having seeded them (`torch`, `python`, `numpy` or a
        kind of device), as far as their recorded states show it
    value, other: the value in every run, and the value in the experiment
    step, what, name, text: the first difference that the other value makes: its step, its kind (`initial`, `batch`,
        `loss`, `gradient` or `value`), its name, and a phrase
    run: the folder of the experiment, in the investigation's folder `evidence`
    lines: for HASH, the lines of the user's files that have a set whose order may matter, or that call hash()
    """

    UNKNOWN_IS_IGNORED: ClassVar[bool] = True

    input: str
    generators: Sequence[str] = ()
    value: int = 0
    other: int = 0
    step: int = 0
    what: str = ""
    name: str = ""
    text: str = ""
    run: str = ""
    lines: Sequence[str] = ()


JUMP = "jump"
"""The aspect of a step in which two runs suddenly diverge."""


@dataclass(frozen=True, slots=True)
class StepKind:
    """A kind of steps, such as those with a batch of one shape.

    aspect: the respect in which the steps are alike: `optimizer`, `batch`, `calls`, `schedule`, `groups`, `gradients`,
        `graph` or `jump`
    text: the steps in words, such as `with a batch of 16x8 (float32)`
    steps, first: the number of these steps, and the first of them
    compared: the number of these steps that both modes have computed from the same state, and that were compared
    """

    UNKNOWN_IS_IGNORED: ClassVar[bool] = True

    aspect: str
    text: str
    steps: int = 0
    first: int = 0
    compared: int = 0


@dataclass(frozen=True, slots=True)
class RunEnding:
    """The end of a mode's run.

    spec: the mode as the user stated it
    path: the run's folder, relative to the investigation's folder
    """

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
    """A step's `score` in the mode, and its scores with different stages and settings of the compiler."""

    UNKNOWN_IS_IGNORED: ClassVar[bool] = True

    step: int
    score: float
    stages: Mapping[str, float] = field(default_factory=dict)
    settings: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PartCarrier:
    """A part of a model that carries a drift.

    operators: its operators as (name, line, module)
    alone: the step's score with only these operators on the backend
    without: the step's score with these operators and those of all earlier carriers kept off the backend
    """

    UNKNOWN_IS_IGNORED: ClassVar[bool] = True

    operators: Sequence[tuple[str, str, str]]
    alone: float
    without: float


@dataclass(frozen=True, slots=True)
class PartScores:
    """The scores of a step with parts of the model on the mode's `backend`.

    score: the step's score in the mode
    whole: the step's score with the whole model on the backend
    asked: the number of partitions that were tried
    left_out: the kinds of operators that stay on the CPU
    reason: why there are no scores; then only `step` and `reason` are set
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
    """A training run to the end in the mode `spec`, in which `swaps` take the place of the culprits.

    `inside` says whether the run's losses stay inside the envelope; None if that is unknown. `left` lists the culprits
    that no key of a mode swaps out; if there are any, the run was not made.
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

    verdict: a word of the glossary, None if the pair is undecided
    text: sentences for people
    undecided: what would decide an undecided pair
    score, threshold: multiples of the reference's rounding noise
    closer_to_fp64: a mode's name, `equal`, or None without a referee
    explained: the share of the localized step's drift that disappears when all proven culprits are swapped out together
    unexplained: the drift that is left or was excluded, or the reason why no cause was looked for; a pair that differs
        has `explained`, `unexplained` or both
    steps: each step's score, and the scores of its tensors
    kinds: the kinds of the training's steps, and how many steps of each were compared; empty if all steps are alike
    curve, lag: the results of the training runs to the end
    compiler: the scores of a step with different stages and settings of the compiler
    parts: the scores of a step with parts of the model on the mode's backend
    without: the training run to the end with the culprits swapped out
    ranks: for runs of several processes, the verdict of each rank; the worst of them is the pair's verdict
    agreement: for each run of several processes, whether its ranks have the same parameters
    interpreters: the differences between the interpreters of the two runs
    pinned: the inputs that numdrift pins and on which the script depends, as far as experiments have shown it
    runs_used, tests: the number of training runs, and the number of hybrids that were executed

    The contents of the fields of type `Mapping[str, Any]` are not checked when the file is read.
    """

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
    kinds: Sequence[StepKind] = field(default=(), metadata=UNLESS_EMPTY)
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
    pinned: Sequence[PinnedInput] = field(default=(), metadata=UNLESS_EMPTY)
    runs_used: int = 0
    tests: int = 0
    seconds: float = 0.0

    @property
    def exit_code(self) -> int:
        """The exit code: 0 without drift beyond rounding, 1 if a person is needed, 3 if a run failed."""
        if self.verdict == "failed":
            return RUN_FAILED
        return 0 if self.verdict in WITHIN else NEEDS_A_PERSON


@dataclass(frozen=True, slots=True)
class Findings:
    """The result of an investigation.

    runs: the end of each mode's run, by the mode's label
    training_runs, steps_trained: the number of training runs that this investigation executed, and of their steps
    reused: the number of existing runs that were used instead of new ones
    """

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
        return schema_first(self)

    @classmethod
    def from_json(cls, content: Any) -> Findings:
        """Read the findings. Raises Unreadable."""
        # unknown fields are ignored, so that a file can be read to which a later version has added fields
        schema = content.get("schema") if isinstance(content, dict) else None
        if schema != SCHEMA:
            raise Unreadable(f"schema {schema!r} is unknown (known: {SCHEMA})")
        return read_fields(cls, content)

    def write(self, folder: Path) -> None:
        """Write `investigation.json` atomically."""
        put(folder / INVESTIGATION, json_text(self, indent=1))

    def update(self, folder: Path) -> None:
        """Write these pairs and runs into `investigation.json`; the other pairs and runs in the file stay."""
        path, content = folder / INVESTIGATION, self.to_json()
        stored = usable_content(path)
        # The other pairs are copied as they are in the file, so that those of an older version keep their content.
        if stored is not None:
            judged = [(pair["a"], pair["b"]) for pair in content["pairs"]]
            other_pairs = [pair for pair in stored["pairs"] if (pair["a"], pair["b"]) not in judged]
            content = {**stored, "runs": stored["runs"] | content["runs"], "pairs": [*other_pairs, *content["pairs"]]}
        put(path, json_text(content, indent=1))


def usable_content(path: Path) -> dict[str, Any] | None:
    """Return the content of an `investigation.json` of this schema, None if there is no usable one."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        # a pair is identified by both labels together
        usable = content["schema"] == SCHEMA and all({"a", "b"} <= pair.keys() for pair in content["pairs"])
        return content if usable and isinstance(content["runs"], dict) else None
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
