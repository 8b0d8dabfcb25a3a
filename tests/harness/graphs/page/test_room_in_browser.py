"""What is long takes no room from the graphs: answers, modes, paths, names; and what a search counts and dims."""

from __future__ import annotations

from pathlib import Path

import pytest
from playwright.sync_api import Page, expect

from .browsing import names_of, node, show, wait
from .pages import chain_page, cut_page, founding_page, many_answers_page

LONG_SOURCE = "/a/rather/long/way/down/to/the/folder/of/the/reproducers/that/came/in/today/train.py:33"

pytestmark = pytest.mark.slow


def dimmed(page: Page, side: str) -> int:
    """How many boxes of a pane are not drawn in full strength."""
    found: int = page.evaluate(
        """side => [...document.querySelectorAll(`#pane-${side} .node`)]
            .filter(one => getComputedStyle(one).opacity !== "1").length""",
        side,
    )
    return found


def test_many_answers_leave_the_panes_in_the_window(page: Page, tmp_path: Path) -> None:
    # given
    page.set_viewport_size({"width": 1400, "height": 900})

    # when
    show(page, tmp_path, many_answers_page(tmp_path, 12))

    # then
    page.screenshot(path=tmp_path / "answers.png")
    panes = page.locator(".panes").bounding_box()
    assert panes is not None
    assert panes["y"] + panes["height"] <= 900
    assert panes["height"] > 400
    expect(page.locator("h1")).to_contain_text("answer 0:")
    assert page.locator(".answers li:visible").count() == 3
    expect(page.locator(".rest summary")).to_have_text("8 more")


def test_the_other_answers_open_with_the_keyboard(page: Page, tmp_path: Path) -> None:
    # given
    show(page, tmp_path, many_answers_page(tmp_path, 12))

    # when
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")

    # then
    assert page.locator(".answers li:visible").count() == 11
    expect(page.locator(".answers li").last).to_contain_text("answer 11:")


def test_four_answers_hide_none(page: Page, tmp_path: Path) -> None:
    # when
    show(page, tmp_path, many_answers_page(tmp_path, 4))

    # then
    assert page.locator(".answers li:visible").count() == 3
    assert page.locator(".rest").count() == 0


def test_the_bar_of_a_pane_cuts_neither_the_mode_nor_the_count(page: Page, tmp_path: Path) -> None:
    # given
    page.set_viewport_size({"width": 1000, "height": 900})

    # when
    show(page, tmp_path, chain_page(tmp_path, layers=75, whole=40))

    # then
    for part in (".mode", ".status"):
        cut: bool = page.evaluate(
            "part => [...document.querySelectorAll(part)].some(one => one.scrollWidth > one.clientWidth + 1)",
            f".bar {part}",
        )
        assert not cut
    tall = page.locator("#pane-a .mode").bounding_box()
    assert tall is not None
    assert tall["height"] < 30


def test_the_title_of_a_frame_names_the_file_and_the_whole_path_on_hover(page: Page, tmp_path: Path) -> None:
    # when
    show(page, tmp_path, cut_page(tmp_path, LONG_SOURCE))

    # then
    frame = page.locator("#pane-b .frames > g").first
    expect(frame.locator("text")).to_have_text("0-backward-pre  ends at mark_step train.py:33")
    expect(frame.locator("title")).to_have_text(f"0-backward-pre  ends at mark_step {LONG_SOURCE}")
    title, box = frame.locator("text").bounding_box(), frame.locator("rect").bounding_box()
    assert title is not None
    assert box is not None
    assert box["x"] < title["x"]
    assert title["x"] + title["width"] < box["x"] + box["width"]

    # and when
    page.locator("main [data-graph]").nth(1).click()

    # then
    expect(page.locator("#details")).to_contain_text(LONG_SOURCE)


def test_a_search_without_hits_dims_nothing(page: Page, tmp_path: Path) -> None:
    # given
    show(page, tmp_path, founding_page(tmp_path))

    # when
    page.fill("#search", "zzz")

    # then
    expect(page.locator("#found")).to_have_text("no hits")
    assert (dimmed(page, "a"), dimmed(page, "b")) == (0, 0)


def test_a_search_counts_and_dims_what_is_drawn_and_says_what_is_hidden(page: Page, tmp_path: Path) -> None:
    # given
    show(page, tmp_path, founding_page(tmp_path))
    page.fill("#search", "sum")
    expect(page.locator("#found")).to_have_text("2 in A, 2 in B")
    assert (dimmed(page, "a"), dimmed(page, "b")) == (10, 8)

    # when
    page.check("#only")
    wait(page)

    # then
    expect(page.locator("#found")).to_have_text("0 in A, 0 in B, 4 hidden")
    assert (dimmed(page, "a"), dimmed(page, "b")) == (0, 0)

    # and when
    page.press("#search", "Enter")
    wait(page)

    # then
    assert names_of(page, "a", ".selected") == ["sum_1"]
    expect(node(page, "a", "sum_1")).to_be_visible()
    expect(page.locator("#found")).to_have_text("1 in A, 1 in B, 2 hidden")
