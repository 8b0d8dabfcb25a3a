"""The questions of an investigation, in the order in which they are asked.

A new way to look for causes needs its own file, a line here, and a row in `records/results/experiment.py` if it
has a new kind of experiment. The method asks the question, and the judge uses its answers.
"""

from __future__ import annotations

from .deterministic_pair import DeterministicPair
from .draws import Draws
from .mark_steps import MarkSteps
from .ops import Ops
from .part_search import ModelParts
from .pinned_inputs import PinnedInputs
from .preparation import Preparation
from .question import Question
from .repetitions import Repetitions
from .split_weights import SplitWeights
from .stages_and_settings import StagesAndSettings
from .taped_calls import TapedCalls

QUESTIONS: dict[str, Question] = {
    "ops": Ops(),
    "mark_steps": MarkSteps(),
    "compiler": StagesAndSettings(),
    "weights": SplitWeights(),
}
"""The questions that are asked about every examined step."""

LAST_QUESTIONS: dict[str, Question] = {
    "taped_calls": TapedCalls(),
    "deterministic": DeterministicPair(),
    "repetitions": Repetitions(),
    "draws": Draws(),
    "preparation": Preparation(),
    "parts": ModelParts(),
    "pinned_inputs": PinnedInputs(),
}
"""The questions that are asked once, about the last step that the search examined, or about no step. They need further
runs."""

SOUGHT = {
    "mark_steps": "where the graphs of lazy tensors end",
    "compiler": "the compiler's stages and settings",
    "weights": "the weights that the script splits",
    "taped_calls": "the calls that are recorded but not executed",
    "deterministic": "the modes with deterministic kernels",
    "repetitions": "what does not repeat",
    "draws": "the lines that draw random numbers",
    "preparation": "what happened before the first step",
    "parts": "the parts of the model on the mode's backend",
    "pinned_inputs": "the inputs on which the script depends",
}
"""What each question except `ops` looks for, in words for the parts of a search that were left out."""
