"""The questions of an investigation, in the order in which they are asked.

A new way to look for causes is a file of its own and a line here (and a row in `records/experiment.py` for a
new kind of experiments). The method asks it, and the judge takes up what it answers.
"""

from __future__ import annotations

from .compiler_settings import CompilerSettings
from .draws import Draws
from .mark_steps import MarkSteps
from .ops import Ops
from .part_search import ModelParts
from .preparation import Preparation
from .question import Question
from .repetitions import Repetitions

QUESTIONS: dict[str, Question] = {
    "ops": Ops(),
    "mark_steps": MarkSteps(),
    "compiler": CompilerSettings(),
}
"""Questions that are asked of every step that is looked into."""

LAST_QUESTIONS: dict[str, Question] = {
    "repetitions": Repetitions(),
    "draws": Draws(),
    "preparation": Preparation(),
    "parts": ModelParts(),
}
"""Questions that are asked once, of the step in which the search came to rest, or of none: they take runs of their
own."""
