"""The page as a reader meets it: in Chromium, from disk, on a screen, a phone, in the dark and on paper."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect

from numdrift.harness.report.report_page import page_of
from numdrift.harness.report.rows import report_of

pytestmark = pytest.mark.slow


@pytest.fixture
def page(browser: Browser, with_graphs: Path, tmp_path: Path) -> Iterator[Page]:
    """The page opened from disk, which may neither complain nor ask for anything."""
    written = tmp_path / "report.html"
    written.write_text(page_of(report_of(with_graphs)), encoding="utf-8")
    opened = browser.new_page(viewport={"width": 1280, "height": 800})
    complaints: list[str] = []
    opened.on("console", lambda said: complaints.append(f"{said.type}: {said.text}"))
    opened.on("pageerror", lambda error: complaints.append(str(error)))
    requests: list[str] = []
    opened.on("request", lambda asked: requests.append(asked.url))
    opened.goto(written.as_uri())
    yield opened
    opened.close()
    assert complaints == [] and requests == [written.as_uri()]


def test_the_first_screen_says_what_happened_how_sure_and_what_to_do(page: Page) -> None:
    expect(page.locator(".answer .what")).to_be_in_viewport(ratio=1)
    for said in ("beyond-rounding", "910 times", "report it to whoever owns that kernel"):
        expect(page.get_by_text(said).first).to_be_in_viewport()


def test_curves_tell_values_zoom_and_change_their_axis(page: Page) -> None:
    plot = page.locator("#plot .u-over")
    page.locator("#curves").evaluate("one => one.scrollIntoView({behavior: 'instant'})")
    box = plot.bounding_box()
    assert box is not None
    # when one points at the first step
    page.mouse.move(box["x"] + 3, box["y"] + box["height"] / 2)
    # then the legend says the losses there
    values = page.locator(".u-legend .u-value")
    expect(values.first).to_have_text("0")
    assert values.nth(1).text_content() == values.nth(2).text_content() != "none"
    # and when a part is dragged over, then it alone is shown, until all is asked for
    span = "document.querySelector('#plot .u-axis') && plot.scales.x.max - plot.scales.x.min"
    whole = page.evaluate(span)
    page.mouse.move(box["x"] + box["width"] * 0.2, box["y"] + 50)
    page.mouse.down()
    page.mouse.move(box["x"] + box["width"] * 0.6, box["y"] + 60, steps=5)
    page.mouse.up()
    assert page.evaluate(span) < 0.5 * whole
    page.get_by_role("button", name="show all steps").click()
    assert page.evaluate(span) == whole
    for box_name in ("logarithmic", "differences from the reference"):
        page.get_by_label(box_name).check()
    expect(page.locator(".u-legend")).to_contain_text("|other - base|")


def test_a_cause_is_shown_in_the_graphs_of_both_sides(page: Page) -> None:
    page.get_by_role("button", name="show it in the graphs").first.click()
    inner = page.frame_locator(".graphs")
    expect(inner.locator("#pane-a .node.selected")).to_have_attribute("data-name", "tanh_backward")
    expect(inner.locator("#pane-b .node.related")).to_have_count(3)
    expect(inner.locator("#pane-b .node.marked")).to_have_count(3)
    expect(page.locator("iframe")).to_be_in_viewport(ratio=0.5)
    # and a node that is chosen there lights up its counterpart on the other side
    inner.locator("#pane-b .node[data-name=mm]").press("Enter")
    expect(inner.locator("#pane-a .node.related")).to_have_count(1)


def test_a_script_unfolds_by_the_keyboard(page: Page) -> None:
    for text, shown in (("without numdrift", "shows it"), ("both sides execute", "aten.mul.Tensor(output, output)")):
        folded = page.locator("details").filter(has_text=text)
        folded.locator("summary").focus()
        page.keyboard.press("Enter")
        expect(folded.locator("pre").filter(has_text=shown)).to_be_visible()


def test_errors_are_drawn_for_both_sides_over_any_argument_and_read_by_pointing(page: Page) -> None:
    figure = page.locator(".errors").first
    figure.scroll_into_view_if_needed()
    mine, other = figure.locator(".plot .u-over").all()
    expect(figure.get_by_role("img").last).to_have_attribute(
        "aria-label", "Errors of other in ULP over output: at most 40.8"
    )
    box = other.bounding_box()
    assert box is not None
    # when one points at the last element, near the upper edge of the axis that is logarithmic on both sides of zero
    page.mouse.move(box["x"] + box["width"] - 3, box["y"] + 0.1 * box["height"])
    # then it is read on both sides, and marked in both pictures
    expect(figure.locator(".reading")).to_have_text(
        "output 0.99, grad_output -3e-5, result in double -5.97e-7: base +1.42 ULP, other +40.8 ULP."
    )
    for over in (mine, other):
        expect(over.locator(".u-cursor-pt")).to_be_visible()
    # and over another argument the elements are in its order, until nothing is pointed at
    figure.get_by_label("Over which values errors are shown").select_option("grad_output")
    page.mouse.move(box["x"] + 3, box["y"] + 0.1 * box["height"])
    expect(figure.locator(".reading")).to_contain_text("grad_output -3e-5")
    page.mouse.move(0, 0)
    expect(figure.locator(".reading")).to_contain_text("Point at an element")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_can_be_read_by_everybody(page: Page, scheme: str) -> None:
    page.emulate_media(color_scheme="dark" if scheme == "dark" else "light")
    for summary in page.locator("summary").all():
        summary.click()
    page.locator(".graphs").scroll_into_view_if_needed()
    expect(page.frame_locator(".graphs").locator("#pane-a .node").first).to_be_visible()
    # each for itself: between pages from disk no message goes
    for one in page.frames:
        found = Axe().run(one, options={"iframes": False})
        assert found.violations_count == 0, found.generate_report()


def test_a_phone_needs_no_scrolling_to_the_side_and_paper_has_it_all(page: Page) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    page.wait_for_function("document.documentElement.scrollWidth <= 360", timeout=10_000)  # the curves are drawn anew
    first, second = (one.bounding_box() for one in page.locator(".errors").first.locator(".plot").all())
    assert first is not None and second is not None and second["y"] > first["y"] + first["height"]
    assert page.pdf()[:5] == b"%PDF-"
