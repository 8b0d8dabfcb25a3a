"""The files exist that the map and the sample of mutants name."""

from __future__ import annotations

import json
import re

from ..levels import ROOT

FILE = re.compile(r"`((?:harness|kernels|plots|tests|scripts|docs|reproducers)/[\w./-]+\.(?:py|md|html|toml))`")

TESTS = re.compile(r"`tests/[\w./-]+`")


def test_each_file_that_the_map_names_exists() -> None:
    named = set(FILE.findall((ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")))
    assert len(named) > 100
    assert sorted(name for name in named if not (ROOT / name).exists()) == []


def test_each_change_has_its_files_and_tests() -> None:
    section = (
        (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8").partition("## Where the next change goes")[2]
    )
    rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("|")][2:]
    assert len(rows) > 15 and all(len(row) == 4 for row in rows)
    assert [row[0] for row in rows if not TESTS.search(row[3])] == []


def test_each_file_that_the_sample_of_mutants_names_exists() -> None:
    mutants = json.loads((ROOT / "scripts" / "mutants.json").read_text(encoding="utf-8"))["mutants"]
    assert len(mutants) > 100
    assert sorted({mutant["file"] for mutant in mutants if not (ROOT / mutant["file"]).exists()}) == []
