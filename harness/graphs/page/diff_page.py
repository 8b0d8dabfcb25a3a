"""The difference between two runs' graphs as one HTML page: both graphs side by side, and the differences in tables.

The page opens from disk and loads nothing else: styles, scripts and data are in it. Its content security policy admits
only these styles and scripts, by their hashes. Texts from a run enter the page escaped, or as JSON that the page's
script shows as text.
"""

from __future__ import annotations

import re
from pathlib import Path
from types import MappingProxyType

from markupsafe import Markup

from ..diff.difference_record import Diff
from ..drawing.drawing_layout import DAGRE
from ..run_graphs import RunGraphs
from .page_data import Drift, Marks, cast_rows, count_rows, graph_rows, group_rows, page_data
from .self_contained import hash_of, json_in_page, templates

HERE = Path(__file__).parent
SCRIPTS = (
    "model.js", "visible.js", "boxes.js", "arrange.js", "layout.js", "drawing.js", "camera.js",
    "pane.js", "details.js", "chips.js", "page.js",
)  # fmt: skip
LONG_WORD = 26
"""In a table, names of at least this length may break after an underscore or a dot."""

NO_MARKS: Marks = MappingProxyType({})
NO_DRIFT: Drift = MappingProxyType({})


def scripts() -> tuple[str, str]:
    """Return the scripts of the page: the layout library, and the page's own script."""
    # The library's licence is written before its code. The line that makes a browser request a source map is removed.
    lines = DAGRE.read_text(encoding="utf-8").splitlines()
    licence = DAGRE.with_name("LICENSE").read_text(encoding="utf-8").strip()
    code = "\n".join(line for line in lines if not line.startswith("//# sourceMappingURL"))
    dagre = f"/*\n@dagrejs/dagre\n\n{licence}\n*/\n{code}\n"
    return dagre, "\n".join(('"use strict";', *(_text(name) for name in SCRIPTS)))


def write_page(
    diff: Diff,
    a: RunGraphs,
    b: RunGraphs,
    marks_a: Marks = NO_MARKS,
    marks_b: Marks = NO_MARKS,
    drift: Drift = NO_DRIFT,
) -> str:
    """Return the whole page as text. Raises JournalError if a graph that was compared cannot be read."""
    data = page_data(diff, a, b, marks_a, marks_b, drift)
    style = _text("page.css")
    dagre, script = scripts()
    # Scripts are allowed by hash: a script within a run's texts would not run, escaped or not. The layout runs in a web
    # worker, which the page starts from a blob.
    policy = (
        f"default-src 'none'; script-src {hash_of(dagre)} {hash_of(script)}; style-src {hash_of(style)}; "
        "worker-src blob:; base-uri 'none'; form-action 'none'"
    )
    pieces = templates(HERE)
    pieces.filters["breakable"] = breakable
    page = pieces.get_template("page.html").render(
        diff=diff,
        policy=policy,
        style=Markup(style),
        dagre=Markup(dagre),
        script=Markup(script),
        data=Markup(json_in_page(data)),
        counts=count_rows(diff),
        groups=group_rows(diff, data),
        drifts=bool(drift),
        casts=cast_rows(diff),
        graphs=graph_rows(data),
    )
    return page.encode("utf-8", "replace").decode("utf-8")


def breakable(text: str) -> Markup:
    """Return the escaped text, with break opportunities in its long words."""
    shown: list[str | Markup] = []
    for word in re.split(r"(\s+)", text):
        pieces = re.split(r"(?<=[a-z0-9][_.])(?=[a-z])", word) if len(word) >= LONG_WORD else [word]
        shown.append(Markup("<wbr>").join(pieces))  # escapes the pieces
    return Markup("").join(shown)


def _text(name: str) -> str:
    return (HERE / name).read_text(encoding="utf-8")
