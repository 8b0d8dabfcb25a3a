"""The page that `numdrift view` serves, and the part of the page that is requested repeatedly while runs are in
progress."""

from __future__ import annotations

from pathlib import Path

from markupsafe import Markup

from ..graphs.page.self_contained import hash_of
from .listing import listed
from .report_page import pieces_of_pages

PAGES = Path(__file__).parent / "page"


def view_page(folder: Path) -> str:
    """Return the whole page: every investigation of the folder in its current state."""
    script = f'"use strict";\n{(PAGES / "view.js").read_text(encoding="utf-8")}'
    style = (PAGES / "report.css").read_text(encoding="utf-8")
    policy = (
        f"default-src 'none'; script-src {hash_of(script)}; style-src {hash_of(style)}; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'"
    )
    page = pieces_of_pages().get_template("view.html")
    return page.render(
        folder=folder, rows=list(listed(folder)), policy=policy, style=Markup(style), script=Markup(script)
    )


def view_rows(folder: Path) -> str:
    """Return the part of the page with the investigations."""
    return pieces_of_pages().get_template("view_rows.html").render(folder=folder, rows=list(listed(folder)))
