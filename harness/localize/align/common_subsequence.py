"""Common subsequences of two sequences: the elements that both have, in the same order."""

from __future__ import annotations

import difflib
from collections import Counter
from collections.abc import Hashable, Sequence

Match = tuple[int, int]
"""The positions of an element in both sequences."""

MOST_EDITS = 1000
"""The most elements that the sequences may have apart for a longest subsequence to be searched.

The search takes time and memory proportional to the square of this number; 1,000 edits take about a second."""


def common_subsequence(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[Match]:
    """Return a common subsequence, preferably one with long contiguous blocks.

    difflib chooses the longest block first, which may exclude many others. If b's first pass through a loop has an
    extra element, difflib matches a's passes with b's next ones, so that a whole pass remains on each side:

        a    n m t          n m t        n m t
        b    n x m t c      n m t c      n m t c

    The first block of difflib is "n m t", from the first pass of a and the second pass of b. So a longest subsequence
    is returned if it is longer than that of difflib.

    The common beginning and the common end are part of a longest subsequence. difflib does not see them: its time grows
    with the square of the number of equal elements.
    """
    begin, shorter = 0, min(len(a), len(b))
    while begin < shorter and a[begin] == b[begin]:
        begin += 1
    end = 0
    while end < shorter - begin and a[-1 - end] == b[-1 - end]:
        end += 1
    middle = _middle(a[begin : len(a) - end], b[begin : len(b) - end])
    return [
        *((n, n) for n in range(begin)),
        *((begin + i, begin + j) for i, j in middle),
        *((len(a) - end + n, len(b) - end + n) for n in range(end)),
    ]


def _middle(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[Match]:
    """Return a common subsequence of two sequences that neither begin nor end with the same element."""
    # autojunk ignores frequent elements as noise, and fifty equal layers are frequent
    matcher = difflib.SequenceMatcher(None, a, b, autojunk=False)
    blocks = [(block.a + k, block.b + k) for block in matcher.get_matching_blocks() for k in range(block.size)]
    if len(blocks) == (Counter(a) & Counter(b)).total():
        return blocks
    longest = _longest(a, b)
    return blocks if longest is None or len(longest) <= len(blocks) else longest


def _longest(a: Sequence[Hashable], b: Sequence[Hashable]) -> list[Match] | None:
    """Return a longest common subsequence, None if the sequences are more than MOST_EDITS elements apart.

    This is the greedy algorithm of E. W. Myers, "An O(ND) Difference Algorithm and Its Variations" (Algorithmica 1,
    1986). `furthest[k]` is the furthest position in `a` that a path with `edits` edits reaches on the diagonal k, on
    which a's position is k more than b's. A path goes along equal elements at no cost.
    """
    numbers: dict[Hashable, int] = {}
    first, second = ([numbers.setdefault(element, len(numbers)) for element in elements] for elements in (a, b))
    furthest, history = {1: 0}, list[dict[int, int]]()
    for edits in range(min(len(a) + len(b), MOST_EDITS) + 1):
        reached = dict[int, int]()
        for k in range(-edits, edits + 1, 2):
            down = k == -edits or (k != edits and furthest[k - 1] < furthest[k + 1])
            x = furthest[k + 1] if down else furthest[k - 1] + 1
            while x < len(first) and 0 <= x - k < len(second) and first[x] == second[x - k]:
                x += 1
            reached[k] = x
            if x >= len(first) and x - k >= len(second):
                return _path([*history, furthest], k, len(first))
        history.append(furthest)
        furthest = reached
    return None


def _path(history: Sequence[dict[int, int]], k: int, x: int) -> list[Match]:
    """Return the matches of the path that ends at the position x of the diagonal k."""
    matches: list[Match] = []
    for edits in range(len(history) - 1, -1, -1):
        furthest = history[edits]
        down = k == -edits or (k != edits and furthest[k - 1] < furthest[k + 1])
        begin = furthest[k + 1] if down else furthest[k - 1] + 1
        while x > begin:
            x -= 1
            matches.append((x, x - k))
        k, x = (k + 1, begin) if down else (k - 1, begin - 1)
    return matches[::-1]
