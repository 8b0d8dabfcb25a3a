"""The reports of four investigations, each opened from disk: a reader of the first screen knows all that matters."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page, expect

from .made import CASES, FOLDER, Case

pytestmark = pytest.mark.slow
LARGEST = 5_000_000  # bytes
EXHAUSTIVE = {"bfloat16-fault", "founding"}  # their pages have the parts of the fault of lazy mode


@pytest.fixture
def opened(browser: Browser) -> Iterator[Page]:
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    complaints: list[str] = []
    page.on("console", lambda said: complaints.append(f"{said.type}: {said.text}"))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    yield page
    page.close()
    assert complaints == []


@pytest.mark.parametrize(
    "case",
    [pytest.param(case, marks=pytest.mark.exhaustive if case.name in EXHAUSTIVE else ()) for case in CASES],
    ids=lambda case: case.name,
)
def test_the_first_screen_says_what_happened_where_how_sure_and_what_to_do(case: Case, opened: Page) -> None:
    # given a report that is kept as a file, to be looked at
    report = case.make(FOLDER)
    assert report.stat().st_size < LARGEST
    # when it is opened from disk
    opened.goto(report.as_uri())
    opened.screenshot(path=FOLDER / f"{case.name}.png")
    # then the answer is on the first screen as a whole
    answer = opened.locator(".answer").first
    expect(answer).to_be_in_viewport(ratio=1)
    for words in case.says:
        expect(answer).to_contain_text(words)
    if case.name == "founding":  # which of its ops makes most of the drift is the processor's
        expect(opened.locator("#causes")).to_contain_text("tanh_backward")
    # and the graphs of both modes can be looked at
    graphs = opened.frame_locator(".graphs")
    opened.locator(".graphs").scroll_into_view_if_needed()
    expect(graphs.locator("#pane-a .node").first).to_be_visible()
    expect(graphs.locator("#pane-b .node").first).to_be_visible()
