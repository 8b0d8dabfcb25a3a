"""Investigations say what they said before: JSON and printed words, against the golden files beside this one.

    scripts/test --exhaustive tests/golden                            # this checkout's numdrift
    PYTHONPATH=/another/checkout/src python -m pytest tests/golden    # another one's

Where a change is meant, `python -m tests.golden.make` writes the files again. `cases.py` says what is run, `normalise.py`
what is not compared.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from .cases import CASES, run_case
from .make import GOLDENS
from .normalise import as_json, differences, normalised, normalised_text, text_differences


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("name", CASES)
def test_an_investigation_says_what_it_said(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    golden = json.loads((GOLDENS / f"{name}.json").read_text(encoding="utf-8"))
    printed = (GOLDENS / f"{name}.txt").read_text(encoding="utf-8")
    # when
    said = run_case(case, tmp_path)
    # then
    found = json.loads(as_json(normalised(said)))
    lines = differences(golden, found) + text_differences(printed, normalised_text(case, said))
    assert not lines, "\n".join([f"{name} says something else, on the right as it is now:", *lines])


def test_every_case_has_its_golden_files_and_no_other_is_there() -> None:
    for kind in ("json", "txt"):
        assert {path.stem for path in GOLDENS.glob(f"*.{kind}")} == set(CASES)
