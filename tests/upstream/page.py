"""The page of `scripts/bench upstream`: a table of issues, what upstream said, and what numdrift says."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

PAGE = Path(__file__).parents[2] / "docs/reference/upstream.md"

FAULTS = ("beyond-rounding", "nonfinite", "other-results", "raises", "nondeterministic", "different-setup")
KINDS: Mapping[str, Sequence[str]] = {
    "fault": FAULTS,
    "raises": ("raises",),
    "rounding": ("rounding", "identical"),
    "fixed": ("rounding", "identical"),
}
"""The verdicts that are right, by what plain PyTorch shows."""


@dataclass(frozen=True, slots=True)
class Answer:
    """The answers to a case.

    verdict, text, cause: numdrift's verdict, its sentence, and the first cause that it names
    seconds: how long numdrift took
    bisector, bisector_seconds: what CompilerBisector names, "" if it was left out, and how long it took
    """

    number: int
    verdict: str
    text: str
    cause: str
    seconds: float
    bisector: str
    bisector_seconds: float


def is_right(case: Mapping[str, Any], answer: Answer) -> bool:
    return answer.verdict in KINDS.get(case["expected"], ())


def page(cases: Sequence[Mapping[str, Any]], answers: Sequence[Answer], provenance: str) -> str:
    """Return the page: the counts, then a table with a row for each case that was answered."""
    by_number = {answer.number: answer for answer in answers}
    rows = [(case, by_number[case["number"]]) for case in cases if case["number"] in by_number]
    lines = [
        "# Issues of PyTorch",
        "",
        "This page shows what [`numdrift check`](../guide/check.md) says about reproducers of numerical issues of PyTorch.",
        "Each script was written anew from the report. `scripts/bench upstream` runs",
        "`numdrift check issue_NUMBER.py`, and PyTorch's CompilerBisector on the same calls, with a",
        f"tolerance of 1e-4. All was {provenance}. The command wrote this page.",
        "",
        *_counts(rows),
        "",
        "A *fault* counts as right if the verdict is any but `identical` and `rounding`. The first cause is the first proven one.",
        "numdrift makes compiled code draw eager's random numbers (`fallback_random=on`), so that draws can be compared: a fault of",
        "Inductor's own generator (#194547) is not seen.",
        "",
        "| issue | upstream said | plain PyTorch shows | numdrift says | first cause | seconds | right | CompilerBisector | seconds |",
        "|---|---|---|---|---|--:|---|---|--:|",
    ]
    for case, answer in rows:
        link = f"[#{case['number']}](https://github.com/pytorch/pytorch/issues/{case['number']}): {case['title']}"
        cells = (
            link, case["upstream"], f"{case['expected']}: {case['measured']}", answer.verdict, answer.cause,
            f"{answer.seconds:.0f}", "yes" if is_right(case, answer) else "**no**", answer.bisector,
            f"{answer.bisector_seconds:.0f}" if answer.bisector else "",
        )  # fmt: skip
        lines.append(f"| {' | '.join(' '.join(cell.split()).replace('|', '/') for cell in cells)} |")
    return "\n".join(lines) + "\n"


def _counts(rows: Sequence[tuple[Mapping[str, Any], Answer]]) -> list[str]:
    lines = []
    for kind in KINDS:
        of_kind = [(case, answer) for case, answer in rows if case["expected"] == kind]
        if of_kind:
            right = sum(is_right(case, answer) for case, answer in of_kind)
            lines.append(f"- {kind}: {right} of {len(of_kind)} right")
    if rows:
        seconds = median(answer.seconds for _, answer in rows)
        lines.append(f"- numdrift took {seconds:.0f} seconds per issue (median)")
    bisected = [answer for _, answer in rows if answer.bisector]
    if bisected:
        named = sum("no issue" not in answer.bisector and "none" not in answer.bisector for answer in bisected)
        seconds = median(answer.bisector_seconds for answer in bisected)
        lines.append(
            f"- CompilerBisector named a backend or a part of one for {named} of {len(bisected)}, in {seconds:.0f} "
            "seconds (median)"
        )
    return lines
