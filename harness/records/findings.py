"""What an investigation found: the records behind `investigation.json`, schema 1.

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
    """The one word for a pair. `word` is None where nothing decides; then `undecided` says why, and what would.

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
    """A step that was started from the reference's state: of its `compared` values those that differ. `taped` says
    that its noise was measured on its own tape, `discrete` names integers that differ though rounding leaves them, and
    `explained` is "ill-conditioned" where rounding of their inputs causes all of the drift in the ops that make it."""

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
    """How a mode's run ended; `spec` is the mode as it was given, `path` its folder in that of the investigation."""

    UNKNOWN_IS_IGNORED: ClassVar[bool] = True

    status: str = ""
    steps: int = 0
    seconds: float = 0.0
    message: str = ""
    spec: str = ""
    path: str = ""


@dataclass(frozen=True, slots=True)
class RankFindings:
    """What a rank says, held against the same rank of the reference."""

    UNKNOWN_IS_IGNORED: ClassVar[bool] = True

    rank: int
    verdict: str | None
    text: str = ""
    score: float | None = None
    first_differing_step: int | None = None
    first_significant_step: int | None = None


@dataclass(frozen=True, slots=True)
class CompilerScores:
    """A step's `score` as the mode is, and those with other stages and settings of the compiler."""

    UNKNOWN_IS_IGNORED: ClassVar[bool] = True

    step: int
    score: float
    stages: Mapping[str, float] = field(default_factory=dict)
    settings: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PartCarrier:
    """A part of a model that carries a drift: its `operators` as (name, line, module), the step's score with them
    `alone` on the backend, and `without` them and all carriers before."""

    UNKNOWN_IS_IGNORED: ClassVar[bool] = True

    operators: Sequence[tuple[str, str, str]]
    alone: float
    without: float


@dataclass(frozen=True, slots=True)
class PartScores:
    """A step's `score` as the mode is, and with the `whole` model on the `backend`; `asked` counts the partitions,
    `left_out` are kinds of operators that stay on the CPU. Only `step` and `reason` where there is no answer."""

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
    """A whole training in the mode `spec` with `swaps` in place of the culprits. `inside` the envelope is None where
    that is not known; `left` are the culprits that no key of a mode takes out, and then there was no training."""

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
    """What is known of one pair; `a` is the reference.

    `verdict` is a word of the design, None where nothing decides (then `undecided` says what would). `text`
    are sentences for people. `score` and `threshold` are multiples of the reference's rounding noise.
    `closer_to_fp64` is a mode's name, `equal`, or None without a referee. `explained` is the share of the drift of the
    step that was taken apart which goes with all proven culprits together, `unexplained` what is left or was excluded,
    or why no cause was looked for; of a pair that differs one of the two says something. `steps` holds each step's
    score and those of its tensors, `curve` and `lag` what the whole trainings say. `compiler` has the scores of a step
    with other stages and settings of the compiler, `parts` those of a step with parts of the model on the
    mode's backend, `without` the whole training with the culprits swapped out. `runs_used` counts the
    trainings behind all this, `tests` the hybrids of two tapes. Of runs of several processes `ranks` has the
    verdict of each rank, the worst of which is the pair's, and `agreement` says of each run whether its ranks
    hold the same parameters. `interpreters` says what differs between those of the two runs. What is
    a mapping of anything is written for people, and read by nobody here."""

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
        """0 without drift beyond rounding, 1 where a person is needed, 3 where a run failed."""
        if self.verdict == "failed":
            return RUN_FAILED
        return 0 if self.verdict in ("identical", "rounding") else NEEDS_A_PERSON


@dataclass(frozen=True, slots=True)
class Findings:
    """An investigation's result. `runs` says of each mode how its run ended; `training_runs` and `steps_trained` count
    what this call ran, `reused` what was there already."""

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
        """The file's content; what JSON has no number for (NaN, infinities) is text."""
        content = of_fields(self)
        return {"schema": content.pop("schema"), **content}  # first, for whoever looks into the file

    @classmethod
    def from_json(cls, content: Any) -> Findings:
        """Raises Unreadable."""
        # unknown fields are ignored, so that a file of a later version of this schema can be read
        schema = content.get("schema") if isinstance(content, dict) else None
        if schema != SCHEMA:
            raise Unreadable(f"schema {schema!r} is not known (known: {SCHEMA})")
        return read_fields(cls, content)

    def write(self, folder: Path) -> None:
        """Put `investigation.json` in place in one piece."""
        put(folder / INVESTIGATION, json_text(self, indent=1))

    def update(self, folder: Path) -> None:
        """Put these pairs into `investigation.json`; what it says of others, and of what was run, stays."""
        path, content = folder / INVESTIGATION, self.to_json()
        known = known_content(path)
        # The others are passed on as they lie there, so that a file of an older version keeps what it says.
        if known is not None:
            judged = [(pair["a"], pair["b"]) for pair in content["pairs"]]
            others = [pair for pair in known["pairs"] if (pair["a"], pair["b"]) not in judged]
            content = {**known, "runs": known["runs"] | content["runs"], "pairs": [*others, *content["pairs"]]}
        put(path, json_text(content, indent=1))


def known_content(path: Path) -> dict[str, Any] | None:
    """The content of an `investigation.json` of this schema, None where there is none that can be used."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        # pairs are told apart by the labels of both
        usable = content["schema"] == SCHEMA and all({"a", "b"} <= pair.keys() for pair in content["pairs"])
        return content if usable and isinstance(content["runs"], dict) else None
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
