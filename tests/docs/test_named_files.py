"""The files exist that the map, the guide for contributors and the sample of mutants name."""

from __future__ import annotations

import json
import re

import pytest

from ..levels import ROOT

FILE = re.compile(r"`((?:harness|kernels|plots|tests|scripts|docs|reproducers)/[\w./-]+\.(?:py|md|html|toml))`")


@pytest.mark.parametrize("page", ["CONTRIBUTING.md", "docs/architecture.md"])
def test_each_file_that_a_page_names_exists(page: str) -> None:
    named = set(FILE.findall((ROOT / page).read_text(encoding="utf-8")))
    assert len(named) > 10
    assert sorted(name for name in named if not (ROOT / name).exists()) == []


def test_the_six_changes_have_their_files() -> None:
    section = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").partition("## Where does this go?")[2]
    rows = [line for line in section.partition("\n## ")[0].splitlines() if line.startswith("| a ")]
    assert len(rows) == 6 and all(FILE.search(row) for row in rows)


def test_each_file_that_the_sample_of_mutants_names_exists() -> None:
    mutants = json.loads((ROOT / "scripts" / "mutants.json").read_text(encoding="utf-8"))["mutants"]
    assert len(mutants) > 100
    assert sorted({mutant["file"] for mutant in mutants if not (ROOT / mutant["file"]).exists()}) == []
