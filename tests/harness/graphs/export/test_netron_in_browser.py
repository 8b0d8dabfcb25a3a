"""Netron's own page with a graph of ours, in Chromium: what a person sees of a node, its kernel and its culprit."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import netron
import pytest
from playwright.sync_api import Browser, Page, expect

from numdrift.harness.graphs.culprit_marks import Mark
from numdrift.harness.graphs.export.onnx_model import write_onnx

from ..samples import sample_compile_backward

LOOPBACK = "127.0.0.1"

TIMES = "\N{MULTIPLICATION SIGN}"
KERNEL = "cpp_fused_mul_sub_sum_tanh_backward_view_1"
MARK = Mark("aten.tanh_backward", {"max_ulp": 724.25}, "aten.tanh_backward drifts from lazy")
MARKS = dict.fromkeys((KERNEL, "mul", "sub", "mul_1"), MARK)

pytestmark = pytest.mark.slow


@pytest.fixture
def page(browser: Browser, tmp_path: Path) -> Iterator[Page]:
    """Netron with the marked graph after the compiler; nothing but this machine is asked."""
    _, post = sample_compile_backward()
    path = tmp_path / f"{post.name}.onnx"
    write_onnx(post, path, MARKS, read_from=path)
    address = netron.start(str(path), address=(LOOPBACK, 0), browse=False)
    page = browser.new_page(viewport={"width": 1400, "height": 1000})
    page.route(lambda url: f"//{LOOPBACK}:" not in url, lambda route: route.abort())
    page.goto(f"http://{LOOPBACK}:{address[1]}")
    _answer_the_greeting(page)
    yield page
    page.screenshot(path=tmp_path / "netron.png")
    page.close()
    netron.stop(address)


def _answer_the_greeting(page: Page) -> None:
    """Netron 9 asks for consent to cookies before it opens anything; other versions may not."""
    page.locator("#message-button:visible, #canvas .node-item-type").first.wait_for()
    if page.locator("#message-button").is_visible():
        page.locator("#message-button").click()
    page.locator("#canvas .node-item-type").first.wait_for()


def texts(page: Page, selector: str) -> list[str]:
    """What is written there, element by element: the page has taken `eval` away, which a quicker way needs."""
    return [one.text_content() or "" for one in page.locator(selector).all()]


def titles(page: Page) -> list[str]:
    return [text for text in texts(page, "#canvas .node-item-type > text") if text != "ƒ"]


def test_titles_are_whole_and_the_culprit_is_marked(page: Page) -> None:
    assert sorted(titles(page)) == ["fused_sum_view_0", "mm", "mm", "mm", "⚠ mul_sub_sum_tanh…_1"]
    assert {f"8{TIMES}16", f"16{TIMES}4"} <= set(texts(page, "#canvas .edge-label"))


def test_a_click_on_the_kernel_shows_its_source_its_place_and_its_drift(page: Page) -> None:
    page.locator("#canvas .node-item-type", has_text="⚠").first.click()
    shown = page.locator("#sidebar")
    expect(shown).to_contain_text("Vectorized<float>::loadu(in_out_ptr0 + x0, 16)")
    for text in (KERNEL, "724.25", "aten.tanh_backward drifts from lazy", "mul, sub, mul_1, sum_2, view_1"):
        expect(shown).to_contain_text(text)
    for name in ("drift_max_ulp", "code", "covers", "module", "phase"):
        expect(shown.locator(f"input[value='{name}']").first).to_be_visible()


def test_the_kernel_opens_and_shows_the_ops_in_it(page: Page) -> None:
    page.locator("#canvas .node", has_text="⚠").locator("text", has_text="ƒ").first.click()
    expect(page.locator("#canvas .node-item-type", has_text="⚠ sub")).to_be_visible()
    assert sorted(titles(page)) == ["sum", "view", "⚠ mul", "⚠ mul", "⚠ sub"]


def test_inputs_say_what_they_are_to_the_script(page: Page) -> None:
    page.locator("#canvas .graph-item-input", has_text="primals_4").first.click()
    expect(page.locator("#sidebar")).to_contain_text("parameter net.2.weight")
