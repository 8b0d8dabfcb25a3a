"""A browser, and a page of it that may neither complain nor ask the network."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page that may neither complain nor ask the network. A `blob:` is the page's own memory: the layout's
    worker."""
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    complaints: list[str] = []
    page.on("console", lambda said: complaints.append(f"{said.type}: {said.text}"))
    page.on("pageerror", lambda error: complaints.append(str(error)))
    page.on("dialog", lambda dialog: complaints.append(f"dialog: {dialog.message}"))
    requests: list[str] = []
    page.on("request", lambda asked: requests.append(asked.url))
    yield page
    page.close()
    assert complaints == []
    assert [url for url in requests if not url.startswith(("file:", "blob:"))] == []
