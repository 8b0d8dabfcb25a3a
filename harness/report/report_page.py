"""A report as one HTML page that can be opened from disk and requests no other files.

Styles, scripts and data are part of the page. The page's content security policy lists the hashes of these scripts, and
so admits no others. Strings from a run are escaped, or passed as JSON that the page's script shows as text. uPlot,
which is in `vendor/` with its licence, draws the curves.
"""

from __future__ import annotations

from pathlib import Path

import jinja2
from markupsafe import Markup

from ..graphs.page.diff_page import scripts as graph_scripts
from ..graphs.page.self_contained import hash_of, json_in_page, templates
from ..runs.own_version import own_version
from .rows import Report

HERE = Path(__file__).parent
NAME = "report.html"


def page_of(report: Report) -> str:
    """Return the whole page as text. Equal reports produce equal pages."""
    library, script = _library(), f'"use strict";\n{_text("page/report.js")}\n{_text("page/errors.js")}'
    style, library_style = _text("page/report.css"), _text("vendor/uplot.min.css")
    # uPlot positions its parts with styles that its code sets. No hash can admit such styles, so all styles are
    # admitted. The strings of a run cannot add styles, because they are escaped. The graphs are a page of their own
    # within this page, so the policies of both pages apply to them.
    graphs = [pair.graphs.page for pair in report.pairs if pair.graphs.page]
    hashes = " ".join(hash_of(source) for source in (library, script, *(graph_scripts() if graphs else ())))
    policy = (
        f"default-src 'none'; script-src {hashes}; style-src 'unsafe-inline'; "
        f"{'worker-src blob:; ' if graphs else ''}base-uri 'none'; form-action 'none'"
    )
    curves = report.curves
    data = {
        "steps": curves.steps,
        "rows": [{"label": row.label, "losses": row.losses, "reference": row.reference} for row in curves.rows],
        "envelopes": [{"label": row.label, "low": row.low, "high": row.high} for row in curves.envelopes],
        "errors": [
            {"axes": plot.axes, "errors": plot.errors}
            for pair in report.pairs
            for card in pair.cards
            if (plot := card.detail.plot) is not None
        ],
    }
    page = (
        pieces_of_pages()
        .get_template("report.html")
        .render(
            report=report,
            policy=policy,
            style=Markup(style),
            library_style=Markup(library_style),
            library=Markup(library),
            script=Markup(script),
            data=Markup(json_in_page(data)),
            version=own_version(),
        )
    )
    return page.encode("utf-8", "replace").decode("utf-8")


def pieces_of_pages() -> jinja2.Environment:
    """Return the templates of the pages, with their filters."""
    pieces = templates(HERE / "page")
    pieces.filters["number"] = number
    pieces.filters["dict_of"] = dict
    return pieces


def number(value: float | None) -> str:
    """Format a number with three significant digits; return "-" for None."""
    if value is None:
        return "-"
    return "0" if value == 0 else f"{value:.3g}"


def _library() -> str:
    licence = _text("vendor/LICENSE").strip()
    return f"/*\nuPlot\n\n{licence}\n*/\n{_text('vendor/uplot.min.js')}"


def _text(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")
