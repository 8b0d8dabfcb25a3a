"""Reading the page in a browser."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Locator, Page, expect


def show(page: Page, folder: Path, written: str) -> None:
    path = folder / "diff.html"
    path.write_text(written, encoding="utf-8")
    page.goto(path.as_uri())
    wait(page)


def wait(page: Page) -> None:
    for side in "ab":
        expect(page.locator(f"#pane-{side} .canvas[data-state=drawn]")).to_be_visible(timeout=60_000)


def node(page: Page, side: str, name: str) -> Locator:
    return page.locator(f'#pane-{side} .node[data-name="{name}"]')


def titles(page: Page, side: str) -> list[str]:
    """The titles of a pane's boxes; a long one is on several lines."""
    boxes = page.locator(f"#pane-{side} .node").all()
    return ["".join(box.locator(".title").all_text_contents()) for box in boxes]


def in_view(page: Page, shown: Locator, side: str) -> bool:
    """Whether a node lies inside of its pane."""
    box, pane = shown.locator(".box").bounding_box(), page.locator(f"#pane-{side} .canvas").bounding_box()
    assert box is not None
    assert pane is not None
    return (
        pane["x"] <= box["x"]
        and box["x"] + box["width"] <= pane["x"] + pane["width"]
        and pane["y"] <= box["y"]
        and box["y"] + box["height"] <= pane["y"] + pane["height"]
    )


def names_of(page: Page, side: str, of: str) -> list[str]:
    """The names of a pane's nodes of these classes, sorted."""
    selector = ", ".join(f"#pane-{side} .node{one.strip()}" for one in of.split(","))
    return sorted(str(found.get_attribute("data-name")) for found in page.locator(selector).all())


def overlaps(page: Page, side: str) -> list[str]:
    """The boxes and pills of a pane that lie on each other, two by two."""
    found: list[str] = page.evaluate(
        """side => {
            const all = [...document.querySelectorAll(`#pane-${side} .box, #pane-${side} .pill rect`)];
            const places = all.map(one => [one.parentNode.textContent, one.getBoundingClientRect()]);
            return places.flatMap(([text, a], index) => places.slice(index + 1)
                .filter(([, b]) => a.right > b.left && b.right > a.left && a.bottom > b.top && b.bottom > a.top)
                .map(([other]) => `${text} on ${other}`));
        }""",
        side,
    )
    return found
