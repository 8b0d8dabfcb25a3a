"""The founding case in a browser: what was captured of it, in Netron and on the page of `graph diff`."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from ..conftest import ROOT
from ..processes.forked import numdrift_in

pytestmark = pytest.mark.slow

CULPRIT = {
    "phase": "backward", "module": "layers.3", "op": "aten.tanh_backward", "step": 0, "source": "", "kind": "kernel",
    "kernel": {"a": "aten", "b": "decomposed"}, "significance": "rounding", "error_ulp": {"a": 0.94, "b": 724.2},
    "rho": {"a": 0.4, "b": 1.1}, "share_of_drift": 0.97,
}  # fmt: skip
LOOPBACK = "http://127.0.0.1:"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the founding case run in compile and lazy mode, one culprit found, and the page."""
    made = tmp_path_factory.mktemp("founding")
    script = str(ROOT / "reproducers" / "sam_tanh.py")
    numdrift(made, "run", script, "--modes", "compile,lazy", "--graphs", "--name", "g", "--", "--epochs", "1")
    found = {
        "schema": 1,
        "reference": "lazy",
        "pairs": [{"a": "lazy", "b": "compile", "culprits": [CULPRIT]}],
    }
    (made / "runs" / "g" / "investigation.json").write_text(json.dumps(found))
    numdrift(made, "graph", "diff", "runs/g/lazy", "runs/g/compile", "--html", "diff.html")
    return made


def numdrift(folder: Path, *arguments: str) -> None:
    numdrift_in(folder, *arguments).check_returncode()


@pytest.fixture
def page(browser: Browser, tmp_path: Path) -> Iterator[Page]:
    """A page that only this machine is asked by; its last sight is kept as `screenshot.png`."""
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.route(lambda url: url.startswith("http") and not url.startswith(LOOPBACK), lambda route: route.abort())
    yield page
    page.screenshot(path=tmp_path / "screenshot.png")
    page.close()


@pytest.fixture
def netron(folder: Path, interruptible: None) -> Iterator[str]:
    """The address at which `graph open` serves the backward after the compiler, until Ctrl-C."""
    command = ["graph", "open", "runs/g/compile", "--phase", "backward", "--post", "--no-browser"]
    with subprocess.Popen(
        [sys.executable, "-u", "-m", "numdrift", *command], cwd=folder, stdout=subprocess.PIPE, text=True
    ) as serving:
        assert serving.stdout is not None
        address = next(found for line in serving.stdout if (found := re.search(LOOPBACK + r"\d+", line)))
        yield address[0]
        serving.send_signal(signal.SIGINT)
        try:
            serving.wait(60)
        finally:
            serving.kill()


def test_netron_shows_the_kernels_and_marks_the_culprit(page: Page, netron: str) -> None:
    # given
    page.goto(netron)
    page.locator("#message-button:visible, #canvas .node-item-type").first.wait_for()
    if page.locator("#message-button").is_visible():
        page.locator("#message-button").click()
    page.locator("#canvas .node-item-type").first.wait_for()
    # then the kernel of the guilty module is marked, the other one is not
    titles = [one.text_content() or "" for one in page.locator("#canvas .node-item-type > text").all()]
    kernels = sorted(title for title in titles if "tanh_backward" in title)
    assert [kernel.startswith("\N{WARNING SIGN}") for kernel in kernels] == [False, True]
    # and a click shows its source
    page.locator("#canvas .node-item-type", has_text="\N{WARNING SIGN}").first.click()
    for text in ("cpp_fused_sum_tanh_backward_0", "extern", "724.2"):
        expect(page.locator("#sidebar")).to_contain_text(text)


def test_the_page_pairs_the_whole_op_with_its_parts(page: Page, folder: Path) -> None:
    # given
    page.goto((folder / "diff.html").as_uri())
    for side in "ab":
        expect(page.locator(f"#pane-{side} .canvas[data-state=drawn]")).to_be_visible(timeout=60_000)
    # then it opens where the culprit is
    assert "lazy keeps tanh_backward whole" in (page.locator("h1").text_content() or "")
    marked = page.locator("#pane-a .node.marked")
    expect(marked.first).to_contain_text("tanh_backward")
    # and a click on it leads to mul, sub, mul
    marked.first.click()
    related = page.locator("#pane-b .node.related .title")
    assert sorted(related.all_text_contents()) == ["mul", "mul", "sub"]
    expect(page.locator("#details")).to_contain_text("aten.tanh_backward")
