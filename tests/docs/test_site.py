"""The documentation as a site: made from the program where it can be, whole, and without a dead link."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from .references import WRITTEN

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize("name", WRITTEN)
def test_a_reference_is_of_this_program(name: str) -> None:
    written = (ROOT / "docs" / "reference" / name).read_text(encoding="utf-8")
    assert written == WRITTEN[name](), "make it anew: python -m tests.docs.references"


def test_every_page_is_in_the_contents() -> None:
    listed = set(re.findall(r"[\w/-]+\.md", (ROOT / "mkdocs.yml").read_text(encoding="utf-8")))
    assert {path.relative_to(ROOT / "docs").as_posix() for path in (ROOT / "docs").rglob("*.md")} == listed


@pytest.mark.slow
def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")]
    done = subprocess.run(
        command,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert "Five minutes" in (tmp_path / "site" / "index.html").read_text(encoding="utf-8")
