"""A fault whose cause cannot be found where a mode does not repeat is found in deterministic modes."""

from __future__ import annotations

from pathlib import Path

import pytest

import numdrift
from numdrift.harness.investigate.experiments.investigation_plan import InvestigationRequest
from numdrift.harness.investigate.questions.ops import Ops
from numdrift.harness.investigate.questions.question import Inquiry
from numdrift.harness.investigate.questions.question_table import QUESTIONS

SCRIPT = Path(__file__).parent / "scripts/any_order_unless_deterministic.py"


class OnlyThere(Ops):
    """The question about ops, which is asked of deterministic modes only."""

    def asks(self, inquiry: Inquiry, plan: InvestigationRequest) -> bool:
        return inquiry.evidence.a.path.parent.name == "deterministic-bad" and super().asks(inquiry, plan)


def test_causes_come_from_deterministic_modes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(QUESTIONS, "ops", OnlyThere())
    found = numdrift.investigate(SCRIPT, modes=["cpu", "bad=cpu,env.FAULT=1"], out=tmp_path, scripts=False)
    # the verdict is that of the modes as they are
    [pair] = found.pairs
    assert (pair.verdict, pair.first_significant_step) == ("beyond-rounding", 0)
    assert any(text.startswith("bad does not repeat its own bits: aten.mm") for text in pair.text)
    # and the cause is that of the deterministic ones, which says so
    line = next(number for number, text in enumerate(SCRIPT.read_text().splitlines(), 1) if "1.001" in text)
    [culprit] = pair.culprits
    assert (
        culprit.op == "aten.mul"
        and str(culprit.source).endswith(f"{SCRIPT.name}:{line}")
        and culprit.status == "culprit"
    )
    [sentence] = [text for text in pair.text if "deterministic=on" in text]
    assert sentence.startswith("bad and cpu were trained again with deterministic=on (")
    assert "its causes are proven; they are those named here" in sentence
    assert (tmp_path / SCRIPT.stem / "evidence/deterministic-bad/investigation.json").exists()
