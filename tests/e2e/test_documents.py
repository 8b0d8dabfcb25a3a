"""What the documents say exists: every command is in the README, and every file that they name is there."""

from __future__ import annotations

import re

import pytest
from click.testing import CliRunner

from numdrift.harness.cli.program import COMMANDS, program

from ..conftest import ROOT

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_examples_and_is_in_the_readme(name: str) -> None:
    help_text = CliRunner().invoke(program, [name, "--help"]).output
    assert "Examples:" in help_text
    assert f"numdrift {name}" in (ROOT / "README.md").read_text()


def test_every_file_that_the_documents_name_is_there() -> None:
    for document in DOCUMENTS:
        text = document.read_text()
        for target in re.findall(r"\]\(([^)#:]+)\)", text):
            assert (document.parent / target).exists(), f"{document.name}: {target}"
        for path in re.findall(r"`((?:scripts|tests|harness|kernels|docs|reproducers|plots)/[\w/.]+\.\w+)`", text):
            assert (ROOT / path).exists(), f"{document.name}: {path}"
