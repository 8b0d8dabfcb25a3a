"""The cases of the upstream benchmark, and its page."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from .page import KINDS, Answer, is_right, page

HERE = Path(__file__).parent
CASES: list[dict[str, Any]] = json.loads((HERE / "cases.json").read_text(encoding="utf-8"))


def test_every_case_has_a_script_and_every_script_is_a_case() -> None:
    numbers = [case["number"] for case in CASES]
    assert len(numbers) == len(set(numbers)) >= 30
    assert {f"issue_{number}.py" for number in numbers} == {path.name for path in (HERE / "cases").glob("*.py")}


@pytest.mark.parametrize("case", CASES, ids=lambda case: str(case["number"]))
def test_a_case_names_its_issue_and_what_is_expected(case: dict[str, Any]) -> None:
    docstring = ast.get_docstring(ast.parse((HERE / f"cases/issue_{case['number']}.py").read_text(encoding="utf-8")))
    assert docstring is not None
    assert docstring.startswith(f"pytorch#{case['number']}: ")
    assert case["url"].endswith(f"/pytorch/pytorch/issues/{case['number']}")
    assert case["expected"] in (*KINDS, "not on this machine")
    assert case["measured"]
    assert case["upstream"]


def test_the_page_counts_what_is_right() -> None:
    cases = [
        {"number": 1, "title": "a | b", "upstream": "a bug", "expected": "fault", "measured": "9 against 10"},
        {"number": 2, "title": "c", "upstream": "precision", "expected": "rounding", "measured": "1e-7"},
    ]
    answers = [
        Answer(1, "beyond-rounding", "", "aten.mul", 12.0, "inductor lowerings", 9.0),
        Answer(2, "beyond-rounding", "", "", 8.0, "no issue found", 7.0),
    ]
    text = page(cases, answers, "measured somewhere")
    assert "- fault: 1 of 1 right" in text
    assert "- rounding: 0 of 1 right" in text
    assert "CompilerBisector named a backend or a part of one for 1 of 2" in text
    assert "a / b" in text
    assert [is_right(case, answer) for case, answer in zip(cases, answers, strict=True)] == [True, False]
