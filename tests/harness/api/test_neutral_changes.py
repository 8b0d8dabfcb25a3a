"""The changes that are tried in a mode, and the sentence about what they did."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from numdrift.harness.api.neutral_changes import CHANGES, answer_of, mode_with
from numdrift.harness.records.modes.mode_spec import parse_mode
from numdrift.harness.records.results.neutral_matrix import NOTHING, NeutralMatrix, TriedChange

BY_NAME = {change.name: change for change in CHANGES}


@pytest.mark.parametrize(
    ("name", "reference", "mode"),
    [
        ("optimizer-fused", "cpu", "optimizer-fused=cpu,optimizer=fused"),
        ("threads-2", "cpu,env.X=1,seed=3", "threads-2=cpu,env.X=1,seed=3,threads=2"),
        ("compile", "cpu,threads=1", "compile,threads=1"),
        ("compile-dynamic", "cuda", "compile-dynamic=compile,device=cuda,dynamic=on"),
        ("without-cudnn", "cuda", "without-cudnn=cuda,cudnn=off"),
        ("checkpointing", "compile", "checkpointing=compile,checkpointing=on"),
        ("threads-1", "cpu,threads=1", None),  # already made
        ("without-cudnn", "cpu", None),  # without an effect
        ("without-onednn", "cuda", None),
        ("compile", "lazy", None),
        ("compile", "compile", None),
    ],
)
def test_a_change_is_a_key_of_the_references_mode(name: str, reference: str, mode: str | None) -> None:
    made = mode_with(BY_NAME[name], parse_mode(reference))

    assert made == (None if mode is None else parse_mode(mode))


def tried(outcomes: Sequence[str | None]) -> list[TriedChange]:
    return [TriedChange(f"c{number}", "", "", outcome, None, None, "") for number, outcome in enumerate(outcomes)]


@pytest.mark.parametrize(
    ("outcomes", "answer", "code"),
    [
        ([NOTHING, NOTHING], "none of the changes applies to this training", 0),
        (["identical", "rounding", NOTHING], "none of the 2 changes matters beyond rounding", 0),
        (["identical", "beyond-rounding"], "1 of the 2 changes matters to this training: c1", 1),
        (["nonfinite", "different-setup"], "2 of the 2 changes matter to this training: c0, c1", 1),
        (["rounding", "failed"], "none of the 2 changes matters beyond rounding; failed: c1", 1),
        ([None, "beyond-rounding"], "1 of the 2 changes matters to this training: c1; undecided: c0", 1),
    ],
)
def test_the_answer_names_what_matters(outcomes: Sequence[str | None], answer: str, code: int) -> None:
    changes = tried(outcomes)

    assert answer_of(changes) == answer
    assert NeutralMatrix("train.py", "cpu", changes, answer).exit_code == code


def test_the_names_of_the_changes_are_names_of_modes() -> None:
    assert len(BY_NAME) == len(CHANGES)
    assert all(parse_mode(f"{name}=cpu").name == name for name in BY_NAME)
