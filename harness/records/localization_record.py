"""Where a localization lies and what it says, for those who only read it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, cast

from ..errors import JournalError
from .codec import Unreadable, json_text, put, read
from .culprit import AGAIN, Culprit

SCHEMA = 1
RESULT = "localization.json"


@dataclass(frozen=True, slots=True)
class LocalizedSide:
    """One side of a localization: its label, the folder of its tapes, the socket of its held process ("" without one),
    the file of what the mode itself made of the step ("" where that is the tape's own run), and its mode as given."""

    label: str
    tapes: Path
    socket: str
    outcome: str
    spec: str


@dataclass(frozen=True, slots=True)
class LocalizerConfig:
    """What the localizer is told, in one JSON file. `noise` is the run that measured the reference's noise; `inputs`
    are written down beside the result. `interpreter` is the address of the one that executes scripts, "" where none are
    to be written. Where a batch differs it is followed up the tape, and `own` are the arguments that the training makes
    itself; None where there is nothing to follow. `prepared` says that the tapes are those of what the scripts did
    before their first step."""

    a: LocalizedSide
    b: LocalizedSide
    step: int
    noise: Path
    threshold: float
    folder: Path
    threads: int
    interpreter: str
    inputs: Mapping[str, Any]
    own: Sequence[str] | None = None
    prepared: bool = False


BESIDE = 0.1
"""The share of a step's score from which on what is not on its tape counts."""


@dataclass(frozen=True, slots=True)
class LeftOver:
    """What is left of a step's drift where all proven causes are swapped out together: `explained` is the share that
    goes (None where the step does not drift, or they cannot be swapped out together, as `why` says), `score` and
    `discrete` what stays. `untested` are the ops that may differ and whose hybrids could not be executed, in so many
    `blocks`."""

    UNKNOWN_IS_IGNORED: ClassVar[bool] = True

    explained: float | None = None
    score: float | None = None
    discrete: int = 0
    untested: Sequence[str] = ()
    blocks: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class Localization:
    """What was found in one step of a pair. `content` is the file's: `culprits` ranked, `score` before and
    `rest` after all of them are swapped out, `tests` (hybrids executed), `seconds`, `notes`; `reason` where
    nothing could be found."""

    path: Path
    content: Mapping[str, Any]

    @property
    def step(self) -> int:
        return int(self.content["step"])

    @property
    def reason(self) -> str:
        return str(self.content.get("reason") or "")

    @property
    def op_by_op_differs(self) -> list[str]:
        """The values that the step op by op gives and the mode's own execution does not."""
        return list(self.content.get("op_by_op_differs") or ())

    def is_of_another_step(self, score: float) -> bool:
        """Whether what is on a tape is not what its mode has executed, by more than counts beside the step's `score`:
        of the other bits of a library's other path nobody wants to know where a kernel is wrong."""
        apart = [float(one) for one in (self.content.get("apart") or {}).values()]
        return any(one > BESIDE * score for one in apart)

    @property
    def is_drawn_again(self) -> bool:
        """Whether the mode has drawn more than the reference because it has executed something again."""
        draws = self.content.get("draws") or {}
        again = any(reason.startswith(AGAIN) for one in self.culprits for reason in one.reasons)
        return again and int(draws.get("b", 0)) > int(draws.get("a", 0))

    @property
    def left(self) -> LeftOver:
        """As the file has it; one of before says it in the proofs of its culprits."""
        known = self.content.get("left")
        if known is not None:
            return cast(LeftOver, known)
        before, rest = self.content.get("score"), self.content.get("rest")
        if before is None or rest is None or not float(before):
            return LeftOver()
        share = 1.0 if math.isinf(float(before)) else 1 - float(rest) / float(before)
        return LeftOver(0.0 if math.isinf(float(rest)) else max(0.0, share), float(rest))

    @property
    def choices(self) -> Mapping[str, Any]:
        """What is left of the drift with the reference's discrete choices: `score`, `discrete`, `flipped`, `ops`."""
        return dict(self.content.get("choices") or {})

    def hangs_on_choices(self, threshold: float) -> bool:
        """Whether none of the drift is left with the reference's discrete choices."""
        choices = self.choices
        return bool(choices) and float(choices["score"]) <= threshold and not choices["discrete"]

    def is_explained(self, threshold: float) -> bool:
        """Whether the drift is that of a discrete choice on the edge. A choice that falls otherwise because something
        wrong has moved its input is that one's doing, and excuses no drift which that makes alone."""
        made = any(
            one.is_wrong_by_itself and one.proof is not None and (one.proof.swap_in.score_after or 0.0) > threshold
            for one in self.culprits
        )
        return self.hangs_on_choices(threshold) and not made

    def is_ill_conditioned(self, threshold: float) -> bool:
        """Whether all of a drift beyond the threshold goes with proven ops, each of which errs by no more than what
        rounding of its own inputs causes. What a tape, executed by its own kernels, does not give again is no more than
        rounding either."""
        found = [one for one in self.culprits if one.significance == "beyond-rounding"]
        rest, controls = self.content.get("rest"), self.content.get("controls") or {}
        scores = self.content.get("control_scores") or {}
        again = all(same or float(scores.get(side, math.inf)) <= threshold for side, same in controls.items())
        gone = rest is not None and float(rest) <= threshold and again
        return bool(found) and gone and all(one.is_proven and one.is_within_its_inputs for one in found)

    @property
    def culprits(self) -> list[Culprit]:
        return list(self.content.get("culprits", ()))


def write_localization(folder: Path, content: Mapping[str, Any]) -> None:
    """Put a result in place in one piece."""
    put(folder / RESULT, json_text(content, indent=1))


def read_localization(folder: Path) -> Localization | None:
    """None where there is none. Raises JournalError for a damaged one."""
    path = folder / RESULT
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise JournalError(path, f"cannot be read: {error}") from error
    if not isinstance(content, dict) or content.get("schema") != SCHEMA or not isinstance(content.get("step"), int):
        raise JournalError(path, f"is no localization of schema {SCHEMA}")
    try:
        culprits = read(list[Culprit], content.get("culprits", []))
    except Unreadable as error:
        raise JournalError(path, f"is not as expected: culprits{error}") from error
    try:
        left = {"left": read(LeftOver, content["left"])} if "left" in content else {}
    except Unreadable as error:
        raise JournalError(path, f"is not as expected: left{error}") from error
    return Localization(folder, {**content, "culprits": culprits, **left})
