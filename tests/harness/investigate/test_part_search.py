from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from numdrift.harness.investigate.questions.part_search import part_culprits, part_sentences
from numdrift.harness.observers.partition.partition_journal import PartCall
from numdrift.harness.records.results.findings import PartCarrier, PartScores

LABELS = ("cpu", "toy")
TANH = PartCall("aten::tanh", "train.py:12", "net.1")
SORT = PartCall("aten::sort", "", "")


FOUND = PartScores(
    step=3,
    backend="toy core",
    score=100.0,
    whole=98.0,
    asked=9,
    left_out=["aten::sort"],
    carriers=[PartCarrier([TANH], 90.0, 60.0), PartCarrier([SORT, TANH], 55.0, 1.0)],
)


def test_carriers_are_told_with_what_is_left_without_them() -> None:
    said = part_sentences(FOUND, LABELS)
    assert said == [
        "step 3 of cpu with the model's operators on toy core: z 98, compared with 100 in toy (9 partitions)",
        (
            "aten::tanh of net.1, train.py:12 carries the drift: with only this part on toy core, z is 90; moving it to "
            "the CPU takes z from 98 to 60"
        ),
        (
            "aten::sort with aten::tanh of net.1, train.py:12 carries the drift: with only this part on toy core, z is "
            "55; moving it to the CPU takes z from 60 to 1"
        ),
    ]


def test_a_drift_that_no_part_carries_is_told() -> None:
    (said,) = part_sentences(replace(FOUND, whole=2.0, carriers=[]), LABELS)
    assert "no single one of these operators carries the drift" in said
    assert "(those stay on the CPU: aten::sort)" in said


def test_why_there_is_no_answer_is_told() -> None:
    assert part_sentences(PartScores(3, reason="no model was called"), LABELS) == ["no model was called"]
    assert part_sentences(None, LABELS) == []


def test_carriers_beyond_rounding_are_culprits_with_both_proofs() -> None:
    first, second = part_culprits(FOUND, 20.0)
    assert (first.op, first.module, first.source) == ("aten.tanh", "net.1", "train.py:12")
    assert first.proof is not None
    gone = first.proof.swap_out
    assert (gone.score_before, gone.score_after) == (98.0, 60.0)
    assert (second.op, second.places, second.sites) == ("aten.sort", ["", "net.1"], 2)
    assert {one.significance for one in (first, second)} == {"beyond-rounding"}


@pytest.mark.parametrize(
    "changes",
    [
        {"score": 15.0},
        {"carriers": [PartCarrier([TANH], 10.0, 1.0)]},
        {"carriers": [PartCarrier([TANH], 90.0, 98.0)]},
    ],
    ids=["within rounding", "alone it does not carry it", "without it nothing is less"],
)
def test_without_both_proofs_there_is_no_culprit(changes: dict[str, Any]) -> None:
    assert not list(part_culprits(replace(FOUND, **changes), 20.0))
