"""The sentence of every outcome, as docs/reference/answers.md has them."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numdrift.harness.records.results.findings import Findings, PairFindings, TrainedWithout
from numdrift.harness.report.answer import answer_of, answers_of
from numdrift.harness.report.markdown import text

from .outcomes import FAULT, OUTCOMES, ROUNDING, cause

DOCUMENT = Path(__file__).parents[3] / "docs" / "reference" / "answers.md"


def test_the_document_has_the_sentence_of_every_outcome() -> None:
    rows = [f"| {name} | {pair.exit_code} | {text(answer_of(pair).sentence)} |" for name, pair in OUTCOMES.items()]
    written = [line for line in DOCUMENT.read_text(encoding="utf-8").splitlines() if line.startswith("| ")][1:]
    assert written == rows, "the table is to be:\n" + "\n".join(rows)


@pytest.mark.parametrize("pair", OUTCOMES.values(), ids=list(OUTCOMES))
def test_a_sentence_says_what_and_what_to_do_without_a_number_of_the_score(pair: PairFindings) -> None:
    answer = answer_of(pair)
    assert answer.good == (pair.exit_code == 0)
    assert not answer.sentence.endswith(".") and "None" not in answer.sentence and "  " not in answer.sentence
    assert pair.b in answer.what or pair.verdict == "nonfinite"
    assert answer.todo and answer.sure
    if pair.score and pair.verdict in ("rounding", "beyond-rounding"):
        assert f"{pair.score:.3g}" not in answer.sentence  # the numbers are in `sure`, with what they are compared with
        assert pair.score == float("inf") or f"{pair.score:.3g}" in answer.sure


ENVELOPES = (None, True, False)


@given(
    st.sampled_from(
        ["rounding", "beyond-rounding", "nonfinite", "nondeterministic", "different-setup", "failed", None]
    ),
    st.sampled_from(["culprit", "suspect", "none"]),
    st.one_of(st.none(), st.floats(0, 1)),
    st.booleans(),
    st.sampled_from(ENVELOPES),
    st.sampled_from(["kernel", "structure", "arguments"]),
)
def test_no_sentence_claims_more_than_an_experiment_has_shown(
    verdict: str | None, status: str, explained: float | None, identical: bool, inside: bool | None, kind: str
) -> None:
    """Each claim, and what must have been seen for it."""
    culprits = () if status == "none" else (cause(status=status, kind=kind, significance=verdict),)
    without = TrainedWithout(identical=identical, inside=True if identical else inside)
    shown = replace(ROUNDING if verdict == "rounding" else FAULT, verdict=verdict, explained=explained)
    pair = replace(shown, culprits=culprits, without=without if status == "culprit" else None)
    answer = answer_of(pair)
    proven = status == "culprit" and verdict in ("rounding", "beyond-rounding")
    left_over = pair.without is not None and pair.without.inside is False
    claims = {
        "a proven fault": proven and verdict == "beyond-rounding",
        "swapping": proven,
        "bit for bit": proven and identical,
        "explains all of the drift": proven and explained is not None and explained >= 0.995,
        "explains all of the drift;": not left_over,
        "nothing to do": verdict == "rounding",
        "it is not the whole cause": proven and left_over,
    }
    said = f"{answer.sentence} {answer.sure if proven else answer.what}"
    assert [words for words, holds in claims.items() if words in said and not holds] == []
    if left_over and "explains" in answer.what:
        assert "of the drift of step" in answer.what


def test_what_is_rounding_beside_a_fault_is_not_called_a_fault() -> None:
    wrong = cause(op="aten.mul", significance="beyond-rounding", places=())
    answer = answer_of(replace(FAULT, culprits=(cause(), wrong)))
    assert "mul" in answer.what and "tanh_backward" not in answer.what
    # a suspect is not a cause
    answer = answer_of(replace(FAULT, culprits=(replace(wrong, status="suspect"),)))
    assert "not proven" in answer.what and "mul" not in answer.what


def test_other_data_are_told_from_other_draws() -> None:
    use = "argument 2 (target) of aten.binary_cross_entropy (train.py:11)"
    data = cause(
        kind="setup", op=None, reasons=("the step starts from different data", use), significance="beyond-rounding"
    )
    assert f"starts from different data ({use})" in answer_of(replace(FAULT, culprits=(data,))).what
    draw = replace(data, op="aten.randn", reasons=())
    assert "draws different random numbers in randn" in answer_of(replace(FAULT, culprits=(draw,))).what


def test_many_causes_are_counted() -> None:
    answer = answer_of(
        replace(ROUNDING, culprits=tuple(cause(op=f"aten.op{number}", share_of_drift=0.2) for number in range(5)))
    )
    assert (
        "op0" in answer.what
        and "op1" in answer.what
        and "op2" not in answer.what
        and ", with 3 more causes" in answer.what
    )


def test_one_that_makes_most_of_the_drift_is_named_alone() -> None:
    small = cause(op="aten.sum", share_of_drift=0.02)
    whole = TrainedWithout(identical=True)
    answer = answer_of(replace(ROUNDING, culprits=(cause(share_of_drift=0.98), small), without=whole))
    assert "sum" not in answer.what and ", with 1 more cause;" in answer.what
    assert answer.sure.endswith("trained to the end with them replaced, compile equals cpu bit for bit")


def test_causes_that_make_next_to_nothing_are_not_named() -> None:
    answer = answer_of(replace(ROUNDING, explained=0.001))
    assert "tanh_backward" not in answer.what and "is not proven" in answer.what
    assert (
        "in module 1 and module 0.weight"
        in answer_of(replace(ROUNDING, culprits=(cause(places=("1", "0.weight")),))).what
    )


def test_those_that_need_somebody_come_first() -> None:
    found = Findings("train.py", "cpu", {}, [OUTCOMES["equal bits"], FAULT, ROUNDING])
    assert [pair.verdict for pair, _ in answers_of(found)] == ["beyond-rounding", "identical", "rounding"]
