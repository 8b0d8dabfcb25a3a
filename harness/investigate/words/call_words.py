"""Words for calls: the sentences about a training's steps, said about the calls of a function.

    says("the first such step is 2", ["seed 0", "seed 1"])     "the first such call is seed 1"

A check makes each call twice, as two steps. A result of a call is a parameter after its step.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from ...records.run.call_subject import GRADIENT, TIMES, WRITTEN

OF_MODULE = re.compile(r"^(?:optimizedmodule(?:_\d+)?\.)?(?:module\.)?")
"""The beginning of the names of results: of a second function that is called, and of a module's own tensors."""

_NAMES = re.compile(r"\b(?:parameter|buffer|gradient \d+) ([A-Za-z_][\w.]*)|\bthe value of `([^`]*)`")
_SINCE = re.compile(r" from step (\d+) on\b")
_STEPS = re.compile(r"\b(the first such )?step (?:is )?(\d+)\b")
_PHRASES = (
    (re.compile(r"\bof the one step that was scored\b"), "of the call"),
    (re.compile(r"\bof (\d+) steps\b"), r"of \1 calls"),
    (re.compile(r"\bthe whole step\b"), "the whole call"),
    (re.compile(r"\bthe step\b"), "the call"),
    (re.compile(r" (?:in|of) the model itself\b"), ""),
    (re.compile(r"\bthe model itself\b"), "the function itself"),
    (re.compile(r"\bthe script itself\b"), "the function itself"),
    (re.compile(r"\baten\.copy_ in the optimizer reads\b"), "the call returns"),
    (re.compile(r"\bwith report\.html\b"), "with the text that --markdown writes"),
    (re.compile(r"\bno cause was looked for: `numdrift localize [^`]*` takes a step apart"), ""),
)


def call_of(step: int, labels: Sequence[str]) -> str:
    """Return a step's call in words."""
    place = step // TIMES
    return labels[place] if place < len(labels) else f"call {place}"


def result_name(name: str) -> str:
    """Return a recorded value in words: `the gradient of x` for `grad_x`, `the result output` for `output`."""
    kind, _, rest = name.partition(" ")
    if kind == "gradient":
        return f"the gradient of {OF_MODULE.sub('', rest.partition(' ')[2])}"
    rest = OF_MODULE.sub("", rest or kind)
    if rest.startswith(GRADIENT):
        return f"the gradient of {rest.removeprefix(GRADIENT)}"
    if rest.startswith(WRITTEN):
        return f"{rest.removeprefix(WRITTEN)} after the call"
    return rest


def says(text: str, labels: Sequence[str]) -> str:
    """Return a sentence about steps as one about calls, whose words are `labels`."""

    def since(match: re.Match[str]) -> str:
        return f" (first in {call_of(int(match[1]), labels)})" if len(labels) > 1 else ""

    def step(match: re.Match[str]) -> str:
        call = call_of(int(match[2]), labels)
        return f"the first such call is {call}" if match[1] else call

    text = _NAMES.sub(lambda match: result_name(match[2] or match[0]), text)
    text = _STEPS.sub(step, _SINCE.sub(since, text))
    for pattern, replacement in _PHRASES:
        text = pattern.sub(replacement, text)
    return text
