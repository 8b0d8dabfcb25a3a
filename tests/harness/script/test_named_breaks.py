"""Graph breaks in words: each reason and line once."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from numdrift.harness.script.adopted.adoption import named_breaks

CALL, READ = ("no such call", "/home/me/model.py:105"), ("a read of a value", "/home/me/train.py:7")


@pytest.mark.parametrize(
    ("breaks", "words"),
    [
        ([], ""),
        ([CALL], "no such call at model.py:105"),
        ([("why", "/venv/site-packages/torch/nn/modules/rnn.py:3")], "why at torch/nn/modules/rnn.py:3"),
        ([CALL, READ, CALL, CALL], "no such call at model.py:105 (3 times); a read of a value at train.py:7"),
        ([("why", f"a.py:{line}") for line in range(5)], "why at a.py:0; why at a.py:1; why at a.py:2; and 2 more"),
    ],
)
def test_each_break_is_named_once(breaks: Sequence[tuple[str, str]], words: str) -> None:
    assert named_breaks(breaks) == words
