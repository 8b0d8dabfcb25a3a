"""The part of an answer for a pair with two interpreters: both versions of torch, and how to find out whether the
version or the mode causes the difference."""

from __future__ import annotations

from ..records.results.findings import PairFindings
from ..records.run.interpreters import MODE, VERSION, TwoInterpreters

WITH_A_CAUSE = ("rounding", "beyond-rounding", "different-setup", "nonfinite")
"""The verdicts on a difference that a different version of torch can cause."""


def named_versions(pair: PairFindings, two: TwoInterpreters) -> str:
    """Return the words about the versions, which follow the sentence that says what happened."""
    torch_a, torch_b = two.torch["a"], two.torch["b"]
    named = f"two interpreters with the same torch {torch_a}"
    if two.are_two_versions:
        named = f"torch {torch_b} against {torch_a}"
    if pair.verdict not in WITH_A_CAUSE:
        return f" ({named})"
    if two.blame == VERSION:
        what = "the version of torch" if two.are_two_versions else "the interpreter"
        return f"; the modes are the same, and only {what} differs ({named})"
    if two.blame == MODE:
        own = f"{pair.b}, executed with the plain kernels of its own torch, equals {pair.a} bit for bit"
        return f"; that comes from the mode, not the version ({named}), because {own}"
    what = "the version" if two.are_two_versions else "the interpreter"
    return f"; that may come from {what}, not the mode ({named})"


def advice(pair: PairFindings, two: TwoInterpreters) -> str:
    """Return words on how to find out whether the version or the mode is the cause; "" if there is no need or no way
    to."""
    if pair.verdict not in WITH_A_CAUSE or not two.command:
        return ""
    why = "to find out whether the version or the mode is the cause"
    return f"{why}, run the reference in the same interpreter: {two.command}"
