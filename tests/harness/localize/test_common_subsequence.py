"""Common subsequences, against the textbook's table of all prefixes."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from numdrift.harness.localize.align import common_subsequence as module
from numdrift.harness.localize.align.common_subsequence import common_subsequence

WORDS = st.text("abcd", max_size=14)


def longest(a: Sequence[str], b: Sequence[str]) -> int:
    lengths = [[0] * (len(b) + 1) for _ in range(len(a) + 1)]
    for i, left in enumerate(a):
        for j, right in enumerate(b):
            lengths[i + 1][j + 1] = lengths[i][j] + 1 if left == right else max(lengths[i][j + 1], lengths[i + 1][j])
    return lengths[-1][-1]


@given(WORDS, WORDS)
def test_no_common_subsequence_is_longer(a: str, b: str) -> None:
    matches = common_subsequence(a, b)
    assert len(matches) == longest(a, b)
    assert all(a[i] == b[j] for i, j in matches)
    assert all(i < k and j < n for (i, j), (k, n) in pairwise(matches))


def test_an_extra_op_in_the_first_pass_of_a_loop_does_not_shift_the_others() -> None:
    a, b = "nmt" * 3, "nxmtc" + "nmtc" * 2
    assert [b[j] for _, j in common_subsequence(a, b)] == list(a)


def test_sequences_that_are_far_apart_get_the_blocks_of_difflib(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_EDITS", 0)
    assert common_subsequence("ynmtnmt", "znxmtcnmtc") == [(1, 6), (2, 7), (3, 8)]
