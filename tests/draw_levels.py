"""Draws the levels of the tree and the imports between them, for `docs/architecture.md`: `python -m tests.draw_levels`.

A row a level, a column a level: a dot says that the row's level imports the column's. Imports point down only, so every dot is
left of the diagonal. What is drawn also stands in the picture's description, which a test compares with
the sources.
"""

from __future__ import annotations

import ast
import json
from pathlib import Path
from xml.etree import ElementTree

import matplotlib

from .levels import GUEST_LEVELS, LEVELS, ROOT, imports, level_of, place_of

PICTURE = ROOT / "docs" / "images" / "levels.svg"
DESCRIPTION = "{http://purl.org/dc/elements/1.1/}description"

INK, FAINT, GUEST, HOST = "#1f2933", "#9aa5b1", "#e8f1ec", "#e9eef7"


def arrows_in(root: Path) -> dict[str, list[str]]:
    """Which others each level imports; names for the type checker alone are not imports."""
    arrows = {}
    for level in LEVELS:
        place = place_of(root, level)
        files = [place] if place.is_file() else sorted(place.rglob("*.py"))
        found = {level_of(one.target) for file in files for one in imports(root, file, typed=False)}
        arrows[level] = [other for other in LEVELS if other in found and other != level]
    return arrows


def purpose(root: Path, level: str) -> str:
    """What a level is for: the first sentence of its own docstring."""
    place = place_of(root, level)
    file = place if place.is_file() else place / "__init__.py"
    if not file.exists():
        return {
            "kernels": "Kernel implementations, the registry that swaps them, the lab that measures them.",
            "plots": "One plot a file: rows in, figure out.",
        }[level]
    said = (ast.get_docstring(ast.parse(file.read_text(encoding="utf-8"))) or "").split("\n\n")[0]
    return " ".join(said.split())


def drawn(picture: Path) -> dict[str, list[str]]:
    """What a picture says in its description."""
    found = ElementTree.parse(picture).find(f".//{DESCRIPTION}")
    assert found is not None and found.text, f"{picture.name} has no description"
    content: dict[str, list[str]] = json.loads(found.text)
    return content


def draw(root: Path, picture: Path) -> None:
    arrows, top_down = arrows_in(root), LEVELS[::-1]
    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "levels", "font.family": "sans-serif"})
    from matplotlib import pyplot  # the backend is chosen first
    from matplotlib.patches import Rectangle

    count, start = len(LEVELS), 11.9
    figure, axes = pyplot.subplots(figsize=(15.5, 8.2))
    for row, level in enumerate(top_down):
        color = GUEST if level in GUEST_LEVELS else HOST
        axes.add_patch(Rectangle((0, row), start - 0.2, 0.86, color=color, lw=0))
        axes.text(0.15, row + 0.45, level, va="center", size=10, weight="bold", color=INK)
        axes.text(1.95, row + 0.45, purpose(root, level), va="center", size=7.4, color=INK)
        for column, other in enumerate(LEVELS):
            x = start + column * 0.62
            if column < count - row - 1:
                axes.add_patch(Rectangle((x, row), 0.56, 0.86, color=color, lw=0))
            if other in arrows[level]:
                axes.plot(x + 0.28, row + 0.43, "o", ms=7, color=INK)
    for column, other in enumerate(LEVELS):
        axes.text(
            start + column * 0.62 + 0.28,
            count + 0.1,
            other,
            rotation=90,
            ha="center",
            va="top",
            size=8,
            color=INK,
        )
    border = len(LEVELS) - len(GUEST_LEVELS) - 0.07
    axes.plot([0, start + count * 0.62], [border, border], color=INK, lw=1, ls=(0, (4, 3)))
    right = start + count * 0.62
    hosts, guests = (
        "hosts: read what guests\nhave written",
        "guests in the training process:\ntorch and the standard library only",
    )
    axes.text(right, border - 0.2, hosts, ha="right", va="bottom", size=8.5, style="italic", color=INK)
    axes.text(right, border + 0.25, guests, ha="right", va="top", size=8.5, style="italic", color=INK)
    axes.text(start, -0.25, "imports", size=8, color=FAINT, va="bottom")
    axes.set_xlim(0, start + count * 0.62)
    axes.set_ylim(count + 1.9, -0.6)
    axes.axis("off")
    figure.tight_layout(pad=0.2)
    metadata = {"Description": json.dumps(arrows), "Date": None, "Title": "The levels of numdrift"}
    picture.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(picture, format="svg", metadata=metadata)
    pyplot.close(figure)


if __name__ == "__main__":
    draw(ROOT, PICTURE)
    print(f"Wrote {PICTURE.relative_to(ROOT)}")
