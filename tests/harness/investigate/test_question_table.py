"""A new way to look for causes is one file and one line in the table of questions: here one that only this test asks."""

from __future__ import annotations

import json
import shutil
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

import numdrift
from numdrift.harness.drift.verdict import worst_of
from numdrift.harness.investigate.evidence.pair_evidence import PairEvidence
from numdrift.harness.investigate.evidence.pair_scores import score_of, spec_of
from numdrift.harness.investigate.experiments.investigation_plan import InvestigationRequest
from numdrift.harness.investigate.experiments.laboratory import Laboratory, Round, begun_in
from numdrift.harness.investigate.questions.question import Inquiry, QuestionAnswer, mode_culprit
from numdrift.harness.investigate.questions.question_table import LAST_QUESTIONS, QUESTIONS
from numdrift.harness.records.results import experiment
from numdrift.harness.records.results.experiment import ExperimentKind

TINY = Path(__file__).parents[2] / "e2e" / "scripts" / "tiny.py"


class OwnKernels:
    """Whether the drift goes without the kernels that a mode swaps in: its step once more with torch's own."""

    def asks(self, inquiry: Inquiry, plan: InvestigationRequest) -> bool:
        return bool(spec_of(inquiry.evidence.b).kernel) and inquiry.pair.verdict == "beyond-rounding"

    def look(self, laboratory: Laboratory, inquiries: Sequence[Inquiry], plan: InvestigationRequest) -> None:
        plans = []
        for one in inquiries:
            b = one.evidence.b
            spec = replace(spec_of(b), kernel={})
            plans.append(begun_in(one.states, b, one.experiment("plain"), [one.step], spec=spec))
        laboratory.make(Round("with torch's own kernels", plans))

    def answer(self, evidence: PairEvidence, threshold: float, step: int | None) -> QuestionAnswer:
        for made, run in evidence.experiments("b", "plain").items():
            assert made.step is not None and evidence.forced is not None
            before, after = (score_of(evidence, one, made.step) for one in (evidence.forced, run))
            if before is not None and after is not None and worst_of([after]) <= threshold:
                drift = worst_of([before]), worst_of([after])
                said = f"step {made.step} with torch's own kernels: z {drift[1]:.3g} instead of {drift[0]:.3g}"
                culprit = mode_culprit(
                    kind="own-kernels",
                    step=made.step,
                    name="kernels of the mode's own",
                    reasons=["torch's own take the drift away"],
                    before=drift[0],
                    after=drift[1],
                    threshold=threshold,
                    why=said,
                )
                return QuestionAnswer([culprit], sentences=[said])
        return QuestionAnswer()


def test_names_of_questions_are_of_one_table_each() -> None:
    assert not QUESTIONS.keys() & LAST_QUESTIONS.keys()


@pytest.mark.slow
@pytest.mark.usefixtures("trainings_are_forked")
def test_a_question_in_the_table_is_asked_and_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(QUESTIONS, "own_kernels", OwnKernels())
    monkeypatch.setitem(experiment.KINDS, "plain", ExperimentKind("{run}-plain-{reference}-{step}", "mode"))
    shutil.copy(TINY, tmp_path)
    # when
    found = numdrift.investigate(
        tmp_path / "tiny.py",
        arguments=["--steps", "3"],
        out=tmp_path / "runs",
        name="i",
        scripts=False,
        modes=["cpu", "bad=cpu,kernel.tanh_backward=bf16"],
        confirm=False,
    )
    # then its experiment was made of the pair that it asked about, and its manifest says what it is
    evidence = tmp_path / "runs" / "i" / "evidence"
    [made] = (path for path in evidence.glob("*-plain-*") if path.is_dir())
    assert made.name == "bad-plain-cpu-0"
    told = json.loads((made / "run.json").read_text())["experiment"]
    assert told == {"kind": "plain", "run": "bad", "reference": "cpu", "step": 0, "detail": ""}
    # and its culprit stands among the findings, behind the op's, its sentence among the words, and both in the file
    pair = json.loads((tmp_path / "runs" / "i" / "investigation.json").read_text())["pairs"][0]
    assert [one["kind"] for one in pair["culprits"]] == ["kernel", "own-kernels"]
    culprit = pair["culprits"][1]
    assert culprit["name"] == "kernels of the mode's own"
    assert culprit["proof"]["swap_out"]["score_after"] == 0.0 < culprit["proof"]["swap_out"]["score_before"]
    assert "step 0 with torch's own kernels: z 0 instead of" in "\n".join(pair["text"])
    # when the same is asked again, then nothing is run anew, and the answer is there
    again = numdrift.investigate(tmp_path / "runs" / "i", scripts=False, confirm=False)
    assert again.content["training_runs"] == 0
    assert [one.kind for one in again.pairs[0].culprits] == ["kernel", "own-kernels"]
    assert found.pairs[0].text == again.pairs[0].text
