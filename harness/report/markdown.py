"""A report as Markdown for an issue tracker: the answer, the numbers, the causes with their proofs, and the script that
shows the first cause without numdrift. Fewer than 60 lines are visible; readers can unfold the rest."""

from __future__ import annotations

import re
from collections.abc import Sequence

from .report_page import number
from .rows import CulpritCard, PairRows, Report

CARDS = 4
"""The largest number of causes that are listed for a pair. The HTML page lists all."""

OPEN = "<details><summary>{}</summary>"
CLOSE = "</details>"

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>|#~@])")


def markdown_of(report: Report) -> str:
    """Return the report as text. Strings from a run are escaped, so that they are shown literally, and an `@` in them
    mentions nobody."""
    lines = [f"### {text(report.script)}: {text(', '.join(report.modes))}", ""]
    for pair in report.pairs:
        lines += _pair(pair)
    differing = [row for row in report.environment if row.differs]
    same = {row.name: row.values[0] for row in report.environment if not row.differs and row.values}
    facts = [f"{name} {same[name]}" for name in ("torch", "python", "cpu capability", "threads") if name in same]
    lines.append(f"Environment: {text(', '.join(facts))}.")
    for row in differing:
        lines.append(f"- differs: {text(row.name)}: {text(' against '.join(row.values))}")
    lines += ["", "```", report.command, "```", ""]
    return "\n".join(lines)


def _pair(pair: PairRows) -> list[str]:
    findings, answer = pair.findings, pair.answer
    lines = [
        f"**{text(answer.what)}.**",
        "",
        f"- verdict: {findings.verdict or 'undecided'} ({text(findings.b)} against {text(findings.a)})",
        f"- how sure: {text(answer.sure)}",
        f"- what to do: {text(answer.todo)}",
        *([f"- {text(two.sentence(findings.a, findings.b))}"] if (two := findings.interpreters) is not None else []),
        "",
    ]
    if pair.cards:
        lines += [
            "| cause | share | error in ULP | drift when swapped in | drift when swapped out |",
            "|---|--:|--:|--:|--:|",
            *(_row(card) for card in pair.cards[:CARDS]),
            "",
        ]
        first = next((card for card in pair.cards if card.script), None)
        if first is not None:
            fence = _fence(first.script)
            title = f"script that shows {text(first.title)} without numdrift"
            lines += [OPEN.format(title), "", f"{fence}python", first.script.rstrip(), fence, CLOSE, ""]
    if pair.unchecked:
        lines += [
            OPEN.format("what was not checked"),
            "",
            *(f"- {text(sentence)}" for sentence in pair.unchecked),
            CLOSE,
            "",
        ]
    return lines


def _row(card: CulpritCard) -> str:
    share = "" if card.share is None else f"{100 * card.share:.0f} %"
    errors = ", ".join(f"{number(value)} in {text(name)}" for name, value in card.errors)
    drifts: Sequence[str] = [f"{number(row.before)} to {number(row.after)}" for row in card.proof[:2]] or ["", ""]
    return f"| {text(card.title)} | {share} | {errors} | {' | '.join(drifts)} |"


def text(words: str) -> str:
    """Return words of a run as one line of Markdown in which every character is literal."""
    return _SPECIAL.sub(r"\\\1", " ".join(words.split()))


def _fence(code: str) -> str:
    """Return a fence with more backticks than the longest sequence of backticks in the code."""
    longest = max((len(run) for run in re.findall(r"`+", code)), default=0)
    return "`" * max(3, longest + 1)
