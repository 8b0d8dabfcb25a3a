"""Results as HTML for notebooks: a short answer, a table of the pairs, the culprits."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .investigation_results import Comparison, Investigation, Pair

COLOURS = {"identical": "#2e7d32", "rounding": "#2e7d32", "beyond-rounding": "#c62828", "failed": "#c62828"}
OTHERWISE = "#b26a00"
"""The colour of a verdict that needs a person's attention."""

CULPRITS_SHOWN = 8


def investigation_html(investigation: Investigation) -> str:
    """Return an investigation as an HTML fragment without a style sheet."""
    head = f"<p><b>{escape(investigation.reproducer)}</b>, compared with {escape(investigation.reference)}</p>"
    return (
        "<div>" + head + _pairs(investigation.pairs) + "".join(_pair(pair) for pair in investigation.pairs) + "</div>"
    )


def comparison_html(compared: Comparison) -> str:
    """Return the comparison of two runs, with their distances, as an HTML fragment."""
    losses = compared.distances.losses
    distances = {
        "first differing step": _step(compared.first_differing_step),
        "max |Δloss|": _number(losses.max_absolute),
        "max relative": _number(losses.max_relative),
        "final |Δloss|": _number(losses.final_absolute),
    }
    rows = _table(list(distances), [[escape(value) for value in distances.values()]])
    return "<div>" + _pairs([compared.pair]) + rows + _pair(compared.pair) + "</div>"


def _pairs(pairs: Sequence[Pair]) -> str:
    names = (
        "reference",
        "mode",
        "verdict",
        "first differing step",
        "first significant step",
        "largest z",
        "threshold",
    )
    rows = [
        [
            escape(pair.a),
            escape(pair.b),
            _verdict(pair),
            _step(pair.first_differing_step),
            _step(pair.first_significant_step),
            _number(pair.score),
            _number(pair.threshold),
        ]
        for pair in pairs
    ]
    return _table(names, rows)


def _pair(pair: Pair) -> str:
    """Return a heading, the sentences about the pair, its culprits as a list, and the notes."""
    # texts contain names and errors of a user's script, so all are escaped
    sentences = "".join(f"<p>{escape(sentence)}</p>" for sentence in pair.text)
    named, suspects = pair.named_culprits
    shown, culprits = named[:CULPRITS_SHOWN], ""
    if shown:
        items = "".join(f"<li>{'<br>'.join(escape(line) for line in culprit.text)}</li>" for culprit in shown)
        more = len(named) - len(shown)
        culprits = f"<ol>{items}</ol>" + (f"<p>and {more} more</p>" if more else "")
    culprits += f"<p>suspects without proof: {suspects}</p>" if suspects else ""
    culprits += f"<p>{escape(pair.unexplained)}</p>" if pair.unexplained else ""
    notes = "".join(f"<p><i>{escape(note)}</i></p>" for note in pair.notes)
    return f"<h4>{escape(pair.b)} against {escape(pair.a)}: {_verdict(pair)}</h4>{sentences}{culprits}{notes}"


def _verdict(pair: Pair) -> str:
    # the style is inline, since a fragment has no style sheet
    colour = COLOURS.get(pair.verdict or "", OTHERWISE)
    return f'<b style="color:{colour}">{escape(pair.verdict or "undecided")}</b>'


def _table(names: Iterable[str], rows: Sequence[Sequence[str]]) -> str:
    """Return a table of cells, which are already HTML."""
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    body = "".join("<tr>" + "".join(f"<td>{cell}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _step(step: int | None) -> str:
    return "none" if step is None else f"{step:,}"


def _number(value: float | None) -> str:
    if value is None:
        return "-"
    return "0" if value == 0 else f"{value:.3g}"
