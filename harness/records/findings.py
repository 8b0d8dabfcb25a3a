"""What an investigation found: the records behind `investigation.json`, schema 1."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from .codec import UNLESS_EMPTY, json_text, of_fields, put
from .culprit import Culprit

SCHEMA = 1
INVESTIGATION = "investigation.json"
NEEDS_A_PERSON = 1
RUN_FAILED = 3


@dataclass(frozen=True, slots=True)
class PairFindings:
    """What is known of one pair; `a` is the reference.

    `verdict` is a word of the design, None where nothing decides (then `undecided` says what would). `text`
    are sentences for people. `score` and `threshold` are multiples of the reference's rounding noise.
    `closer_to_fp64` is a mode's name, `equal`, or None without a referee. `steps` holds each step's score and
    those of its tensors, `curve` and `lag` what the whole trainings say. `compiler` has the scores of a step
    with other stages and settings of the compiler, `parts` those of a step with parts of the model on the
    mode's backend, `without` the whole training with the culprits swapped out. `runs_used` counts the
    trainings behind all this, `tests` the hybrids of two tapes. Of runs of several processes `ranks` has the
    verdict of each rank, the worst of which is the pair's, and `agreement` says of each run whether its ranks
    hold the same parameters."""

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
    controls: Mapping[str, Any] = field(default_factory=dict)
    noise: str = ""
    steps: Sequence[Mapping[str, Any]] = ()
    losses: Mapping[str, Any] = field(default_factory=dict)
    curve: Mapping[str, Any] | None = None
    lag: Mapping[str, Any] | None = None
    compiler: Mapping[str, Any] | None = None
    parts: Mapping[str, Any] | None = None
    without: Mapping[str, Any] | None = None
    notes: Sequence[str] = ()
    ranks: Sequence[Mapping[str, Any]] = field(default=(), metadata=UNLESS_EMPTY)
    agreement: Mapping[str, Any] = field(default_factory=dict, metadata=UNLESS_EMPTY)
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

    reproducer: str
    reference: str
    runs: Mapping[str, Mapping[str, Any]]
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
        return {"schema": content.pop("schema"), **content}

    def write(self, folder: Path) -> None:
        """Put `investigation.json` in place in one piece."""
        put(folder / INVESTIGATION, json_text(self, indent=1))

    def update(self, folder: Path) -> None:
        """Put these pairs into `investigation.json`; what it says of others, and of what was run, stays."""
        path, content = folder / INVESTIGATION, self.to_json()
        known = known_findings(path)
        if known is not None:
            judged = [(pair["a"], pair["b"]) for pair in content["pairs"]]
            others = [pair for pair in known["pairs"] if (pair["a"], pair["b"]) not in judged]
            content = {
                **known,
                "runs": known["runs"] | content["runs"],
                "pairs": [*others, *content["pairs"]],
            }
        put(path, json_text(content, indent=1))


def known_findings(path: Path) -> dict[str, Any] | None:
    """The content of an `investigation.json` of this schema, None where there is none that can be used."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        usable = content["schema"] == SCHEMA and all({"a", "b"} <= pair.keys() for pair in content["pairs"])
        return content if usable and isinstance(content["runs"], dict) else None
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None
