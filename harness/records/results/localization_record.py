"""The files and the content of a localization, for its readers."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, cast

from ...errors import JournalError
from ..codec import Unreadable, json_text, put, read
from .culprit import AGAIN, Culprit

SCHEMA = 1
RESULT = "localization.json"


@dataclass(frozen=True, slots=True)
class LocalizedSide:
    """A side of a localization.

    label: the label of the side's run
    tapes: the folder of the side's tapes
    socket: the socket of the side's worker, "" if there is no worker
    outcome: the file with the step's outcome in the mode's own run, "" if the tape was recorded in that run
    spec: the side's mode as the user stated it
    """

    label: str
    tapes: Path
    socket: str
    outcome: str
    spec: str


@dataclass(frozen=True, slots=True)
class LocalizerConfig:
    """The configuration of the localizer, in one JSON file.

    noise: the folder of the run that measured the reference's noise
    interpreter: the socket of the interpreter that executes standalone scripts, "" if no scripts are written
    inputs: the facts that the result depends on, which are written to the result's file
    own: those arguments of the models that the script computes itself; None if a batch that differs is not to be traced
        back to its causes
    prepared: whether the tapes were recorded before the scripts' first step
    seconds: the time after which causes that are not significant are no longer tested; None for no limit
    """

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
    seconds: float | None = None


BESIDE = 0.1
"""The share of a step's score above which a difference between the step and its tape is significant."""


@dataclass(frozen=True, slots=True)
class LeftOver:
    """The part of a step's drift that is left when all proven causes are swapped out together.

    explained: the share of the drift that disappears, None if the step does not drift or the causes cannot be swapped
        out together
    score, discrete: the drift that is left: its score, and the number of integer values that still differ
    untested: the ops that may differ, but whose hybrids could not be executed
    blocks: the number of blocks of the untested ops
    why: the reason why the causes cannot be swapped out together
    """

    UNKNOWN_IS_IGNORED: ClassVar[bool] = True

    explained: float | None = None
    score: float | None = None
    discrete: int = 0
    untested: Sequence[str] = ()
    blocks: int = 0
    why: str = ""


@dataclass(frozen=True, slots=True)
class Localization:
    """The findings in one step of a pair.

    `content` is the content of the file: the ranked `culprits`, the step's `score`, the score that is left when all
    culprits are swapped out (`rest`), the number of executed hybrids (`tests`), `seconds` and `notes`. `reason` says
    why the localization failed, if it did.
    """

    path: Path
    content: Mapping[str, Any]

    @property
    def step(self) -> int:
        return int(self.content["step"])

    @property
    def reason(self) -> str:
        return str(self.content.get("reason") or "")

    @property
    def was_cut_short(self) -> bool:
        """Return whether some causes were not tested because the time for the search was over."""
        return bool(self.content.get("cut_short"))

    @property
    def op_by_op_differs(self) -> list[str]:
        """The values in which the mode's step, executed op by op, differs from the mode's own execution."""
        return list(self.content.get("op_by_op_differs") or ())

    def is_of_another_step(self, score: float) -> bool:
        """Return whether a tape differs from its mode's execution by more than the share BESIDE of the step's `score`.

        A few bits may differ because a library took a different path. They do not matter beside the drift of a wrong
        kernel.
        """
        apart = [float(difference) for difference in (self.content.get("apart") or {}).values()]
        return any(difference > BESIDE * score for difference in apart)

    @property
    def is_drawn_again(self) -> bool:
        """Return whether the mode drew more random numbers than the reference because it executed an op repeatedly."""
        draws = self.content.get("draws") or {}
        again = any(reason.startswith(AGAIN) for culprit in self.culprits for reason in culprit.reasons)
        return again and int(draws.get("b", 0)) > int(draws.get("a", 0))

    @property
    def left(self) -> LeftOver:
        """The drift that is left. It is read from the file, or computed from the scores if an older file lacks it."""
        stored = self.content.get("left")
        if stored is not None:
            return cast(LeftOver, stored)
        before, remaining = self.content.get("score"), self.content.get("rest")
        if before is None or remaining is None or not float(before):
            return LeftOver()
        share = 1.0 if math.isinf(float(before)) else 1 - float(remaining) / float(before)
        return LeftOver(0.0 if math.isinf(float(remaining)) else max(0.0, share), float(remaining))

    @property
    def choices(self) -> Mapping[str, Any]:
        """The drift that is left if the mode makes the reference's discrete choices.

        The keys are `score`, `discrete`, `flipped` and `ops`.
        """
        return dict(self.content.get("choices") or {})

    def hangs_on_choices(self, threshold: float) -> bool:
        """Return whether no drift beyond the threshold is left if the mode makes the reference's discrete choices."""
        choices = self.choices
        return bool(choices) and float(choices["score"]) <= threshold and not choices["discrete"]

    def is_explained(self, threshold: float) -> bool:
        """Return whether the drift comes from a discrete choice that rounding alone can change.

        If a choice changes because a wrong op has moved its input, the op is at fault: the choice does not explain the
        drift that the op causes by itself.
        """
        wrong_alone = any(
            culprit.is_wrong_by_itself
            and culprit.proof is not None
            and (culprit.proof.swap_in.score_after or 0.0) > threshold
            for culprit in self.culprits
        )
        return self.hangs_on_choices(threshold) and not wrong_alone

    def is_ill_conditioned(self, threshold: float) -> bool:
        """Return whether proven, ill-conditioned ops explain all of a drift beyond the threshold.

        The error of each op is then within the error that rounding of the op's own inputs causes. If the replay of a
        tape with its own kernels differs from the tape, the difference must be within rounding too.
        """
        beyond = [culprit for culprit in self.culprits if culprit.significance == "beyond-rounding"]
        remaining, controls = self.content.get("rest"), self.content.get("controls") or {}
        scores = self.content.get("control_scores") or {}
        repeats = all(is_same or float(scores.get(side, math.inf)) <= threshold for side, is_same in controls.items())
        drift_goes = remaining is not None and float(remaining) <= threshold and repeats
        return (
            bool(beyond)
            and drift_goes
            and all(culprit.is_proven and culprit.is_within_its_inputs for culprit in beyond)
        )

    @property
    def culprits(self) -> list[Culprit]:
        return list(self.content.get("culprits", ()))


def write_localization(folder: Path, content: Mapping[str, Any]) -> None:
    """Write a result atomically."""
    put(folder / RESULT, json_text(content, indent=1))


def read_localization(folder: Path) -> Localization | None:
    """Read the localization in a folder; return None if there is none. Raises JournalError if it is damaged."""
    path = folder / RESULT
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise JournalError(path, f"cannot be read: {error}") from error
    if not isinstance(content, dict) or content.get("schema") != SCHEMA or not isinstance(content.get("step"), int):
        raise JournalError(path, f"is not a localization of schema {SCHEMA}")
    try:
        culprits = read(list[Culprit], content.get("culprits", []))
    except Unreadable as error:
        raise JournalError(path, f"is invalid: culprits{error}") from error
    try:
        left_over = {"left": read(LeftOver, content["left"])} if "left" in content else {}
    except Unreadable as error:
        raise JournalError(path, f"is invalid: left{error}") from error
    return Localization(folder, {**content, "culprits": culprits, **left_over})
