"""Take the screenshots of the guide to graphs: run the reproducer sam_tanh, and open its pages in Chromium."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import netron
from playwright.sync_api import Browser, sync_playwright

FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
REPRODUCERS = Path(__file__).parent.parent / "reproducers"
EXAMPLE = Path(tempfile.gettempdir()) / "training"
"""The folder of the training, as the screenshots show it."""
LOOPBACK = "127.0.0.1"


def numdrift(folder: Path, *arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "numdrift", *arguments], cwd=folder, check=True)


def record(folder: Path) -> Path:
    """Copy the reproducer into `folder`, run it there, compare its graphs, and return the path of the page."""
    for name in ("sam_tanh.py", "sam.py"):
        shutil.copy(REPRODUCERS / name, folder / name)
    what = ("--modes", "cpu,compile,lazy", "--graphs", "--name", "sam_tanh", "--quiet")
    numdrift(folder, "run", "sam_tanh.py", *what, "--", "--epochs", "2")
    numdrift(folder, "graph", "diff", "runs/sam_tanh", "--modes", "lazy,compile", "--html", "diff.html")
    return folder / "diff.html"


def diff_page(browser: Browser, path: Path, picture: Path) -> None:
    page = browser.new_page(viewport={"width": 1440, "height": 1150})
    page.goto(path.as_uri())
    page.locator("#pane-b .canvas[data-state=drawn]").wait_for()
    page.locator("#pane-a .node.kind-group").first.click()
    page.locator("#details").get_by_text("tanh_backward").first.wait_for()
    page.screenshot(path=picture)
    page.close()


def netron_page(browser: Browser, model: Path, picture: Path) -> None:
    address = netron.start(str(model), address=(LOOPBACK, 0), browse=False)
    page = browser.new_page(viewport={"width": 1440, "height": 900})
    page.route(lambda url: f"//{LOOPBACK}:" not in url, lambda route: route.abort())
    page.goto(f"http://{LOOPBACK}:{address[1]}")
    page.locator("#message-button:visible, #canvas .node-item-type").first.wait_for()
    if page.locator("#message-button").is_visible():
        page.locator("#message-button").click()
    page.locator("#canvas .node-item-type", has_text="tanh_backward").first.click()
    page.locator("#sidebar").wait_for()
    page.wait_for_timeout(500)  # the sidebar slides in
    page.screenshot(path=picture)
    page.close()
    netron.stop(address)


def main() -> None:
    images = Path(sys.argv[1])
    EXAMPLE.mkdir()  # fails if the folder already exists
    try:
        take(EXAMPLE, images)
    finally:
        shutil.rmtree(EXAMPLE)


def take(folder: Path, images: Path) -> None:
    page = record(folder)
    with sync_playwright() as started:
        browser = started.chromium.launch(executable_path="/usr/bin/chromium", args=FLAGS)
        diff_page(browser, page, images / "graph_diff.png")
        post = folder / "runs" / "sam_tanh" / "compile" / "graphs" / "0-backward-post.onnx"
        netron_page(browser, post, images / "graph_netron.png")
        browser.close()
        compile_ = ("graph", "open", "runs/sam_tanh/compile", "--phase", "backward", "--post")
        numdrift(folder, *compile_, "--png", str((images / "graph_backward_post.png").absolute()), "--force")


if __name__ == "__main__":
    main()
