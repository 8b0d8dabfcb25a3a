"""What the documents say exists: every command, option and file that they name."""

from __future__ import annotations

import re
import shlex

import pytest
from click.testing import CliRunner

from numdrift.harness.cli.program import COMMANDS, program

from ..conftest import ROOT
from ..row_by_row import table

DOCUMENTS = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def _commands() -> list[str]:
    found = []
    for document in DOCUMENTS:
        for block in re.findall(r"```(?:console|bash)\n(.*?)```", document.read_text(), re.DOTALL):
            lines = [line.removeprefix("$ ") for line in block.splitlines()]
            found += [line for line in lines if line.startswith("numdrift ")]
    return found


@table("line", _commands())
def test_a_command_of_the_documents_is_understood(line: str) -> None:
    words = shlex.split(line, comments=True)[1:]
    own = words[: words.index("--")] if "--" in words else words
    names = [word for word in own if not word.startswith("-")]
    help_text = CliRunner().invoke(program, [names[0], "--help"]).output
    if names[0] in ("runs", "kernels", "graph", "snapshot"):
        help_text += CliRunner().invoke(program, [*names[:2], "--help"]).output
    if names[0] == "bundle":
        part = names[1] if names[1] in ("show", "open") else "make"
        help_text += CliRunner().invoke(program, ["bundle", part, "--help"]).output
    for option in (word for word in own if word.startswith("--")):
        assert option in help_text, option


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
