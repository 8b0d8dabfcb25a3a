"""Sentences about the inputs that numdrift pins, and on which a script depends."""

from __future__ import annotations

from collections.abc import Sequence

from ...drift.recorded_drift import GENERATORS as CALLED
from ...records.results.findings import HASH, PinnedInput
from ...records.run.surroundings import HASH_SEED
from .culprit_words import from_here

MOST_LINES = 3
"""The largest number of lines that a sentence names."""


def pinned_sentence(pinned: PinnedInput) -> str:
    """State what numdrift pins, the experiment that shows the script's dependence on it, and what to do."""
    if pinned.input == HASH:
        lines = [from_here(line) for line in pinned.lines[:MOST_LINES]]
        more = len(pinned.lines) - len(lines)
        which = f" ({', '.join(lines)}{f' and {more} more' if more else ''})" if lines else ""
        return (
            f"the script depends on the hash seed of Python, which numdrift sets to {pinned.value}: with "
            f"{HASH_SEED}={pinned.other}, {pinned.text}. The order of a set of strings and the value of hash() depend "
            f"on this seed{which}: sort what the script takes from a set (sorted(...)), or set {HASH_SEED}"
        )
    calls = [CALLED[name][1] for name in pinned.generators if name in CALLED]
    how = f" ({', '.join(calls)})" if calls else ""
    return (
        f"the script draws from {_names(pinned.generators)} before it seeds {_it(pinned.generators)}, and numdrift "
        f"sets the seed {pinned.value}: with the seed {pinned.other}, {pinned.text}. Set the seed in the script before "
        f"the first draw{how}"
    )


def dependence_of(pinned: Sequence[PinnedInput]) -> str:
    """Name the pinned inputs on which a script depends, as the end of an answer; "" if there are none."""
    inputs = [
        "the hash seed of Python" if entry.input == HASH else f"the seed of {_names(entry.generators)}"
        for entry in pinned
    ]
    if not inputs:
        return ""
    which = " and on ".join(inputs)
    return f"apart from the modes, the script depends on {which}, which numdrift sets (see the notes)"


def _names(generators: Sequence[str]) -> str:
    called = [CALLED[name][0] if name in CALLED else f"the generator of {name}" for name in generators]
    return " and ".join(called) or "a generator"


def _it(generators: Sequence[str]) -> str:
    return "them" if len(generators) > 1 else "it"
