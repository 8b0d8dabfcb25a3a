"""The text of an issue about a check: what a maintainer needs, in Markdown."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ..investigate.words.call_words import says
from ..investigate.words.culprit_words import lines_of, named_culprits
from ..records.results.call_check import CallCheck, CheckedMode

MOST_ROWS = 12


def issue_text(found: CallCheck) -> str:
    """Return the issue: the answer, the script, the numbers, the causes with their proofs, and the environment."""
    return "\n".join(_lines(found)) + "\n"


def _lines(found: CallCheck) -> Iterator[str]:
    for mode in found.modes:
        yield f"{mode.answer.partition(';')[0]}."
        yield ""
    path = Path(found.target.rpartition(":")[0] or found.target)
    if not path.is_file():
        path = Path(found.target)
    if path.is_file():
        yield "```python"
        yield path.read_text(encoding="utf-8", errors="replace").rstrip()
        yield "```"
        yield ""
    for mode in found.modes:
        yield from _of_mode(found, mode)
    yield "### Environment"
    for name in ("torch", "python", "platform", "compiler", "cpu_capability", "threads", "MKL", "oneDNN"):
        if name in found.environment:
            yield f"- {name}: {found.environment[name]}"


def _of_mode(found: CallCheck, mode: CheckedMode) -> Iterator[str]:
    yield f"### {mode.mode} against {found.reference}: {mode.verdict or 'undecided'}"
    yield ""
    for sentence in (*mode.differences, *mode.text):
        yield f"- {sentence}"
    if mode.results:
        yield ""
        yield "| result | differs by (relative L2) | rounding alone | z | farthest in |"
        yield "|---|--:|--:|--:|---|"
        for row in mode.results[:MOST_ROWS]:
            yield f"| {row.name} | {row.difference:.3g} | {row.rounding:.3g} | {row.z:.3g} | {row.call} |"
    for script in mode.shrunk:
        if script.path:
            yield ""
            yield f"The smallest inputs that show it ({script.text}):"
            yield "```python"
            yield Path(script.path).read_text(encoding="utf-8").rstrip()
            yield "```"
    pair = mode.pair
    if pair is not None:
        listed, _ = named_culprits(pair.verdict, pair.culprits)
        if listed:
            yield ""
            yield "Causes:"
        for number, culprit in enumerate(listed, 1):
            title, *further = (says(line, found.stepped) for line in lines_of(culprit, pair.a, pair.b))
            yield f"{number}. {title}"
            for line in further:
                yield f"   - {line}"
    yield ""
